/*
 * page_course.h - the part of the page about the course of a run: charts, and its evaluations.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_COURSE_H
#define DP_RUNTIME_REPORT_PAGE_COURSE_H

#include "runtime/report/history.h"
#include "runtime/report/html.h"

void dp_page_course(struct dp_html *html, const struct dp_history *history);

#endif
