/* test_resume_early.c - resuming runs that have stopped early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/whole_run.h"

/* With a learning rate of 0 nothing improves: after two evaluations of patience it ends. */
static void an_early_stopped_run_continues_only_with_more_patience(void **state)
{
    static const char *const kept[] = {"metrics.jsonl", "run.json",
                                       "checkpoints/step-00000012/state.json"};
    struct dp_run_options options = options_of("out", 0, NULL);
    struct stat before[3], after[3];
    (void)state;

    options.sets[options.set_count++] = "optimizer.lr=0";
    options.sets[options.set_count++] = "early_stop.patience=2";
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(whole_run(&options), DP_OK);
        options.resume = "auto";
        for (int i = 0; i < 3; i++) {
            char path[128];
            (void)snprintf(path, sizeof(path), "out/%s", kept[i]);
            assert_int_equal(stat(scratch_path(path), turn == 0 ? &before[i] : &after[i]), 0);
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(after[i].st_ino, before[i].st_ino);
        assert_int_equal(after[i].st_size, before[i].st_size);
        assert_int_equal(after[i].st_mtim.tv_nsec, before[i].st_mtim.tv_nsec);
    }
    options.sets[1] = "early_stop.patience=4";
    assert_int_equal(whole_run(&options), DP_OK);
    assert_int_equal(access(scratch_path("out/checkpoints/step-00000020"), F_OK), 0);
}

/* A run resumed with less patience ends at once, and its checkpoint records that. */
static void a_run_that_stops_early_on_resuming_records_it(void **state)
{
    struct dp_run_options options = options_of("out", 15, NULL);
    struct stat before, after;
    (void)state;

    options.sets[options.set_count++] = "optimizer.lr=0";
    assert_int_equal(whole_run(&options), DP_OK);
    options.steps = 0;
    options.resume = "auto";
    options.sets[options.set_count++] = "early_stop.patience=1";
    assert_int_equal(whole_run(&options), DP_OK);
    assert_int_equal(stat(scratch_path("out/metrics.jsonl"), &before), 0);
    assert_int_equal(whole_run(&options), DP_OK);
    assert_int_equal(stat(scratch_path("out/metrics.jsonl"), &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal(access(scratch_path("out/checkpoints/step-00000018"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_early_stopped_run_continues_only_with_more_patience,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_run_that_stops_early_on_resuming_records_it,
                                        scratch_create_fast, scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
