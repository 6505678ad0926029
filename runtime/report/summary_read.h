/*
 * summary_read.h - run.json as the structs that it was made of: the other direction of summary.h.
 */
#ifndef DP_RUNTIME_REPORT_SUMMARY_READ_H
#define DP_RUNTIME_REPORT_SUMMARY_READ_H

#include "runtime/report/summary.h"

enum { DP_SUMMARY_RANKS_MOST = 65536 }; /* of a file; more are left out */

/* A summary of which nothing is known. */
void dp_run_summary_clear(struct dp_run_summary *summary);

/*
 * Fills in what `json` has; what it lacks, or has of another kind, is not known. Lists and
 * histograms are left out.
 *
 *   json     borrowed: texts of the summary belong to it
 *   ranks    out  summary->ranks; owned by the caller (dp_free); NULL without any
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_summary_read(const struct dp_json *json, struct dp_run_summary *summary,
                                         struct dp_run_rank **ranks);

#endif
