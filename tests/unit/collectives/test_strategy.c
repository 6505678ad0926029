/*
 * test_strategy.c - what every allreduce strategy must do, checked for every registered one.
 * A new strategy is covered as soon as it is in strategies.def.
 */
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
#include "collectives/strategies/comm.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/stderr_text.h"
#include "tests/support/strategies/strategy_checks.h"

/* ThreadSanitizer takes ten times as long, and threads meet alike on other numbers of ranks. */
#ifdef DP_TSAN
static const int sizes[] = {2, 3, 5, 8};
#else
static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8};
#endif

static void check_on(const char *strategy, int size)
{
    const size_t live = dp_mem_live();

    dp_log_set_level(DP_LOG_NONE); /* of those that refuse local ranks */
    const size_t wrong = on_local_ranks(size, check_strategy, strategy);
    dp_log_set_level(DP_LOG_INFO);
    if (wrong != 0) {
        fail_msg("strategy %s, %d ranks: %zu wrong", strategy, size, wrong);
    }
    assert_int_equal(dp_mem_live(), live);
}

static void every_strategy_fulfils_its_contract_on_one_to_eight_ranks(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
            check_on(plugin->name, sizes[n]);
        }
    }
}

/* On all numbers of ranks, or on some that follow from `number`. */
static void check_on_sizes(const char *strategy, size_t number)
{
    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        if (in_share(number + n)) {
            check_on(strategy, sizes[n]);
        }
    }
}

/* Of each strategy that has them: small slices do not reach several segments otherwise. */
static void segments_of_any_length_give_the_same_sum(void **state)
{
    static const int kilobytes[] = {1, 2};
    const struct dp_plugin *plugin;
    size_t checked = 0;
    (void)state;

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        if (dp_option_find(plugin->options, "segment_kb") == NULL) {
            continue;
        }
        for (size_t i = 0; i < sizeof(kilobytes) / sizeof(kilobytes[0]); i++) {
            char text[64];
            (void)snprintf(text, sizeof(text), "%s:segment_kb=%d", plugin->name, kilobytes[i]);
            check_on_sizes(text, (size_t)s + i);
            checked++;
        }
    }
    assert_true(checked >= 10);
}

static void check_on_nodes(const char *strategy, int size, const int *node_of)
{
    const size_t live = dp_mem_live();

    dp_log_set_level(DP_LOG_NONE); /* of those that refuse */
    const size_t wrong = on_local_nodes(size, node_of, check_strategy, strategy);
    dp_log_set_level(DP_LOG_INFO);
    if (wrong != 0) {
        fail_msg("strategy %s, %d ranks, nodes %d..%d: %zu wrong", strategy, size, node_of[0],
                 node_of[size - 1], wrong);
    }
    assert_int_equal(dp_mem_live(), live);
}

/* Blocks, uneven ones, and scattered ranks. */
static void every_strategy_fulfils_its_contract_on_several_nodes(void **state)
{
    static const struct {
        int size, node_of[8];
        bool even;
    } places[] = {
        {2, {0, 1}, true},
        {4, {0, 0, 1, 1}, true},
        {6, {0, 1, 2, 0, 1, 2}, true},
        {6, {0, 0, 1, 1, 2, 2}, true},
        {6, {0, 0, 0, 1, 1, 1}, true},
        {8, {0, 0, 1, 1, 2, 2, 3, 3}, true},
        {8, {0, 0, 0, 0, 1, 1, 1, 1}, true},
        {5, {0, 0, 0, 1, 1}, false},
        {7, {0, 1, 1, 2, 2, 2, 2}, false},
    };
    static const char *const texts[] = {"hier:outer=direct", "hier:inner=direct,outer=rhd"};
    static const char *const rails[] = {
        "hier:rails=1",
        "hier:rails=1,outer=direct",
        "hier:rails=1,inner=doubling,outer=doubling",
    };
    const struct dp_plugin *plugin;
    (void)state;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
            /* Nodes are simulated here, but GPU strategies look at real GPUs. */
            if (!((const struct dp_strategy *)plugin)->gpus && in_share(i + (size_t)s)) {
                check_on_nodes(plugin->name, places[i].size, places[i].node_of);
            }
        }
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            check_on_nodes(texts[k], places[i].size, places[i].node_of);
        }
        for (size_t k = 0; places[i].even && k < sizeof(rails) / sizeof(rails[0]); k++) {
            check_on_nodes(rails[k], places[i].size, places[i].node_of);
        }
    }
}

