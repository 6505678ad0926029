/*
 * job_name.h - what the ranks of a job have in common, and those of other jobs have not.
 */
#ifndef DP_BASE_SYSTEM_JOB_NAME_H
#define DP_BASE_SYSTEM_JOB_NAME_H

#include <stddef.h>

/* The name that the launcher (Open MPI, Slurm) gave the job; "process N" for one that it did not
 * start. */
void dp_job_name(char *name, size_t size);

#endif
