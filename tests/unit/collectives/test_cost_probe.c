/*
 * test_cost_probe.c - measuring the curves of the cost model, with ranks as threads: the same on
 * all of them, long enough messages on a wire, shared memory where there is little of it.
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
#include "collectives/strategies/cost.h"
#include "tests/support/local_world.h"
#include "tests/support/memory/marked_end.h"

enum { MOST = 5000 };

/* Never used up: curves end with their last point, however busy the machine is (barriers of ranks
 * that wait for cores can take seconds). */
static const double probe_s = 1000.0;

static size_t curve_is_bad(const struct dp_curve *curve, bool wanted)
{
    size_t wrong = wanted != (curve->count > 1);

    for (int i = 0; i < curve->count; i++) {
        wrong += !(curve->seconds[i] > 0.0) || (i > 0 && curve->bytes[i] <= curve->bytes[i - 1]);
    }
    /* 5000, in whole blocks of 64. */
    return wrong + (curve->count > 0 && curve->bytes[curve->count - 1] != 5056.0);
}

static bool curves_differ(const struct dp_curve *a, const struct dp_curve *b)
{
    bool differ = a->count != b->count;

    for (int i = 0; i < a->count && !differ; i++) {
        differ = a->bytes[i] != b->bytes[i] || a->seconds[i] != b->seconds[i];
    }
    return differ;
}

static size_t measures(struct dp_group *group, const void *arg)
{
    struct dp_cost cost, first;
    size_t wrong = 0;
    (void)arg;

    if (dp_cost_measure(group, MOST, probe_s, &cost) != DP_OK) {
        return 1;
    }
    wrong += curve_is_bad(&cost.copy, true) + curve_is_bad(&cost.sum, true);
    wrong += curve_is_bad(&cost.exchange[DP_LINK_NODE], group->size > 1);
    wrong += curve_is_bad(&cost.add, group->size > 1) + curve_is_bad(&cost.whole, group->size > 1);
    wrong += curve_is_bad(&cost.peer, group->size > 1);
    wrong += cost.exchange[DP_LINK_WIRE].count != 0;
    wrong += (cost.flags_s > 0.0) != (group->size > 1);
    wrong += group->size > 1 && !(cost.alpha[DP_LINK_NODE] + cost.beta[DP_LINK_NODE] > 0.0);
    first = cost;
    wrong += dp_group_broadcast(group, &first, sizeof(first), 0) != DP_OK;
    wrong += curves_differ(&first.copy, &cost.copy) + curves_differ(&first.sum, &cost.sum);
    wrong += curves_differ(&first.add, &cost.add) + curves_differ(&first.whole, &cost.whole);
    wrong += curves_differ(&first.exchange[DP_LINK_NODE], &cost.exchange[DP_LINK_NODE]);
    return wrong + curves_differ(&first.peer, &cost.peer) + (first.flags_s != cost.flags_s);
}

static _Thread_local const struct dp_transport *beneath;

/* Measures over a transport that wraps `beneath`. */
static dp_status measure_over(struct dp_group *group, const struct dp_transport *transport,
                              size_t most, double seconds, struct dp_cost *cost)
{
    dp_status status;

    beneath = group->transport;
    group->transport = transport;
    status = dp_cost_measure(group, most, seconds, cost);
    group->transport = beneath;
    return status;
}

static _Thread_local size_t sent_to[4]; /* bytes to each rank */

static dp_status start_and_count(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                                 struct dp_transfer *transfer)
{
    if (transfer->to >= 0) {
        sent_to[transfer->to] += dp_slice_bytes(out);
    }
    return beneath->start(group, out, in, transfer);
}

/* In a ring; barriers and the like, which go to others, too, are short. */
static size_t sends_to_its_neighbour(struct dp_group *group, const void *arg)
{
    struct dp_transport counting = *group->transport;
    struct dp_cost cost;
    const int next = (group->rank + 1) % group->size, last = (group->rank + 2) % group->size;
    (void)arg;

    counting.start = start_and_count;
    memset(sent_to, 0, sizeof(sent_to));
    if (measure_over(group, &counting, MOST, probe_s, &cost) != DP_OK) {
        return 1;
    }
    return sent_to[next] < MOST || sent_to[last] > sent_to[next] / 2;
}

static void each_rank_of_a_node_sends_to_the_next_one(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(4, sends_to_its_neighbour, NULL), 0);
}

