/*
 * parts_table.h - the parts of a mean steady step by rank, for a terminal of 80 columns.
 */
#ifndef DP_RUNTIME_REPORT_PARTS_TABLE_H
#define DP_RUNTIME_REPORT_PARTS_TABLE_H

#include <stdio.h>

#include "runtime/report/summary.h"

enum { DP_RANKS_SHOWN = 16 }; /* of more the others are only counted: run.json has all */

/* An empty line, headings, ranks, and their mean, in ms; nothing where there are no ranks. */
void dp_parts_print(const struct dp_run_summary *summary, FILE *out);

#endif
