/*
 * html.h - a growing text of HTML, in which texts from outside stay texts.
 *
 * When there is no memory the text stops growing, and dp_html_save() reports it: the calls between
 * need no check.
 */
#ifndef DP_RUNTIME_REPORT_PAGE_HTML_H
#define DP_RUNTIME_REPORT_PAGE_HTML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Zeros: empty. After use dp_html_free(). */
struct dp_html {
    char *text; /* owned; with a NUL, or NULL */
    size_t used, capacity;
    bool failed;
};

/* Adds HTML of our own. */
void dp_html_add(struct dp_html *html, const char *text);
void dp_html_add_bytes(struct dp_html *html, const char *text, size_t bytes);

/* The same, printed. Only our own texts and numbers may be printed. */
void dp_html_print(struct dp_html *html, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Adds a text from outside, as an element's content or between the quotes of an attribute. What
 * HTML would obey is escaped; control characters, and those that change the writing direction, are
 * printed as base/text.h does. NULL is nothing.
 */
void dp_html_text(struct dp_html *html, const char *text);

/* The same, but line ends stay line ends: for <pre>. */
void dp_html_lines(struct dp_html *html, const char *text);

/* Replaces a file by the text, unless a file of the other name is there by then (NULL: always).
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_html_save(const struct dp_html *html, const char *path, const char *unless);

void dp_html_free(struct dp_html *html);

#endif
