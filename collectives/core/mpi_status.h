/*
 * mpi_status.h - MPI's return codes as dp_status, its int counts, and ending by MPI_Abort.
 */
#ifndef DP_COLLECTIVES_CORE_MPI_STATUS_H
#define DP_COLLECTIVES_CORE_MPI_STATUS_H

#include <mpi.h>
#include <stddef.h>

#include "base/status.h"

/* Returns DP_OK for MPI_SUCCESS; otherwise reports call and reason and returns DP_ERR_MPI. Where a
 * rank is lost and the others may go on, or somebody reports that, it returns DP_ERR_CANCELLED, and
 * reports nothing. */
DP_CHECKED dp_status dp_from_mpi(const char *file, int line, const char *call, int code);
#define DP_MPI(call) dp_from_mpi(__FILE__, __LINE__, #call, (call))

/* What dp_from_mpi() asks where a call may have failed since a rank is lost (loss_mpi.h), on any
 * thread that is in MPI: it waits until that is known. NULL: nothing. */
typedef bool dp_mpi_loss_hook(void *context);
void dp_mpi_on_error(dp_mpi_loss_hook *is_lost, void *context);

/* Converts a count to MPI's int. Errors: DP_ERR_ARG when it does not fit. */
DP_CHECKED dp_status dp_mpi_count(size_t count, int *out);

/* Ends all ranks of the job with this exit code, and reports it to the launcher. Callable from any
 * thread; a second caller waits for the end. Does not return. */
void dp_mpi_abort(int code);

#endif
