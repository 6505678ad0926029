/*
 * test_cost.c - the cost model: curves, fits to them, and closed forms against values computed by
 * hand.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/compressors/compression.h"
#include "collectives/strategies/strategy.h"

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected))) {
        fail_msg("%.17g, not %.17g", found, expected);
    }
}

/* A curve without noise: seconds = alpha + beta bytes. */
static struct dp_curve line(double alpha, double beta)
{
    struct dp_curve curve = {.count = 9};

    for (int i = 0; i < curve.count; i++) {
        curve.bytes[i] = 64.0 * pow(8.0, i);
        curve.seconds[i] = alpha + beta * curve.bytes[i];
    }
    return curve;
}

/* 2 us and 1 ns/byte on the node, 30 us and 8 ns/byte on the wire, 0.5 ns/byte of adding. */
static struct dp_cost planted(void)
{
    struct dp_cost cost;

    memset(&cost, 0, sizeof(cost));
    cost.exchange[DP_LINK_NODE] = cost.whole = line(2e-6, 1e-9);
    cost.exchange[DP_LINK_WIRE] = line(3e-5, 8e-9);
    cost.sum = line(0.0, 5e-10);
    cost.copy = line(0.0, 1e-10);
    cost.peer = line(0.0, 2e-10);
    cost.flags_s = 1e-6;
    dp_cost_fit(&cost);
    return cost;
}

static struct dp_group group_of(int size, int nodes)
{
    static const int node_of[64];

    return (struct dp_group){
        .size = size, .nodes = nodes, .local_size = size / nodes, .node_of = node_of};
}

static void planted_parameters_are_recovered(void **state)
{
    const struct dp_cost cost = planted();
    (void)state;

    assert_near(cost.alpha[DP_LINK_NODE], 2e-6);
    assert_near(cost.beta[DP_LINK_NODE], 1e-9);
    assert_near(cost.alpha[DP_LINK_WIRE], 3e-5);
    assert_near(cost.beta[DP_LINK_WIRE], 8e-9);
    assert_near(cost.gamma, 5e-10);
}

static void files_name_each_curve_once(void **state)
{
    static const char *const names[] = {"node", "wire", "add", "whole", "sum", "copy", "peer"};
    struct dp_cost cost;
    const struct dp_curve *const curves[] = {&cost.exchange[DP_LINK_NODE],
                                             &cost.exchange[DP_LINK_WIRE],
                                             &cost.add,
                                             &cost.whole,
                                             &cost.sum,
                                             &cost.copy,
                                             &cost.peer};
    const char *name = NULL;
    (void)state;

    for (int i = 0; i < 7; i++) {
        assert_ptr_equal(dp_cost_curve(&cost, i, &name), curves[i]);
        assert_string_equal(name, names[i]);
    }
    assert_null(dp_cost_curve(&cost, 7, &name));
    assert_null(dp_cost_curve(&cost, -1, &name));
}

/* Every other point 10 % too slow: alpha and beta lie between the truth and 10 % above it. */
static void noise_moves_the_fit_by_no_more_than_itself(void **state)
{
    struct dp_curve curve = line(2e-6, 1e-9);
    double alpha, beta;
    (void)state;

    for (int i = 0; i < curve.count; i += 2) {
        curve.seconds[i] *= 1.1;
    }
    dp_curve_fit(&curve, &alpha, &beta);
    assert_true(alpha > 1.9e-6 && alpha < 2.2e-6);
    assert_true(beta > 1e-9 && beta < 1.1e-9);
}

/* No message takes less than no time: the best line through 0. */
static void a_fit_has_no_start_below_0(void **state)
{
    const struct dp_curve bent = {.count = 3, .bytes = {1, 2, 4}, .seconds = {1, 3, 9}};
    double alpha, beta;
    (void)state;

    dp_curve_fit(&bent, &alpha, &beta);
    assert_true(alpha == 0.0);
    assert_near(beta, (1.0 + 2.0 / 3 + 4.0 / 9) / (1.0 + 4.0 / 9 + 16.0 / 81));
}

