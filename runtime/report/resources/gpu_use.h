/*
 * gpu_use.h - what readings of a GPU's sensors come to over the steady steps.
 */
#ifndef DP_RUNTIME_REPORT_RESOURCES_GPU_USE_H
#define DP_RUNTIME_REPORT_RESOURCES_GPU_USE_H

#include "base/system/gpu_sensors.h"

/* Zeros: no reading yet. Sums are of the readings in which the value is known. */
struct dp_gpu_use {
    uint64_t readings;
    double utilisation, mhz, watts;
    uint64_t utilisations, clocks, powers; /* how many of these are known */
    int64_t memory;                        /* most in use */
    uint64_t throttled;                    /* readings with a reason */
    int64_t throttles;                     /* all reasons */
    double counted_joules, power_joules;   /* by the GPU's counter; power times time */
    double last_joules, last_mhz;
    uint64_t last_ns; /* of the last reading in this stretch; 0: none */
};

/* Adds a reading that was made at now_ns. */
void dp_gpu_use_add(struct dp_gpu_use *use, const struct dp_gpu_reading *reading, uint64_t now_ns);

/* What comes next does not follow on the last reading: no energy is counted between. */
void dp_gpu_use_pause(struct dp_gpu_use *use);

/* Energy by the GPU's counter, where it counts (in some virtual machines it stands still), else by
 * its power; NaN: not known. */
double dp_gpu_use_joules(const struct dp_gpu_use *use);

/* Means; NaN: not known. */
double dp_gpu_use_utilisation(const struct dp_gpu_use *use);
double dp_gpu_use_mhz(const struct dp_gpu_use *use);
double dp_gpu_use_watts(const struct dp_gpu_use *use);

#endif
