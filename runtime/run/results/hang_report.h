/*
 * hang_report.h - what a run leaves that hangs: run.json, written by the rank that reports the hang
 * (collectives/world/watchdog.h) while its own thread and other ranks are stuck.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_HANG_REPORT_H
#define DP_RUNTIME_RUN_RESULTS_HANG_REPORT_H

#include "runtime/run/training.h"

/* From now on a hang of this run leaves a run.json with exit "hung", the ranks that did not arrive
 * as its reason, and what the reporting rank knows. dp_world_on_hang() with NULL ends that.
 * Collective. Errors: those of messages, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_watch_hang(struct dp_training *run);

#endif
