/*
 * page_course.h - the part of the page about the course of a run: charts, and its evaluations.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_COURSE_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_COURSE_H

#include "runtime/report/page/html.h"
#include "runtime/report/record/history.h"

void dp_page_course(struct dp_html *html, const struct dp_history *history);

#endif
