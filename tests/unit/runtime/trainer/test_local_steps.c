/*
 * test_local_steps.c - ranks train alone for some steps and then average their weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/transport.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 14 };

static void train_with(int ranks, const char *const *sets, small_interlude *interlude,
                       struct outcome *out)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(small_train(&run, ranks, STEPS, interlude, out), 0);
    small_run_destroy(&run);
}

static void train(int ranks, const char *const *sets, struct outcome *out)
{
    train_with(ranks, sets, NULL, out);
}

static bool same_on_all_ranks(const struct outcome *out, int ranks, int step)
{
    bool same = true;

    for (int rank = 1; rank < ranks; rank++) {
        same = same && out->hash[step][rank] == out->hash[step][0];
    }
    return same;
}

/* Weights and optimizer state are compared by their hashes, after each step. */
static void check_apart(int ranks, const char *const *sets, int after, int every)
{
    struct outcome out;

    train(ranks, sets, &out);
    for (int step = 0; step < STEPS; step++) {
        const bool together = step < after || (step + 1 - after) % every == 0;
        if (same_on_all_ranks(&out, ranks, step) != together) {
            fail_msg("%s, %s: %d ranks are %s after step %d", sets[0], sets[1], ranks,
                     together ? "apart" : "together", step + 1);
        }
        for (int rank = 1; rank < ranks; rank++) {
            assert_true(out.loss[step][rank] == out.loss[step][0]);
        }
    }
    assert_true(out.loss[STEPS - 1][0] < out.loss[0][0]);
    outcome_fini(&out);
}

static void ranks_are_equal_after_every_kth_step(void **state)
{
    static const char *const plain[] = {"train.local_steps=4", "comm.overlap=on", NULL};
    static const char *const adamw[] = {"train.local_steps=3", "optimizer.name=adamw",
                                        "optimizer.lr=0.01", NULL};
    static const char *const clipped[] = {"train.local_steps=2", "optimizer.clip_norm=0.1",
                                          "comm.strategy=ring", NULL};
    static const char *const later[] = {"train.local_steps=4", "train.local_after=5",
                                        "comm.strategy=auto", NULL};
    static const char *const dropout[] = {"train.local_steps=5", "train.micro_batch=3", NULL};
    (void)state;

    check_apart(2, plain, 0, 4);
    check_apart(3, adamw, 0, 3);
    check_apart(4, clipped, 0, 2);
    check_apart(2, later, 5, 4);
    check_apart(5, dropout, 0, 5);
}

static dp_status is_averaged(struct dp_trainer *t)
{
    return dp_trainer_unaveraged(t) ? DP_ERR_DISAGREE : DP_OK;
}

/* There is nothing to average, so that the run may end or be saved after any step. */
static void one_rank_and_steps_of_one_are_ordinary_training(void **state)
{
    static const char *const ordinary[] = {"train.local_steps=1", NULL};
    static const char *const local[] = {"train.local_steps=4", NULL};
    struct outcome a, b;
    (void)state;

    train(1, ordinary, &a);
    train_with(1, local, is_averaged, &b);
    assert_int_equal(memcmp(a.weights, b.weights, a.trained * sizeof(float)), 0);
    outcome_fini(&b);
    train(2, ordinary, &b);
    assert_int_equal(outcome_split(&b, 2, STEPS), 0);
    outcome_fini(&b);
    outcome_fini(&a);
}

/* ---- one local step is a step on the rank's own rows ---- */

enum { RANKS = 2, OWN_ROWS = 32 / RANKS };

static const char *const one_step[] = {"train.local_steps=8", "data.shuffle=false",
                                       "optimizer.weight_decay=0.01", NULL};

static dp_status step_once(const struct small_run *run, struct dp_group *group,
                           struct dp_trainer **t)
{
    struct dp_step_report report;

    DP_TRY(small_run_trainer(run, group, 1, t));
    return dp_trainer_step(*t, &report);
}

/* The weights of a training alone on the rows of `rank`. */
static float *alone(const struct small_run *run, int rank)
{
    struct small_run own = *run;
    struct dp_config config = *run->config;
    struct dp_group *group = NULL;
    struct dp_trainer *t = NULL;
    float *weights = dp_zalloc(run->model->trained, sizeof(float));

    config.train.global_batch = OWN_ROWS;
    own.config = &config;
    own.data.train_images += (size_t)rank * OWN_ROWS * own.data.sample_bytes;
    own.data.train_labels += (size_t)rank * OWN_ROWS;
    own.data.train_count = OWN_ROWS;
    if (weights != NULL && dp_local_alone(&group) == DP_OK && step_once(&own, group, &t) == DP_OK &&
        dp_host_state_fetch(t->state.host) == DP_OK) {
        memcpy(weights, t->state.host->flat.weights, t->state.flat.trained * sizeof(float));
    }
    dp_trainer_destroy(t);
    dp_group_destroy(group);
    return weights;
}

struct expected {
    const struct small_run *run;
    const float *weights[RANKS];
};

/* After the step: the rank's own weights; after averaging: exactly their mean, since the sum of two
 * numbers and its half are computed in the same way here. */
static size_t step_and_meet(struct dp_group *group, const void *arg)
{
    const struct expected *e = arg;
    struct dp_trainer *t = NULL;
    size_t wrong = 1;

    if (step_once(e->run, group, &t) == DP_OK && dp_host_state_fetch(t->state.host) == DP_OK) {
        const float *a = e->weights[0], *b = e->weights[1];
        wrong = memcmp(t->state.host->flat.weights, e->weights[group->rank],
                       t->state.flat.trained * sizeof(float)) != 0;
        wrong += !t->modes.unaveraged;
        wrong += dp_trainer_sync_weights(t) != DP_OK;
        wrong += dp_host_state_fetch(t->state.host) != DP_OK;
        for (size_t i = 0; i < t->state.flat.trained; i++) {
            wrong += ((const float *)t->state.host->flat.weights)[i] != 0.5f * (a[i] + b[i]);
        }
        wrong += t->modes.unaveraged;
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void a_local_step_uses_own_rows_and_averaging_takes_the_mean(void **state)
{
    struct small_run run;
    float *weights[RANKS];
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, one_step), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        weights[rank] = alone(&run, rank);
        assert_non_null(weights[rank]);
    }
    const struct expected e = {&run, {weights[0], weights[1]}};
    assert_int_not_equal(memcmp(weights[0], weights[1], run.model->trained * sizeof(float)), 0);
    assert_int_equal(on_local_ranks(RANKS, step_and_meet, &e), 0);
    dp_free(weights[0]);
    dp_free(weights[1]);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_equal_after_every_kth_step),
        cmocka_unit_test(one_rank_and_steps_of_one_are_ordinary_training),
        cmocka_unit_test(a_local_step_uses_own_rows_and_averaging_takes_the_mean),
    };

    return cmocka_run_group_tests_name("local_steps", tests, NULL, NULL);
}
