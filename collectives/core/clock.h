/*
 * clock.h - one clock for all ranks: that of rank 0, dp_now_ns().
 *
 * Ranks of one host share theirs. For each other host its first rank and rank 0 send a message to
 * and fro several times; the round trip that took least says best what both clocks showed at one
 * moment, to half of its length. What is known of two moments gives the drift between them. Source:
 * Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989).
 */
#ifndef DP_COLLECTIVES_CORE_CLOCK_H
#define DP_COLLECTIVES_CORE_CLOCK_H

#include "collectives/core/group.h"

/* Zeroed before the first mark. */
struct dp_clock {
    int marks;            /* 0, 1, or 2: the first and the last one */
    uint64_t at_ns[2];    /* by this rank's clock */
    int64_t ahead_ns[2];  /* how much further it was than that of rank 0 */
    uint64_t error_ns[2]; /* at most so wrong; 0 on the host of rank 0 */
};

/* Compares the clocks now. `now` is this rank's clock, dp_now_ns. Collective; free of messages
 * where all ranks are on one host. Errors: those of dp_group_exchange. */
DP_CHECKED dp_status dp_clock_mark(struct dp_clock *clock, struct dp_group *group,
                                   uint64_t (*now)(void));

/* What the clock of rank 0 showed when this rank's showed `own_ns`; that itself before the first
 * mark. */
uint64_t dp_clock_shared(const struct dp_clock *clock, uint64_t own_ns);

#endif
