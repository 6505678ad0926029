/*
 * way_on.h - the command that goes on with a run that has lost a rank.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_WAY_ON_H
#define DP_RUNTIME_RUN_RESULTS_WAY_ON_H

#include "runtime/run/job.h"

/* Logs "rank R (HOST): CAUSE; go on with: COMMAND", as the last line: the command is this process's
 * own, with what started it as far as this host knows that, with --resume and the folder of the
 * run. Works while other threads are stuck. */
void dp_run_tell_way_on(const struct dp_run_job *job, const char *cause);

#endif
