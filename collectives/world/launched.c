#include "collectives/world/launched.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int dp_world_launch_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text != NULL) {
            return (int)strtol(text, NULL, 10);
        }
    }
    return -1;
}

dp_status dp_launched_alone(void)
{
    /* How many processes there are, by Open MPI, PMI (MPICH), Flux and Slurm; the nearest launcher
     * comes first, and decides. */
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "FLUX_JOB_SIZE",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
    const char *text = NULL;
    size_t i = 0;

    while (text == NULL && i < sizeof(sizes) / sizeof(sizes[0])) {
        const bool known = strncmp(sizes[i], "SLURM", 5) != 0 || getenv("SLURM_PROCID") != NULL;
        text = known ? getenv(sizes[i]) : NULL;
        i++;
    }
    if (text == NULL || strtol(text, NULL, 10) <= 1) {
        return DP_OK;
    }
    return DP_FAIL(DP_ERR_USAGE,
                   "this process is alone, but its launcher says %s=%s: start it by launch/mpirun, "
                   "or by srun --mpi=pmix where MPI has PMIx; to run one process alone: env -u %s",
                   sizes[i - 1], text,
                   strncmp(sizes[i - 1], "SLURM", 5) == 0 ? "SLURM_PROCID" : sizes[i - 1]);
}
