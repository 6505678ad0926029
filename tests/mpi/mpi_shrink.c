/*
 * mpi_shrink.c - ranks that go on without the last one, with an MPI that cannot lose any: functions
 * in the place of loss_mpi.c and shrink_mpi.c say that it is lost, while it lives. Run by mpirun
 * with four ranks, of which two go on, since they have four lanes; or
 *
 *     mpi_shrink nomem N    the N-th allocation of rank 0 fails meanwhile: the job ends with 76
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "collectives/core/shrink_mpi.h"
#include "collectives/core/transport_mpi.h"
#include "collectives/world/failure_detector.h"
#include "collectives/world/world.h"

enum { LANES = 4, LEFT = 3, GO_ON = 2 };

/* ---- in the place of an MPI's that can lose ranks ---- */

const char *dp_mpi_why_no_shrink(void)
{
    return NULL;
}

bool dp_mpi_may_be_loss(int code)
{
    (void)code;
    return false;
}

bool dp_mpi_is_loss(int code)
{
    (void)code;
    return false;
}

bool dp_mpi_has_lost(MPI_Comm comm)
{
    (void)comm;
    return true;
}

void dp_mpi_revoke(MPI_Comm comm)
{
    (void)comm;
}

dp_status dp_mpi_shrink(MPI_Comm comm, MPI_Comm *out)
{
    int rank, size;

    (void)MPI_Comm_rank(comm, &rank);
    (void)MPI_Comm_size(comm, &size);
    (void)MPI_Comm_split(comm, rank == size - 1 ? MPI_UNDEFINED : 0, rank, out);
    return DP_OK;
}

bool dp_mpi_agree(MPI_Comm comm, bool mine)
{
    (void)comm;
    return mine;
}

/* Only the last ones of `few` may not be among `many`. */
dp_status dp_mpi_ranks_in(MPI_Comm few, int size, MPI_Comm many, int *rank_of)
{
    int count;
    (void)few;

    (void)MPI_Comm_size(many, &count);
    for (int i = 0; i < size; i++) {
        rank_of[i] = i < count ? i : -1;
    }
    return DP_OK;
}

/* MPI frees these together with the rank that is lost, so that they must be left. */
static bool shrinking;
static int freed;

int MPI_Comm_free(MPI_Comm *comm)
{
    freed += shrinking;
    return shrinking ? MPI_SUCCESS : PMPI_Comm_free(comm);
}

int MPI_Win_free(MPI_Win *window)
{
    freed += shrinking;
    return shrinking ? MPI_SUCCESS : PMPI_Win_free(window);
}

/* ---- the ranks ---- */

/* What the others leave is no hang here. */
static int be_lost(struct dp_world *world)
{
    MPI_Comm comm = MPI_COMM_NULL, others;

    dp_failure_detector_destroy(world->detector);
    return dp_mpi_comm_open(world->all, &comm) != DP_OK || dp_mpi_shrink(comm, &others) != DP_OK;
}

static int go_on(struct dp_world *world, int nth)
{
    const int rank = world->all->rank, size = rank < GO_ON ? GO_ON : 1;
    struct dp_world_loss loss = {0};
    bool goes_on;
    int wrong;

    dp_world_allow_shrink(world, true);
    wrong = !dp_world_lost(world);
    shrinking = true;
    dp_mem_fail_nth(rank == 0 ? nth : 0);
    goes_on = dp_world_shrink(world, LANES, &loss);
    dp_mem_fail_nth(0);
    shrinking = false;
    wrong += freed != 0 || goes_on != (rank < GO_ON);
    wrong += loss.count != 1 || loss.left != LEFT || loss.ranks[0] != LEFT;
    wrong += world->all->size != size || world->train != world->all;
    wrong += dp_group_barrier(world->all) != DP_OK;
    wrong += size > 1 && (world->all->rank != rank || world->first_rank_of[rank] != rank);
    if (wrong > 0) {
        (void)fprintf(stderr, "rank %d: %d wrong\n", rank, wrong);
    }
    dp_world_destroy(world);
    return wrong;
}

int main(int argc, char **argv)
{
    struct dp_world *world;
    int wrong;

    if (dp_world_create(&world) != DP_OK || world->all->size != LEFT + 1) {
        return 1;
    }
    wrong = world->all->rank == LEFT ? be_lost(world)
                                     : go_on(world, argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    (void)MPI_Finalize();
    return wrong > 0;
}
