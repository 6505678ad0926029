/* test_float_samples.c - samples of float32 train as bytes do that mean the same numbers, to the
 * bit, however rows are cut into passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/small_run.h"
#include "tests/support/tested_device.h"

enum { STEPS = 6 };

/* The same samples, as float32. The mean and the deviation in 255ths of theirs are set by the
 * caller. */
static void widen(struct small_run *run)
{
    const size_t each = run->data.sample_bytes;
    float *floats = dp_zalloc((SMALL_TRAIN + SMALL_TEST) * each, sizeof(*floats));

    assert_non_null(floats);
    for (size_t i = 0; i < (SMALL_TRAIN + SMALL_TEST) * each; i++) {
        floats[i] = (float)run->bytes[i];
    }
    dp_free(run->bytes);
    run->bytes = (uint8_t *)floats;
    run->data.sample_bytes = each * sizeof(float);
    run->data.train_images = run->bytes;
    run->data.test_images = run->bytes + (size_t)SMALL_TRAIN * run->data.sample_bytes;
    run->model->float_samples = true;
}

static void train_both(const char *layers, const char *set, int ranks)
{
    const char *const narrow[] = {set, NULL};
    const char *const wide[] = {set, "data.normalize.mean=[102]", "data.normalize.std=[63.75]",
                                NULL};
    struct outcome bytes, floats;
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, narrow), 0);
    assert_int_equal(small_train(&run, ranks, STEPS, NULL, &bytes), 0);
    small_run_destroy(&run);
    assert_int_equal(small_run_create(&run, layers, wide), 0);
    widen(&run);
    assert_int_equal(small_train(&run, ranks, STEPS, NULL, &floats), 0);
    small_run_destroy(&run);
    assert_memory_equal(bytes.hash, floats.hash, sizeof(bytes.hash[0]) * STEPS);
    assert_true(bytes.evaluation[0].loss == floats.evaluation[0].loss);
    assert_true(bytes.evaluation[0].accuracy == floats.evaluation[0].accuracy);
    outcome_fini(&bytes);
    outcome_fini(&floats);
}

static void floats_train_as_bytes_of_the_same_meaning(void **state)
{
    (void)state;
    train_both(small_conv, "train.eval_every=0", 1);
    train_both(small_dense, "train.eval_every=0", 3);
    train_both(small_own_norm, "train.micro_batch=5", 2);
    train_both(small_dense, "train.lanes=4", 2);
    train_both(small_dense, "train.precision=bf16", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_train_as_bytes_of_the_same_meaning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
