#include "collectives/core/mpi/start_mpi.h"

#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/system/guard.h"
#include "base/system/launcher.h"
#include "base/system/thread.h"
#include "collectives/core/mpi/window_fits_mpi.h"
#include "collectives/core/mpi_status.h"

/* Open MPI settings that make a measured difference (docs/hosts.md). They never replace the user's
 * own. */
static const char *const settings[][2] = {
    /* One TCP connection carries about half of a 1 Gb/s wire when both directions are busy. */
    {"OMPI_MCA_btl_tcp_links", "2"},
    /* Messages up to this size (PIECE of pieces_mpi.c, and a header) are sent eagerly. Larger ones
     * are announced, and the answer queues after everything else in the other direction: a third of
     * the bandwidth. */
    {"OMPI_MCA_btl_tcp_eager_limit", "1052672"},
    {"OMPI_MCA_btl_tcp_rndv_eager_limit", "1052672"},
    {"OMPI_MCA_btl_tcp_max_send_size", "1052672"},
    /* On a node messages of up to 32 KiB and a header are sent eagerly, and longer ones in fewer
     * parts: 64 KiB over a ring take 4.2 us instead of 5.2, MPI_Allreduce 5.0 instead of 6.1. */
    {"OMPI_MCA_btl_vader_eager_limit", "36864"},
    {"OMPI_MCA_btl_vader_max_send_size", "65536"},
    /* Kernel-assisted copies are often forbidden in containers, where each attempt logs a
     * warning. */
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
    /* As in Open MPI 4, where messages are as fast: 5 makes files of 16 MiB a rank in /dev/shm. */
    {"OMPI_MCA_btl_vader_segment_size", "4194304"},
    /* A component that is not used, but which in Open MPI 5 prints an error first. */
    {"OMPI_MCA_osc", "^ucx"},
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
    /* One that our messages do not use, and which sleeps for a second in each MPI_Init. */
    {"OMPI_MCA_btl", "^ofi"},
#endif
};

/* Where ranks wait for each other to start or to end, Open MPI looks whether they are there, sleeps
 * for 100 us, looks again, and so on. Where ranks share cores, those that are there so leave little
 * of them to those that are not. With a slack the sleeps are as long as if they took turns. */
static const uint64_t look_ns = 100000, slack_most_ns = 20000000;

/* A count of ranks, as the launcher tells it; 0: it does not. */
static long ranks_by(const char *variable)
{
    const char *text = getenv(variable);

    return text != NULL ? strtol(text, NULL, 10) : 0;
}

/* What sleeps of this thread may be longer by, in MPI_Init and MPI_Finalize; 0: as it is. */
static uint64_t slack_of_waits(void)
{
    const long here = ranks_by("OMPI_COMM_WORLD_LOCAL_SIZE");
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t slack;

    if (cores < 1 || here <= cores) {
        return 0;
    }
    slack = look_ns * (uint64_t)here / (uint64_t)cores;
    return slack < slack_most_ns ? slack : slack_most_ns;
}

static bool all_are_here(void)
{
    const long here = ranks_by("OMPI_COMM_WORLD_LOCAL_SIZE");

    return here > 0 && here == ranks_by("OMPI_COMM_WORLD_SIZE");
}

/* In each rank Open MPI has hwloc look for devices, so as to choose a network card that is near.
 * Where all ranks are on this host it needs none: that is half of the computing of MPI_Init (16 of
 * 33 ms, 8 ranks), since a virtual machine stops for each read of a PCI device, and hwloc's
 * plug-ins bring the libraries of displays. */
static void look_for_no_devices(void)
{
    if (all_are_here()) {
        (void)setenv("HWLOC_COMPONENTS", "-linux:pci,-linux:io,-pci,-opencl,-cuda,-nvml,-gl", 0);
        (void)setenv("HWLOC_PLUGINS_PATH", "/dev/null", 0);
    }
}

/* Open MPI's TCP asks for the addresses of every other rank of the host, one by one, although it is
 * not used there: 40 ms of computing a rank where 256 start. Where all are on this host, and more
 * than cores, it is left out. */
static void leave_out_tcp(void)
{
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4 /* later ones not measured */
    if (slack_of_waits() > 0 && all_are_here()) {
        (void)setenv("OMPI_MCA_btl", "self,vader", 0);
    }
#endif
}

/* Where a rank dies on another host Open MPI 5 would end this one, with its own code and lines, as
 * soon as TCP says so. With its fault tolerance calls return errors instead. */
static void outlive_others(void)
{
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
    if (dp_guard_ends_job() &&
        ranks_by("OMPI_COMM_WORLD_LOCAL_SIZE") < ranks_by("OMPI_COMM_WORLD_SIZE")) {
        (void)setenv("OMPI_MCA_mpi_ft_enable", "1", 0);
    }
#endif
}

dp_status dp_mpi_start(int *provided)
{
    const uint64_t slack = slack_of_waits(), before = slack > 0 ? dp_thread_slack(slack) : 0;
    dp_status status;

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        (void)setenv(settings[i][0], settings[i][1], 0);
    }
    outlive_others();
    look_for_no_devices();
    if (dp_mpi_place_segments()) {
        leave_out_tcp();
    }
    status = DP_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided));
    if (before > 0) {
        (void)dp_thread_slack(before);
    }
    dp_guard_note(status == DP_OK);
    return status;
}

/* Where UCX goes by TCP, MPICH 4.0 sends each rank a last message in MPI_Finalize. The answer needs
 * a peer inside of MPI, and with all answers MPICH waits outside of MPI for all ranks. So a rank
 * whose peer has all of its own may get none, and waits for ever. Ranks of several hosts instead
 * wait for each other by the launcher, and leave MPI as it is. Returns whether they do. */
static bool leave_without_finalize(void)
{
#ifdef MPICH_NUMVERSION
    dp_launcher_meet();
    return ranks_by("MPI_LOCALNRANKS") < ranks_by("PMI_SIZE") && dp_launcher_leave();
#else
    return false;
#endif
}

void dp_mpi_end(void)
{
    const uint64_t slack = slack_of_waits();

    if (slack > 0) {
        (void)dp_thread_slack(slack);
    }
    if (!leave_without_finalize()) {
        (void)MPI_Finalize();
    }
    dp_guard_note(false);
}
