/*
 * test_replica_state.c - which state a comparison of ranks covers: the table of replica_check.h,
 * array by array.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 8, DAMAGED_AFTER = 5, RANKS = 3, BAD = 2 };

/* The arrays of adamw with an average, and a model with batch norm: the most that there are. */
enum kind { WEIGHTS, FIRST_SLOT, SECOND_SLOT, AVERAGE, MEAN, VARIANCE, KINDS };

static const char *const names[KINDS] = {"0.weight",     "0.weight.exp_avg", "0.weight.exp_avg_sq",
                                         "0.weight.ema", "1.running_mean",   "1.running_var"};

static enum kind damaged;
static bool apart;    /* the device is one that only says that it has memory of its own */
static bool compared; /* at once, not in the next step */

static float *array_of(const struct dp_trainer *t, enum kind kind)
{
    const struct dp_flat *f = apart ? &t->state.flat : &t->state.host->flat;
    float *const arrays[KINDS] = {f->master,
                                  f->slots[0],
                                  f->slots[1],
                                  f->average,
                                  f->running + t->model->buffers[0].begin,
                                  f->running + t->model->buffers[1].begin};

    return arrays[kind];
}

/* An interlude: the first element of an array of one rank changes. */
static dp_status damage(struct dp_trainer *t)
{
    if (t->state.step != DAMAGED_AFTER) {
        return DP_OK;
    }
    DP_TRY(dp_exchange_barrier(t->exchange)); /* all have hashed what they may share */
    DP_TRY(apart ? DP_OK : dp_host_state_fetch(t->state.host));
    if (t->group->rank == BAD) {
        *array_of(t, damaged) += 1.0f;
    }
    if (!apart) {
        return dp_host_state_put(t->state.host);
    }
    DP_TRY(compared ? dp_trainer_compare_replicas(t) : DP_OK);
    return t->modes.replica_check->restored == (compared ? 1 : 0) ? DP_OK : DP_ERR_INTERNAL;
}

/* Returns how many ranks failed; what they said is in stderr_text. */
static size_t train(const char *strategy, enum kind kind, struct outcome *out)
{
    const bool parts = strstr(strategy, "zero1") != NULL; /* then no rank has an average */
    const char *const sets[] = {strategy,
                                "train.check_every=1",
                                "train.on_divergence=restore",
                                parts ? "train.ema=0" : "train.ema=0.9",
                                "optimizer.name=adamw",
                                "optimizer.lr=0.003",
                                apart ? "device.name=ref" : NULL,
                                NULL};
    struct small_run run;
    struct dp_device far;
    size_t wrong;

    damaged = kind;
    assert_int_equal(small_run_create(&run, small_own_norm, sets), 0);
    far = *run.device;
    far.host_memory = far.host_memory && !apart;
    run.device = &far;
    stderr_begin();
    wrong = small_train(&run, RANKS, STEPS, damage, out);
    stderr_end();
    small_run_destroy(&run);
    return wrong;
}

static void check_kind(const char *strategy, enum kind kind)
{
    char expected[128];
    struct outcome out;

    assert_int_equal(train(strategy, kind, &out), 0);
    (void)snprintf(expected, sizeof(expected), ", tensor %s, element 0 is ", names[kind]);
    if (strstr(stderr_text, expected) == NULL ||
        strstr(stderr_text, "after step 5 rank 2 (here) differs from the other 2 ranks: bucket ") ==
            NULL ||
        strstr(stderr_text, "differs); restored from rank 0\n") == NULL) {
        fail_msg("%s: %s: '%s'", strategy, names[kind], stderr_text);
    }
    assert_ptr_equal(strchr(stderr_text, '\n') + 1, stderr_text + strlen(stderr_text));
    assert_int_equal(outcome_split(&out, RANKS, STEPS), 0);
    outcome_fini(&out);
}

static void all_state_is_compared_where_each_rank_has_all(void **state)
{
    (void)state;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        check_kind("comm.strategy=ring", kind);
    }
}

/* It is the device's that counts, not what the host had of it before. */
static void state_is_compared_as_the_device_has_it(void **state)
{
    (void)state;

    apart = true;
    for (enum kind kind = 0; kind < 2 * KINDS; kind++) {
        compared = kind < KINDS;
        check_kind("comm.strategy=ring", kind % KINDS);
    }
    apart = false;
}

/* Optimizer state exists once: nothing can be compared. */
static void optimizer_state_in_parts_is_not_compared(void **state)
{
    struct outcome out;
    (void)state;

    check_kind("comm.strategy=zero1:over=ring", WEIGHTS);
    check_kind("comm.strategy=zero1:over=ring", MEAN);
    check_kind("comm.strategy=zero1:over=ring", VARIANCE);
    assert_int_equal(train("comm.strategy=zero1:over=ring", FIRST_SLOT, &out), 0);
    assert_string_equal(stderr_text, "");
    outcome_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_state_is_compared_where_each_rank_has_all),
        cmocka_unit_test(state_is_compared_as_the_device_has_it),
        cmocka_unit_test(optimizer_state_in_parts_is_not_compared),
    };

    dp_log_set_identity(0, 1, "here");
    return cmocka_run_group_tests_name("replica_state", tests, NULL, NULL);
}
