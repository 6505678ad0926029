/*
 * paragraph.h - prints a text in lines of at most 80 columns, cleaned (base/text.h).
 */
#ifndef DP_RUNTIME_REPORT_PARAGRAPH_H
#define DP_RUNTIME_REPORT_PARAGRAPH_H

#include <stddef.h>
#include <stdio.h>

enum { DP_PARAGRAPH_COLUMNS = 80 };

/* Breaks at spaces; lines after the first begin with `indent` spaces. A word that is longer than a
 * line is broken where the line ends. */
void dp_paragraph(FILE *out, int indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many bytes of `text`, which is not empty, go on a line of so many columns: up to the last
 * space that fits, or, if there is none, as many as fit. Never 0. */
size_t dp_paragraph_break(const char *text, int columns);

#endif
