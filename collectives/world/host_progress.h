/*
 * host_progress.h - hosts tell each other that their ranks make progress, over the connections that
 * watch hosts (host_link.h): one that waits for another sees nothing of its ranks.
 *
 * A host sends a byte to the host that watches it, once a second at most, which says how many more
 * hosts are to have it; each sends it on, so it ends before it has come round. Nothing goes the
 * other way: while a byte is unanswered the kernel sends no probes, but for longer and longer tries
 * sends that byte again, and who watches must see at once that an outage is over.
 */
#ifndef DP_COLLECTIVES_WORLD_HOST_PROGRESS_H
#define DP_COLLECTIVES_WORLD_HOST_PROGRESS_H

#include <stdint.h>

#include "collectives/world/host_link.h"

struct dp_host_progress {
    uint64_t told_ns; /* when this host last told of its own progress; 0: not yet */
    bool moved;       /* there was some since then */
};

/* Sends and takes what can be now, without waiting. moves: ranks of this host have made progress
 * since the last call. Returns whether ranks of another host have. To be called several times a
 * second, by the rank that has the connections. hosts: number of them, of which only the 254 next
 * ones hear of each. progress: zeroed at first. */
bool dp_host_progress_share(struct dp_host_progress *progress, const struct dp_host_link *link,
                            int hosts, bool moves, uint64_t now_ns);

#endif
