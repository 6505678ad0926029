/*
 * layers_table.h - the layers that take longest, for a terminal of 80 columns.
 */
#ifndef DP_RUNTIME_REPORT_LAYERS_LAYERS_TABLE_H
#define DP_RUNTIME_REPORT_LAYERS_LAYERS_TABLE_H

#include <stdio.h>

#include "runtime/report/summary.h"

/* An empty line, headings, the layers, and what is worth a warning; nothing where no layer was
 * timed. */
void dp_layers_print(const struct dp_run_summary *summary, FILE *out);

#endif
