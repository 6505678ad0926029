/*
 * mpi_leave.c - ranks that leave a job one of which, the last, is stopped meanwhile; run by mpirun
 * on one host or several. With "before" it stops before it leaves, with "within" in MPI_Finalize:
 * another rank must report that, and the job end with 76. With "late" it stays inside MPI for half
 * a second after its last message: all must end well.
 */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/trace.h"
#include "collectives/world/world.h"

static const uint64_t late_ns = 500000000;

static bool stops_within, is_late;

/* After its last message a rank calls this. The linker takes this one, and not MPI's. */
int MPI_Comm_free(MPI_Comm *comm)
{
    const uint64_t end = is_late ? dp_now_ns() + late_ns : 0;
    int found = 0;

    is_late = false;
    while (dp_now_ns() < end) {
        (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
    return PMPI_Comm_free(comm);
}

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
    dp_world_allow_hang(world, 1.0, 300.0);
    dp_world_allow_outage(world, 1);
    if (world->all->rank == world->all->size - 1) {
        stops_within = strcmp(argv[1], "within") == 0;
        is_late = strcmp(argv[1], "late") == 0;
        if (strcmp(argv[1], "before") == 0) {
            (void)raise(SIGSTOP);
        }
    }
    dp_world_destroy(world);
    return 0;
}
