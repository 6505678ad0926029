/*
 * test_failed_step.c - with train.on_rank_failure shrink a step that fails, since a rank has died,
 * has changed nothing: the others can do it again.
 */
#include "tests/support/arrays.h"

#include "collectives/exchange/exchange_calls.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { RANKS = 3, DONE = 2 };

static struct {
    struct small_run run;
    int bucket;            /* before whose sum rank 1 leaves */
    atomic_int failed;     /* ranks whose step failed */
    atomic_int changed;    /* of these, those whose state it changed */
    atomic_int steps_lost; /* of these, those that count it as done */
} trial;

static void leave(void *context, struct dp_trainer *t, int bucket, bool summed)
{
    (void)context;
    if (t->state.step == DONE && t->group->rank == 1 && bucket == trial.bucket && !summed) {
        dp_group_leave(t->group, DP_ERR_INTERNAL);
    }
}

static size_t fail_a_step(struct dp_group *group, const void *arg)
{
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    uint64_t before;
    size_t wrong = 0;
    (void)arg;

    if (small_run_trainer(&trial.run, group, SMALL_STEPS, &t) != DP_OK) {
        return 1;
    }
    dp_trainer_on_bucket(t, leave, NULL);
    for (int i = 0; i < DONE; i++) {
        wrong += dp_trainer_step(t, &report) != DP_OK;
    }
    /* Rank 1 leaves when all have begun this, which others may not have ended by then. */
    (void)!dp_exchange_barrier(t->exchange);
    before = small_hash(t);
    if (dp_trainer_step(t, &report) != DP_OK) {
        atomic_fetch_add(&trial.failed, 1);
        atomic_fetch_add(&trial.changed, small_hash(t) != before);
        atomic_fetch_add(&trial.steps_lost, t->state.step != DONE);
    }
    dp_trainer_destroy(t);
    return wrong;
}

/* How many ranks have changed their state in a step that failed. */
static int changed_ranks(const char *layers, const char *const *sets, int bucket)
{
    memset(&trial, 0, sizeof(trial));
    trial.bucket = bucket;
    assert_int_equal(small_run_create(&trial.run, layers, sets), 0);
    assert_int_equal(on_local_ranks(RANKS, fail_a_step, NULL), 0);
    small_run_destroy(&trial.run);
    assert_int_equal(trial.failed, RANKS);
    assert_int_equal(trial.steps_lost, 0);
    return trial.changed;
}

static void a_step_that_fails_has_changed_nothing(void **state)
{
    static const char *const cases[][4] = {
        {"train.on_rank_failure=shrink", NULL},
        {"train.on_rank_failure=shrink", "comm.strategy=ring", NULL},
        {"train.on_rank_failure=shrink", "optimizer.clip_norm=0.5", "comm.strategy=direct", NULL},
        {"train.on_rank_failure=shrink", "train.ema=0.9", NULL},
    };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        assert_int_equal(changed_ranks(small_dense, cases[i], 1), 0);
        assert_int_equal(changed_ranks(small_own_norm, cases[i], 0), 0);
    }
}

/* The trial itself: without that option rank 1 has changed weights by then; others may have. */
static void otherwise_weights_change_while_sums_arrive(void **state)
{
    static const char *const sets[] = {"comm.strategy=ring", NULL};
    (void)state;

    assert_in_range(changed_ranks(small_dense, sets, 1), 1, RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_fails_has_changed_nothing),
        cmocka_unit_test(otherwise_weights_change_while_sums_arrive),
    };

    return cmocka_run_group_tests_name("failed_step", tests, NULL, NULL);
}
