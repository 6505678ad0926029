/*
 * problem.h - what is wrong with something, for whoever knows its name to report.
 */
#ifndef DP_RUNTIME_DATA_PROBLEM_H
#define DP_RUNTIME_DATA_PROBLEM_H

#include "base/status.h"

enum { DP_PROBLEM_BYTES = 320 };

/* One line that says what is wrong and what to do about it, and continues a name. */
struct dp_problem {
    char text[DP_PROBLEM_BYTES];
};

/* Writes the text. Returns `status`. */
dp_status dp_problem_refuse(struct dp_problem *problem, dp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