static size_t sums_privately(struct dp_group *group, const void *unused)
{
    struct dp_comm *comm = NULL;
    size_t wrong = dp_comm_create(group, "hier:inner=direct", 8, 8, &comm) != DP_OK;
    float *data = dp_group_memory(group, DP_MEM_GRADIENTS, 8 * sizeof(float));
    (void)unused;

    if (wrong > 0 || data == NULL || !group->unshared) {
        return 1;
    }
    data[7] = (float)group->rank;
    wrong += dp_comm_sum(comm, (struct dp_slice){data, 8, sizeof(float)}, DP_KEEP_ALL) != DP_OK ||
             data[7] != 0 + 1 + 2 + 3 + 4;
    dp_comm_destroy(comm);
    dp_group_release(group, data);
    return wrong;
}

/* It was chosen before the room was gone: the leader of a node sends the others what they copied
 * from it else. */
static void hier_goes_on_where_memory_cannot_be_shared(void **state)
{
    static const int node_of[] = {0, 0, 1, 1, 1};
    (void)state;

    local_world_room(0);
    assert_int_equal(on_local_nodes(5, node_of, sums_privately, NULL), 0);
    local_world_room(-1);
}

struct refusal {
    const char *text;
    int size, node_of[6];
    dp_status status;
};

static size_t opens_and_fails(struct dp_group *group, const void *arg)
{
    const struct refusal *r = arg;
    struct dp_comm *comm = NULL;

    return dp_comm_create(group, r->text, 64, 64, &comm) != r->status || comm != NULL;
}

static size_t has_no_room(struct dp_group *group, const void *unused)
{
    const struct dp_plugin *plugin = dp_plugin_find(&dp_strategies, "shm", strlen("shm"));
    const char *why_not = "";
    (void)unused;

    group->unshared = true;
    return ((const struct dp_strategy *)plugin)->supports(group, &why_not) ||
           strstr(why_not, "/dev/shm") == NULL;
}

