/* test_baseline.c - measuring one rank alone: all ranks get the same numbers, and training does not
 * change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/measure/baseline.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 9 };

/* Measures after the fourth step, and after the last. */
static dp_status measure(struct dp_trainer *t)
{
    struct dp_baseline baseline, all[SMALL_RANKS];
    const struct dp_step_params step_params = *t->state.step_params;
    const uint64_t step = t->state.step, order = dp_exchange_order(t->exchange),
                   hash = small_hash(t);

    if (step != 4 && step != STEPS) {
        return DP_OK;
    }
    DP_TRY(dp_baseline_measure(t, 1, 1.0, true, &baseline));
    if (baseline.samples_per_second <= 0.0 || baseline.compute_ms <= 0.0 ||
        baseline.slowest > baseline.samples_per_second ||
        baseline.fastest < baseline.samples_per_second) {
        return DP_FAIL(DP_ERR_INTERNAL, "not a measurement");
    }
    DP_TRY(dp_exchange_gather(t->exchange, &baseline, sizeof(baseline), all));
    for (int rank = 0; rank < t->group->size; rank++) {
        if (all[rank].samples_per_second != baseline.samples_per_second ||
            all[rank].compute_ms != baseline.compute_ms) {
            return DP_FAIL(DP_ERR_DISAGREE, "ranks know different baselines");
        }
    }
    if (t->state.step != step || dp_exchange_order(t->exchange) != order || small_hash(t) != hash ||
        t->state.step_params->applied != step_params.applied ||
        t->state.step_params->step != step_params.step ||
        t->state.step_params->lr != step_params.lr ||
        t->state.step_params->per_sample != step_params.per_sample) {
        return DP_FAIL(DP_ERR_INTERNAL, "measuring changed the trainer");
    }
    return DP_OK;
}

static void measuring_changes_no_bit_of_the_training(void **state)
{
    static const char *const layers[] = {small_dense, small_conv, small_dropout};
    static const char *const optimizers[] = {"optimizer.name=sgd", "optimizer.name=adamw"};
    static const char *const runs[] = {"comm.overlap=on", "comm.overlap=off"};
    (void)state;

    for (size_t i = 0; i < 6; i++) {
        const char *const sets[] = {optimizers[i / 3], runs[i % 2], NULL};
        const size_t live = dp_mem_live();
        struct small_run run;
        struct outcome with, without;
        assert_int_equal(small_run_create(&run, layers[i % 3], sets), 0);
        assert_int_equal(small_train(&run, 2, STEPS, measure, &with), 0);
        assert_int_equal(small_train(&run, 2, STEPS, NULL, &without), 0);
        assert_memory_equal(with.hash, without.hash, sizeof(with.hash));
        assert_memory_equal(with.loss, without.loss, sizeof(with.loss));
        outcome_fini(&with);
        outcome_fini(&without);
        small_run_destroy(&run);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* Rank 0 has no memory for a second trainer: all ranks learn it, and training continues
 * unchanged. */
static size_t goes_on_unmeasured(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    struct dp_baseline baseline = {0};
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK) {
        return 1;
    }
    const uint64_t hash = small_hash(t);
    wrong += dp_exchange_barrier(t->exchange) != DP_OK;
    if (group->rank == 0) {
        dp_mem_fail_nth(20); /* after the allocations of dp_baseline_measure itself, on all ranks */
    }
    wrong += dp_exchange_barrier(t->exchange) != DP_OK;
    wrong += dp_baseline_measure(t, 1, 1.0, true, &baseline) != DP_OK;
    wrong += !baseline.no_memory || baseline.samples_per_second != 0.0;
    wrong += small_hash(t) != hash || dp_trainer_step(t, &report) != DP_OK;
    wrong += dp_baseline_measure(t, 1, 1.0, true, &baseline) != DP_OK;
    wrong += baseline.no_memory || !(baseline.samples_per_second > 0.0);
    dp_trainer_destroy(t);
    return wrong;
}

static void without_memory_nothing_is_measured_and_training_continues(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    stderr_begin();
    const size_t wrong = on_local_ranks(3, goes_on_unmeasured, &run);
    stderr_end();
    dp_mem_fail_nth(0);
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "no memory to measure one rank alone"));
    assert_null(strstr(stderr_text, "error: "));
    small_run_destroy(&run);
}

/* Rank `victim` has been asked to stop. */
struct asked {
    const struct small_run *run;
    int victim;
};

static size_t breaks_off(struct dp_group *group, const void *arg)
{
    const struct asked *asked = arg;
    struct dp_stop stop = {0};
    struct dp_baseline baseline = {0};
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(asked->run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    const uint64_t hash = small_hash(t);
    t->stop = &stop;
    if (group->rank == asked->victim) {
        dp_stop_request(&stop, DP_STOP_TERM);
    }
    wrong += dp_baseline_measure(t, 1, 1.0, true, &baseline) != DP_STOPPED;
    wrong += baseline.samples_per_second != 0.0;
    wrong += small_hash(t) != hash;
    wrong += dp_exchange_barrier(t->exchange) != DP_OK;
    t->stop = NULL; /* and training can go on from there */
    wrong += dp_trainer_step(t, &report) != DP_OK;
    dp_trainer_destroy(t);
    return wrong;
}

static void a_request_on_any_rank_ends_the_measurement_on_all(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_conv, NULL), 0);
    for (int victim = 0; victim < 3; victim++) {
        const struct asked asked = {&run, victim};
        assert_int_equal(on_local_ranks(3, breaks_off, &asked), 0);
    }
    small_run_destroy(&run);
}

static struct dp_trace_mark mark;
static long long step_at_beat;

static void note_step(void)
{
    step_at_beat = atomic_load(&mark.step);
}

static size_t notes_its_first_part(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    struct dp_baseline baseline;
    size_t wrong;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    (void)dp_trace_at_beat(1, note_step);
    wrong = dp_baseline_measure(t, 1, 1.0, true, &baseline) != DP_OK;
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    wrong += dp_trace_at_beat(0, NULL) != 0 || atomic_load(&mark.expects_ms) != 0;
    dp_trainer_destroy(t);
    return wrong;
}

/* So a rank that stops there is named as soon as in a piece. */
static void the_set_up_is_announced_and_its_steps_are_parts(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    assert_int_equal(on_local_ranks(1, notes_its_first_part, &run), 0);
    assert_int_equal(step_at_beat, 1);
    small_run_destroy(&run);
}

static void the_mean_covers_the_measured_pieces(void **state)
{
    (void)state;
    assert_true(dp_baseline_mean(2.0, 4.0) == 3.0);
    assert_true(dp_baseline_mean(2.0, 0.0) == 2.0);
    assert_true(dp_baseline_mean(0.0, 4.0) == 4.0); /* an early end: only the second one */
    assert_true(isnan(dp_baseline_mean(0.0, 0.0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_covers_the_measured_pieces),
        cmocka_unit_test(measuring_changes_no_bit_of_the_training),
        cmocka_unit_test(without_memory_nothing_is_measured_and_training_continues),
        cmocka_unit_test(a_request_on_any_rank_ends_the_measurement_on_all),
        cmocka_unit_test(the_set_up_is_announced_and_its_steps_are_parts),
    };
    return cmocka_run_group_tests_name("baseline", tests, NULL, NULL);
}
