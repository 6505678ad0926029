/*
 * record_json.h - what is known of a run, for programs: the figures of ddp_report --json, and the
 * steps as CSV.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_RECORD_JSON_H
#define DP_RUNTIME_REPORT_RECORD_RECORD_JSON_H

#include "base/json.h"
#include "runtime/report/record/run_record.h"

#define DP_RECORD_SCHEMA "lockstep.report/1"

/* Sets the members `run`, `state`, `missing`, `summary` (run.json, or null), `start`, `steps` and
 * `evaluations` of an object. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_record_put(const struct dp_run_record *record, struct dp_json *object);

/* Writes every step of the run to the file `path` ("-": to standard output), a line each, below a
 * line of headings. What is not known is empty. Errors: DP_ERR_WRITE, DP_ERR_NOMEM; DP_ERR_NOINPUT,
 * DP_ERR_DATA: the run has no metrics.jsonl, or it cannot be read. */
DP_CHECKED dp_status dp_record_write_csv(const struct dp_run_record *record, const char *path);

#endif
