#include "collectives/exchange/exchange_links.h"

#include "collectives/exchange/exchange_own.h"

/* The longest messages: shorter ones do not show bandwidth, and longer ones are predicted from
 * these. */
enum { LONGEST = 4 << 20 };

struct links {
    struct dp_exchange *exchange;
    double seconds;
    struct dp_cost *out;
};

/* A job of the engine: only its thread may use the group. */
static dp_status measure(void *context, int index)
{
    struct links *links = context;
    struct dp_group *group = links->exchange->group;
    const bool unshared = group->unshared;
    const dp_status status = dp_cost_measure(group, LONGEST, links->seconds, links->out);

    (void)index;
    group->unshared = unshared; /* there may be no room for the scratch memory alone */
    return status;
}

dp_status dp_exchange_measure_links(struct dp_exchange *e, double node_s, double wire_s,
                                    struct dp_cost *out)
{
    struct links links = {e, e->group->nodes > 1 ? wire_s : node_s, out};

    *out = (struct dp_cost){0};
    return e->group->size < 2 || e->gpus != NULL || e->comm->strategy->sum == NULL
               ? DP_OK
               : dp_engine_call(e->engine, measure, &links);
}