/* All ranks refuse, even if only the leaders of nodes know the reason. */
static void levels_that_do_not_fit_are_refused_by_all_ranks(void **state)
{
    static const struct refusal refusals[] = {
        {"hier:rails=1", 4, {0, 0, 0, 1}, DP_ERR_UNAVAILABLE},
        {"hier:rails=1", 6, {0, 0, 1, 2, 2, 2}, DP_ERR_UNAVAILABLE}, /* as many on the mean */
        {"hier:outer=shm", 4, {0, 0, 1, 1}, DP_ERR_UNAVAILABLE},
        {"hier:outer=mpi", 4, {0, 0, 1, 1}, DP_ERR_UNAVAILABLE},
        {"hier:outer=rnig", 4, {0, 0, 1, 1}, DP_ERR_CONFIG},
        {"hier:inner=rnig", 4, {0, 0, 1, 1}, DP_ERR_CONFIG},
        {"hier:outer=none", 4, {0, 0, 1, 1}, DP_ERR_CONFIG},
        {"hier:outer=hier", 4, {0, 0, 1, 1}, DP_ERR_CONFIG},
    };
    const size_t live = dp_mem_live();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (on_local_nodes(refusals[i].size, refusals[i].node_of, opens_and_fails, &refusals[i]) !=
            0) {
            fail_msg("%s", refusals[i].text);
        }
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

/* Leaders are only some ranks of a node: that is why they share no memory, not a lack of it. */
static void the_reason_for_unshared_memory_is_reported(void **state)
{
    static const struct refusal some = {"hier:inner=ring,outer=shm", 4, {0}, DP_ERR_UNAVAILABLE},
                                none = {"shm", 2, {0}, DP_OK};
    (void)state;

    stderr_begin();
    assert_int_equal(on_local_nodes(some.size, some.node_of, opens_and_fails, &some), 0);
    stderr_end();
    assert_non_null(strstr(stderr_text,
                           "comm.strategy hier: outer=shm cannot run here: only some ranks "
                           "of this node take part"));
    assert_null(strstr(stderr_text, "room"));
    assert_int_equal(on_local_ranks(none.size, has_no_room, &none), 0);
}

static void levels_keep_the_order_where_nodes_are_equal_blocks(void **state)
{
    static const struct {
        const char *text;
        int size, nodes, node_of[8];
        bool ordered;
    } cases[] = {
        {"hier", 4, 2, {0, 0, 1, 1}, false}, /* over a ring */
        {"hier", 4, 1, {0, 0, 0, 0}, true},  /* which one node does not need */
        {"hier:outer=direct", 4, 2, {0, 0, 1, 1}, true},
        {"hier:outer=direct", 6, 3, {0, 0, 1, 1, 2, 2}, true},
        {"hier:outer=rhd", 6, 3, {0, 0, 1, 1, 2, 2}, false},
        {"hier:outer=rhd,rails=1", 8, 4, {0, 0, 1, 1, 2, 2, 3, 3}, true},
        {"hier:outer=direct", 4, 2, {0, 1, 0, 1}, false},
        {"hier:outer=direct", 6, 2, {0, 0, 0, 1, 1, 1}, false},
        {"hier:outer=direct", 3, 2, {0, 0, 1}, false},
        {"hier:inner=ring,outer=direct", 4, 2, {0, 0, 1, 1}, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int local = 0;
        for (int r = 0; r < cases[i].size; r++) {
            local += cases[i].node_of[r] == 0;
        }
        const struct dp_group group = {.size = cases[i].size,
                                       .nodes = cases[i].nodes,
                                       .local_size = local,
                                       .node_of = cases[i].node_of};
        if (dp_strategy_ordered(cases[i].text, &group) != cases[i].ordered) {
            fail_msg("%s, case %zu", cases[i].text, i);
        }
    }
}

/* With lanes `auto` chooses ordered strategies, also inside another one. */
static void auto_keeps_the_order_for_lanes(void **state)
{
    static const char *const texts[] = {"auto", "hier", "hier:outer=auto", "hier:rails=1",
                                        "hier:inner=auto"};
    const int node_of[] = {0, 0, 1, 1};
    struct dp_group group = {.size = 4, .nodes = 2, .local_size = 2, .node_of = node_of};
    (void)state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        group.ordered = false;
        const bool unasked = dp_strategy_ordered(texts[i], &group);
        group.ordered = true;
        if (unasked || !dp_strategy_ordered(texts[i], &group)) {
            fail_msg("%s", texts[i]);
        }
        assert_false(dp_strategy_ordered("hier:outer=ring", &group));
    }
}

/* The strategies that give the same bits on any number of ranks. */
static void the_order_is_kept_where_it_is_promised(void **state)
{
    static const struct {
        const char *text;
        int ranks;
        bool ordered;
    } cases[] = {
        {"shm", 5, true},   {"auto", 5, true},     {"none", 5, false},
        {"ring", 4, false}, {"mpi", 4, false},     {"direct", 7, true},
        {"rhd", 1, true},   {"rhd", 4, true},      {"rhd:segment_kb=4", 8, true},
        {"rhd", 6, false},  {"doubling", 2, true}, {"doubling", 3, false},
        {"rnig", 1, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int node_of[8] = {0};
        const struct dp_group group = {
            .size = cases[i].ranks, .nodes = 1, .local_size = cases[i].ranks, .node_of = node_of};
        if (dp_strategy_ordered(cases[i].text, &group) != cases[i].ordered) {
            fail_msg("%s on %d ranks", cases[i].text, cases[i].ranks);
        }
    }
}

static float letter(int rank, size_t i)
{
    static const float values[] = {1e8f, 1.0f, -1e8f, 1.0f, 0.5f};
    (void)i;

    return values[rank];
}

/* By hand: with four ranks (1e8 + 1) + (-1e8 + 1) is 0, since 1e8 + 1 rounds to 1e8; with five,
 * the last is added to the sum of the first four. */
static void the_reference_tree_adds_neighbours_first(void **state)
{
    (void)state;
    assert_true(tree_sum(0, 4, 0, letter) == 0.0f);
    assert_true(tree_sum(0, 5, 0, letter) == 0.5f);
    assert_true(tree_sum(0, 3, 0, letter) == 0.0f);
    assert_true(tree_sum(1, 3, 0, letter) == (1.0f + -1e8f) + 1.0f);
}

/* The whole of a strategy's text: "strategy x: why; these can: a, b". */
static void a_strategy_that_cannot_run_names_those_that_can(void **state)
{
    const char *why_not = NULL;
    const struct dp_plugin *shm = dp_plugin_find(&dp_strategies, "shm", 3);
    const struct dp_plugin *mpi = dp_plugin_find(&dp_strategies, "mpi", 3);
    struct dp_group *group = NULL;
    char can[256];
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    struct dp_group two_nodes = *group;
    two_nodes.size = two_nodes.nodes = 2;
    assert_false(((const struct dp_strategy *)shm)->supports(&two_nodes, &why_not));
    assert_non_null(strstr(why_not, "node"));
    assert_false(((const struct dp_strategy *)mpi)->supports(&two_nodes, &why_not));
    assert_non_null(strstr(why_not, "MPI"));
    assert_string_equal(dp_strategy_choose(&two_nodes, &why_not), "ring");
    two_nodes.ordered = true;
    assert_string_equal(dp_strategy_choose(&two_nodes, &why_not), "direct");
    assert_string_equal(dp_strategy_choose(group, &why_not), "shm");
    dp_comm_list_sharing(group, can, sizeof(can));
    assert_non_null(strstr(can, "shm, "));
    dp_group_destroy(group);
}

static size_t opens_unknown(struct dp_group *group, const void *text)
{
    struct dp_comm *comm = NULL;

    return dp_comm_create(group, text, 64, 64, &comm) != DP_ERR_CONFIG || comm != NULL;
}

static void an_unknown_strategy_is_a_configuration_error(void **state)
{
    (void)state;
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(2, opens_unknown, "rnig"), 0);
    assert_int_equal(on_local_ranks(1, opens_unknown, "ring:speed=9"), 0);
    dp_log_set_level(DP_LOG_INFO);
}

/* Rank 0 fails; the others, which wait for it in a sum, are woken. */
static size_t leaves_others_alone(struct dp_group *group, const void *name)
{
    struct dp_comm *comm = NULL;
    float *data = dp_group_memory(group, DP_MEM_GRADIENTS, 4096);
    size_t wrong = 1;

    if (data != NULL && dp_comm_create(group, name, 1024, 64, &comm) == DP_OK) {
        const struct dp_slice slice = {data, 1024, sizeof(float)};
        /* After the barrier all have opened theirs; some may still be in it when rank 0 fails. */
        const dp_status status = dp_group_barrier(group);
        wrong = group->rank == 0 || (status != DP_ERR_CANCELLED &&
                                     dp_comm_sum(comm, slice, DP_KEEP_ALL) != DP_ERR_CANCELLED);
    }
    if (group->rank == 0) {
        dp_group_leave(group, DP_ERR_INTERNAL);
    }
    dp_comm_destroy(comm);
    dp_group_release(group, data);
    return wrong;
}

static void a_failing_rank_wakes_those_that_wait_in_a_sum(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    assert_int_equal(on_local_ranks(3, leaves_others_alone, "ring"), 1);
    assert_int_equal(on_local_ranks(3, leaves_others_alone, "shm"), 1);
    assert_int_equal(dp_mem_live(), live);
}

static void opening_survives_every_failed_allocation(void **state)
{
    const struct dp_plugin *plugin;
    const char *why_not;
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    assert_int_equal(find_gpus(group), DP_OK);
    const size_t live = dp_mem_live();
    dp_log_set_level(DP_LOG_NONE);
    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        dp_status status = DP_ERR_NOMEM;
        if (!((const struct dp_strategy *)plugin)->supports(group, &why_not)) {
            continue;
        }
        for (int nth = 1; status != DP_OK; nth++) {
            struct dp_comm *comm = NULL;
            dp_mem_fail_nth(nth);
            status = dp_comm_create(group, plugin->name, 1000, 100, &comm);
            dp_mem_fail_nth(0);
            assert_true(status == DP_OK || status == DP_ERR_NOMEM);
            assert_true((comm != NULL) == (status == DP_OK));
            dp_comm_destroy(comm);
            assert_int_equal(dp_mem_live(), live);
        }
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_group_destroy(group);
}

/* One rank of two has no memory left; both end, and nothing is left. */
static size_t opens_without_memory(struct dp_group *group, const void *name)
{
    struct dp_comm *comm = NULL;
    float *data = dp_group_memory(group, DP_MEM_GRADIENTS, 4096);
    dp_status status = DP_ERR_NOMEM;
    const char *why_not = NULL;

    if (strategy_refuses(group, name, &why_not)) {
        dp_group_release(group, data);
        return data == NULL;
    }
    if (data != NULL) {
        status = dp_comm_create(group, name, 1024, 64, &comm);
    }
    if (status == DP_OK) {
        status = dp_comm_sum(comm, (struct dp_slice){data, 1024, sizeof(float)}, DP_KEEP_ALL);
    }
    dp_comm_destroy(comm);
    dp_group_release(group, data);
    return status != DP_OK;
}

static void missing_memory_on_one_rank_blocks_no_rank(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        check_failing_allocations(2, NULL, opens_without_memory, plugin->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_tree_adds_neighbours_first),
        cmocka_unit_test(every_strategy_fulfils_its_contract_on_one_to_eight_ranks),
        cmocka_unit_test(segments_of_any_length_give_the_same_sum),
        cmocka_unit_test(every_strategy_fulfils_its_contract_on_several_nodes),
        cmocka_unit_test(hier_goes_on_where_memory_cannot_be_shared),
        cmocka_unit_test(levels_that_do_not_fit_are_refused_by_all_ranks),
        cmocka_unit_test(the_reason_for_unshared_memory_is_reported),
        cmocka_unit_test(levels_keep_the_order_where_nodes_are_equal_blocks),
        cmocka_unit_test(the_order_is_kept_where_it_is_promised),
        cmocka_unit_test(auto_keeps_the_order_for_lanes),
        cmocka_unit_test(a_strategy_that_cannot_run_names_those_that_can),
        cmocka_unit_test(an_unknown_strategy_is_a_configuration_error),
        cmocka_unit_test(a_failing_rank_wakes_those_that_wait_in_a_sum),
        cmocka_unit_test(opening_survives_every_failed_allocation),
        cmocka_unit_test(missing_memory_on_one_rank_blocks_no_rank),
    };
    return cmocka_run_group_tests_name("strategy", tests, NULL, NULL);
}
