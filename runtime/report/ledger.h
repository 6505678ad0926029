/*
 * ledger.h - where the time of the steps went, on this rank's main thread.
 *
 * It reads the spans' totals (base/trace.h) at the end of every step, and keeps sums over the
 * steady ones: all but the first few. dp_ledger_restart() after an evaluation or a measurement
 * leaves their time out.
 */
#ifndef DP_RUNTIME_REPORT_LEDGER_H
#define DP_RUNTIME_REPORT_LEDGER_H

#include <stdint.h>

#include "base/trace.h"
#include "runtime/report/summary.h"

struct dp_ledger {
    uint64_t base_ns[DP_PHASE_COUNT]; /* totals when the present step began */
    uint64_t comm_base_ns;
    uint64_t unsteady; /* steps still to leave out */
    uint64_t steps;    /* steady ones so far */
    uint64_t samples;  /* of the global batches, in the steady steps */
    uint64_t rows;     /* of this rank */
    uint64_t sum_ns[DP_STEP_PART_COUNT];
    double square_ms2; /* sum of squares of what steady steps took without waiting for gradients */
    uint64_t comm_ns;  /* that communication jobs took in the steady steps */
    uint64_t last_ns;  /* the last step, steady or not */
};

/* Steps that a run of `steps` leaves out: the first 10, or a quarter of fewer than 40. */
uint64_t dp_ledger_unsteady(uint64_t steps);

/* `comm_ns`: what jobs took since the start of the run. */
void dp_ledger_init(struct dp_ledger *ledger, uint64_t unsteady, uint64_t comm_ns);
void dp_ledger_restart(struct dp_ledger *ledger, uint64_t comm_ns);

/* A step is done: charges the time since the last mark. */
void dp_ledger_mark(struct dp_ledger *ledger, uint64_t samples, uint64_t rows, uint64_t comm_ns);

/* Means in milliseconds; their sum is the mean step. 0 before the first steady step. */
void dp_ledger_means(const struct dp_ledger *ledger, double step_ms[DP_STEP_PART_COUNT]);

/* Seconds of all steady steps together. */
double dp_ledger_seconds(const struct dp_ledger *ledger);

/* Standard deviation over the steady steps of what they took without waiting for gradients, in
 * milliseconds; 0 before the second one. */
double dp_ledger_spread_ms(const struct dp_ledger *ledger);

/* Communication that computing hid, in milliseconds a step. */
double dp_ledger_hidden_ms(const struct dp_ledger *ledger);

/* Copy, forward, backward and optimizer of a mean step, in milliseconds. */
double dp_compute_ms(const double step_ms[DP_STEP_PART_COUNT]);

/* Seconds since this process was started, the loading of libraries included. */
double dp_process_age_s(void);

#endif
