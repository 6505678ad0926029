/*
 * liveness.h - which ranks live, as far as this one can know: processes of its own host by the
 * kernel (local_peers.h), other hosts by a TCP connection (host_link.h).
 *
 * Over MPI alone: ranks that are threads of one process cannot die one by one.
 */
#ifndef DP_COLLECTIVES_WORLD_LIVENESS_H
#define DP_COLLECTIVES_WORLD_LIVENESS_H

#include "collectives/core/group.h"

struct dp_liveness;

/* A rank that is lost. */
struct dp_loss {
    int rank;         /* -1: nobody */
    bool reports;     /* whether this rank is the one to report it */
    const char *host; /* where it lived; borrowed; NULL: here */
    int silent_s;     /* above 0: nobody knows whether it has died, since its host has given no
                       * sign of life for so many seconds */
};

/* Begins to watch the ranks of a group. Collective. group: borrowed.
 * Errors: DP_ERR_NOMEM, those of messages. */
DP_CHECKED dp_status dp_liveness_create(struct dp_group *group, struct dp_liveness **out);

/* Seconds that another host may be silent; DP_OUTAGE_S until this is called. On any thread. */
enum { DP_OUTAGE_S = 30 };
void dp_liveness_allow_outage(struct dp_liveness *liveness, int seconds);

/* A rank that has died without a word, or whose host is silent for longer than that. Local, but not
 * on two threads at once. */
struct dp_loss dp_liveness_lost(struct dp_liveness *liveness);

/* This rank is about to end, and nobody need report that it has died. Local, on any thread. NULL is
 * ignored. */
void dp_liveness_farewell(struct dp_liveness *liveness);

/* Before the group is. Local. NULL is ignored. */
void dp_liveness_destroy(struct dp_liveness *liveness);

#endif
