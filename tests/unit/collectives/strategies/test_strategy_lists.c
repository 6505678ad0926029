/* test_strategy_lists.c - which strategies users are told of that can run, or keep the order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/core/transport.h"
#include "collectives/strategies/comm.h"
#include "collectives/strategies/strategy.h"
#include "kernels/device.h"

static struct dp_group *alone;
static struct dp_group two_nodes;

static const struct dp_strategy *named(const char *name)
{
    return (const struct dp_strategy *)dp_plugin_find(&dp_strategies, name, strlen(name));
}

static void add_name(char *list, size_t size, const char *name)
{
    const size_t used = strlen(list);

    (void)snprintf(list + used, size - used, "%s%s", used == 0 ? "" : ", ", name);
}

/* All that can run in a group; that share something, or keep the order. */
static void list(const struct dp_group *group, bool shares, bool ordered, char *out, size_t size)
{
    const struct dp_plugin *plugin;
    const char *why_not;

    out[0] = '\0';
    for (int i = 0; (plugin = dp_plugin_at(&dp_strategies, i)) != NULL; i++) {
        const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
        const bool runs = group == NULL ? !strategy->gpus || !dp_device_left_out("cuda")
                                        : strategy->supports(group, &why_not);
        if (runs && (!shares || strategy->sum != NULL) &&
            (!ordered || dp_strategy_ordered(plugin->name, group))) {
            add_name(out, size, plugin->name);
        }
    }
}

static void those_that_share_are_listed(void **state)
{
    char expected[256], found[256] = "of before";
    (void)state;

    dp_comm_list_sharing(alone, found, sizeof(found));
    list(alone, true, false, expected, sizeof(expected));
    assert_string_equal(found, expected);
    assert_non_null(strstr(found, ", "));
    dp_comm_list_sharing(&two_nodes, found, sizeof(found));
    list(&two_nodes, true, false, expected, sizeof(expected));
    assert_string_equal(found, expected);
    assert_null(strstr(found, "shm"));
    assert_null(strstr(found, "none"));
}

static void check_refusal(const char *name, const struct dp_group *group, const char *here)
{
    char expected[512], found[512] = "", names[256];

    list(group, false, true, names, sizeof(names));
    assert_int_equal(dp_comm_check_order(named(name), NULL, group, found, sizeof(found)),
                     DP_ERR_CONFIG);
    (void)snprintf(expected, sizeof(expected),
                   "%s adds in an order that train.lanes cannot use%s; these keep it: %s", name,
                   here, names);
    assert_string_equal(found, expected);
}

static void those_that_keep_the_order_are_named_where_another_one_is_wanted(void **state)
{
    char problem[256] = "of before";
    (void)state;

    assert_int_equal(dp_comm_check_order(named("direct"), NULL, NULL, problem, sizeof(problem)),
                     DP_OK);
    assert_int_equal(
        dp_comm_check_order(named("direct"), NULL, &two_nodes, problem, sizeof(problem)), DP_OK);
    assert_string_equal(problem, "of before");
    check_refusal("ring", NULL, "");
    check_refusal("ring", &two_nodes, "");
    check_refusal("ring", alone, "");
}

static void check_refused(const char *text, const char *who)
{
    const char *why_not = NULL;
    struct dp_log_capture capture;
    struct dp_comm *comm = NULL;
    char can[256], expected[512];

    list(&two_nodes, false, false, can, sizeof(can));
    assert_false(named("shm")->supports(&two_nodes, &why_not));
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_comm_create(&two_nodes, text, 64, 64, &comm), DP_ERR_UNAVAILABLE);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_null(comm);
    (void)snprintf(expected, sizeof(expected),
                   "comm.strategy %s cannot run here: %s; these can: %s", who, why_not, can);
    assert_non_null(strstr(dp_log_captured(&capture), expected));
}

static void one_that_cannot_run_names_those_that_can(void **state)
{
    (void)state;
    check_refused("shm", "shm");
}

/* One rank is one, too. */
static void levels_keep_the_order_where_nodes_have_a_power_of_two_ranks(void **state)
{
    static const int apart[] = {0, 1, 2, 3, 4, 5, 6, 7}, together[8] = {0};
    (void)state;

    for (int ranks = 1; ranks <= 8; ranks++) {
        struct dp_group group = {.size = ranks, .nodes = ranks, .local_size = 1, .node_of = apart};
        assert_true(dp_strategy_ordered("hier:outer=direct", &group));
        group.nodes = 1;
        group.local_size = ranks;
        group.node_of = together;
        assert_int_equal(dp_strategy_ordered("hier:outer=direct", &group),
                         (ranks & (ranks - 1)) == 0);
    }
}

/* Where the library has MPI: a rank alone needs no connection. */
static void mpi_connects_more_than_one_rank(void **state)
{
    const struct dp_strategy *mpi = named("mpi");
    const char *why_not = "";
    (void)state;

    if (mpi == NULL) {
        return;
    }
    assert_true(mpi->supports(alone, &why_not));
    assert_string_equal(why_not, "");
    assert_false(mpi->supports(&two_nodes, &why_not));
    assert_non_null(strstr(why_not, "MPI"));
}

static int set_up(void **state)
{
    (void)state;
    if (dp_local_alone(&alone) != DP_OK) {
        return 1;
    }
    two_nodes = *alone;
    two_nodes.size = two_nodes.nodes = 2;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dp_group_destroy(alone);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_share_are_listed),
        cmocka_unit_test(those_that_keep_the_order_are_named_where_another_one_is_wanted),
        cmocka_unit_test(one_that_cannot_run_names_those_that_can),
        cmocka_unit_test(levels_keep_the_order_where_nodes_have_a_power_of_two_ranks),
        cmocka_unit_test(mpi_connects_more_than_one_rank),
    };

    return cmocka_run_group_tests_name("strategy_lists", tests, set_up, tear_down);
}