static void a_curve_without_points_costs_nothing(void **state)
{
    const struct dp_curve none = {.count = 0};
    struct dp_curve one = {.count = 1, .bytes = {100.0}, .seconds = {5.0}};
    double alpha = 1.0, beta = 1.0;
    (void)state;

    assert_true(dp_curve_at(&none, 1000.0) == 0.0);
    dp_curve_fit(&none, &alpha, &beta);
    assert_true(alpha == 0.0 && beta == 0.0);
    dp_curve_fit(&one, &alpha, &beta);
    assert_true(alpha == 0.0);
    assert_near(beta, 0.05);
}

static void a_curve_is_read_between_its_points_and_beyond(void **state)
{
    const struct dp_curve curve = {
        .count = 3, .bytes = {100.0, 200.0, 400.0}, .seconds = {1.0, 2.0, 6.0}};
    (void)state;

    assert_near(dp_curve_at(&curve, 1.0), 1.0); /* a short message takes its latency */
    assert_near(dp_curve_at(&curve, 100.0), 1.0);
    assert_near(dp_curve_at(&curve, 150.0), 1.5);
    assert_near(dp_curve_at(&curve, 200.0), 2.0);
    assert_near(dp_curve_at(&curve, 300.0), 4.0);
    assert_near(dp_curve_at(&curve, 400.0), 6.0);
    assert_near(dp_curve_at(&curve, 800.0), 11.0); /* at the last bandwidth, but for the start */
}

/* 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma, with p 4, n 4,000,000: 6 of 2 us, 6 MB of
 * 1 ns, 3 MB of 0.5 ns. */
static void a_ring_costs_what_its_formula_says(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group four = group_of(4, 1), two_hosts = group_of(4, 2);
    (void)state;

    assert_near(dp_cost_ring(&cost, &four, 4e6), 12e-6 + 6e-3 + 1.5e-3);
    assert_near(dp_cost_ring(&cost, &two_hosts, 4e6), 180e-6 + 48e-3 + 1.5e-3);
}

/* Three ranks: 4,000,000 bytes up, which are added, and as many down. A fourth one makes the trees
 * higher, and a segment of 256 KB passes one more level, up and down. */
static void trees_cost_what_their_inner_ranks_send(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group three = group_of(3, 1), four = group_of(4, 1);
    const double both_ways = 2 * (2e-6 + 4e-3) + 2e-3;
    (void)state;

    assert_near(dp_strategy_cost("tree", &cost, &three, 4000000), both_ways);
    assert_near(dp_strategy_cost("tree", &cost, &four, 4000000),
                both_ways + 2 * (2e-6 + 262144e-9));
}

/* lg p (alpha + n beta + n gamma), n 1,000,000; between nodes of two ranks the first round stays on
 * the node, and in the second two ranks share a wire. Five ranks: the fifth sends first and gets
 * the sum at the end. */
static void doubling_costs_what_its_formula_says(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group four = group_of(4, 1), two_hosts = group_of(4, 2), five = group_of(5, 1);
    const struct dp_group eight = group_of(8, 1), six = group_of(6, 3);
    (void)state;

    assert_near(dp_cost_doubling(&cost, &four, 1e6), 2 * (2e-6 + 1e-3 + 5e-4));
    assert_near(dp_cost_doubling(&cost, &two_hosts, 1e6), 2e-6 + 1e-3 + 5e-4 + 3e-5 + 16e-3 + 5e-4);
    assert_near(dp_cost_doubling(&cost, &five, 1e6), 4 * (2e-6 + 1e-3) + 3 * 5e-4);
    assert_near(dp_cost_doubling(&cost, &eight, 1e6), 3 * (2e-6 + 1e-3 + 5e-4));
    /* Those that are too many send to, and get from, the ranks of their hosts. */
    assert_near(dp_cost_doubling(&cost, &six, 1e6), 3 * (2e-6 + 1e-3) + 3e-5 + 16e-3 + 3 * 5e-4);
}

