/*
 * overlap.h - comm.overlap: auto. Measures whether sharing gradients during backward is faster.
 *
 * Where ranks fill all cores, the communication thread takes its time from computing, and sharing
 * after backward can be as fast or faster. So the first steps try both ways, in turns, and the
 * faster one stays: overlap never loses.
 */
#ifndef DP_RUNTIME_MEASURE_OVERLAP_H
#define DP_RUNTIME_MEASURE_OVERLAP_H

#include "runtime/trainer/compute/graph_capture.h"
#include "runtime/trainer/trainer.h"

enum {
    DP_OVERLAP_SKIP =
        DP_GRAPH_CAPTURE_PLAIN + 1, /* steps before the first trial: the last one is recorded */
    DP_OVERLAP_TRIALS = 8           /* of each way */
};

struct dp_overlap {
    bool trying;
    uint64_t first;    /* step at which it began */
    uint64_t tried[2]; /* trials so far that count: off, on */
    double step_ms[2][DP_OVERLAP_TRIALS];
    double median_ms[2]; /* the slowest rank's; 0: not measured */
    bool on;
};

/* Decides at once where there is nothing to try: one rank, a fixed choice, a strategy without
 * communication, too few steps. */
void dp_overlap_begin(struct dp_overlap *overlap, struct dp_trainer *trainer, uint64_t total_steps);

/* Before a step: sets how the exchange runs it. After it, with its time: adds the trial, finishes
 * deferred buckets, and decides when all trials are done (collective). While it tries, the time of
 * these calls belongs to no step. */
void dp_overlap_before(struct dp_overlap *overlap, struct dp_trainer *trainer);
DP_CHECKED dp_status dp_overlap_after(struct dp_overlap *overlap, struct dp_trainer *trainer,
                                      uint64_t step_ns);

#endif
