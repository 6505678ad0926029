/*
 * report_writer.h - writes what others look at while a run goes on, beside its steps: report.html,
 * TensorBoard's events, and a file for Prometheus.
 *
 * A thread that runs where no other needs its core reads what is new in metrics.jsonl, replaces the
 * page and adds events. What it costs is printed at debug level. What cannot be written is a
 * warning: the run goes on.
 */
#ifndef DP_RUNTIME_REPORT_FILES_REPORT_WRITER_H
#define DP_RUNTIME_REPORT_FILES_REPORT_WRITER_H

#include <stdbool.h>

#include "base/status.h"

#define DP_REPORT_PERIOD_NS 10000000000u /* from one time to the next, at least */

struct dp_report_writer_config {
    const char *folder; /* of the run; copied */
    bool html, tensorboard;
    const char *prometheus; /* borrowed: a file; NULL or empty: none */
};

struct dp_report_writer;

/*
 * Starts the thread, which sleeps.
 *
 *   out  out  owned by the caller (dp_report_writer_destroy)
 *
 * Errors: DP_ERR_NOMEM; DP_ERR_WRITE (the file for Prometheus cannot be written, which is tried).
 */
DP_CHECKED dp_status dp_report_writer_create(const struct dp_report_writer_config *config,
                                             struct dp_report_writer **out);

/* After a step: has all of it written when that is due, the first time at once. One look at the
 * clock, and never a wait. */
void dp_report_writer_poll(struct dp_report_writer *writer);

/* Of the run that has ended, after run.json; it waits until all is written. */
void dp_report_writer_finish(struct dp_report_writer *writer);

/* NULL is allowed. */
void dp_report_writer_destroy(struct dp_report_writer *writer);

/* Writes what is shown of a run that has ended now, on this thread, once: its page if `html`, and
 * the file for Prometheus; NULL or empty: none. */
void dp_report_write_now(const char *folder, bool html, const char *prometheus);

#endif
