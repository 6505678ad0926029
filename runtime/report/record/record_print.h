/*
 * record_print.h - what is known of a run, for a terminal of 80 columns.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_RECORD_PRINT_H
#define DP_RUNTIME_REPORT_RECORD_RECORD_PRINT_H

#include <stdio.h>

#include "runtime/report/record/run_record.h"

/* Efficiency and verdict first, then results, the parts of a step by rank, the course of loss and
 * samples/s, and what is missing. */
void dp_record_print(const struct dp_run_record *record, FILE *out);

#endif
