/*
 * page_figures.h - the parts of the page that list what there is: environment, every figure of
 * run.json, the configuration.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_FIGURES_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_FIGURES_H

#include "runtime/report/page/html.h"
#include "runtime/report/record/run_record.h"

void dp_page_environment(struct dp_html *html, const struct dp_run_summary *summary);
void dp_page_figures(struct dp_html *html, const struct dp_json *json); /* NULL: there is none */
void dp_page_configuration(struct dp_html *html, const char *config);   /* NULL: there is none */

#endif
