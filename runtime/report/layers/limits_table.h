/*
 * limits_table.h - parts of a step next to their limits: for a terminal, and for the page.
 */
#ifndef DP_RUNTIME_REPORT_LAYERS_LIMITS_TABLE_H
#define DP_RUNTIME_REPORT_LAYERS_LIMITS_TABLE_H

#include <stdio.h>

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

/* In 80 columns. Nothing where no limit is known. */
void dp_limits_print(const struct dp_run_summary *summary, FILE *out);
void dp_page_limits(struct dp_html *html, const struct dp_run_summary *summary);

#endif
