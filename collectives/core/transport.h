/*
 * transport.h - how bytes get from rank to rank: over MPI, or between threads of one process.
 *
 * Transports differ in the few functions below only. Exchange, barrier, broadcast and gather are
 * written once, in group.c, over start and finish.
 */
#ifndef DP_COLLECTIVES_CORE_TRANSPORT_H
#define DP_COLLECTIVES_CORE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"

/* Of group.h, whose source calls a transport. */
struct dp_group;
struct dp_slice;
struct dp_transfer;

struct dp_transport {
    const char *name;

    /* See dp_group_start, dp_group_finish, dp_group_test. transfer->to and ->from are set. One or
     * both may be -1; both may be the same rank, but not the caller's. start keeps what finish
     * needs in ->out and ->in. */
    dp_status (*start)(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                       struct dp_transfer *transfer);
    dp_status (*finish)(struct dp_group *group, struct dp_transfer *transfer);
    dp_status (*test)(struct dp_group *group, struct dp_transfer *transfer, bool *done);

    /* See dp_group_memory, dp_group_release, dp_group_peer. */
    void *(*memory)(struct dp_group *group, enum dp_purpose purpose, size_t bytes);
    void (*release)(struct dp_group *group, void *memory);
    void *(*peer)(const struct dp_group *group, const void *mine, int peer);

    /* See dp_group_leave: ends all waits of this process. NULL: setting group->cancel is enough. */
    void (*leave)(struct dp_group *group);

    /* Releases link and group. */
    void (*close)(struct dp_group *group);
};

/*
 * Ranks as threads of this process. A hub is made once and then joined by `size` threads. They
 * share one cancel flag, so that a failing rank wakes the others.
 */
struct dp_local_hub;
DP_CHECKED dp_status dp_local_hub_create(int size, struct dp_local_hub **out);
void dp_local_hub_destroy(struct dp_local_hub *hub);
/* Pretends that rank i is on node node_of[i], numbered from 0 by their first ranks: memory is then
 * shared inside a node only. Call it before any rank joins; by default all are on one node. */
void dp_local_hub_place(struct dp_local_hub *hub, const int *node_of);
/* Pretends that only the first `requests` allocations of each rank can be shared; later ones are
 * private. -1: all are shared. Call it before any rank joins. */
void dp_local_hub_crowd(struct dp_local_hub *hub, int requests);
DP_CHECKED dp_status dp_local_join(struct dp_local_hub *hub, int rank, struct dp_group **out);
/* Ends all waits of all ranks with DP_ERR_CANCELLED. */
void dp_local_cancel(struct dp_local_hub *hub);

/*
 * Makes a group of some ranks of another group, for strategies that work in levels. Its messages
 * are those of the parent, so the ranks of both must use them in one order. Memory must be
 * allocated by the groups of all nodes together, each with all ranks of its node; in any other
 * group it is private.
 *
 *   ranks  [size]  of the parent, this one among them; equal on all of them
 *   out    out     borrows the parent, its stream included. Set only on success
 *
 * Local. Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_group_sub_create(struct dp_group *parent, const int *ranks, int size,
                                         struct dp_group **out);

/* Adds the bytes counted so far to the parent, and takes over what the engine has set in it. Call
 * it before and after each use of the group. Local. */
void dp_group_sub_sync(struct dp_group *group);

/* Returns the group that this one was made from, and a rank's number there; NULL if none. Local. */
const struct dp_group *dp_group_parent(const struct dp_group *group, int rank, int *parent_rank);

/* Makes a group of this process alone, which owns its hub: for one rank, and for the baseline. */
DP_CHECKED dp_status dp_local_alone(struct dp_group **out);

#endif
