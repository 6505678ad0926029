/*
 * summary_print.h - the results of a run, for people.
 */
#ifndef DP_RUNTIME_REPORT_SUMMARY_PRINT_H
#define DP_RUNTIME_REPORT_SUMMARY_PRINT_H

#include <stdio.h>

#include "runtime/report/summary.h"

/* Prints a few lines, a table of ranks and one of the parts of their steps, in 80 columns. What is
 * not known is "-". */
void dp_run_summary_print(const struct dp_run_summary *summary, FILE *out);

#endif