/* 2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma, p 4, n 4,000,000; three ranks: a fold in
 * halves, one round of two ranks, the whole after. Six on three hosts fold inside of hosts. */
static void rabenseifner_costs_what_its_formula_says(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group four = group_of(4, 1), two_hosts = group_of(4, 2), three = group_of(3, 1);
    const struct dp_group six = group_of(6, 3);
    const double fold = 2 * (2e-6 + 2e-3) + 1e-3 + 2e-6 + 4e-3;
    (void)state;

    assert_near(dp_cost_rabenseifner(&cost, &four, 4e6), 8e-6 + 6e-3 + 1.5e-3);
    /* Halves on the node, then quarters of two ranks at a time on the wire. */
    assert_near(dp_cost_rabenseifner(&cost, &two_hosts, 4e6),
                2 * (2e-6 + 2e-3) + 1e-3 + 2 * (3e-5 + 16e-3) + 5e-4);
    assert_near(dp_cost_rabenseifner(&cost, &three, 4e6), fold + 2 * (2e-6 + 2e-3) + 1e-3);
    assert_near(dp_cost_rabenseifner(&cost, &six, 4e6),
                fold + 2 * (2e-6 + 2e-3) + 1e-3 + 2 * (3e-5 + 16e-3) + 5e-4);
}

/* Inside a node adding while sending costs what was measured, 1.2 ns/byte. n is 4,000,000. */
static void adding_while_sending_costs_what_was_measured(void **state)
{
    struct dp_cost cost = planted();
    const struct dp_group four = group_of(4, 1), two_hosts = group_of(4, 2);
    const double add = 2e-6 + 1.2e-3, pass = 2e-6 + 1e-3; /* of a chunk */
    (void)state;

    cost.add = line(2e-6, 1.2e-9);
    assert_near(dp_cost_ring(&cost, &four, 4e6), 3 * (add + pass));
    assert_near(dp_cost_ring(&cost, &two_hosts, 4e6), 180e-6 + 48e-3 + 1.5e-3);
    assert_near(dp_cost_doubling(&cost, &four, 1e6), 2 * add);
    assert_near(dp_cost_doubling(&cost, &two_hosts, 1e6), add + 3e-5 + 16e-3 + 5e-4);
    assert_near(dp_cost_rabenseifner(&cost, &four, 4e6), 8e-6 + 3 * (1.2e-3 + 1e-3));
    assert_near(dp_strategy_cost("direct", &cost, &four, 4000000), 2e-6 + 3.6e-3 + 2e-6 + 3e-3);
}

/* Each of the two ranks of a host sends its chunk to the two others, and gets theirs: four messages
 * each way through one link, which are under way together, but begin one after the other. */
static void messages_to_another_host_begin_one_after_the_other(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group two_hosts = group_of(4, 2), single = group_of(2, 2);
    const double near = 2 * (2e-6 + 1e-3) + 5e-4; /* of one chunk */
    (void)state;

    assert_near(dp_strategy_cost("direct", &cost, &two_hosts, 4000000),
                near + 2 * (3e-5 + 32e-3) + 2 * 3 * 3e-5 + 1e-3);
    assert_near(dp_strategy_cost("direct", &cost, &single, 4000000), 2 * (3e-5 + 16e-3) + 1e-3);
}

/* 2,000,000 bytes each way there and back in messages of 3 ns/byte, whatever segments take; as many
 * bytes added; and two copies of all. */
static void mpi_is_predicted_with_whole_messages(void **state)
{
    struct dp_cost cost = planted();
    const struct dp_group two = group_of(2, 1);
    (void)state;

    cost.add = line(2e-6, 1.2e-9);
    cost.whole = line(2e-6, 3e-9);
    assert_near(dp_strategy_cost("mpi", &cost, &two, 4000000), 2 * (2e-6 + 6e-3) + 1e-3 + 2 * 4e-4);
}

/* From 16384 bytes on (of four ranks and more, 8192) in parts, below as a whole. In parts there are
 * more messages. */
