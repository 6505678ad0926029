#include "base/system/job_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void dp_job_name(char *name, size_t size)
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid",
                                        "SLURM_JOB_ID"};
    const char *value = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && value == NULL; i++) {
        value = getenv(names[i]);
    }
    if (value != NULL && *value != '\0') {
        (void)snprintf(name, size, "%s", value);
    } else {
        (void)snprintf(name, size, "process %ld", (long)getpid());
    }
}
