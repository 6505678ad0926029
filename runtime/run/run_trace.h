/*
 * run_trace.h - the trace of a run (runtime/timeline/tracing.h). Without --trace these do nothing.
 */
#ifndef DP_RUNTIME_RUN_RUN_TRACE_H
#define DP_RUNTIME_RUN_RUN_TRACE_H

#include "runtime/run/training.h"

/* After the trainer is made. Collective. Errors: those of dp_tracing_create; DP_ERR_USAGE where
 * ranks have no steps in common. */
DP_CHECKED dp_status dp_run_trace_open(struct dp_training *run);

/* Around a step; `result` is what it came to, after it has been timed. */
void dp_run_trace_before(const struct dp_training *run);
void dp_run_trace_after(const struct dp_training *run, const struct dp_step_result *result);

/* Around what has an exchange, and steps, of its own. */
void dp_run_trace_pause(const struct dp_training *run, bool pauses);

/* Writes it if it is due; ends: no step follows. One that cannot be written ends no run:
 * run->trace_failed says so. Collective, between steps. Errors: DP_ERR_NOMEM, those of the
 * exchange. */
DP_CHECKED dp_status dp_run_trace_write(struct dp_training *run, bool ends);

#endif