static void mpi_changes_its_way_at_the_sizes_of_open_mpi(void **state)
{
    static const struct {
        int ranks;
        size_t bytes;
    } changes[] = {{3, 16384}, {4, 8192}, {8, 8192}};
    struct dp_cost cost = planted();
    (void)state;

    cost.whole = line(1e-3, 1e-12); /* messages count, bytes hardly */
    dp_cost_fit(&cost);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        const struct dp_group group = group_of(changes[i].ranks, 1);
        const double below = dp_strategy_cost("mpi", &cost, &group, changes[i].bytes - 4);
        const double at = dp_strategy_cost("mpi", &cost, &group, changes[i].bytes);
        const double above = dp_strategy_cost("mpi", &cost, &group, changes[i].bytes + 4);

        assert_true(fabs(at - below) > 0.9e-3);
        assert_true(fabs(above - at) < 0.1e-3);
    }
}

/* Two barriers; half of 4,000,000 bytes at a peer, 0.2 ns each. */
static void shared_memory_costs_barriers_and_bytes(void **state)
{
    struct dp_cost cost = planted();
    const struct dp_group two = group_of(2, 1), one = group_of(1, 1);
    const struct dp_strategy *shm =
        (const struct dp_strategy *)dp_plugin_find(&dp_strategies, "shm", 3);
    (void)state;

    assert_near(shm->cost(NULL, &cost, &two, 4000000), 2e-6 + 4e-4);
    assert_true(shm->cost(NULL, &cost, &one, 4000000) == 0.0);
    cost.peer.count = 0;
    assert_true(isnan(shm->cost(NULL, &cost, &two, 4000000))); /* not measured is not free */
}

static const int two_and_two[] = {0, 0, 1, 1}, three_and_one[] = {0, 0, 0, 1};

/* Two hosts of two ranks, 4,000,000 bytes. Inside a node: two barriers, half of the bytes at the
 * peer. Leaders, around a ring of two: two halves of 2 MB of 8 ns, 2 MB
 * added; then all is copied between two barriers. Rails: two rings of 2 MB at once, so that halves
 * of 1 MB take as long as 2 MB; the other two barriers divide scattering from gathering. */
static void two_levels_cost_the_sum_of_their_parts(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group group = {.size = 4, .nodes = 2, .local_size = 2, .node_of = two_and_two};
    const double node = 2e-6 + 4e-4, wire = 2 * (3e-5 + 16e-3);
    (void)state;

    assert_near(dp_strategy_cost("hier", &cost, &group, 4000000), node + wire + 1e-3 + 2e-6 + 4e-4);
    assert_near(dp_strategy_cost("hier:rails=1", &cost, &group, 4000000),
                node + wire + 5e-4 + 2e-6);
    /* Messages inside a node: barriers are messages, too. */
    assert_near(dp_strategy_cost("hier:rails=1,inner=ring", &cost, &group, 4000000),
                2 * (2e-6 + 2e-3) + 1e-3 + wire + 5e-4 + 2 * (2e-6 + 64e-9));
}

/* The larger node decides; one node alone costs what its inner strategy does, and one rank a node
 * what the outer one does. */
static void a_single_level_costs_that_level(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group uneven = {
        .size = 4, .nodes = 2, .local_size = 1, .node_of = three_and_one};
    const struct dp_group flat = group_of(3, 1);
    const struct dp_group apart = {
        .size = 2, .nodes = 2, .local_size = 1, .node_of = (int[]){0, 1}};
    (void)state;

    assert_near(dp_strategy_cost("hier", &cost, &uneven, 3000000),
                2e-6 + 4e-4 + 2 * (3e-5 + 12e-3) + 0.75e-3 + 2e-6 + 3e-4);
    assert_near(dp_strategy_cost("hier", &cost, &flat, 3000000),
                dp_strategy_cost("shm", &cost, &flat, 3000000));
    assert_near(dp_strategy_cost("hier:outer=direct", &cost, &apart, 3000000),
                dp_strategy_cost("direct", &cost, &apart, 3000000));
}

