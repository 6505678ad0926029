/*
 * test_slow_link.c - which link between nodes is the slow one: in planted times of 3 to 256 nodes,
 * and measured over a transport that is slow for one of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/core/transport.h"
#include "collectives/strategies/slow_link.h"
#include "tests/support/local_world.h"

enum { NODES_MOST = 256, ROUNDS_MOST = 8, BYTES = 1 << 20 };

static const int sizes[] = {3, 4, 5, 7, 8, 64, 100, 256};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

struct planted {
    int sender, receiver; /* -1: any */
    double times;         /* slower */
};

/* Times between 1 and 1.5, and those of the planted link. */
static void fill(double *seconds, int nodes, struct planted slow)
{
    for (int k = 0; k < dp_slow_link_rounds(nodes); k++) {
        for (int to = 0; to < nodes; to++) {
            const int from = (to - (1 << k) % nodes + nodes) % nodes;
            const bool here = (slow.sender < 0 || slow.sender == from) &&
                              (slow.receiver < 0 || slow.receiver == to);
            seconds[k * nodes + to] =
                (1.0 + 0.05 * (double)((7 * to + 3 * k) % 11)) * (here ? slow.times : 1.0);
        }
    }
}

static double table[NODES_MOST * ROUNDS_MOST];

static struct dp_slow_link found(int nodes)
{
    struct dp_slow_link link;

    assert_int_equal(dp_slow_link_find(table, nodes, BYTES, &link), DP_OK);
    return link;
}

static void links_that_are_alike_are_no_finding(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        fill(table, sizes[i], (struct planted){-1, -1, 1.0});
        assert_false(found(sizes[i]).found);
    }
    for (int nodes = 1; nodes <= 2; nodes++) { /* nothing to compare with */
        assert_int_equal(dp_slow_link_rounds(nodes), 0);
        assert_false(found(nodes).found);
    }
}

static void a_node_that_sends_or_receives_slowly_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        const int nodes = sizes[i], node = nodes / 2;
        fill(table, nodes, (struct planted){node, -1, 4.0});
        struct dp_slow_link link = found(nodes);
        assert_true(link.found && link.from == node && link.to == -1);
        assert_true(link.slow_s > 2.0 * link.others_s);
        fill(table, nodes, (struct planted){-1, node, 4.0});
        link = found(nodes);
        assert_true(link.found && link.from == -1 && link.to == node);
    }
}

/* What a node sends takes just twice the time of others. */
static void what_takes_twice_the_time_is_not_slow_yet(void **state)
{
    const int nodes = 8, node = 3;
    (void)state;

    for (int k = 0; k < dp_slow_link_rounds(nodes); k++) {
        for (int to = 0; to < nodes; to++) {
            table[k * nodes + to] = (to - (1 << k) + nodes) % nodes == node ? 2.0 : 1.0;
        }
    }
    assert_false(found(nodes).found);
    for (int k = 0; k < dp_slow_link_rounds(nodes); k++) {
        table[k * nodes + node] = 4.0; /* what it receives is */
    }
    const struct dp_slow_link link = found(nodes);
    assert_true(link.found && link.from == -1 && link.to == node);
}

/* Of 4 nodes 8 links: the second fastest, since up to six may be slow. */
static void others_take_what_a_quarter_of_all_takes_at_most(void **state)
{
    static const double seconds[] = {1.5, 1.2, 1.4, 9.0, 1.1, 9.5, 1.3, 1.6};
    (void)state;

    memcpy(table, seconds, sizeof(seconds));
    assert_true(found(4).others_s == 1.2);
}

/* Both ways, as where a port of a switch is slow: the times of both. */
static void a_node_that_does_both_slowly_is_named(void **state)
{
    static double other[NODES_MOST * ROUNDS_MOST];
    (void)state;

    for (int i = 0; i < SIZES; i++) {
        const int nodes = sizes[i], node = nodes - 1;
        fill(other, nodes, (struct planted){node, -1, 5.0});
        fill(table, nodes, (struct planted){-1, node, 5.0});
        for (int k = 0; k < nodes * dp_slow_link_rounds(nodes); k++) {
            table[k] = table[k] > other[k] ? table[k] : other[k];
        }
        const struct dp_slow_link link = found(nodes);
        assert_true(link.found && link.from == node && link.to == node);
    }
}

static void a_slow_way_between_two_nodes_is_named(void **state)
{
    (void)state;
    for (int i = 1; i < SIZES; i++) { /* of 3 nodes, two links of each: there is no other pair */
        const int nodes = sizes[i];
        fill(table, nodes, (struct planted){1, 2, 4.0});
        struct dp_slow_link link = found(nodes);
        assert_true(link.found && link.from == 1 && link.to == 2);
        fill(table, nodes, (struct planted){nodes - 1, 1, 4.0}); /* beyond the last one */
        link = found(nodes);
        assert_true(link.found && link.from == nodes - 1 && link.to == 1);
    }
}

/* The first one that was measured. */
static void of_two_ways_that_are_as_slow_one_is_named(void **state)
{
    const int nodes = 8;
    (void)state;

    for (int k = 0; k < nodes * dp_slow_link_rounds(nodes); k++) {
        table[k] = 1.0;
    }
    table[2] = table[5] = 4.0; /* from 1 to 2, and from 4 to 5 */
    const struct dp_slow_link link = found(nodes);
    assert_true(link.found && link.from == 1 && link.to == 2);
}

