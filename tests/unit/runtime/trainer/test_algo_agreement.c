/*
 * test_algo_agreement.c - ranks with different measurements agree on choices, and so compute the
 * same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "kernels/algo_choices.h"
#include "runtime/trainer/prepare/algo_agreement.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/tested_device.h"

/* Only whole batches, of which both ranks have equally many rows. */
enum { RANKS = 3, OWN = 60, TRAINING = 2, STEPS = 4 };

/* ---- agreeing ---- */

static dp_status fill(struct dp_algo_choices *c, int rank)
{
    char key[64], value[400];
    const char *unknown;

    (void)snprintf(value, sizeof(value), "%d%0300d", rank, 7);
    for (int i = 0; i < OWN; i++) { /* more than goes into one message */
        (void)snprintf(key, sizeof(key), "of rank %d: %d", rank, i);
        DP_TRY(dp_algo_choices_note(c, key, value, 1.0 + rank));
    }
    DP_TRY(dp_algo_choices_note(c, "of all", value, 0.25 + rank));
    DP_TRY(dp_algo_choices_note(c, "of all alike", value, 3.0));
    DP_TRY(dp_algo_choices_note(c, "slowest in the middle", value, rank == 1 ? 9.5 : 9.0 - rank));
    if (rank > 0) {
        DP_TRY(dp_algo_choices_note(c, "of all but one", value, 0.5 + rank));
    }
    return dp_algo_choices_ask(c, "of all but one", &unknown);
}

struct agreement {
    const struct small_run *run;
    int failing, other; /* a rank that fails, or is on another machine; -1: none */
    char *text[RANKS];  /* owned */
    char *timed[RANKS]; /* owned; with times */
    bool changed[RANKS];
};

static size_t agrees(struct dp_group *group, const void *arg)
{
    struct agreement *a = *(struct agreement *const *)arg;
    const int rank = group->rank;
    struct dp_algo_choices *c = NULL;
    struct dp_trainer *t = NULL;
    dp_status status = small_run_trainer(a->run, group, 1, &t);

    if (status == DP_OK) {
        status = dp_algo_choices_create(rank == a->other ? "another gpu" : "gpu", &c);
        status = rank == a->failing ? DP_ERR_NOMEM : status == DP_OK ? fill(c, rank) : status;
        status = dp_algo_agreement_reach(t->exchange, status, c, &a->changed[rank]);
    }
    if (status == DP_OK) {
        status = dp_algo_choices_text(c, false, &a->text[rank]);
    }
    if (status == DP_OK) {
        status = dp_algo_choices_text(c, true, &a->timed[rank]);
    }
    dp_algo_choices_destroy(c);
    dp_trainer_destroy(t);
    return status != DP_OK;
}

/* What all ranks have then. */
static const char *agree(struct agreement *a)
{
    const struct agreement *arg = a;

    assert_int_equal(on_local_ranks(RANKS, agrees, &arg), 0);
    for (int i = 1; i < RANKS; i++) {
        assert_string_equal(a->text[i], a->text[0]);
        assert_string_equal(a->timed[i], a->timed[0]);
    }
    return a->text[0];
}

static void forget_texts(struct agreement *a)
{
    for (int i = 0; i < RANKS; i++) {
        dp_free(a->text[i]);
        dp_free(a->timed[i]);
        a->text[i] = a->timed[i] = NULL;
    }
}

/* The rank whose value a key has, after `from`. */
static int winner(const char *from, const char *key)
{
    char wanted[64];
    const char *found;

    (void)snprintf(wanted, sizeof(wanted), "\"%s\":\"", key);
    found = strstr(from, wanted);
    assert_non_null(found);
    return found[strlen(wanted)] - '0';
}

static void all_ranks_end_with_the_choices_of_the_slowest(void **state)
{
    struct small_run run;
    struct agreement a = {.run = &run, .failing = -1, .other = -1};
    const char *text;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    text = agree(&a);
    assert_int_equal(winner(text, "of all"), 2);
    assert_int_equal(winner(text, "of all but one"), 2);
    assert_int_equal(winner(text, "of all alike"), 0);
    assert_int_equal(winner(text, "slowest in the middle"), 1);
    assert_int_equal(winner(text, "of rank 2: 59"), 2);
    assert_null(strstr(text, "\"ms\""));
    assert_non_null(strstr(a.timed[0], "\"ms\":2.25}")); /* of who measured it */
    assert_non_null(strstr(a.timed[0], "\"ms\":9.5}"));
    for (int i = 0; i < RANKS; i++) { /* rank 0 has asked for what it did not know */
        assert_true(a.changed[i]);
    }
    forget_texts(&a);
    small_run_destroy(&run);
}

static void other_kinds_of_machines_have_their_own_choices(void **state)
{
    struct small_run run;
    struct agreement a = {.run = &run, .failing = -1, .other = 2};
    const char *text, *gpu, *another;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    text = agree(&a);
    gpu = strstr(text, "\"gpu\":");
    another = strstr(text, "\"another gpu\":");
    assert_true(another != NULL && gpu > another);
    assert_int_equal(winner(gpu, "of all"), 1);
    assert_int_equal(winner(gpu, "of all alike"), 0);
    assert_int_equal(winner(another, "of all"), 2);
    assert_true(a.changed[0] && a.changed[1] && !a.changed[2]);
    forget_texts(&a);
    small_run_destroy(&run);
}

