/*
 * local_peers.h - watches the processes of this node's ranks and finds one that died without a
 * report. Without this a rank that waits for it would wait until mpirun ends the job, and the cause
 * would not be named.
 *
 * A rank watches the few that follow it, around the circle of its node's ranks, and tells all of
 * them whom it has found: 256 ranks that each watched all others would do nothing else. Where one
 * of the few ends by itself, the next one takes its place; so while a rank lives, it or an earlier
 * one watches each dead rank after it.
 *
 * A rank that ends because of an error that it has reported sets a flag that its local peers can
 * read: its death is not reported again.
 */
#ifndef DP_COLLECTIVES_WORLD_LOCAL_PEERS_H
#define DP_COLLECTIVES_WORLD_LOCAL_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/system/process.h"

enum { DP_LOCAL_PEERS_WATCHED = 3 }; /* so many may die at the same time as their watcher */

/* What a rank shows to the other ranks of its node, in common memory. Begins with zeros. */
struct dp_local_sign {
    atomic_int left;  /* not 0: it ends by itself, and reports why */
    atomic_int found; /* not 0: the rank that one of them has found dead, from 1 */
};

struct dp_local_peer {
    struct dp_process_watch watch; /* of its process; only if watched */
    int64_t id;                    /* of its process; 0: not visible from here */
    struct dp_local_sign *sign;    /* borrowed; NULL: its memory cannot be reached */
    bool watched;
    bool over; /* it has ended by itself */
};

struct dp_local_peers {
    int self, size;
    struct dp_local_peer *peers; /* owned; [size] */
};

/* Knows of no rank yet. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_local_peers_init(struct dp_local_peers *peers, int size, int self);
void dp_local_peers_fini(struct dp_local_peers *peers);

/* Adds a rank of this node, this one included, if its process is visible. */
void dp_local_peers_add(struct dp_local_peers *peers, int rank, struct dp_process process,
                        struct dp_local_sign *sign);

/* Starts to watch, once all are added: the next few, and those that cannot be told of a death. */
void dp_local_peers_watch(struct dp_local_peers *peers);

/* The rank that was found first to have died without a report, or -1. Tells the others. */
int dp_local_peers_lost(struct dp_local_peers *peers);

/* Whether this rank must report it: it is the first living rank of the node. */
bool dp_local_peers_reports(const struct dp_local_peers *peers);

#endif
