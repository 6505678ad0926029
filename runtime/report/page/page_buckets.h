/*
 * page_buckets.h - the part of the page about sharing the gradient: what efficiency is lost to, the
 * table of buckets, and which ranks come late. page_timeline.h draws them.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_BUCKETS_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_BUCKETS_H

#include "runtime/report/page/html.h"
#include "runtime/report/summary.h"

/* Buckets that the page shows; more are left out. */
enum { DP_PAGE_BUCKETS_MOST = 64 };

void dp_page_buckets(struct dp_html *html, const struct dp_run_summary *summary);

#endif
