/*
 * job_processes.h - the processes of this job on this host, by what their launcher has put into
 * their environment: also of a rank that has not come so far that others know of it.
 */
#ifndef DP_BASE_SYSTEM_JOB_PROCESSES_H
#define DP_BASE_SYSTEM_JOB_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>

/* The variables in which launchers say a process's rank, in the order in which they count: those of
 * Open MPI, PMIx (Slurm), PMI (MPICH); NULL ends them. */
extern const char *const dp_job_rank_names[];

/* Whose processes they are. */
struct dp_job_processes {
    const char *proc;   /* "/proc" */
    const char *space;  /* PMIX_NAMESPACE, equal for all of a job; NULL: by the launcher */
    int64_t launcher;   /* else: the parent of each, or its parent's */
    const char *thread; /* the name of a thread that says that a process has come */
};

struct dp_job_process {
    int rank;
    int64_t id;
    bool come;     /* it has that thread */
    char state;    /* as in proc(5) */
    char name[16]; /* of its program */
};

/* Fills in one process a rank, in the order of ranks: of several, as where a script starts the
 * program, one that has come, else the one that was started last. Returns how many there are, at
 * most `most`; others are left out, as are processes that this one may not look at. */
int dp_job_processes_find(const struct dp_job_processes *job, struct dp_job_process *out, int most);

/* Why a process in this state (proc(5)) does nothing by itself, in words; NULL: it may do. */
const char *dp_process_stands(char state);

#endif
