/*
 * page_writer.h - writes the page of a run that goes on, now and then, beside its steps.
 *
 * A thread that runs where no other needs its core reads what is new in metrics.jsonl and replaces
 * report.html. What it costs is printed at debug level. A page that cannot be written is a warning:
 * the run goes on.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_WRITER_H
#define DP_RUNTIME_REPORT_PAGE_WRITER_H

#include "base/status.h"

#define DP_PAGE_PERIOD_NS 10000000000u /* from one page to the next, at least */

struct dp_page_writer;

/*
 * Starts the thread, which sleeps.
 *
 *   folder  of the run; copied
 *   out     out  owned by the caller (dp_page_writer_destroy)
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_page_writer_create(const char *folder, struct dp_page_writer **out);

/* After a step: has a page written when one is due, the first at once. One look at the clock, and
 * never a wait. */
void dp_page_writer_poll(struct dp_page_writer *writer);

/* The page of the run that has ended, after run.json; it waits until it is written. */
void dp_page_writer_finish(struct dp_page_writer *writer);

/* NULL is allowed. */
void dp_page_writer_destroy(struct dp_page_writer *writer);

/* Writes the page of a folder now, on this thread, once. */
void dp_page_write_folder(const char *folder);

#endif
