/*
 * page_timeline.h - the part of the page with the timeline of one step: what computes, each layer's
 * forward and backward, and when each bucket of the gradient is ready, sent and summed.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_TIMELINE_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_TIMELINE_H

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

void dp_page_timeline(struct dp_html *html, const struct dp_run_summary *summary);

#endif
