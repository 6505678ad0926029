/*
 * test_sharding.c - the division of updates must not matter: a sharding over a strategy gives the
 * bits of that strategy alone, on any number of ranks, and its parts of the optimizer's state form
 * the whole.
 */
#include "tests/support/arrays.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/exchange/sharding.h"
#include "collectives/exchange/strategy_select.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/small_run.h"

enum { STEPS = 6 };

/* ThreadSanitizer takes ten times as long, and threads meet alike on any number of ranks. */
#ifdef DP_TSAN
static const int sizes[] = {2, 3};
#else
static const int sizes[] = {1, 2, 3, 4, 8};
#endif

struct kind {
    const char *layers;
    const char *sets[5]; /* ends with NULL */
};

static const struct kind kinds[] = {
    {small_dense, {NULL}},
    {small_own_norm, {"comm.overlap=on", NULL}},
    {small_dense, {"optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.clip_norm=0.05", NULL}},
    {small_dropout, {"train.micro_batch=3", "comm.bucket_mb=25", "optimizer.clip_norm=1", NULL}},
    {small_dense, {"optimizer.name=lamb", "optimizer.lr=0.01", "optimizer.weight_decay=0.1", NULL}},
    {small_own_norm, {"optimizer.name=lars", "optimizer.lr=1", NULL}},
};

/* Trains with this comm.strategy and the settings of the kind. */
static void train_with(const struct kind *kind, const char *strategy, int ranks,
                       struct outcome *out)
{
    const char *sets[8];
    char set[96];
    struct small_run run;
    int count = 0;

    for (; kind->sets[count] != NULL; count++) {
        sets[count] = kind->sets[count];
    }
    (void)snprintf(set, sizeof(set), "comm.strategy=%s", strategy);
    sets[count++] = set;
    sets[count] = NULL;
    assert_int_equal(small_run_create(&run, kind->layers, sets), 0);
    assert_int_equal(small_train(&run, ranks, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, ranks, STEPS), 0);
    small_run_destroy(&run);
}

/* The strategies that threads can use; the first is the tree. */
static const char *const strategies[] = {"shm", "ring", "rhd"};

static void check_sharding(const struct dp_sharding *sharding, int strategy,
                           const struct kind *kind, int ranks, const struct outcome *alone)
{
    const struct outcome *plain = &alone[sharding->sum != NULL ? 0 : strategy];
    struct outcome shared;
    char text[96];

    (void)snprintf(text, sizeof(text), "%s:over=%s", sharding->plugin.name, strategies[strategy]);
    train_with(kind, text, ranks, &shared);
    assert_same_bits(shared.weights, plain->weights, plain->trained);
    for (int step = 0; step < STEPS; step++) {
        if (sharding->sum == NULL) { /* the loss is in the tail */
            assert_true(shared.loss[step][0] == plain->loss[step][0]);
        }
    }
    outcome_fini(&shared);
}

/* With all of the strategies, or with one that follows from `number`. */
static void check_all(const struct kind *kind, int ranks, size_t number)
{
    enum { STRATEGIES = DP_COUNT(strategies) };
    struct outcome alone[STRATEGIES];
    const struct dp_plugin *plugin;

    for (int s = 0; s < STRATEGIES; s++) {
        alone[s] = (struct outcome){.trained = 0};
        if (s == 0 || in_share(number + (size_t)s)) { /* a server sums as the first one does */
            train_with(kind, strategies[s], ranks, &alone[s]);
        }
    }
    for (int i = 0; (plugin = dp_plugin_at(&dp_shardings, i)) != NULL; i++) {
        for (int s = 0; s < STRATEGIES; s++) {
            if (in_share(number + (size_t)s)) {
                check_sharding((const struct dp_sharding *)plugin, s, kind, ranks, alone);
            }
        }
    }
    for (int s = 0; s < STRATEGIES; s++) {
        outcome_fini(&alone[s]);
    }
}

static void a_sharding_gives_the_bits_of_its_strategy_alone(void **state)
{
    (void)state;

    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        for (size_t n = 0; n < DP_COUNT(sizes); n++) {
            check_all(&kinds[k], sizes[n], k + n);
        }
    }
}

/* Trains, and gathers the momentum that the ranks have in parts. */
struct gathering {
    struct small_run run;
    float *momentum[2]; /* with replicated state, and with parts */
    size_t owned;       /* of all ranks together */
};

static size_t gather_momentum(struct dp_group *group, const void *arg)
{
    struct gathering *g = *(struct gathering *const *)arg;
    float *whole = dp_zalloc(g->run.model->trained, sizeof(float));
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    dp_status status = small_run_trainer(&g->run, group, STEPS, &t);
    size_t wrong = 1;

    for (int step = 0; step < STEPS && status == DP_OK; step++) {
        status = dp_trainer_step(t, &report);
    }
    if (status == DP_OK && whole != NULL) {
        const int kind = dp_exchange_is_sharded(t->exchange);
        status = dp_host_state_fetch(t->state.host);
        status = status == DP_OK
                     ? dp_exchange_collect(t->exchange, t->state.host->flat.slots[0], whole)
                     : status;
        wrong = status != DP_OK;
        if (group->rank == group->size - 1) {
            memcpy(g->momentum[kind], whole, t->state.flat.trained * sizeof(float));
            g->owned = t->state.flat.owned;
        }
    }
    dp_trainer_destroy(t);
    dp_free(whole);
    return wrong;
}

