/*
 * summary_read.h - the memory of a summary, and run.json as the structs that it was made of: the
 * other direction of summary.h.
 *
 * Tables and arrays of numbers of a summary are owned by it (dp_run_summary_release); its texts,
 * lists and histograms are borrowed.
 */
#ifndef DP_RUNTIME_REPORT_SUMMARY_READ_H
#define DP_RUNTIME_REPORT_SUMMARY_READ_H

#include "runtime/report/summary.h"

enum { DP_SUMMARY_OBJECTS_MOST = 65536 }; /* of a table of a file; more are left out */

/* A summary of which nothing is known, with empty tables; owns nothing yet. */
void dp_run_summary_clear(struct dp_run_summary *summary);

/* Gives a table `count` objects of which nothing is known, in place of those that it has. On error
 * it has none. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_summary_resize(struct dp_run_summary *summary, enum dp_run_table table,
                                           int count);

/* The same with an array of numbers of the summary, which are 0 then. */
DP_CHECKED dp_status dp_series_resize(struct dp_series *series, int count);

/* Releases what the summary owns: its tables and arrays are empty afterwards. */
void dp_run_summary_release(struct dp_run_summary *summary);

/*
 * Fills in what `json` has; what it lacks, or has of another kind, is not known. Lists and
 * histograms are left out.
 *
 *   json     borrowed: texts of the summary belong to it
 *   summary  out  released by the caller, also after an error (dp_run_summary_release)
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_summary_read(const struct dp_json *json,
                                         struct dp_run_summary *summary);

#endif