static void all_ranks_measure_the_same_curves(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int size = 1; size <= 4; size++) {
        assert_int_equal(on_local_ranks(size, measures, NULL), 0);
    }
    assert_int_equal(dp_mem_live(), live);
}

/* Two hosts of two ranks: messages between hosts are measured as well, by one rank of each. */
static size_t measures_wires(struct dp_group *group, const void *arg)
{
    const int *node_of = group->node_of;
    const int two_hosts[4] = {0, 0, 1, 1};
    struct dp_cost cost;
    size_t wrong = 1;
    (void)arg;

    group->node_of = two_hosts;
    group->nodes = group->local_size = 2;
    if (dp_cost_measure(group, MOST, probe_s, &cost) == DP_OK) {
        wrong = curve_is_bad(&cost.exchange[DP_LINK_WIRE], true) +
                curve_is_bad(&cost.exchange[DP_LINK_NODE], true);
    }
    group->node_of = node_of;
    group->nodes = 1;
    group->local_size = 4;
    return wrong;
}

static void links_between_nodes_have_their_own_curve(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(4, measures_wires, NULL), 0);
}

/* A wire that passes a burst at once when it was idle, as after a barrier's short messages. Its
 * rate is so low that bytes beyond the burst take longer than anything else here. */
enum { BURST = 12 * 1024, WIRE_RATE = 4000000 /* bytes a second */, SHORT = 64 };

static _Thread_local double left_of_burst;

static dp_status start_on_wire(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                               struct dp_transfer *transfer)
{
    const double bytes = (double)(out.count * out.width);
    const int node = group->node_of[group->rank];
    const bool leaves = transfer->to >= 0 && group->node_of[transfer->to] != node;

    if (bytes < SHORT) {
        left_of_burst = BURST;
    } else if (leaves && bytes <= left_of_burst) {
        left_of_burst -= bytes;
    } else if (leaves) {
        const struct timespec wait = {0, (long)(1e9 * (bytes - left_of_burst) / WIRE_RATE)};
        (void)nanosleep(&wait, NULL);
        left_of_burst = 0.0;
    }
    return beneath->start(group, out, in, transfer);
}

static size_t measures_a_wire_with_bursts(struct dp_group *group, const void *arg)
{
    struct dp_transport wire = *group->transport;
    struct dp_cost cost;
    size_t wrong = 1;
    (void)arg;

    wire.start = start_on_wire;
    if (measure_over(group, &wire, MOST, probe_s, &cost) == DP_OK) {
        const struct dp_curve *curve = &cost.exchange[DP_LINK_WIRE];
        /* Eight messages of 5056 bytes, 12 KB of them at once: 0.7 of what the wire needs. */
        wrong = !(dp_curve_at(curve, 5056.0) > 0.6 * 5056.0 / WIRE_RATE);
    }
    return wrong;
}

static void a_burst_is_not_the_rate_of_a_wire(void **state)
{
    const int two_hosts[2] = {0, 1};
    (void)state;

    assert_int_equal(on_local_nodes(2, two_hosts, measures_a_wire_with_bursts, NULL), 0);
}

/* All time is gone after the first point. */
static size_t measures_without_time(struct dp_group *group, const void *arg)
{
    struct dp_cost cost;
    (void)arg;

    if (dp_cost_measure(group, MOST, 1e-9, &cost) != DP_OK) {
        return 1;
    }
    return (cost.copy.count != 1) + (cost.exchange[DP_LINK_WIRE].count != 2) +
           curve_is_bad(&cost.exchange[DP_LINK_WIRE], true);
}

static void a_wire_is_measured_by_long_messages_even_in_little_time(void **state)
{
    const int two_hosts[2] = {0, 1};
    (void)state;

    assert_int_equal(on_local_nodes(2, two_hosts, measures_without_time, NULL), 0);
}

static _Thread_local size_t taken; /* bytes of the last piece */

static void *take_and_note(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    taken = bytes;
    return beneath->memory(group, purpose, bytes);
}

enum { ROOM = 1 << 18 };

static void *peer_in_room(const struct dp_group *group, const void *mine, int peer)
{
    return taken > ROOM ? NULL : beneath->peer(group, mine, peer);
}

static size_t measures_with_little_to_share(struct dp_group *group, const void *arg)
{
    struct dp_transport crowded = *group->transport;
    struct dp_cost cost;
    size_t wrong = 1;
    (void)arg;

    crowded.memory = take_and_note;
    crowded.peer = peer_in_room;
    if (measure_over(group, &crowded, (size_t)4 * ROOM, probe_s, &cost) == DP_OK) {
        wrong = !(cost.flags_s > 0.0) + (cost.peer.count < 2) + (taken > ROOM);
    }
    return wrong;
}

