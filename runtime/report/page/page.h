/*
 * page.h - report.html: a run as one page that needs no other file and no network.
 *
 * page.html is its template, compiled in: {{name}} stands for what a function of page.c adds. Who
 * writes it, a run or ddp_report, makes no difference.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_H

#include "runtime/report/page/html.h"
#include "runtime/report/record/comparison.h"
#include "runtime/report/record/run_record.h"

enum { DP_PAGE_RELOAD_S = 10 }; /* how often the page of a run that goes on loads itself again */

/* The page, as text; comparison NULL: with no other run. */
void dp_page_make(const struct dp_run_record *record, const struct dp_comparison *comparison,
                  struct dp_html *html);

/* Replaces report.html in the folder of the run. The page of a run that goes on is dropped where
 * run.json is there by then: the failure detector writes both when the run hangs. Errors:
 * DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_page_write(const struct dp_run_record *record,
                                   const struct dp_comparison *comparison);

#endif
