/*
 * transport_mpi.h - a group over an MPI communicator. For world.c and strategy_mpi.c.
 */
#ifndef DP_COLLECTIVES_CORE_TRANSPORT_MPI_H
#define DP_COLLECTIVES_CORE_TRANSPORT_MPI_H

#include <mpi.h>

#include "collectives/core/group.h"

/* Makes a group of all ranks of `comm`, which is duplicated. Collective. Errors: DP_ERR_MPI,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_mpi_group_create(MPI_Comm comm, atomic_int *cancel, struct dp_group **out);

/* A communicator of the ranks of `comm` that are `in`, in the order of `rank`; MPI_COMM_NULL on the
 * others. Collective over `comm`. Errors: DP_ERR_MPI. */
DP_CHECKED dp_status dp_mpi_part(MPI_Comm comm, bool in, int rank, MPI_Comm *out);

/* Whether messages of the group go over MPI. Local. */
bool dp_mpi_connects(const struct dp_group *group);

/* Gives a communicator of the group's ranks, in their order: the group's own, or a new one if the
 * group was made from another (dp_group_sub_create). Collective. Errors: DP_ERR_MPI,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_mpi_comm_open(const struct dp_group *group, MPI_Comm *out);
void dp_mpi_comm_close(const struct dp_group *group, MPI_Comm comm);

/*
 * A rank of the group is lost: ends all messages of the group on all ranks, which go on without it
 * (shrink_mpi.h), and returns when those of this rank have ended, so that their memory may be
 * released. No other thread may be in MPI. Only the release of the group may follow.
 */
void dp_mpi_group_revoke(struct dp_group *group);

/* Waits for a request without spinning, as all waits of the group do. */
DP_CHECKED dp_status dp_mpi_wait(const struct dp_group *group, MPI_Request *request);

#endif
