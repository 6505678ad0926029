/* test_strategy_autotune.c - `auto` chooses the fastest measured strategy, quickly, and the same on
 * all ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/strategy_autotune.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/comm.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"

enum { TENSORS = 3, RANKS_MAX = 8, FASTER_NS = -500000 };

/* 64, 4096 and 64 K elements, in buckets of their own. */
static const struct dp_tensor tensors[TENSORS] = {
    {.name = "a", .begin = 0},
    {.name = "b", .begin = 65536, .count = 4096, .shape = {64, 64}, .dims = 2},
    {.name = "c", .begin = 69632}};
enum { TRAINED = 69696, TOTAL = TRAINED + DP_BLOCK };

static const int two_nodes[] = {0, 0, 1, 1}, four_nodes[] = {0, 1, 2, 3}, odd_nodes[] = {0, 0, 1};

/* ---- a clock that no busy machine disturbs ---- */

/* Of a rank, which is a thread. */
static _Thread_local uint64_t clock_ns;
static _Thread_local unsigned looks;

/* It is looked at when autotuning begins, and when each turn begins and ends, which is about a
 * millisecond later, never twice the same: so long take turns of all strategies but that of this
 * test. */
static uint64_t look(void)
{
    looks++;
    clock_ns += looks % 2 == 1 ? 1000000 + looks * 7919 % 10000 : 0;
    return clock_ns;
}

/* ---- a strategy that can be made slow, or fast; it is direct ---- */

static struct {
    bool wanted;
    int64_t more_ns;   /* what a sum takes longer than a millisecond; below 0: less */
    size_t more_bytes; /* only from so many bytes on */
    bool ordered;
    int opened[RANKS_MAX], turns[RANKS_MAX];
    size_t largest;
} plant;

struct planted {
    struct dp_group *group;
    struct dp_comm *direct;
};

static bool plant_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    *why_not = "it is not wanted";
    return plant.wanted;
}

static dp_status plant_open(void *state, struct dp_group *group, size_t max_count)
{
    struct planted *p = state;

    p->group = group;
    DP_TRY(dp_comm_create(group, "direct", max_count, 0, &p->direct));
    plant.opened[group->rank]++;
    return DP_OK;
}

static dp_status plant_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct planted *p = state;
    const struct dp_group *group = p->group;

    plant.turns[group->rank]++;
    if (group->rank == 0) {
        plant.largest = dp_slice_bytes(data) > plant.largest ? dp_slice_bytes(data) : plant.largest;
    }
    /* If it is slow, only one rank is, which the others must learn. */
    if (dp_slice_bytes(data) >= plant.more_bytes &&
        (plant.more_ns < 0 || group->rank == group->size - 1)) {
        clock_ns += (uint64_t)plant.more_ns;
    }
    return dp_comm_sum(p->direct, data, keep);
}

static dp_status plant_gather(void *state, struct dp_slice data)
{
    const struct planted *p = state;

    return dp_comm_gather(p->direct, data);
}

static void plant_close(void *state)
{
    struct planted *p = state;

    dp_comm_destroy(p->direct);
    plant.opened[p->group->rank]--;
}

static bool plant_keeps_order(const void *state, const struct dp_group *group)
{
    (void)state;
    (void)group;
    return plant.ordered;
}

static const struct dp_strategy planted = {
    .plugin = {.name = "planted", .help = "for this test", .state_bytes = sizeof(struct planted)},
    .ordered = true,
    .keeps_order = plant_keeps_order,
    .supports = plant_supports,
    .open = plant_open,
    .sum = plant_sum,
    .gather = plant_gather,
    .close = plant_close,
};

/* ---- autotuning ---- */

struct arena {
    bool ordered;
    const char *compressor;
    double budget_s;
    struct dp_strategy_autotune_result *results; /* [ranks] */
};

static size_t contends(struct dp_group *group, const void *arg)
{
    const struct arena *arena = arg;
    struct dp_strategy_autotune_config config = {
        .compressor = arena->compressor, .budget_s = arena->budget_s, .now = look};
    struct dp_bucket_plan *plan = NULL;
    size_t wrong;

    looks = 0;
    group->ordered = arena->ordered;
    if (dp_bucket_plan_create(tensors, TENSORS, TRAINED, TOTAL,
                              &(struct dp_bucket_sizes){64, 64, false}, &plan) != DP_OK) {
        return 1;
    }
    config.plan = plan;
    wrong = dp_strategy_autotune_run(group, &config, &arena->results[group->rank]) != DP_OK;
    dp_bucket_plan_destroy(plan);
    return wrong;
}

/* Runs an autotune; all ranks must get the same result, and all strategies be closed, and what a
 * compressor keeps for each. */
