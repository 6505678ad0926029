/*
 * loss_mpi.h - whether MPI can lose ranks, and whether it has.
 */
#ifndef DP_COLLECTIVES_CORE_LOSS_MPI_H
#define DP_COLLECTIVES_CORE_LOSS_MPI_H

#include <stdbool.h>

/* Why the job ends with the first rank that dies: a static text for people; NULL: it need not. Call
 * it after MPI_Init. Local. */
const char *dp_mpi_why_no_shrink(void);

/* Whether a call of MPI failed since a rank has died, or since another rank has said so. Local. */
bool dp_mpi_is_loss(int code);

/* Whether a call of MPI failed as one does whose peer has gone, and maybe for another reason: MPICH
 * does not say. Local. Open MPI's before 5.0 do not return where a peer has gone. */
bool dp_mpi_may_be_loss(int code);

#endif
