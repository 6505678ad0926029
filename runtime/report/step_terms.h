/*
 * step_terms.h - what a mean step is made of, for the verdict: parts of the ranks' steps, with
 * waiting for ranks that come late taken apart from communication.
 */
#ifndef DP_RUNTIME_REPORT_STEP_TERMS_H
#define DP_RUNTIME_REPORT_STEP_TERMS_H

#include "runtime/report/summary.h"

/* Milliseconds of a step, means of all ranks unless said otherwise. */
struct dp_step_terms {
    double step; /* the longest: what other ranks lack of it was left out of their steps */
    double input, compute, optimizer, checkpoint; /* compute: copy, forward, backward, optimizer */
    double passes;                                /* forward and backward */
    double exposed;                               /* waits for gradients: sending + waiting */
    double exposed_most;                          /* of the rank that waits most */
    double waiting;                               /* for ranks that come later */
    double sending;                               /* for communication itself */
    double hidden;                                /* communication beside computing */
    double used;                                  /* processor time of all threads, of a rank */
    double input_used;                            /* of those that prepare batches */
    double others; /* other programs had its core, of the rank that lost most by that; its index,
                    * and of how many CPUs they had how many: */
    int disturbed;
    double others_cpus, disturbed_cpus;
    double queued; /* that threads of a rank were ready, and had no core */
    double paging; /* waits for pages from a disk, of the rank that waits most; its index: */
    int paged;
    double contended; /* computing beyond that of a rank alone, on the rank that loses least */
    double overhead;  /* all else, on the rank that has least of it */
    double launch;    /* of `passes`: what calls cost, whatever the rows; 0: not known */
    int late;         /* index of the rank that nearly always comes last, -1: there is none */
    enum dp_step_part late_part; /* what takes it longer than the others */
    double crowding;             /* threads that compute on some cores, over these; 1 or more */
    int hosts;
    double cores; /* that each of the ranks on the cores of rank 0 has; 0: not known */
};

/* How often the batch is larger that limits.larger_batch_cost is of. */
enum { DP_LARGER_BATCH = 4 };

/* False: no steady step was measured. */
bool dp_step_terms_find(const struct dp_run_summary *summary, struct dp_step_terms *out);

#endif