static struct dp_strategy_autotune_result hold(int ranks, const int *node_of, struct arena arena)
{
    static struct dp_strategy_autotune_result results[RANKS_MAX];
    const size_t live = dp_mem_live();

    memset(results, 0, sizeof(results));
    arena.results = results;
    arena.budget_s = arena.budget_s > 0.0 ? arena.budget_s : 0.1; /* for all sizes */
    assert_int_equal(on_local_nodes(ranks, node_of, contends, &arena), 0);
    for (int i = 0; i < ranks; i++) {
        assert_memory_equal(&results[i], &results[0], sizeof(results[0]));
        assert_int_equal(plant.opened[i], 0);
    }
    assert_int_equal(dp_mem_live(), live);
    return results[0];
}

/* Without shared memory, strategies that need it are not measured. */
static void without_shared_memory_hier_is_not_measured(void **state)
{
    struct dp_strategy_autotune_result result;
    (void)state;

    local_world_room(0);
    result = hold(4, two_nodes, (struct arena){.budget_s = 0.0});
    local_world_room(-1);
    assert_true(strlen(result.strategy) > 0);
    assert_null(strstr(result.why, "hier"));
    result = hold(4, two_nodes, (struct arena){.budget_s = 0.0});
    assert_non_null(strstr(result.why, "hier"));
}

static int reset(void **state)
{
    (void)state;
    memset(&plant, 0, sizeof(plant));
    plant.wanted = true;
    return 0;
}

static void every_rank_gets_one_measured_strategy_and_why(void **state)
{
    const struct {
        int ranks;
        const int *node_of;
    } worlds[] = {{4, two_nodes}, {4, four_nodes}, {3, odd_nodes}, {2, four_nodes}};

    (void)state;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        const struct dp_strategy_autotune_result r =
            hold(worlds[i].ranks, worlds[i].node_of, (struct arena){0});
        char begin[DP_STRATEGY_AUTOTUNE_WHY];
        (void)snprintf(begin, sizeof(begin), "measured: %s ", r.strategy);
        assert_memory_equal(r.why, begin, strlen(begin));
        assert_non_null(strstr(r.why, " ms a step, ")); /* and another one */
        assert_null(strstr(r.why, "mpi"));
    }
}

/* Rails need equally many ranks on all nodes, and several. */
static void rails_are_measured_on_equal_nodes(void **state)
{
    (void)state;
    assert_non_null(strstr(hold(4, two_nodes, (struct arena){0}).why, "hier:rails=1 "));
    assert_null(strstr(hold(3, odd_nodes, (struct arena){0}).why, "rails"));
    assert_null(strstr(hold(4, four_nodes, (struct arena){0}).why, "rails"));
    assert_non_null(strstr(hold(4, two_nodes, (struct arena){.ordered = true}).why, "rails"));
}

/* Whether `text` may be measured, of gradients of the host, and after "staged:over=" of GPUs. */
static bool may(const struct dp_group *group, const struct dp_device *cpu, bool lanes,
                const char *text)
{
    struct dp_device gpu = *cpu;
    char staged[DP_STRATEGY_AUTOTUNE_TEXT];
    bool host;

    gpu.host_memory = false;
    (void)snprintf(staged, sizeof(staged), "staged:over=%s", text);
    host = dp_strategy_select_may_measure(group, cpu, lanes, text);
    assert_int_equal(dp_strategy_select_may_measure(group, &gpu, lanes, staged), host);
    assert_false(dp_strategy_select_may_measure(group, cpu, lanes, staged));
    assert_false(dp_strategy_select_may_measure(group, &gpu, lanes, text));
    return host;
}

/* The ranks of two nodes, without and with lanes. */
static void the_candidates_are_known_beforehand(void **state)
{
    static const struct {
        const char *text;
        bool plain, ordered;
    } cases[] = {
        {"ring", true, false},
        {"direct", true, true},
        {"hier", true, true},
        {"hier:outer=direct", true, false},
        {"hier:rails=1", true, true},
        {"hier:outer=shm", false, false},
        {"shm", false, false},
        {"none", false, false},
        {"mpi", false, false},
        {"planted", false, false},
        {"direct:segment_kb=1", false, false},
        {"zero1:over=direct", false, false},
        {"auto", false, false},
        {"", false, false},
    };
    const struct dp_device *cpu = NULL;
    struct dp_group *alone = NULL;
    (void)state;

    plant.wanted = false;
    assert_int_equal(dp_device_find("cpu", &cpu), DP_OK);
    assert_int_equal(dp_local_alone(&alone), DP_OK);
    struct dp_group group = *alone;
    group.size = 4;
    group.nodes = group.local_size = 2;
    group.node_of = two_nodes;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (may(&group, cpu, false, cases[i].text) != cases[i].plain ||
            may(&group, cpu, true, cases[i].text) != cases[i].ordered) {
            fail_msg("'%s'", cases[i].text);
        }
    }
    dp_group_destroy(alone);
}

