/*
 * transport_mpi.h - a group over an MPI communicator. For world.c and strategy_mpi.c.
 */
#ifndef DP_COLLECTIVES_TRANSPORT_MPI_H
#define DP_COLLECTIVES_TRANSPORT_MPI_H

#include <mpi.h>

#include "collectives/group.h"

/* Makes a group of all ranks of `comm`, which is duplicated. Collective.
 * Errors: DP_ERR_MPI, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_mpi_group_create(MPI_Comm comm, atomic_int *cancel, struct dp_group **out);

/* The group's communicator; MPI_COMM_NULL when it is not over MPI. */
MPI_Comm dp_mpi_group_comm(const struct dp_group *group);

#endif
