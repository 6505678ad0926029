/*
 * window_mpi.h - memory that ranks of a node share, by windows of MPI: what transport_mpi.c offers
 * as dp_group_memory().
 *
 * To make a window costs MPI some ten rounds over all ranks. So small pieces, of which a run has
 * most, are cut from one window that is made once.
 */
#ifndef DP_COLLECTIVES_CORE_MPI_WINDOW_MPI_H
#define DP_COLLECTIVES_CORE_MPI_WINDOW_MPI_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "collectives/core/backoff.h"
#include "collectives/core/group.h"

struct dp_open_transfers;

enum { DP_MPI_WINDOWS = 64 };

/* Memory that the ranks of a node allocated together, or private memory (window null). */
struct dp_mpi_window {
    char *base;
    size_t bytes;
    MPI_Win window;
    bool cut;      /* from the window for small pieces, which goes with the group */
    char **pieces; /* [size]: address of each rank's piece here; NULL: not reachable */
    void *mapped;  /* the memory of the whole node, `length` bytes */
    size_t length;
    enum dp_purpose purpose;
};

/* A group's over MPI. */
struct dp_mpi_link {
    MPI_Comm comm, node;            /* owned */
    struct dp_open_transfers *open; /* owned; NULL: a rank that is lost ends the job */
    int *node_of;                   /* owned; [size] */
    int *local_rank_of;             /* owned; [size]: rank within its node */
    struct dp_mpi_window windows[DP_MPI_WINDOWS];
    struct dp_mpi_window small; /* that small pieces are cut from; base NULL: not made yet */
    size_t small_used;          /* bytes of it: the same on all ranks */
    bool warned;
    struct dp_wire_pace pace; /* of the wire */
};

/* Without any memory. */
void dp_mpi_windows_init(struct dp_mpi_link *link);

/* See dp_group_memory(), dp_group_release() and dp_group_peer(). */
void *dp_mpi_window_alloc(struct dp_group *group, enum dp_purpose purpose, size_t bytes);
void dp_mpi_window_release(struct dp_group *group, void *memory);
void *dp_mpi_window_peer(const struct dp_group *group, const void *mine, int peer);

/* Releases all. Collective, unless dp_mpi_left(). */
void dp_mpi_windows_close(struct dp_group *group);

/* MPI frees windows and communicators collectively. A rank that has left the others must not wait
 * for them, since they may never come (dp_group_leave). Local. */
bool dp_mpi_left(const struct dp_group *group);

#endif
