/*
 * fault_beat.h - faults on purpose at beats of a rank (dp_trace_beat()), so also before its steps.
 */
#ifndef DP_RUNTIME_RUN_FAULT_BEAT_H
#define DP_RUNTIME_RUN_FAULT_BEAT_H

#include "base/fault.h"

/* Those of this rank happen from now on, until the second is called; stop: what stops it. */
void dp_fault_beat_start(const struct dp_fault *first, int rank, void (*stop)(void));
void dp_fault_beat_end(void);

/* Whether the rank was to stop at a beat that has not come. */
bool dp_fault_beat_misses(const struct dp_fault *fault);

/* The calling thread sleeps. */
void dp_fault_sleep(int ms);

#endif
