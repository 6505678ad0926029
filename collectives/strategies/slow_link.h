/*
 * slow_link.h - finds a link between nodes that is slower than the others.
 *
 * In round k each node sends to the node 2^k after it, so that ceil(log2(nodes)) rounds measure so
 * many links of every node, both ways, and those of a ring among them. All nodes send at once. A
 * link's time is the best of several turns, since whatever disturbs a turn makes it longer, and a
 * link that seems slow is measured again before it is named.
 *
 * One node, two, and links that are slow on many nodes, as in a network of several levels: nothing
 * is found. So is what is slow on links that no round measures.
 */
#ifndef DP_COLLECTIVES_STRATEGIES_SLOW_LINK_H
#define DP_COLLECTIVES_STRATEGIES_SLOW_LINK_H

#include "collectives/strategies/cost.h"

/* What is slow: all that node `from` sends (to: -1), all that node `to` receives (from: -1), both
 * (from == to), or messages from one node to another. */
struct dp_slow_link {
    bool found;
    int from, to;
    double bytes;            /* of a message */
    double slow_s, others_s; /* that it takes there, and on the other links */
};

/* Rounds for so many nodes; 0 where there is nothing to compare. Local. */
int dp_slow_link_rounds(int nodes);

/* Of seconds [rounds * nodes]: of round k, until each node had its message of `bytes`; 0: not
 * measured. Local. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_slow_link_find(const double *seconds, int nodes, double bytes,
                                       struct dp_slow_link *out);

/* Measures with one rank of each node, for about `seconds`, with messages of a length that `cost`
 * says fits; the same on all ranks. Collective. Errors: DP_ERR_NOMEM, on all ranks; those of the
 * transport. */
DP_CHECKED dp_status dp_slow_link_measure(struct dp_group *group, const struct dp_cost *cost,
                                          double seconds, struct dp_slow_link *out);

/* Makes the wire's curve what it would be if that link were as the others. A curve that was not
 * slow stays as it is. Local. */
void dp_slow_link_mend(const struct dp_slow_link *link, struct dp_cost *cost);

#endif
