/*
 * verdict.h - in one line: what bounds the run.
 */
#ifndef DP_RUNTIME_REPORT_VERDICT_H
#define DP_RUNTIME_REPORT_VERDICT_H

#include <stddef.h>

#include "runtime/report/summary.h"

/* Writes the verdict on a run whose ranks are filled in. Returns `text`. */
const char *dp_verdict(const struct dp_run_summary *summary, char *text, size_t size);

#endif
