/* test_resume_early.c - runs that have stopped early, and are asked to go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/whole_run.h"

/* With a learning rate of 0 nothing improves: behind two evaluations of patience it ends. */
static void a_run_that_stopped_early_is_left_as_it_is_unless_there_is_more_patience(void **state)
{
    static const char *const kept[] = {"metrics.jsonl", "run.json",
                                       "checkpoints/step-00000012/state.json"};
    struct dp_cli cli = cli_of("out", 0, NULL);
    struct stat before[3], after[3];
    (void)state;

    cli.sets[cli.set_count++] = "optimizer.lr=0";
    cli.sets[cli.set_count++] = "early_stop.patience=2";
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(run_cli(&cli), DP_OK);
        cli.resume = "auto";
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
    cli.sets[1] = "early_stop.patience=4";
    assert_int_equal(run_cli(&cli), DP_OK);
    assert_int_equal(access(scratch_path("out/checkpoints/step-00000020"), F_OK), 0);
}

/* One that is taken up with less patience ends where it is, and its checkpoint says so then. */
static void a_run_that_stops_early_when_it_is_taken_up_says_so_from_then_on(void **state)
{
    struct dp_cli cli = cli_of("out", 15, NULL);
    struct stat before, after;
    (void)state;

    cli.sets[cli.set_count++] = "optimizer.lr=0";
    assert_int_equal(run_cli(&cli), DP_OK);
    cli.steps = 0;
    cli.resume = "auto";
    cli.sets[cli.set_count++] = "early_stop.patience=1";
    assert_int_equal(run_cli(&cli), DP_OK);
    assert_int_equal(stat(scratch_path("out/metrics.jsonl"), &before), 0);
    assert_int_equal(run_cli(&cli), DP_OK);
    assert_int_equal(stat(scratch_path("out/metrics.jsonl"), &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal(access(scratch_path("out/checkpoints/step-00000018"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_run_that_stopped_early_is_left_as_it_is_unless_there_is_more_patience,
            scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(
            a_run_that_stops_early_when_it_is_taken_up_says_so_from_then_on, scratch_create_fast,
            scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
