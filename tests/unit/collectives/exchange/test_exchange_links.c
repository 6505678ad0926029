/* test_exchange_links.c - which links an exchange measures, how long, and what a slow one costs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_links.h"
#include "collectives/strategies/strategy.h"
#include "tests/support/local_world.h"

enum { RANKS = 3, FIRST = 256, COUNT = 1024, LONGEST = 4 << 20 };

/* Of each rank: what is asked of the two functions below. */
static struct {
    int calls;
    size_t longest;
    double cost_s, slow_s;
    bool has_cost; /* the second one gets what the first one gave */
} asked[RANKS];

static bool slow; /* whether a link is */
static dp_status fails;

/* In the place of cost_probe.c: a millisecond whatever is sent, and what is sent ends with an
 * attempt at memory that cannot be shared. */
dp_status dp_cost_measure(struct dp_group *group, size_t max_bytes, double seconds,
                          struct dp_cost *out)
{
    asked[group->rank].calls++;
    asked[group->rank].longest = max_bytes;
    asked[group->rank].cost_s = seconds;
    group->unshared = true;
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < 2; i++) {
        out->exchange[i] = (struct dp_curve){.count = 1, .bytes = {64.0}, .seconds = {2e-3}};
        out->alpha[i] = 1e-3;
        out->beta[i] = 1e-6;
    }
    return fails;
}

/* In the place of slow_link.c. */
dp_status dp_slow_link_measure(struct dp_group *group, const struct dp_cost *cost, double seconds,
                               struct dp_slow_link *out)
{
    asked[group->rank].slow_s = seconds;
    asked[group->rank].has_cost = cost->exchange[DP_LINK_WIRE].count == 1;
    *out = (struct dp_slow_link){.found = slow, .from = 1, .to = -1};
    return DP_OK;
}

/* Without it a message begins three times as fast, so that short ones gain more. */
void dp_slow_link_mend(const struct dp_slow_link *link, struct dp_cost *cost)
{
    for (int i = 0; i < 2 && link->found; i++) {
        cost->exchange[i].seconds[0] -= 2.0 / 3.0 * cost->alpha[i];
        cost->alpha[i] /= 3.0;
    }
}

struct wanted {
    const char *strategy;
    double seconds; /* that is measured; 0: nothing is */
};

/* What a step's sums would take without the slow link, of what they take. */
static double share_of(const struct dp_exchange *e, const char *strategy,
                       const struct dp_exchange_links *links)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(e);
    const struct dp_group *group = dp_exchange_group(e);
    struct dp_cost mended = links->cost;
    double with_s = 0.0, without_s = 0.0;

    dp_slow_link_mend(&links->slow, &mended);
    for (int b = 0; b < plan->count; b++) {
        const size_t bytes = plan->buckets[b].range.count * sizeof(float);
        with_s += dp_strategy_cost(strategy, &links->cost, group, bytes);
        without_s += dp_strategy_cost(strategy, &mended, group, bytes);
    }
    return without_s / with_s;
}

static size_t measures(struct dp_group *group, const void *arg)
{
    static const struct dp_tensor tensors[] = {{.begin = 0}, {.begin = COUNT - FIRST}};
    const struct wanted *wanted = arg;
    struct dp_exchange_config config = {.strategy = wanted->strategy,
                                        .bucket_bytes = FIRST * sizeof(float),
                                        .first_bucket_bytes = FIRST * sizeof(float),
                                        .run = DP_RUN_AT_WAIT,
                                        .threads = 1};
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = 2,
                           .trained = COUNT,
                           .total = COUNT + DP_BLOCK,
                           .owned = COUNT};
    struct dp_exchange_links links;
    struct dp_exchange *e = NULL;
    const int rank = group->rank;
    size_t wrong = 0;

    memset(&asked[rank], 0, sizeof(asked[rank]));
    memset(&links, 1, sizeof(links));
    if (dp_device_find("ref", &config.device) != DP_OK ||
        dp_exchange_create(group, &config, &flat, &e) != DP_OK) {
        return 1;
    }
    const bool unshared = group->unshared;
    wrong += dp_exchange_measure_links(e, 2.0, 8.0, &links) != fails;
    const bool found = slow && fails == DP_OK && wanted->seconds > 0.0;
    const double share = found ? share_of(e, wanted->strategy, &links) : 1.0;
    wrong += !(fabs(links.mended_share - share) <= 1e-12) || links.slow.found != found;
    wrong += found && !(share > 0.3 && share < 0.99);
    dp_exchange_destroy(e);
    if (wanted->seconds > 0.0) {
        wrong += asked[rank].calls != 1 || asked[rank].longest != LONGEST;
        wrong += asked[rank].cost_s != wanted->seconds || group->unshared != unshared;
        wrong += asked[rank].slow_s != (fails == DP_OK ? 0.5 * wanted->seconds : 0.0);
        wrong += asked[rank].has_cost != (fails == DP_OK);
    } else {
        wrong += asked[rank].calls != 0 || links.cost.exchange[0].count != 0;
    }
    return wrong;
}

static const int nodes[RANKS] = {0, 1, 2};

static void a_network_gets_more_time_than_a_node(void **state)
{
    static const struct wanted on_node = {"ring", 2.0}, on_wire = {"ring", 8.0};
    (void)state;

    slow = false;
    fails = DP_OK;
    assert_int_equal(on_local_ranks(RANKS, measures, &on_node), 0);
    assert_int_equal(on_local_nodes(RANKS, nodes, measures, &on_wire), 0);
    assert_int_equal(on_local_ranks(2, measures, &on_node), 0);
    assert_int_equal(on_local_nodes(2, nodes, measures, &on_wire), 0);
}

static void who_shares_nothing_measures_nothing(void **state)
{
    static const struct wanted alone = {"ring", 0.0}, none = {"none", 0.0};
    (void)state;

    fails = DP_OK;
    assert_int_equal(on_local_ranks(1, measures, &alone), 0);
    assert_int_equal(on_local_ranks(RANKS, measures, &none), 0);
}

static void a_slow_link_takes_a_share_of_the_sums(void **state)
{
    static const struct wanted ring = {"ring", 8.0}, direct = {"direct", 8.0};
    (void)state;

    slow = true;
    fails = DP_OK;
    assert_int_equal(on_local_nodes(RANKS, nodes, measures, &ring), 0);
    assert_int_equal(on_local_nodes(RANKS, nodes, measures, &direct), 0);
}

static void what_cannot_be_measured_is_told(void **state)
{
    static const struct wanted ring = {"ring", 8.0};
    (void)state;

    slow = true;
    fails = DP_ERR_NOMEM;
    assert_int_equal(on_local_nodes(RANKS, nodes, measures, &ring), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_gets_more_time_than_a_node),
        cmocka_unit_test(who_shares_nothing_measures_nothing),
        cmocka_unit_test(a_slow_link_takes_a_share_of_the_sums),
        cmocka_unit_test(what_cannot_be_measured_is_told),
    };

    return cmocka_run_group_tests_name("exchange_links", tests, NULL, NULL);
}