enum { LEAST = 1 << 16 };

static _Thread_local int taken_short; /* how often memory for arrays of half of LEAST was taken */

static void *take_and_count(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    taken_short += bytes == LEAST + DP_MEM_ALIGN;
    return beneath->memory(group, purpose, bytes);
}

static void *no_peer(const struct dp_group *group, const void *mine, int peer)
{
    (void)group;
    (void)mine;
    (void)peer;
    return NULL;
}

static size_t measures_with_nothing_to_share(struct dp_group *group, const void *arg)
{
    struct dp_transport apart = *group->transport;
    struct dp_cost cost;
    size_t wrong = 1;

    taken_short = 0;
    apart.memory = take_and_count;
    apart.peer = no_peer;
    if (measure_over(group, &apart, *(const size_t *)arg, 0.01, &cost) == DP_OK) {
        wrong = (cost.flags_s != 0.0) + (cost.peer.count != 0);
    }
    return wrong + (taken_short != 0);
}

/* Arrays of 64 KB are the least that is tried. */
static void where_none_can_be_shared_peers_are_not_measured(void **state)
{
    static const size_t most[] = {LEAST, (size_t)2 * LEAST};
    (void)state;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(on_local_ranks(2, measures_with_nothing_to_share, &most[i]), 0);
    }
}

/* There is shared memory for two arrays of 64 KB, but not of 1 MB. */
static void peers_are_measured_in_the_memory_that_can_be_shared(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(3, measures_with_little_to_share, NULL), 0);
}

static _Thread_local int asked[3]; /* how often for memory of each rank */

static void *peer_and_note(const struct dp_group *group, const void *mine, int peer)
{
    asked[peer]++;
    return beneath->peer(group, mine, peer);
}

/* Arrays are those of a rank's neighbour: it is flags that it looks at of all others. */
static size_t looks_at_flags(struct dp_group *group, const void *arg)
{
    struct dp_transport noting = *group->transport;
    struct dp_cost cost;
    size_t wrong = 0;
    (void)arg;

    noting.peer = peer_and_note;
    if (measure_over(group, &noting, MOST, 0.01, &cost) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < group->size; i++) {
        wrong += (asked[i] > 0) != (i != group->rank);
    }
    return wrong;
}

static void a_barrier_of_flags_waits_for_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(3, looks_at_flags, NULL), 0);
}

static size_t measures_without_memory(struct dp_group *group, const void *arg)
{
    struct dp_cost cost;
    (void)arg;

    return dp_cost_measure(group, MOST, 0.01, &cost) != DP_OK;
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    (void)state;
    check_failing_allocations(2, NULL, measures_without_memory, NULL);
}

static size_t measures_no_node(struct dp_group *group, const void *arg)
{
    struct dp_cost cost;
    (void)arg;

    return dp_cost_measure(group, MOST, probe_s, &cost) != DP_OK ||
           cost.exchange[DP_LINK_NODE].count != 0 || cost.exchange[DP_LINK_WIRE].count == 0;
}

/* Eight of them, whose answers are whole blocks of memory. */
static void ranks_on_hosts_of_their_own_measure_no_messages_inside_of_one(void **state)
{
    static const int hosts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    (void)state;

    mark_ends(true);
    assert_int_equal(on_local_nodes(8, hosts, measures_no_node, NULL), 0);
    mark_ends(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_measure_the_same_curves),
        cmocka_unit_test(each_rank_of_a_node_sends_to_the_next_one),
        cmocka_unit_test(links_between_nodes_have_their_own_curve),
        cmocka_unit_test(a_burst_is_not_the_rate_of_a_wire),
        cmocka_unit_test(a_wire_is_measured_by_long_messages_even_in_little_time),
        cmocka_unit_test(where_none_can_be_shared_peers_are_not_measured),
        cmocka_unit_test(peers_are_measured_in_the_memory_that_can_be_shared),
        cmocka_unit_test(a_barrier_of_flags_waits_for_all_ranks),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_and_blocks_no_rank),
        cmocka_unit_test(ranks_on_hosts_of_their_own_measure_no_messages_inside_of_one),
    };
    return cmocka_run_group_tests_name("cost_probe", tests, NULL, NULL);
}
