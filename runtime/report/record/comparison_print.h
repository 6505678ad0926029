/*
 * comparison_print.h - a comparison of two runs, for a terminal of 80 columns and for the page.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_COMPARISON_PRINT_H
#define DP_RUNTIME_REPORT_RECORD_COMPARISON_PRINT_H

#include <stdio.h>

#include "base/json.h"
#include "runtime/report/page/html.h"
#include "runtime/report/record/comparison.h"

void dp_comparison_print(const struct dp_comparison *comparison, FILE *out);
void dp_comparison_add(const struct dp_comparison *comparison, struct dp_html *html);

/* Sets the members `changed` and `figures`. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_comparison_put(const struct dp_comparison *comparison,
                                       struct dp_json *object);

#endif
