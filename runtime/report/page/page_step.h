/*
 * page_step.h - the part of the page about the parts of a step, by rank: bars, and a table.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_STEP_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_STEP_H

#include <stdbool.h>

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

void dp_page_step(struct dp_html *html, const struct dp_run_summary *summary);

/* Key in run.json, heading of a narrow column, and name, of a part of a step. */
const char *dp_step_part_key(int part);
const char *dp_step_part_heading(int part);
const char *dp_step_part_name(int part);

/* The sum of the parts that are known; NaN: none is. */
double dp_step_total_ms(const double step_ms[DP_STEP_PART_COUNT]);

/* Whether any rank knows the parts of its steps: none does of a run that ended before these were
 * steady. */
bool dp_step_known(const struct dp_run_summary *summary);

/* The mean of a part over the ranks that know it; NaN: none does. */
double dp_step_mean_ms(const struct dp_run_summary *summary, int part);

#endif
