/*
 * mpi_leave.c - ranks that leave a job one of which, the last, is stopped meanwhile; run by mpirun
 * on one host or several. With "before" it stops before it leaves, with "within" in MPI_Finalize:
 * another rank must report that, and the job end with 76.
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
    dp_world_allow_outage(world, 1);
    if (world->all->rank == world->all->size - 1) {
        stops_within = strcmp(argv[1], "within") == 0;
        if (strcmp(argv[1], "before") == 0) {
            (void)raise(SIGSTOP);
        }
    }
    dp_world_destroy(world);
    return 0;
}
