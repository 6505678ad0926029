/*
 * local_peers.h - watches the processes of this node's ranks and finds one that died without a
 * report. Without this a rank that waits for it would wait until mpirun ends the job, and the cause
 * would not be named.
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

struct dp_local_peer {
    struct dp_process_watch watch; /* of its process */
    bool watched;                  /* false: on another node, or not visible from here */
    const atomic_int *left;        /* borrowed; not 0: it has left by itself. May be NULL */
};

struct dp_local_peers {
    int self, size;
    struct dp_local_peer *peers; /* owned; [size] */
};

/* Watches no rank yet. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_local_peers_init(struct dp_local_peers *peers, int size, int self);
void dp_local_peers_fini(struct dp_local_peers *peers);

/* Watches a rank of this node, if its process is visible. */
void dp_local_peers_watch(struct dp_local_peers *peers, int rank, struct dp_process process,
                          const atomic_int *left);

/* The first rank that has died without a report, or -1. */
int dp_local_peers_lost(const struct dp_local_peers *peers);

/* Whether this rank must report it: it is the first living rank of the node. */
bool dp_local_peers_reports(const struct dp_local_peers *peers);

#endif
