/*
 * page_resources.h - the part of the page about resources: memory by purpose, what processors did,
 * and samples/s in windows.
 */
#ifndef DP_RUNTIME_REPORT_RESOURCES_PAGE_RESOURCES_H
#define DP_RUNTIME_REPORT_RESOURCES_PAGE_RESOURCES_H

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

void dp_page_resources(struct dp_html *html, const struct dp_run_summary *summary);

#endif
