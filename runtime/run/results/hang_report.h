/*
 * hang_report.h - what a run leaves that hangs, or that loses a rank: run.json, written by the rank
 * that reports it (collectives/world/failure_detector.h) while its own thread and other ranks are
 * stuck, or are being ended.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_HANG_REPORT_H
#define DP_RUNTIME_RUN_RESULTS_HANG_REPORT_H

#include "runtime/run/training.h"

/* From now on a hang of this run leaves a run.json with exit "hung", the ranks that did not arrive
 * as its reason, and what the reporting rank knows. With a lost rank it is exit "error", and the
 * command that goes on is the last line. dp_world_on_hang() and dp_world_on_loss() with NULL end
 * that. Collective. Errors: those of messages, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_watch_hang(struct dp_training *run);

#endif
