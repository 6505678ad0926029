/* test_layer_times.c - what layers are said to do in a step that has several passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/trace.h"
#include "kernels/ref/ops_ref.h"
#include "runtime/trainer/compute/layer_times.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

/* The bytes of all layers in the first step. */
static size_t sums_bytes(struct dp_group *group, const void *arg)
{
    static double seen[2];
    const struct small_run *const runs = arg;
    size_t wrong = 0;

    for (int i = 0; i < 2; i++) {
        struct dp_layer_times times = {.layers = NULL};
        struct dp_step_report report;
        struct dp_trainer *t = NULL;
        wrong += small_run_trainer(&runs[i], group, 1, &t) != DP_OK ||
                 dp_trainer_step(t, &report) != DP_OK ||
                 dp_layer_times_measure(t, 0.0, &times) != DP_OK || times.count == 0;
        for (int k = 0; k < times.count; k++) {
            seen[i] += times.layers[k].bytes;
        }
        dp_free(times.layers);
        dp_trainer_destroy(t);
    }
    return wrong + (seen[0] != 1.5 * seen[1]);
}

/* Three rows are passes of one and two; the last one is measured. */
static void a_step_is_so_many_of_the_pass_that_is_measured(void **state)
{
    static const char *const passes[] = {"train.global_batch=3", "train.micro_batch=2", NULL};
    static const char *const alone[] = {"train.global_batch=2", NULL};
    struct small_run runs[2];
    (void)state;

    assert_int_equal(small_run_create(&runs[0], small_dense, passes), 0);
    assert_int_equal(small_run_create(&runs[1], small_dense, alone), 0);
    assert_int_equal(on_local_ranks(1, sums_bytes, runs), 0);
    small_run_destroy(&runs[0]);
    small_run_destroy(&runs[1]);
}

static size_t measures_no_larger_batch(struct dp_group *group, const void *run)
{
    struct dp_layer_times times = {.layers = NULL};
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = small_run_trainer(run, group, 1, &t) != DP_OK ||
                   dp_trainer_step(t, &report) != DP_OK ||
                   dp_layer_times_measure(t, 0.0, &times) != DP_OK || times.count == 0;

    wrong += times.larger_cost != 0.0;
    dp_free(times.layers);
    dp_trainer_destroy(t);
    return wrong;
}

static void with_lanes_no_larger_batch_is_measured(void **state)
{
    static const char *const lanes[] = {"train.global_batch=8", "train.lanes=2", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, lanes), 0);
    assert_int_equal(on_local_ranks(1, measures_no_larger_batch, &run), 0);
    small_run_destroy(&run);
}

static struct {
    const struct dp_device *ref;
    struct dp_device device;
    struct dp_ops ops;
} slow;

/* As if it computed for four milliseconds. */
static dp_status slow_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                              const void *b, size_t rows, size_t in, size_t out,
                              enum dp_activation act)
{
    const uint64_t end_ns = dp_now_ns() + 4000000;

    while (dp_now_ns() < end_ns) {
    }
    return dp_ref_ops.dense_forward(s, y, x, w, b, rows, in, out, act);
}

static dp_status slow_stream(const struct dp_device *device, int threads, struct dp_stream **out)
{
    DP_TRY(slow.ref->stream_create(device, threads, out));
    (*out)->ops = &slow.ops;
    return DP_OK;
}

static void of_slow_passes_no_larger_batch_is_measured(void **state)
{
    static const char *const sets[] = {"train.global_batch=2", "device.name=ref", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    slow.ref = run.device;
    slow.ops = dp_ref_ops;
    slow.ops.dense_forward = slow_forward;
    slow.device = *slow.ref;
    slow.device.stream_create = slow_stream;
    run.device = &slow.device;
    assert_int_equal(on_local_ranks(1, measures_no_larger_batch, &run), 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_so_many_of_the_pass_that_is_measured),
        cmocka_unit_test(of_slow_passes_no_larger_batch_is_measured),
        cmocka_unit_test(with_lanes_no_larger_batch_is_measured),
    };
    return cmocka_run_group_tests_name("layer_times", tests, NULL, NULL);
}
