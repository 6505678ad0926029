/*
 * mpi_leave.c - ranks that leave a job one of which is stopped meanwhile; run by mpirun with two
 * ranks. With "before" rank 1 stops before it leaves, with "within" in MPI_Finalize: rank 0 must
 * name it, and the job end with 76. With "suspended" all ranks stop for a while, which is no hang,
 * and the job ends well.
 */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "collectives/world/world.h"

static bool stops_within;

/* The linker takes this one, and not MPI's. */
int MPI_Finalize(void)
{
    if (stops_within) {
        (void)raise(SIGSTOP);
    }
    return PMPI_Finalize();
}

int main(int argc, char **argv)
{
    struct dp_world *world;

    if (argc != 2 || dp_world_create(&world) != DP_OK) {
        return 1;
    }
    dp_world_allow_hang(world, 1.0);
    if (world->all->rank == 1) {
        stops_within = strcmp(argv[1], "within") == 0;
        if (strcmp(argv[1], "before") == 0) {
            (void)raise(SIGSTOP);
        }
    }
    dp_world_destroy(world);
    return 0;
}
