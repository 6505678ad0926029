/*
 * baseline.h - the rate of one rank of this job alone: scaling efficiency is measured against it.
 *
 * Rank 0 trains ceil(B/P) rows a step with the same code, on its own cores and threads, without
 * sharing, on a scratch copy of all state, while the other ranks sleep. Weak scaling: equal rows a
 * rank.
 */
#ifndef DP_RUNTIME_MEASURE_BASELINE_H
#define DP_RUNTIME_MEASURE_BASELINE_H

#include "runtime/trainer/trainer.h"

struct dp_baseline {
    double samples_per_second;
    double compute_ms;       /* copy, forward, backward and optimizer of one step */
    double fastest, slowest; /* samples/s of the fastest and slowest of its pieces */
    bool no_memory;          /* for a second trainer: nothing was measured, all else is 0 */
};

/* Mean of two measurements, or the one that was made; 0 stands for one that was not. NaN: neither
 * was. */
double dp_baseline_mean(double before, double after);

/* Collective; equal results on all ranks. Takes a second or two; `quick`, for short runs, only as
 * long as a few steps. The measuring rank looks for requests to stop between steps, the others
 * between the pieces of a measurement. step_s: what a step of all ranks takes, from which the
 * watchdog learns when rank 0 takes too long. Where rank 0 has no memory for it there is a warning.
 * Errors: also DP_STOPPED (a rank was asked to stop, so it was broken off; not logged). */
DP_CHECKED dp_status dp_baseline_measure(struct dp_trainer *trainer, int threads, double step_s,
                                         bool quick, struct dp_baseline *out);

#endif