static void a_slow_strategy_is_not_chosen_and_drops_out(void **state)
{
    (void)state;
    plant.more_ns = 20000000;
    const struct dp_strategy_autotune_result r = hold(4, four_nodes, (struct arena){0});

    assert_string_not_equal(r.strategy, "planted");
    assert_true(plant.turns[0] > 0);
    assert_true(plant.largest < 65536 * sizeof(float)); /* never saw the largest bucket */
}

static void the_fastest_strategy_is_chosen(void **state)
{
    (void)state;
    plant.more_ns = FASTER_NS;
    const struct dp_strategy_autotune_result r = hold(4, four_nodes, (struct arena){0});

    assert_string_equal(r.strategy, "planted");
    assert_int_equal(plant.largest, 65536 * sizeof(float)); /* each size has had its turn */
}

/* On unequal nodes only direct keeps the order; this strategy is direct, but claims no order. */
static void a_strategy_that_is_slow_with_large_buckets_is_not_chosen(void **state)
{
    const struct arena arena = {.ordered = true};

    (void)state;
    plant.more_ns = 100000000;
    plant.more_bytes = 65536 * sizeof(float);
    plant.ordered = true;
    assert_string_equal(hold(3, odd_nodes, arena).strategy, "direct");
    assert_int_equal(plant.largest, 65536 * sizeof(float));
}

/* The tail alone is summed plainly: what a strategy would make of buckets does not count. */
static void with_a_compressor_what_it_sends_counts(void **state)
{
    const struct arena arena = {.compressor = "fp16"};

    (void)state;
    plant.more_ns = FASTER_NS;
    plant.more_bytes = DP_BLOCK * sizeof(float) + 1;
    assert_string_equal(hold(4, four_nodes, arena).strategy, "ring");
    assert_int_equal(plant.largest, DP_BLOCK * sizeof(float));
    plant.more_bytes = 0;
    assert_string_equal(hold(4, four_nodes, arena).strategy, "planted");
    assert_int_equal(plant.largest, DP_BLOCK * sizeof(float));
}

static void every_compressor_can_be_timed(void **state)
{
    static const char *const texts[] = {
        "none",           "bf16", "int8", "onebit", "topk:ratio=0.01", "randomk:ratio=0.01",
        "powersgd:rank=2"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (in_share(i)) {
            const struct dp_strategy_autotune_result r =
                hold(4, two_nodes, (struct arena){.compressor = texts[i]});
            assert_int_equal(strncmp(r.why, "measured: ", 10), 0);
            assert_non_null(strstr(r.why, "ring"));
        }
    }
}

static void for_lanes_only_ordered_strategies_are_measured(void **state)
{
    const struct arena arena = {.ordered = true};

    (void)state;
    plant.more_ns = FASTER_NS; /* the fastest, but */
    for (int i = 0; i < 3; i++) {
        const int *const nodes[] = {two_nodes, four_nodes, odd_nodes};
        const struct dp_strategy_autotune_result r = hold(i == 2 ? 3 : 4, nodes[i], arena);
        assert_string_not_equal(r.strategy, "planted");
        assert_null(strstr(r.why, "ring"));
        assert_null(strstr(r.why, "tree"));
        assert_non_null(strstr(r.why, i == 2 ? "the only one" : "direct"));
        assert_true(i < 2 || strcmp(r.strategy, "direct") == 0);
    }
    assert_int_equal(plant.turns[0], 0);
    plant.ordered = true;
    assert_string_equal(hold(4, two_nodes, arena).strategy, "planted");
}

/* The current turn is completed: here it takes three times the budget. */
static void the_time_limit_is_kept(void **state)
{
    const struct arena arena = {.budget_s = 0.1};

    (void)state;
    plant.more_ns = 300000000;
    assert_string_not_equal(hold(2, four_nodes, arena).strategy, "planted");
    assert_int_equal(plant.turns[0], 1); /* of 21 */
}