static void parts_of_the_optimizers_state_make_the_whole(void **state)
{
    static const char *const pairs[][2] = {{"comm.strategy=shm", "comm.strategy=zero1:over=shm"},
                                           {"comm.strategy=ring", "comm.strategy=zero1:over=ring"}};
    struct gathering g = {.owned = 0}, *pointer = &g;
    (void)state;

    for (size_t p = 0; p < DP_COUNT(pairs); p++) {
        for (int parts = 0; parts < 2; parts++) {
            const char *const sets[] = {pairs[p][parts], NULL};
            assert_int_equal(small_run_create(&g.run, small_dense, sets), 0);
            g.momentum[parts] = zeros(g.run.model->trained);
            assert_int_equal(on_local_ranks(4, gather_momentum, &pointer), 0);
            assert_true((g.owned < g.run.model->trained) == (parts == 1));
            if (parts == 1) {
                assert_same_bits(g.momentum[1], g.momentum[0], g.run.model->trained);
            }
            small_run_destroy(&g.run);
        }
        dp_free(g.momentum[0]);
        dp_free(g.momentum[1]);
    }
}

/* If ranks share memory, one copy of the weights is enough. */
static size_t one_copy_is_shared(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    float *mine, *all[8];
    size_t wrong = 1;

    if (small_run_trainer(run, group, STEPS, &t) == DP_OK) {
        mine = t->state.flat.weights;
        wrong = dp_exchange_gather(t->exchange, &mine, sizeof(mine), all) != DP_OK;
        for (int i = 0; i < group->size && wrong == 0; i++) {
            wrong += all[i] != mine; /* threads: equal addresses are equal memory */
        }
        wrong += strcmp(dp_exchange_label(t->exchange), "zero1:over=shm") != 0;
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void auto_shares_one_copy_of_the_weights_on_a_node(void **state)
{
    static const char *const sets[] = {"comm.strategy=auto", "device.name=ref", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(on_local_ranks(4, one_copy_is_shared, &run), 0);
    small_run_destroy(&run);
}

static void a_sharding_over_a_strategy_that_shares_nothing_is_refused(void **state)
{
    static const char *const texts[] = {"zero1:over=rnig",
                                        "zero1:under=shm",
                                        "zero2",
                                        "zero1:over",
                                        "zero1:over=none",
                                        "hier:outer=rnig",
                                        "hier:inner=none",
                                        "hier:outer=hier",
                                        "hier:inner=nccl",
                                        "staged:over=ipc",
                                        "staged:over=hier:outer=rnig",
                                        "zero1:over=hier:inner=x"};
    char problem[256];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(texts); i++) {
        assert_int_equal(dp_strategy_select_check(texts[i], false, problem, sizeof(problem)),
                         DP_ERR_CONFIG);
        assert_true(strlen(problem) > 0);
    }
    assert_int_equal(dp_strategy_select_check("zero1:over=ring", false, problem, sizeof(problem)),
                     DP_OK);
    assert_int_equal(dp_strategy_select_check("zero1:over=hier:inner=direct,outer=ring", false,
                                              problem, sizeof(problem)),
                     DP_OK);
    assert_int_equal(dp_strategy_select_check("auto", true, problem, sizeof(problem)), DP_OK);
}

/* Where shardings or `auto` are allowed, messages list them, too. */
static void the_choices_are_named(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"weather", "unknown strategy 'weather'; known are: auto, "},
        {"weather", ", none, replicated, zero1"},
        {"zreo1", "unknown strategy 'zreo1' (did you mean 'zero1'?)"},
        {"atuo", "unknown strategy 'atuo' (did you mean 'auto'?)"},
        {"auto:foo=1", "auto: it has no options: 'auto:foo=1'"},
        {"zero1:over=auto:foo=1", "auto: it has no options: 'auto:foo=1'"},
        {"zero1:over=weather", "unknown strategy 'weather'; known are: auto, "},
        {"zero1:over=zero1", "unknown strategy 'zero1'"},
    };
    char problem[256];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        assert_int_equal(dp_strategy_select_check(cases[i].text, false, problem, sizeof(problem)),
                         DP_ERR_CONFIG);
        if (strstr(problem, cases[i].says) == NULL) {
            fail_msg("%s: %s", cases[i].text, problem);
        }
    }
    assert_int_equal(dp_strategy_select_check("zero1:over=auto", false, problem, sizeof(problem)),
                     DP_OK);
}

static size_t is_refused(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;

    return small_run_trainer(run, group, STEPS, &t) == DP_ERR_CONFIG && t == NULL ? 0 : 1;
}

static void zero1_over_none_is_refused_on_all_ranks(void **state)
{
    static const char *const sets[] = {"comm.strategy=zero1:over=none", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(3, is_refused, &run), 0);
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sharding_gives_the_bits_of_its_strategy_alone),
        cmocka_unit_test(parts_of_the_optimizers_state_make_the_whole),
        cmocka_unit_test(auto_shares_one_copy_of_the_weights_on_a_node),
        cmocka_unit_test(a_sharding_over_a_strategy_that_shares_nothing_is_refused),
        cmocka_unit_test(zero1_over_none_is_refused_on_all_ranks),
        cmocka_unit_test(the_choices_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
