#include "collectives/exchange/exchange_links.h"

#include "collectives/exchange/exchange_own.h"

/* The longest messages: shorter ones do not show bandwidth, and longer ones are predicted from
 * these. */
enum { LONGEST = 4 << 20 };

static const double slow_share = 0.5; /* of that time, for what the curves do not show */

struct links {
    struct dp_exchange *exchange;
    double seconds;
    struct dp_exchange_links *out;
};

/* Predicts the sums of a step's buckets. A strategy without a prediction is taken for a ring. */
static double sums_s(const struct dp_exchange *e, const struct dp_cost *cost)
{
    const struct dp_strategy *strategy = e->comm->strategy;
    double sum = 0.0;

    for (int b = 0; b < e->plan->count; b++) {
        const size_t bytes = e->plan->buckets[b].range.count * sizeof(float);
        sum += strategy->cost != NULL ? strategy->cost(e->comm->state, cost, e->group, bytes)
                                      : dp_cost_ring(cost, e->group, (double)bytes);
    }
    return sum;
}

static dp_status measure_slow_link(struct links *links)
{
    struct dp_exchange *e = links->exchange;
    struct dp_exchange_links *out = links->out;
    struct dp_cost mended = out->cost;

    DP_TRY(dp_slow_link_measure(e->group, &out->cost, slow_share * links->seconds, &out->slow));
    dp_slow_link_mend(&out->slow, &mended);
    out->mended_share = out->slow.found ? sums_s(e, &mended) / sums_s(e, &out->cost) : 1.0;
    return DP_OK;
}

/* A job of the engine: only its thread may use the group. */
static dp_status measure(void *context, int index)
{
    struct links *links = context;
    struct dp_group *group = links->exchange->group;
    const bool unshared = group->unshared;
    dp_status status = dp_cost_measure(group, LONGEST, links->seconds, &links->out->cost);

    (void)index;
    status = status == DP_OK ? measure_slow_link(links) : status;
    group->unshared = unshared; /* there may be no room for the scratch memory alone */
    return status;
}

dp_status dp_exchange_measure_links(struct dp_exchange *e, double node_s, double wire_s,
                                    struct dp_exchange_links *out)
{
    struct links links = {e, e->group->nodes > 1 ? wire_s : node_s, out};

    *out = (struct dp_exchange_links){.mended_share = 1.0};
    return e->group->size < 2 || e->gpus != NULL || e->comm->strategy->sum == NULL
               ? DP_OK
               : dp_engine_call(e->engine, measure, &links);
}
