/*
 * outcome.h - how a run ends, and what was requested on the way there.
 *
 * Equal on all ranks, but for what rank 0 alone measures.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_OUTCOME_H
#define DP_RUNTIME_RUN_RESULTS_OUTCOME_H

#include <stdbool.h>

#include "runtime/control/stop.h"
#include "runtime/control/stop_criteria.h"
#include "runtime/report/summary.h"

struct dp_outcome {
    enum dp_run_exit exit; /* DP_RUN_FINISHED while nothing else ends the run */
    char reason[512];      /* unless finished: why, one line */
    struct dp_stop_criteria stop_criteria;
    enum dp_stop_cause stop_cause; /* of a run that is stopped on request */
    bool ready;                    /* all ranks are set up: from now on they do not fail alike */
    bool save_requested;           /* by some rank, in the last step */
    bool too_slow;   /* rank 0: requests to stop (failure_stop.min_samples_per_second) */
    bool late_stop;  /* asked to stop after the last step: the run only saves and reports */
    bool unwritable; /* the run is stopped since metrics.jsonl cannot be written */
    bool done;       /* it has ended well */
};

/* Whether there is time for more than to save and to report. */
static inline bool dp_outcome_goes_on(const struct dp_outcome *outcome)
{
    return outcome->exit == DP_RUN_FINISHED && !outcome->late_stop;
}

/* Ends the run so, with that reason, unless something else has ended it already. */
void dp_outcome_end(struct dp_outcome *outcome, enum dp_run_exit exit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whatever ended the run: this is how it ends. */
void dp_outcome_replace(struct dp_outcome *outcome, enum dp_run_exit exit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
