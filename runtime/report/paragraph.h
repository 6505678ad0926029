/*
 * paragraph.h - prints a text in lines of at most 80 columns, cleaned (base/text.h).
 */
#ifndef DP_RUNTIME_REPORT_PARAGRAPH_H
#define DP_RUNTIME_REPORT_PARAGRAPH_H

#include <stdio.h>

enum { DP_PARAGRAPH_COLUMNS = 80 };

/* Breaks at spaces; lines after the first begin with `indent` spaces. A word that is longer than a
 * line is broken where the line ends. */
void dp_paragraph(FILE *out, int indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