static void a_level_without_prediction_gives_no_prediction(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group group = {.size = 4, .nodes = 2, .local_size = 2, .node_of = two_and_two};
    (void)state;

    assert_true(isnan(dp_strategy_cost("hier:outer=none", &cost, &group, 1000)));
    assert_true(isnan(dp_strategy_cost("hier:inner=none", &cost, &group, 1000)));
    assert_true(isnan(dp_strategy_cost("none", &cost, &group, 1000)));
    assert_true(isnan(dp_strategy_cost("nonsense", &cost, &group, 1000)));
}

/* NaN: there is no prediction. */
static void check_growth(const char *name, const struct dp_group *group)
{
    const struct dp_cost cost = planted();
    double before = 0.0;

    for (size_t bytes = 1024; bytes <= 1 << 26; bytes *= 64) {
        const double seconds = dp_strategy_cost(name, &cost, group, bytes);
        if (!(isnan(seconds) || (seconds > before && seconds < 10.0))) {
            fail_msg("%s, %d ranks on %d nodes, %zu bytes: %.9g s, after %.9g s", name, group->size,
                     group->nodes, bytes, seconds, before);
        }
        before = isnan(seconds) ? before : seconds;
    }
}

static void one_rank_alone_has_nothing_to_share(void **state)
{
    const struct dp_group one = group_of(1, 1);
    const struct dp_cost cost = planted();
    const struct dp_plugin *plugin;
    (void)state;

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        const double seconds = dp_strategy_cost(plugin->name, &cost, &one, 1 << 20);
        if (!(isnan(seconds) || seconds == 0.0)) {
            fail_msg("%s: %.9g s", plugin->name, seconds);
        }
    }
}

/* More bytes never cost less, and nothing is free, whatever the strategy. */
static void every_prediction_grows_with_the_bytes(void **state)
{
    const int node_of[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    const struct dp_plugin *plugin;
    (void)state;

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        for (int size = 2; size <= 8; size++) {
            const struct dp_group node = group_of(size, 1);
            const struct dp_group nodes = {
                .size = size, .nodes = (size + 1) / 2, .local_size = 2, .node_of = node_of};
            check_growth(plugin->name, &node);
            check_growth(plugin->name, &nodes);
        }
    }
}

/* A million numbers of two hosts. Codes of halves go to and fro: 500,000 of 2 bytes; of 1 byte and
 * a scale for each 256. Pairs of 8 bytes of every hundredth go once; sampled ones, and the two
 * factors of 16 columns, are summed by the strategy. */
static void messages_of_compressors_cost_what_they_send(void **state)
{
    struct dp_cost cost = planted();
    const struct dp_group apart = {
        .size = 2, .nodes = 2, .local_size = 1, .node_of = (int[]){0, 1}};
    const struct dp_group four = {
        .size = 4, .nodes = 4, .local_size = 1, .node_of = (int[]){0, 1, 2, 3}};
    const struct dp_group node = group_of(2, 1);
    const struct dp_tensor matrix = {.dims = 2, .shape = {1000, 1000}, .count = 1000000};
    const struct dp_bucket bucket = {.range = {0, 1000000}, .tensors = &matrix, .tensor_count = 1};
    struct dp_bucket tail = bucket;
    (void)state;

    assert_near(dp_compression_cost("fp16", "ring", &cost, &apart, &bucket), 2 * (3e-5 + 8e-3));
    assert_near(dp_compression_cost("bf16", "tree", &cost, &four, &bucket), 6 * (3e-5 + 4e-3));
    assert_near(dp_compression_cost("int8", "ring", &cost, &apart, &bucket),
                2 * (3e-5 + 8e-9 * (500000 + 4 * 1954)));
    assert_near(dp_compression_cost("topk:ratio=0.01", "ring", &cost, &four, &bucket),
                3 * (3e-5 + 8e-9 * 80000));
    assert_near(dp_compression_cost("randomk:ratio=0.01", "doubling", &cost, &four, &bucket),
                dp_cost_doubling(&cost, &four, 40000.0));
    assert_near(dp_compression_cost("powersgd", "ring", &cost, &four, &bucket),
                2.0 * dp_cost_ring(&cost, &four, 64000.0));
    assert_near(dp_compression_cost("none", "ring", &cost, &four, &bucket),
                dp_cost_ring(&cost, &four, 4e6));
    tail.exact = true; /* which is not compressed */
    assert_near(dp_compression_cost("int8", "ring", &cost, &four, &tail),
                dp_cost_ring(&cost, &four, 4e6));
    assert_near(dp_compression_cost("int8", "ring", &cost, &node, &bucket), 2e-6); /* in place */
    cost.peer.count = 0;
    assert_near(dp_compression_cost("fp16", "ring", &cost, &node, &bucket), 2 * (2e-6 + 1e-3));
}

