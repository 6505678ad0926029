/*
 * patience.h - waiting for another rank or thread without wasting a core.
 *
 * A short spin keeps latency low when the answer is near; then the thread sleeps, longer and
 * longer, so that a rank that waits for seconds costs nothing. Every wait of this layer goes
 * through here and looks at the cancel flag, so that a failure elsewhere in the process ends it.
 */
#ifndef DP_COLLECTIVES_PATIENCE_H
#define DP_COLLECTIVES_PATIENCE_H

#include <stdatomic.h>
#include <stdbool.h>

struct dp_patience {
    const atomic_int *cancel; /* borrowed; not 0: give up. May be NULL */
    unsigned spins;           /* turns before the first sleep */
    unsigned turns;           /* taken so far */
};

/* Spins before sleeping: some microseconds; 0 where the core has better things to do. */
enum { DP_SPINS = 4000 };

/* One turn of waiting. false: cancelled. */
bool dp_patience_turn(struct dp_patience *patience);

#endif
