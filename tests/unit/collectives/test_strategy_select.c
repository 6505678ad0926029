/*
 * test_strategy_select.c - what comm.strategy becomes: what the user wants as it is, what an
 * earlier run chose where it can still run, and `auto` by where ranks are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/exchange/strategy_select.h"
#include "tests/support/local_world.h"

struct wanted {
    const char *strategy;
    bool recalled, whole;
    int servers;
    const char *expected;
};

static size_t selects(struct dp_group *group, const void *arg)
{
    const struct wanted *wanted = arg;
    struct dp_exchange_config config = {.strategy = wanted->strategy,
                                        .recalled = wanted->recalled,
                                        .whole = wanted->whole,
                                        .servers = wanted->servers};
    const struct dp_bucket_plan plan = {.count = 0};
    struct dp_strategy_selection selection = {.text = NULL};

    return dp_device_find("ref", &config.device) != DP_OK ||
           dp_strategy_select(group, &config, &plan, &selection) != DP_OK ||
           strcmp(selection.text, wanted->expected) != 0 || selection.measured ||
           selection.why[0] != '\0';
}

static void ranks_of_one_node_share_its_memory_unless_something_else_is_wanted(void **state)
{
    static const struct wanted cases[] = {
        {"ring", false, false, 0, "ring"},
        {"ring", true, false, 0, "ring"},
        {"zero1:over=ring", true, false, 0, "zero1:over=ring"},
        {"mpi", false, false, 0, "mpi"},  /* whoever opens it says what is wrong */
        {"mpi", true, false, 0, "zero1"}, /* these ranks have no MPI */
        {"mpi", true, true, 0, "auto"},   /* which is shm then */
        {"mpi", true, false, 1, "ps"},
        {"auto", false, false, 0, "zero1"},
        {"auto", false, true, 0, "auto"},
        {"auto", false, false, 1, "ps"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_ranks(3, selects, &cases[i]) != 0) {
            fail_msg("case %zu: not %s", i, cases[i].expected);
        }
    }
}

/* With nobody to share with all are alike. */
static void a_rank_alone_keeps_auto(void **state)
{
    static const struct wanted wanted = {"auto", false, false, 1, "auto"};
    (void)state;

    assert_int_equal(on_local_ranks(1, selects, &wanted), 0);
}

/* Two ranks on one node, one on another. */
static void what_cannot_run_between_nodes_is_not_recalled_there(void **state)
{
    static const int nodes[] = {0, 0, 1};
    static const struct wanted cases[] = {
        {"shm", true, false, 1, "ps"},
        {"zero1:over=shm", true, false, 1, "ps"},
        {"hier", true, false, 0, "hier"},
        {"shm", false, false, 0, "shm"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_nodes(3, nodes, selects, &cases[i]) != 0) {
            fail_msg("case %zu: not %s", i, cases[i].expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_node_share_its_memory_unless_something_else_is_wanted),
        cmocka_unit_test(a_rank_alone_keeps_auto),
        cmocka_unit_test(what_cannot_run_between_nodes_is_not_recalled_there),
    };

    return cmocka_run_group_tests_name("strategy_select", tests, NULL, NULL);
}
