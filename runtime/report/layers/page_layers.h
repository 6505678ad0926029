/*
 * page_layers.h - the part of the page about layers: those that take longest, and a roofline plot
 * of all that compute.
 */
#ifndef DP_RUNTIME_REPORT_LAYERS_PAGE_LAYERS_H
#define DP_RUNTIME_REPORT_LAYERS_PAGE_LAYERS_H

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

void dp_page_layers(struct dp_html *html, const struct dp_run_summary *summary);

#endif
