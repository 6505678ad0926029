#include "runtime/report/figure_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/report/live/progress.h"

const char *dp_figure_fixed(char text[DP_FIGURE_BYTES], double value, int decimals,
                            const char *after)
{
    if (isfinite(value) && fabs(value) < 1e15) {
        const bool vanishes = fabs(value) < 0.5 * pow(10.0, -decimals); /* no "-0.0" */
        (void)snprintf(text, DP_FIGURE_BYTES, "%.*f%s", decimals, vanishes ? 0.0 : value, after);
    } else {
        (void)snprintf(text, DP_FIGURE_BYTES, "-");
    }
    return text;
}

/* Decimals that leave a number `digits` significant digits; none of one above that. */
static int decimals_of(double value, int digits)
{
    const int before = fabs(value) > 0.0 ? (int)floor(log10(fabs(value))) + 1 : 1;

    return before >= digits ? 0 : before < digits - 9 ? 9 : digits - before;
}

const char *dp_figure_short(char text[DP_FIGURE_BYTES], double value)
{
    char grouped[DP_GROUPED_BYTES];

    if (!isfinite(value) || fabs(value) >= 1e15) {
        (void)snprintf(text, DP_FIGURE_BYTES, "-");
    } else if (fabs(value) >= 1000.0) {
        (void)snprintf(text, DP_FIGURE_BYTES, "%s", dp_grouped(grouped, value));
    } else {
        (void)snprintf(text, DP_FIGURE_BYTES, "%.*f", decimals_of(value, 4), value);
    }
    return text;
}

const char *dp_figure_cause(const char *reason)
{
    static const char stop[] = "stopped after step ";
    const char *cause = reason == NULL ? "" : reason;

    if (strncmp(cause, stop, sizeof(stop) - 1) == 0 && strstr(cause, ": ") != NULL) {
        cause = strstr(cause, ": ") + 2;
    }
    return cause;
}

const char *dp_figure_ms(char text[DP_FIGURE_BYTES], double value)
{
    const double size = fabs(value);
    const int decimals = size < 1.0 ? 3 : size < 100.0 ? 2 : size < 1000.0 ? 1 : 0;

    return dp_figure_fixed(text, value, decimals, "");
}

const char *dp_figure_dollars(char text[DP_FIGURE_BYTES], double dollars)
{
    if (!isfinite(dollars)) {
        return dp_figure_fixed(text, dollars, 0, "");
    }
    if (dollars > 0.0 && dollars < 0.0001) {
        (void)snprintf(text, DP_FIGURE_BYTES, "under $0.0001");
    } else {
        (void)snprintf(text, DP_FIGURE_BYTES,
                       dollars >= 0.995 || dollars == 0.0 ? "$%.2f" : "$%#.2g", dollars);
    }
    return text;
}

const char *dp_figure_bytes(char text[DP_FIGURE_BYTES], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text, DP_FIGURE_BYTES, "%.*f %s", unit == 0 || value >= 100 ? 0 : 1, value,
                   units[unit]);
    return text;
}

const char *dp_figure_unit(char text[DP_FIGURE_BYTES], double value, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    const int last = (int)(sizeof(prefixes) / sizeof(prefixes[0])) - 1;
    int prefix = 0;

    if (!isfinite(value)) {
        return dp_figure_fixed(text, value, 0, "");
    }
    while (fabs(value) >= 999.5 && prefix < last) {
        value /= 1000.0;
        prefix++;
    }
    /* of less than one there are no smaller units: two decimals say enough */
    (void)snprintf(text, DP_FIGURE_BYTES, "%.*f %s%s",
                   fabs(value) < 9.995   ? (value == 0.0 ? 0 : 2)
                   : fabs(value) < 99.95 ? 1
                                         : 0,
                   value, prefixes[prefix], unit);
    return text;
}

struct dp_figure_metric dp_figure_metric(double accuracy, double error)
{
    return isnan(accuracy) && !isnan(error)
               ? (struct dp_figure_metric){"mean absolute error", "mean error", DP_REPORT_LOSS,
                                           error}
               : (struct dp_figure_metric){"accuracy", "accuracy", DP_REPORT_ACCURACY, accuracy};
}

const char *dp_figure_or_dash(const char *text)
{
    return text == NULL || *text == '\0' ? "-" : text;
}

const char *dp_figure_number(char text[DP_FIGURE_BYTES], enum dp_report_kind kind, double value)
{
    char grouped[DP_GROUPED_BYTES];

    switch (kind) {
    case DP_REPORT_FRACTION:
        return dp_figure_fixed(text, 100 * value, 1, " %");
    case DP_REPORT_ACCURACY: /* as evaluations print it */
        return dp_figure_fixed(text, 100 * value, 2, " %");
    case DP_REPORT_LOSS: /* of a run that diverges it may be anything */
        if (isfinite(value) && fabs(value) >= 1e6) {
            (void)snprintf(text, DP_FIGURE_BYTES, "%.3e", value);
            return text;
        }
        return dp_figure_fixed(text, value, 4, "");
    case DP_REPORT_MILLISECONDS:
        return dp_figure_fixed(text, value, 2, "");
    case DP_REPORT_RATE:
    case DP_REPORT_PER_DOLLAR:
        (void)snprintf(text, DP_FIGURE_BYTES, "%s", dp_grouped(grouped, value));
        return text;
    default:
        return dp_figure_fixed(text, value, 1, "");
    }
}

const char *dp_figure_count(char text[DP_FIGURE_BYTES], enum dp_report_kind kind, int64_t value)
{
    if (value >= 0 && kind == DP_REPORT_BYTES) {
        return dp_figure_bytes(text, value);
    }
    (void)snprintf(text, DP_FIGURE_BYTES, value < 0 ? "-" : "%" PRId64, value);
    return text;
}

const char *dp_figure_value(char text[DP_FIGURE_BYTES], const struct dp_report_row *row,
                            const void *record)
{
    const void *value = (const char *)record + row->offset;

    switch (row->kind) {
    case DP_REPORT_TEXT:
        return dp_figure_or_dash(*(const char *const *)value);
    case DP_REPORT_NAME:
        return dp_figure_or_dash(value);
    case DP_REPORT_EXIT:
        return dp_run_exit_text(*(const enum dp_run_exit *)value);
    case DP_REPORT_COUNT:
    case DP_REPORT_BYTES:
        return dp_figure_count(text, row->kind, *(const int64_t *)value);
    default:
        return dp_figure_number(text, row->kind, *(const double *)value);
    }
}
