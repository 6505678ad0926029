/*
 * page_buckets.h - the part of the page about sharing the gradient: the timeline of one step, from
 * computing to the sum of each bucket, the table of buckets, which ranks come late, and what
 * efficiency is lost to.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_BUCKETS_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_BUCKETS_H

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

/* Buckets that the page shows; more are left out. */
enum { DP_PAGE_BUCKETS_MOST = 64 };

void dp_page_buckets(struct dp_html *html, const struct dp_run_summary *summary);

#endif
