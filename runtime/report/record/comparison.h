/*
 * comparison.h - two runs beside each other: what was changed, and what that did.
 *
 * A difference counts when it is larger than the noise of both runs: twice the standard error of
 * the difference. The error of a rate, and of a step, is that of history.h; that of one rank alone
 * is a quarter of its spread (which is about four standard deviations). What a part of the step
 * varies by is not kept: computing has the noise of the step in proportion to its time, and waiting
 * the whole noise of the step. Runs that were made at other times may differ more than either does
 * in itself.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_COMPARISON_H
#define DP_RUNTIME_REPORT_RECORD_COMPARISON_H

#include <stdio.h>

#include "runtime/report/page/html.h"
#include "runtime/report/record/config_keys.h"
#include "runtime/report/record/run_record.h"

enum { DP_DIFFERENCES_MOST = 200, DP_CHANGES_MOST = 32 };

/* Something that was not the same. */
struct dp_difference {
    const char *group; /* configuration, host, build, run */
    char key[DP_CONFIG_KEY_BYTES];
    char before[DP_CONFIG_VALUE_BYTES], after[DP_CONFIG_VALUE_BYTES]; /* not cleaned */
};

/* A figure of both runs; what is not known is NaN. */
struct dp_change {
    const char *what;
    enum dp_report_kind kind;
    double before, after;
    double noise;  /* a smaller difference says nothing */
    int direction; /* 1: more is better, -1: less is, 0: neither */
};

/* What a change is. */
enum dp_change_verdict { DP_CHANGE_UNKNOWN, DP_CHANGE_SAME, DP_CHANGE_BETTER, DP_CHANGE_WORSE };

enum dp_change_verdict dp_change_verdict(const struct dp_change *change);
const char *dp_change_verdict_text(enum dp_change_verdict verdict); /* "within noise" */

struct dp_comparison {
    const struct dp_run_record *before, *after; /* borrowed */
    struct dp_difference differences[DP_DIFFERENCES_MOST];
    int difference_count;
    int left_out; /* differences beyond */
    struct dp_change changes[DP_CHANGES_MOST];
    int change_count;
};

/* After success dp_free(*out). Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_comparison_create(const struct dp_run_record *before,
                                          const struct dp_run_record *after,
                                          struct dp_comparison **out);

#endif
