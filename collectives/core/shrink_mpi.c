#include "collectives/core/shrink_mpi.h"

#include "collectives/core/mpi_status.h"

/* Open MPI declares its extensions in a header of their own. */
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

dp_status dp_mpi_ranks_in(MPI_Comm few, int size, MPI_Comm many, int *rank_of)
{
    MPI_Group from = MPI_GROUP_NULL, to = MPI_GROUP_NULL;
    dp_status status = DP_OK;

    DP_TRY_GOTO(DP_MPI(MPI_Comm_group(few, &from)), status, done);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_group(many, &to)), status, done);
    for (int i = 0; i < size; i++) {
        DP_TRY_GOTO(DP_MPI(MPI_Group_translate_ranks(from, 1, &i, to, &rank_of[i])), status, done);
        rank_of[i] = rank_of[i] == MPI_UNDEFINED ? -1 : rank_of[i];
    }

done:
    if (from != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&from);
    }
    if (to != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&to);
    }
    return status;
}

#if defined(MPIX_FT)

bool dp_mpi_has_lost(MPI_Comm comm)
{
    MPI_Group failed = MPI_GROUP_NULL;
    int revoked = 0, count = 0;

    if (MPIX_Comm_is_revoked(comm, &revoked) == MPI_SUCCESS && revoked != 0) {
        return true;
    }
    if (MPIX_Comm_get_failed(comm, &failed) == MPI_SUCCESS) {
        (void)MPI_Group_size(failed, &count);
        (void)MPI_Group_free(&failed);
    }
    return count > 0;
}

void dp_mpi_revoke(MPI_Comm comm)
{
    if (dp_mpi_why_no_shrink() == NULL) {
        (void)MPIX_Comm_revoke(comm);
    }
}

dp_status dp_mpi_shrink(MPI_Comm comm, MPI_Comm *out)
{
    DP_TRY(DP_MPI(MPIX_Comm_shrink(comm, out)));
    return DP_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
}

/* An agreement that fails since another rank has died says so on all ranks. */
bool dp_mpi_agree(MPI_Comm comm, bool mine)
{
    int all = mine ? 1 : 0;

    return MPIX_Comm_agree(comm, &all) == MPI_SUCCESS && all != 0;
}

#else

bool dp_mpi_has_lost(MPI_Comm comm)
{
    (void)comm;
    return false;
}

void dp_mpi_revoke(MPI_Comm comm)
{
    (void)comm;
}

dp_status dp_mpi_shrink(MPI_Comm comm, MPI_Comm *out)
{
    (void)comm;
    *out = MPI_COMM_NULL;
    return DP_FAIL(DP_ERR_UNAVAILABLE, "%s", dp_mpi_why_no_shrink());
}

bool dp_mpi_agree(MPI_Comm comm, bool mine)
{
    (void)comm;
    return mine;
}

#endif
