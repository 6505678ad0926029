/*
 * local_peers.h - the processes of this node's ranks, and whether one has died without a word:
 * whoever waits for it would wait until mpirun ends the job, and nobody would say why.
 *
 * A rank that leaves by itself, because of an error that it has told, says so in memory that its
 * local peers can read: of that one nothing more need be said.
 */
#ifndef DP_COLLECTIVES_WORLD_LOCAL_PEERS_H
#define DP_COLLECTIVES_WORLD_LOCAL_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "base/status.h"

struct dp_local_peer {
    struct dp_process_watch watch; /* of its process */
    bool watched;                  /* false: on another node, or not to be seen from here */
    const atomic_int *left;        /* borrowed; not 0: it has left by itself. May be NULL */
};

struct dp_local_peers {
    int self, size;
    struct dp_local_peer *peers; /* owned; [size] */
};

/* Watches nobody yet. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_local_peers_init(struct dp_local_peers *peers, int size, int self);
void dp_local_peers_fini(struct dp_local_peers *peers);

/* Watches a rank of this node, if its process can be seen. */
void dp_local_peers_watch(struct dp_local_peers *peers, int rank, struct dp_process process,
                          const atomic_int *left);

/* The first rank that has died without a word, or -1. */
int dp_local_peers_lost(const struct dp_local_peers *peers);

/* Whether this rank is the one to tell of it: the first of the node that is left. */
bool dp_local_peers_reports(const struct dp_local_peers *peers);

#endif