static void a_rank_that_could_not_prepare_ends_all(void **state)
{
    struct small_run run;
    struct agreement a = {.run = &run, .other = -1};
    const struct agreement *arg = &a;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    dp_log_set_level(DP_LOG_NONE);
    for (a.failing = 0; a.failing < RANKS; a.failing++) {
        assert_int_equal(on_local_ranks(RANKS, agrees, &arg), RANKS);
    }
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
}

/* ---- training ---- */

/* Empty tables, or filled from texts. */
static void make_tables(const struct small_run *run, const char *const *texts,
                        struct dp_algo_choices **tables)
{
    char machine[DP_ALGO_CHOICE_MACHINE];

    run->device->machine(machine, sizeof(machine));
    for (int i = 0; i < TRAINING; i++) {
        assert_int_equal(dp_algo_choices_create(machine, &tables[i]), DP_OK);
        if (texts != NULL) {
            struct dp_json *json = NULL;
            assert_int_equal(dp_json_parse(texts[i], strlen(texts[i]), "test", &json), DP_OK);
            assert_int_equal(dp_algo_choices_take(tables[i], json, "test"), DP_OK);
            dp_json_destroy(json);
        }
    }
}

/* Trains with tables from texts (NULL: empty ones); *text: what all ranks have then, owned by the
 * caller. */
static struct outcome train(struct small_run *run, const char *const *texts, char **text)
{
    struct dp_algo_choices *tables[TRAINING];
    struct outcome outcome;
    char *others = NULL;

    make_tables(run, texts, tables);
    run->algo_choices = tables;
    assert_int_equal(small_train(run, TRAINING, STEPS, NULL, &outcome), 0);
    assert_int_equal(outcome_split(&outcome, TRAINING, STEPS), 0);
    assert_int_equal(dp_algo_choices_text(tables[0], false, text), DP_OK);
    for (int i = 0; i < TRAINING; i++) {
        assert_false(dp_algo_choices_open(tables[i]));
        assert_int_equal(dp_algo_choices_text(tables[i], false, &others), DP_OK);
        assert_string_equal(others, *text);
        dp_free(others);
        dp_algo_choices_destroy(tables[i]);
    }
    run->algo_choices = NULL;
    return outcome;
}

static bool same_weights(const struct outcome *a, const struct outcome *b)
{
    return memcmp(a->weights, b->weights, a->trained * sizeof(*a->weights)) == 0;
}

/* Ranks 0 and 1 know different fastest algorithms: both use those of rank 0. */
static void check_ranks_that_differ(const char *layers, const char *const *sets)
{
    char *text[2], *both;
    struct outcome outcome[2], mixed;
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(setenv("DP_HOST_FASTEST", i == 0 ? "first" : "second", 1), 0);
        outcome[i] = train(&run, NULL, &text[i]);
    }
    assert_string_not_equal(text[0], text[1]);
    assert_false(same_weights(&outcome[0], &outcome[1]));
    for (int i = 0; i < 2; i++) {
        const char *const texts[TRAINING] = {text[i], text[1 - i]};
        mixed = train(&run, texts, &both);
        assert_string_not_equal(both, text[1 - i]);
        assert_true(same_weights(&mixed, &outcome[i]));
        dp_free(both);
        outcome_fini(&mixed);
    }
    for (int i = 0; i < 2; i++) {
        outcome_fini(&outcome[i]);
        dp_free(text[i]);
    }
    small_run_destroy(&run);
}

static void ranks_that_measured_differently_compute_alike(void **state)
{
    static const char *const tf32[] = {"train.precision=tf32", "comm.strategy=ipc", NULL};
    static const char *const lanes[] = {"train.lanes=4", "comm.strategy=ipc", NULL};
    static const char *const parts[] = {"train.micro_batch=5", "comm.strategy=ipc", NULL};
    (void)state;

    if (libraries_on_host()) {
        check_ranks_that_differ(small_own_norm, tf32);
        check_ranks_that_differ(small_dense, lanes);
        check_ranks_that_differ(small_dense, parts);
    }
}

static size_t creates(struct dp_group *group, const void *arg)
{
    struct small_run run = *(const struct small_run *)arg;
    struct dp_algo_choices *tables[SMALL_RANKS] = {NULL};
    struct dp_trainer *t = NULL;
    dp_status status = dp_algo_choices_create("gpu", &tables[group->rank]);

    run.algo_choices = tables;
    status = dp_group_agree(group, status);
    if (status == DP_OK) {
        status = small_run_trainer(&run, group, 1, &t);
    }
    dp_trainer_destroy(t);
    dp_algo_choices_destroy(tables[group->rank]);
    return status != DP_OK;
}

static void creating_survives_every_failed_allocation(void **state)
{
    static const char *const staged[] = {"comm.strategy=staged:over=shm", NULL};
    struct small_run run;
    (void)state;

    if (libraries_on_host()) {
        assert_int_equal(small_run_create(&run, small_own_norm, staged), 0);
        let_allocations_fail_unnoticed(MOST_UNNOTICED);
        check_failing_allocations(2, NULL, creates, &run);
        let_allocations_fail_unnoticed(0);
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_end_with_the_choices_of_the_slowest),
        cmocka_unit_test(other_kinds_of_machines_have_their_own_choices),
        cmocka_unit_test(a_rank_that_could_not_prepare_ends_all),
        cmocka_unit_test(ranks_that_measured_differently_compute_alike),
        cmocka_unit_test(creating_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
