#include "collectives/core/mpi_status.h"

#include <limits.h>
#include <pthread.h>

#include "base/system/guard.h"
#include "base/system/launcher.h"
#include "collectives/core/loss_mpi.h"

static dp_mpi_loss_hook *loss_hook; /* changed while no other thread is in MPI */
static void *loss_context;

void dp_mpi_on_error(dp_mpi_loss_hook *is_lost, void *context)
{
    loss_hook = is_lost;
    loss_context = context;
}

dp_status dp_from_mpi(const char *file, int line, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    if (code == MPI_SUCCESS) {
        return DP_OK;
    }
    if (dp_mpi_is_loss(code) ||
        (loss_hook != NULL && dp_mpi_may_be_loss(code) && loss_hook(loss_context))) {
        return DP_ERR_CANCELLED;
    }
    (void)MPI_Error_string(code, text, &length);
    return dp_fail(file, line, DP_ERR_MPI, "%s: %s", call, text);
}

dp_status dp_mpi_count(size_t count, int *out)
{
    if (count > INT_MAX) {
        return DP_FAIL(DP_ERR_ARG, "%zu elements are too many for one MPI call", count);
    }
    *out = (int)count;
    return DP_OK;
}

void dp_mpi_abort(int code)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&once);
    dp_launcher_tell(code);
    dp_launcher_let_read();
    dp_guard_note(false);
    (void)MPI_Abort(MPI_COMM_WORLD, code);
}
