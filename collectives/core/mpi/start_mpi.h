/*
 * start_mpi.h - MPI_Init and MPI_Finalize, with Open MPI's settings, and so that ranks that wait in
 * them leave the cores to those that are still on the way.
 */
#ifndef DP_COLLECTIVES_CORE_MPI_START_MPI_H
#define DP_COLLECTIVES_CORE_MPI_START_MPI_H

#include "base/status.h"

/* provided: the thread level that MPI grants of MPI_THREAD_SERIALIZED. Errors: DP_ERR_MPI. */
DP_CHECKED dp_status dp_mpi_start(int *provided);

/* Returns when all ranks have called it. */
void dp_mpi_end(void);

#endif
