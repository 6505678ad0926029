/*
 * exchange_links.h - how fast the links between the ranks of an exchange are: what predictions for
 * other numbers of ranks are made from (cost.h), and whether one of them is slower than the others.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_LINKS_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_LINKS_H

#include "collectives/strategies/slow_link.h"

struct dp_exchange;

struct dp_exchange_links {
    struct dp_cost cost;
    struct dp_slow_link slow;
    double mended_share; /* time of a step's sums if that link were as the others, over the time as
                          * it is; predicted */
};

/*
 * Takes about node_s seconds on one node, wire_s and half of it on several, where messages are
 * slow; the same numbers on all ranks. Zeroed, and nothing is measured, for one
 * rank, for a strategy that shares nothing, and where buckets are summed on GPUs. Call it between
 * steps; its memory is released when it returns. Collective. Errors: those of the transport;
 * DP_ERR_NOMEM, on all ranks.
 */
DP_CHECKED dp_status dp_exchange_measure_links(struct dp_exchange *exchange, double node_s,
                                               double wire_s, struct dp_exchange_links *out);

#endif
