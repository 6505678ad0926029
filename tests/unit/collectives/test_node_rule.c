/* test_node_rule.c - where ranks lie by a rule is where a launcher puts them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/core/node_rule.h"

enum { SIZE = 12, LOCAL = 4 };

static const int nodes_by[][SIZE] = {
    [DP_NODE_RULE_BLOCKS] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2},
    [DP_NODE_RULE_TURNS] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2},
};

/* The seat of a rank where ranks lie so, found by looking at all before it. */
static struct dp_node_seat seat_of(const int *node_of, int rank)
{
    struct dp_node_seat seat = {.leader = rank};

    for (int i = rank - 1; i >= 0; i--) {
        if (node_of[i] == node_of[rank]) {
            seat.leader = i;
            seat.local_rank++;
        }
    }
    return seat;
}

static void a_rule_says_where_all_ranks_are(void **state)
{
    (void)state;
    for (enum dp_node_rule rule = DP_NODE_RULE_BLOCKS; rule <= DP_NODE_RULE_TURNS; rule++) {
        for (int rank = 0; rank < SIZE; rank++) {
            const struct dp_node_seat seat = seat_of(nodes_by[rule], rank);
            assert_int_equal(dp_node_rule_node(rule, SIZE, LOCAL, rank), nodes_by[rule][rank]);
            assert_int_equal(dp_node_rule_local_rank(rule, SIZE, LOCAL, rank), seat.local_rank);
            assert_true(dp_node_rule_seats(rule, SIZE, LOCAL, rank, &seat));
        }
    }
}

static void ranks_that_lie_otherwise_have_no_rule(void **state)
{
    static const int odd[SIZE] = {0, 0, 0, 0, 1, 2, 1, 2, 1, 2, 1, 2};
    (void)state;

    for (enum dp_node_rule rule = DP_NODE_RULE_NONE; rule <= DP_NODE_RULE_TURNS; rule++) {
        int seats = 0;
        for (int rank = 0; rank < SIZE; rank++) {
            const struct dp_node_seat seat = seat_of(odd, rank);
            seats += dp_node_rule_seats(rule, SIZE, LOCAL, rank, &seat);
        }
        assert_true(seats < SIZE);
    }
    for (int rank = 0; rank < 7; rank++) {
        const struct dp_node_seat seat = {.leader = rank / LOCAL * LOCAL,
                                          .local_rank = rank % LOCAL};
        assert_false(dp_node_rule_seats(DP_NODE_RULE_BLOCKS, 7, LOCAL, rank, &seat));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_says_where_all_ranks_are),
        cmocka_unit_test(ranks_that_lie_otherwise_have_no_rule),
    };
    return cmocka_run_group_tests_name("node_rule", tests, NULL, NULL);
}