/* Of no numbers nothing is sent; of one number something is. */
static void no_numbers_cost_nothing(void **state)
{
    static const char *const compressors[] = {"fp16", "int8", "topk", "randomk", "onebit"};
    const struct dp_cost cost = planted();
    const struct dp_group apart = {
        .size = 2, .nodes = 2, .local_size = 1, .node_of = (int[]){0, 1}};
    (void)state;

    for (size_t i = 0; i < sizeof(compressors) / sizeof(compressors[0]); i++) {
        for (size_t count = 0; count < 3; count++) {
            const struct dp_bucket bucket = {.range = {0, count}};
            const double seconds =
                dp_compression_cost(compressors[i], "ring", &cost, &apart, &bucket);
            assert_true(count == 0 ? seconds == 0.0 : seconds > 1e-5);
        }
    }
}

/* Every compressor that sums by itself has a prediction; one rank alone sends nothing. */
static void every_compressor_has_a_prediction(void **state)
{
    const struct dp_cost cost = planted();
    const struct dp_group one = group_of(1, 1), four = group_of(4, 1);
    const struct dp_tensor matrix = {.dims = 2, .shape = {100, 100}, .count = 10000};
    const struct dp_bucket bucket = {.range = {0, 10000}, .tensors = &matrix, .tensor_count = 1};
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_compressors, i)) != NULL; i++) {
        const struct dp_compressor *c = (const struct dp_compressor *)plugin;
        assert_true((c->cost == NULL) == (c->sum == NULL));
        assert_true(dp_compression_cost(plugin->name, "ring", &cost, &four, &bucket) > 0.0);
        assert_true(dp_compression_cost(plugin->name, "ring", &cost, &one, &bucket) == 0.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_parameters_are_recovered),
        cmocka_unit_test(files_name_each_curve_once),
        cmocka_unit_test(noise_moves_the_fit_by_no_more_than_itself),
        cmocka_unit_test(a_fit_has_no_start_below_0),
        cmocka_unit_test(a_curve_without_points_costs_nothing),
        cmocka_unit_test(a_curve_is_read_between_its_points_and_beyond),
        cmocka_unit_test(a_ring_costs_what_its_formula_says),
        cmocka_unit_test(trees_cost_what_their_inner_ranks_send),
        cmocka_unit_test(doubling_costs_what_its_formula_says),
        cmocka_unit_test(rabenseifner_costs_what_its_formula_says),
        cmocka_unit_test(adding_while_sending_costs_what_was_measured),
        cmocka_unit_test(messages_to_another_host_begin_one_after_the_other),
        cmocka_unit_test(mpi_is_predicted_with_whole_messages),
        cmocka_unit_test(mpi_changes_its_way_at_the_sizes_of_open_mpi),
        cmocka_unit_test(shared_memory_costs_barriers_and_bytes),
        cmocka_unit_test(two_levels_cost_the_sum_of_their_parts),
        cmocka_unit_test(a_single_level_costs_that_level),
        cmocka_unit_test(a_level_without_prediction_gives_no_prediction),
        cmocka_unit_test(one_rank_alone_has_nothing_to_share),
        cmocka_unit_test(every_prediction_grows_with_the_bytes),
        cmocka_unit_test(messages_of_compressors_cost_what_they_send),
        cmocka_unit_test(no_numbers_cost_nothing),
        cmocka_unit_test(every_compressor_has_a_prediction),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
