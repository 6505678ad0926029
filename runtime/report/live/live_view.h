/*
 * live_view.h - jobs as lines for a terminal: what ddp_top shows.
 *
 * Lines are cut to the width, but a verdict goes on in the next one; texts are cleaned
 * (base/text.h).
 */
#ifndef DP_RUNTIME_REPORT_LIVE_LIVE_VIEW_H
#define DP_RUNTIME_REPORT_LIVE_LIVE_VIEW_H

#include <stdio.h>

#include "runtime/report/live/live_jobs.h"
#include "runtime/report/record/run_record.h"

struct dp_live_view {
    FILE *out;
    int width, height;    /* of the terminal; height 0: as many lines as there are */
    int used;             /* lines so far */
    const char *end_line; /* after each line: "\n", or what a terminal needs before it */
};

/* All jobs; `record` is the run that was asked for, or NULL. */
void dp_live_view_print(struct dp_live_view *view, const struct dp_live_jobs *jobs,
                        const struct dp_run_record *record);

#endif
