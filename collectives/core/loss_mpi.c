#include "collectives/core/loss_mpi.h"

#include <mpi.h>
#include <stddef.h>

#include "base/system/guard.h"

/* Open MPI declares its extensions in a header of their own. */
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#if defined(MPIX_FT)

/* Errors of a call that tests several requests are in their statuses, which we do not ask for; and
 * no other error is expected there. */
bool dp_mpi_may_be_loss(int code)
{
    int class = code;

    (void)MPI_Error_class(code, &class);
    return class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_PROC_FAILED_PENDING ||
           class == MPIX_ERR_REVOKED || class == MPI_ERR_IN_STATUS;
}

bool dp_mpi_is_loss(int code)
{
    return code != MPI_SUCCESS && dp_mpi_why_no_shrink() == NULL && dp_mpi_may_be_loss(code);
}

const char *dp_mpi_why_no_shrink(void)
{
    int *on = NULL, known = 0;

    return !dp_guard_ends_job() &&
                   MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &on, &known) == MPI_SUCCESS &&
                   known != 0 && *on != 0
               ? NULL
               : "mpirun was started without --with-ft ulfm";
}

#else

const char *dp_mpi_why_no_shrink(void)
{
    return "this MPI cannot go on without a rank: Open MPI from 5.0 on can, with --with-ft ulfm";
}

bool dp_mpi_may_be_loss(int code)
{
#ifdef MPICH_NUMVERSION
    int class = code;

    (void)MPI_Error_class(code, &class);
    return class == MPI_ERR_OTHER || class == MPI_ERR_IN_STATUS;
#else
    (void)code;
    return false;
#endif
}

bool dp_mpi_is_loss(int code)
{
    (void)code;
    return false;
}

#endif
