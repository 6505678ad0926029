/*
 * figure_text.h - numbers of a report as people read them. What is not known is "-".
 */
#ifndef DP_RUNTIME_REPORT_FIGURE_TEXT_H
#define DP_RUNTIME_REPORT_FIGURE_TEXT_H

#include <stdint.h>

#include "runtime/report/summary.h"

enum { DP_FIGURE_BYTES = DP_REPORT_NAME_BYTES };

/* A number with `decimals` and what comes after it. Each function returns `text`. */
const char *dp_figure_fixed(char text[DP_FIGURE_BYTES], double value, int decimals,
                            const char *after);

/* A number of four significant digits, without an exponent: "12,345", "0.0042". */
const char *dp_figure_short(char text[DP_FIGURE_BYTES], double value);

/* Why a run ended so, without what its title says: of "stopped after step 9: SIGTERM on rank 0 (h)"
 * what follows the colon; empty where there is no reason. */
const char *dp_figure_cause(const char *reason);

/* Milliseconds with three digits that say something: "0.123", "12.3", "123". */
const char *dp_figure_ms(char text[DP_FIGURE_BYTES], double value);

/* "3.2 MiB". */
const char *dp_figure_bytes(char text[DP_FIGURE_BYTES], int64_t bytes);

/* Three significant digits, with the prefix of a unit that leaves 1 to 999 before it: "8.03 MB/s",
 * "0 B". Units count in steps of 1000. */
const char *dp_figure_unit(char text[DP_FIGURE_BYTES], double value, const char *unit);

/* "$3.06", "$0.0025". */
const char *dp_figure_dollars(char text[DP_FIGURE_BYTES], double dollars);

/* A number, or an integer, of that kind. */
const char *dp_figure_number(char text[DP_FIGURE_BYTES], enum dp_report_kind kind, double value);
const char *dp_figure_count(char text[DP_FIGURE_BYTES], enum dp_report_kind kind, int64_t value);

/* What an evaluation has beside the loss: how many answers are right or, of train.loss mse, how far
 * off they are. Where neither is known (NaN), an unknown accuracy. */
struct dp_figure_metric {
    const char *name;    /* "accuracy", "mean absolute error" */
    const char *heading; /* of a column: 10 characters at most */
    enum dp_report_kind kind;
    double value;
};

struct dp_figure_metric dp_figure_metric(double accuracy, double error);

/* The text, or "-" where there is none. */
const char *dp_figure_or_dash(const char *text);

/* The value of a row, of a summary or a rank; in `text`, unless it is a text itself, which is
 * neither cleaned nor escaped. */
const char *dp_figure_value(char text[DP_FIGURE_BYTES], const struct dp_report_row *row,
                            const void *record);

#endif
