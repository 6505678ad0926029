/*
 * page_template.h - page.html, compiled in.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_PAGE_TEMPLATE_H
#define DP_RUNTIME_REPORT_PAGE_PAGE_TEMPLATE_H

/* The text of page.html. */
const char *dp_page_template(void);

#endif