static void without_any_time_autotune_still_chooses(void **state)
{
    struct arena arena = {.budget_s = 1e-9};

    (void)state;
    assert_string_equal(hold(2, four_nodes, arena).strategy, "ring");
    assert_int_equal(plant.turns[0], 0); /* the first one alone had a turn */
    arena.compressor = "fp16";           /* the tails take all of it */
    const struct dp_strategy_autotune_result r = hold(2, four_nodes, arena);
    assert_string_equal(r.strategy, "ring");
    assert_int_equal(strncmp(r.why, "measured: ring ", 15), 0);
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    static struct dp_strategy_autotune_result results[RANKS_MAX];
    struct arena arena = {.budget_s = 1e-9, .results = results};

    (void)state;
    check_failing_allocations(2, four_nodes, contends, &arena);
    arena.compressor = "powersgd:rank=2"; /* which has residuals, and warm starts */
    check_failing_allocations(2, four_nodes, contends, &arena);
}

/* ---- in an exchange ---- */

struct choice {
    const char *strategy;
    const char *label; /* NULL: that of the strategy that was measured */
    const char *why;
    bool ordered, whole;
};

static size_t shares(struct dp_group *group, const void *arg)
{
    const struct choice *c = arg;
    struct dp_exchange_config config = {
        .strategy = c->strategy,
        .bucket_bytes = 4096,
        .first_bucket_bytes = 4096,
        .run = DP_RUN_AT_WAIT,
        .ordered = c->ordered,
        .whole = c->whole,
        .threads = 1,
    };
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = TENSORS,
                           .trained = TRAINED,
                           .total = TOTAL,
                           .owned = TRAINED};
    struct dp_exchange *e = NULL;
    size_t wrong = 0;

    if (dp_device_find("ref", &config.device) != DP_OK ||
        dp_exchange_create(group, &config, &flat, &e) != DP_OK) {
        return 1;
    }
    const char *why = dp_exchange_why(e), *label = dp_exchange_label(e);
    wrong += strncmp(why, c->why, strlen(c->why)) != 0 || (c->why[0] == '\0' && why[0] != '\0');
    wrong += dp_exchange_measured(e) != (c->label == NULL);
    if (c->label == NULL) {
        wrong += strncmp(why + strlen(c->why), label, strlen(label)) != 0;
        wrong += c->ordered && !dp_strategy_ordered(label, group);
    } else {
        wrong += strcmp(label, c->label) != 0;
    }
    dp_exchange_destroy(e);
    return wrong;
}

static void auto_measures_where_ranks_do_not_share_one_nodes_memory(void **state)
{
    static const int one_node[] = {0, 0, 0, 0};
    static const struct choice over = {"auto", NULL, "measured: ", false, false};
    static const struct choice lanes = {"auto", NULL, "measured: ", true, false};
    static const struct choice one = {"auto", "zero1:over=shm", "all ranks share", false, false};
    static const struct choice whole = {"auto", "shm", "all ranks share", false, true};
    static const struct choice named = {"direct", "direct", "", false, false};
    static const struct choice levels = {"hier", "hier", "", true, false}; /* over `direct` */

    (void)state;
    assert_int_equal(on_local_nodes(4, two_nodes, shares, &over), 0);
    assert_int_equal(on_local_nodes(4, two_nodes, shares, &lanes), 0);
    assert_int_equal(on_local_nodes(4, two_nodes, shares, &named), 0);
    assert_int_equal(on_local_nodes(4, two_nodes, shares, &levels), 0);
    assert_int_equal(on_local_nodes(4, one_node, shares, &one), 0);
    assert_int_equal(on_local_nodes(4, one_node, shares, &whole), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_rank_gets_one_measured_strategy_and_why, reset),
        cmocka_unit_test_setup(rails_are_measured_on_equal_nodes, reset),
        cmocka_unit_test_setup(the_candidates_are_known_beforehand, reset),
        cmocka_unit_test_setup(a_slow_strategy_is_not_chosen_and_drops_out, reset),
        cmocka_unit_test_setup(the_fastest_strategy_is_chosen, reset),
        cmocka_unit_test_setup(a_strategy_that_is_slow_with_large_buckets_is_not_chosen, reset),
        cmocka_unit_test_setup(with_a_compressor_what_it_sends_counts, reset),
        cmocka_unit_test_setup(every_compressor_can_be_timed, reset),
        cmocka_unit_test_setup(for_lanes_only_ordered_strategies_are_measured, reset),
        cmocka_unit_test_setup(without_shared_memory_hier_is_not_measured, reset),
        cmocka_unit_test_setup(the_time_limit_is_kept, reset),
        cmocka_unit_test_setup(without_any_time_autotune_still_chooses, reset),
        cmocka_unit_test_setup(a_failed_allocation_leaves_nothing_and_blocks_no_rank, reset),
        cmocka_unit_test_setup(auto_measures_where_ranks_do_not_share_one_nodes_memory, reset),
    };

    if (dp_plugin_add(&dp_strategies, &planted.plugin) != DP_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("strategy_autotune", tests, NULL, NULL);
}