/* Far nodes are slow to reach from everywhere: no link is the slow one. */
static void networks_of_two_levels_are_no_finding(void **state)
{
    const int nodes = 64, last = dp_slow_link_rounds(nodes) - 1;
    (void)state;

    fill(table, nodes, (struct planted){-1, -1, 1.0});
    for (int to = 0; to < nodes; to++) {
        table[last * nodes + to] *= 6.0;
    }
    assert_false(found(nodes).found);
}

static void the_curve_is_mended_where_it_was_slow(void **state)
{
    struct dp_cost cost = {.exchange[DP_LINK_WIRE] = {2, {64.0, BYTES}, {0.001, 0.041}}};
    const struct dp_slow_link slow = {true, 1, 1, BYTES, 0.040, 0.010};
    const struct dp_slow_link other = {true, 1, 3, BYTES, 0.160, 0.040};
    (void)state;

    dp_slow_link_mend(&other, &cost); /* no neighbours use that link: the curve does not show it */
    assert_float_equal(cost.exchange[DP_LINK_WIRE].seconds[1], 0.041, 1e-12);
    dp_slow_link_mend(&slow, &cost);
    assert_float_equal(cost.exchange[DP_LINK_WIRE].seconds[0], 0.001, 1e-12);
    assert_float_equal(cost.exchange[DP_LINK_WIRE].seconds[1], 0.011, 1e-12);
}

/* ---- measured ---- */

static _Thread_local const struct dp_transport *beneath;
static int slow_rank;
static _Thread_local int sent; /* messages of this rank */

/* A message takes its sender 10 ms, that rank 60 ms. */
static dp_status start_late(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                            struct dp_transfer *transfer)
{
    const struct timespec wait = {0, group->rank == slow_rank ? 60000000 : 10000000};

    if (transfer->to >= 0 && dp_slice_bytes(out) > 1024) {
        (void)nanosleep(&wait, NULL);
        sent++;
    }
    return beneath->start(group, out, in, transfer);
}

static size_t measures(struct dp_group *group, const void *arg)
{
    struct dp_transport wire = *group->transport;
    /* A message of the shortest length takes all the time that there is: so it is that. */
    const struct dp_cost cost = {.exchange[DP_LINK_WIRE] = {1, {1 << 18}, {1.0}}};
    struct dp_slow_link link;
    size_t wrong = 1;
    (void)arg;

    group->spin_ns = 12345;
    sent = 0;
    beneath = group->transport;
    wire.start = start_late;
    group->transport = &wire;
    if (dp_slow_link_measure(group, &cost, 0.1, &link) == DP_OK) {
        wrong = !link.found || link.from != group->node_of[slow_rank] || link.bytes != 1 << 18;
    }
    group->transport = beneath;
    /* What was found is measured once more: two rounds, three turns of each. */
    wrong += sent != (dp_group_leader(group, group->node_of[group->rank]) == group->rank ? 12 : 0);
    return wrong + (group->spin_ns != 12345); /* whoever sleeps meanwhile waits as before */
}

static void the_slow_node_is_found_by_all_ranks(void **state)
{
    const int four[] = {0, 0, 1, 1, 2, 2, 3};
    (void)state;

    slow_rank = 4; /* it leads node 2 */
    assert_int_equal(on_local_nodes(7, four, measures, NULL), 0);
}

static size_t measures_without_memory(struct dp_group *group, const void *arg)
{
    const struct dp_cost cost = {.exchange[DP_LINK_WIRE] = {1, {1 << 18}, {1.0}}};
    struct dp_slow_link link;
    (void)arg;

    return dp_slow_link_measure(group, &cost, 0.1, &link) != DP_OK;
}

static void two_nodes_have_nothing_to_compare(void **state)
{
    struct dp_cost cost = {.flags_s = 0.0};
    struct dp_slow_link link;
    struct dp_group *alone = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&alone), DP_OK);
    struct dp_group group = *alone;
    group.nodes = 2;
    cost.exchange[DP_LINK_WIRE] = (struct dp_curve){.count = 1, .bytes = {1e3}, .seconds = {1e-3}};
    dp_mem_fail_nth(1);
    assert_int_equal(dp_slow_link_measure(&group, &cost, 0.1, &link), DP_OK);
    assert_int_equal(dp_mem_fail_nth(0), 1); /* no memory was asked for */
    assert_false(link.found);
    dp_group_destroy(alone);
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    const int three[] = {0, 1, 2};
    (void)state;

    check_failing_allocations(3, three, measures_without_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_that_are_alike_are_no_finding),
        cmocka_unit_test(a_node_that_sends_or_receives_slowly_is_named),
        cmocka_unit_test(what_takes_twice_the_time_is_not_slow_yet),
        cmocka_unit_test(others_take_what_a_quarter_of_all_takes_at_most),
        cmocka_unit_test(a_node_that_does_both_slowly_is_named),
        cmocka_unit_test(a_slow_way_between_two_nodes_is_named),
        cmocka_unit_test(of_two_ways_that_are_as_slow_one_is_named),
        cmocka_unit_test(networks_of_two_levels_are_no_finding),
        cmocka_unit_test(the_curve_is_mended_where_it_was_slow),
        cmocka_unit_test(the_slow_node_is_found_by_all_ranks),
        cmocka_unit_test(two_nodes_have_nothing_to_compare),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_and_blocks_no_rank),
    };
    return cmocka_run_group_tests_name("slow_link", tests, NULL, NULL);
}
