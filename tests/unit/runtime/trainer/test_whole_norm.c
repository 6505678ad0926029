/*
 * test_whole_norm.c - steps of models with batch norms and residuals on device cuda: what its
 * operations do in one pass over memory gives the bits of a device that lacks them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/tested_device.h"

enum { STEPS = 5 }; /* the last one of a short batch */

static const struct dp_device *cuda;
static struct dp_device without; /* the same, but for some operations */
static struct dp_ops few;

static dp_status create_without(const struct dp_device *device, int threads, struct dp_stream **out)
{
    DP_TRY(cuda->stream_create(device, threads, out));
    few = *(*out)->ops;
    few.norm_statistics = NULL;
    few.norm_backward = NULL;
    (*out)->ops = &few;
    return DP_OK;
}

static void train(const char *layers, const char *const *sets, const struct dp_device *device,
                  struct outcome *out, struct small_run *run)
{
    assert_int_equal(small_run_create(run, layers, sets), 0);
    run->device = device;
    assert_int_equal(small_train(run, 1, STEPS, NULL, out), 0);
}

static void check_same(const char *layers, const char *const *sets)
{
    struct outcome with, one_by_one;
    struct small_run run;

    train(layers, sets, &without, &one_by_one, &run);
    small_run_destroy(&run);
    train(layers, sets, cuda, &with, &run);
    if (DP_CUDA_ON_HOST) {
        assert_memory_equal(with.hash, one_by_one.hash, sizeof(with.hash));
    } else { /* sums of another kernel come in another order */
        assert_true(small_distance(&run, &with, &one_by_one) < 1e-3);
    }
    assert_true(with.evaluation[0].loss - one_by_one.evaluation[0].loss < 1e-3);
    outcome_fini(&with);
    outcome_fini(&one_by_one);
    small_run_destroy(&run);
}

/* Shortcuts that are the identity, that have layers, or a batch norm; with relu after and without;
 * two in a row; one in another; bodies that end in another layer; after a pool, at the end. */
static const char *const models[] = {
    "[conv2d: {filters: 8, kernel: 3, bias: false}, batchnorm: {}, relu: {},"
    " residual: {body: [conv2d: {filters: 8, kernel: 3, padding: 1, bias: false}, batchnorm: {},"
    " relu: {}, conv2d: {filters: 8, kernel: 3, padding: 1, bias: false}, batchnorm: {}]},"
    " relu: {},"
    " residual: {body: [conv2d: {filters: 12, kernel: 3, padding: 1, stride: 2, bias: false},"
    " batchnorm: {}, relu: {}, conv2d: {filters: 12, kernel: 1, bias: false}, batchnorm: {}],"
    " shortcut: [conv2d: {filters: 12, kernel: 1, stride: 2, bias: false}, batchnorm: {}]},"
    " relu: {}, global_avgpool: {}, dense: {units: 5}]",

    "[conv2d: {filters: 8, kernel: 3}, maxpool: {size: 2},"
    " residual: {body: [conv2d: {filters: 8, kernel: 1}, batchnorm: {}]},"
    " residual: {body: [conv2d: {filters: 8, kernel: 1}, batchnorm: {}]}, relu: {},"
    " residual: {body: [residual: {body: [conv2d: {filters: 8, kernel: 1}, batchnorm: {}]},"
    " relu: {}, conv2d: {filters: 8, kernel: 1}, batchnorm: {}], shortcut: [relu: {}]}, relu: {},"
    " residual: {body: [batchnorm: {}, relu: {}, conv2d: {filters: 8, kernel: 1}]}, relu: {},"
    " flatten: {}, dense: {units: 5}]",
};

static void one_pass_gives_the_bits_of_several(void **state)
{
    static const char *const plain[] = {NULL}, *const bf16[] = {"train.precision=bf16", NULL},
                             *const parts[] = {"train.micro_batch=20", NULL},
                             *const both[] = {"train.precision=fp16", "device.graph=off", NULL};
    static const char *const *const settings[] = {plain, bf16, parts, both};
    (void)state;

    for (size_t i = 0; i < 8; i++) {
        check_same(models[i / 4], settings[i % 4]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pass_gives_the_bits_of_several),
    };

    if (dp_device_find(tested_device_or("ref"), &cuda) != DP_OK || cuda->host_memory) {
        puts("skipped: it is about device cuda");
        return 77;
    }
    without = *cuda;
    without.stream_create = create_without;
    return cmocka_run_group_tests_name("whole norm", tests, NULL, NULL);
}
