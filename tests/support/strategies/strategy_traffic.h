/*
 * strategy_traffic.h - what each strategy sends, and to whom, computed again from its literature: a
 * strategy with wrong partners may still give right sums, and send as much.
 *
 * A strategy without a row is checked against bounds that hold for every one.
 */
#ifndef DP_TESTS_SUPPORT_STRATEGIES_STRATEGY_TRAFFIC_H
#define DP_TESTS_SUPPORT_STRATEGIES_STRATEGY_TRAFFIC_H

#include <stddef.h>

#include "collectives/core/transport.h"
#include "collectives/strategies/comm.h"

enum { TRAFFIC_RANKS = 64 };

/* Of a sum that is kept whole, in units of the slice. */
struct traffic {
    const char *text; /* what the strategy's text begins with */
    /* Messages from one rank to another. NULL: not known, or there are none. */
    double (*sent)(const struct dp_group *group, int from, int to);
    /* Without messages: bytes that all ranks read from peers, or what a library is taken to send,
     * and those of the busiest rank on up to 8 ranks. NULL: not known. */
    double (*volume)(const struct dp_group *group);
    double most;
};

/* The row of a strategy's text, or NULL. */
const struct traffic *traffic_of(const char *text);

/* Elements of a slice that all strategies cut evenly on `ranks` ranks. */
size_t traffic_count(int ranks);

/* Records the messages of one rank, which is a thread or a process of its own. */
struct recorder {
    struct dp_transport transport; /* in place of the group's */
    const struct dp_transport *under;
    uint64_t bytes[TRAFFIC_RANKS]; /* sent, by receiver */
};

void recorder_begin(struct recorder *recorder, struct dp_group *group);
void recorder_end(const struct recorder *recorder, struct dp_group *group);

/* Compares what this rank sent in a sum of `bytes`, and what it counted, with its row. Collective.
 * Prints what is wrong. */
size_t traffic_wrong(struct dp_group *group, const char *text, const struct recorder *recorder,
                     uint64_t counted, size_t bytes);

#endif
