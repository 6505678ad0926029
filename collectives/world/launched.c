#include "collectives/world/launched.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/job_processes.h"

int dp_world_launch_rank(void)
{
    for (size_t i = 0; dp_job_rank_names[i] != NULL; i++) {
        const char *text = getenv(dp_job_rank_names[i]);
        if (text != NULL) {
            return (int)strtol(text, NULL, 10);
        }
    }
    return -1;
}

dp_status dp_launched_alone(void)
{
    /* How many processes there are, by Open MPI, PMI (MPICH), MVAPICH2, IBM's jsrun, Flux, torchrun
     * and Slurm, each where the other variable shows that it is so; the nearest launcher comes
     * first, and decides. */
    static const struct {
        const char *size, *mark;
    } launchers[] = {{"OMPI_COMM_WORLD_SIZE", NULL},
                     {"PMI_SIZE", NULL},
                     {"MV2_COMM_WORLD_SIZE", NULL},
                     {"JSM_NAMESPACE_SIZE", NULL},
                     {"FLUX_JOB_SIZE", NULL},
                     {"WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
                     {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                     {"SLURM_NTASKS", "SLURM_PROCID"}};
    const char *text = NULL, *unset = NULL;
    size_t i = 0;

    while (text == NULL && i < sizeof(launchers) / sizeof(launchers[0])) {
        const bool known = launchers[i].mark == NULL || getenv(launchers[i].mark) != NULL;
        text = known ? getenv(launchers[i].size) : NULL;
        i++;
    }
    if (text == NULL || strtol(text, NULL, 10) <= 1) {
        return DP_OK;
    }
    unset = launchers[i - 1].mark != NULL ? launchers[i - 1].mark : launchers[i - 1].size;
    return DP_FAIL(DP_ERR_USAGE,
                   "this process is alone, but its launcher says %s=%s: start it by launch/mpirun, "
                   "or by srun --mpi=pmix where MPI has PMIx; to run one process alone: env -u %s",
                   launchers[i - 1].size, text, unset);
}
