#include "runtime/report/summary_print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/text_width.h"
#include "runtime/report/colour.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/layers/layers_table.h"
#include "runtime/report/layers/limits_table.h"
#include "runtime/report/live/progress.h"
#include "runtime/report/paragraph.h"
#include "runtime/report/parts_table.h"
#include "runtime/report/resources/memory_use.h"
#include "runtime/report/step_terms.h"

static const double unexplained_most = 0.1; /* of the memory; more is said */

static const double disturbs_least = 0.05; /* of the step; more is said */

enum { CELL_BYTES = DP_FIGURE_BYTES, LINE_BYTES = 2048, INDENT = 4 };

/* ---- lines ---- */

/* Adds what a row shows on its line, with the value in place of the %s. */
static void add_row(char line[LINE_BYTES], const struct dp_report_row *row,
                    const struct dp_run_summary *summary)
{
    const bool may_lack = row->text[0] == '?';
    const char *format = row->text + may_lack, *place = strstr(format, "%s");
    const size_t used = strlen(line);
    char cell[CELL_BYTES];
    const char *value = dp_figure_value(cell, row, summary);

    if (!may_lack || strcmp(value, "-") != 0) {
        (void)snprintf(line + used, LINE_BYTES - used, "%s%.*s%s%s", used > 0 ? ", " : "",
                       (int)(place - format), format, value, place + 2);
    }
}

static void print_line(const struct dp_run_summary *summary, enum dp_report_line wanted, FILE *out)
{
    const struct dp_report_row *row;
    char line[LINE_BYTES] = "";

    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++) {
        if (row->line == wanted) {
            add_row(line, row, summary);
        }
    }
    if (line[0] != '\0') {
        dp_paragraph(out, INDENT, "%s", line);
    }
}

static void print_title(const struct dp_run_summary *s, FILE *out)
{
    char epochs[CELL_BYTES];

    dp_paragraph(out, INDENT, "%s: %s after %" PRId64 " step%s, %s epochs, on %" PRId64 " rank%s",
                 dp_figure_or_dash(s->name), dp_run_exit_text(s->exit), s->steps,
                 dp_plural((uint64_t)s->steps),
                 dp_figure_fixed(epochs, s->epochs, s->epochs < 1 ? 2 : 1, ""), s->world_size,
                 dp_plural((uint64_t)s->world_size));
}

/* One rank alone: the rate, and how sure it is. */
static void print_baseline(const struct dp_run_summary *s, FILE *out)
{
    char rate[CELL_BYTES], before[CELL_BYTES], after[CELL_BYTES], spread[CELL_BYTES];
    char measured[4 * CELL_BYTES] = "";

    if (isfinite(s->baseline_before)) {
        (void)snprintf(measured, sizeof(measured), "; before %s, after %s, spread %s",
                       dp_grouped(before, s->baseline_before), dp_grouped(after, s->baseline_after),
                       dp_figure_number(spread, DP_REPORT_FRACTION, s->baseline_spread));
    }
    dp_paragraph(out, INDENT, "one rank alone: %s samples/s (%s%s)",
                 dp_grouped(rate, s->single_rank_samples_per_second),
                 dp_figure_or_dash(s->baseline_source), measured);
}

/* The purpose that takes most memory. */
static const char *largest_use(const struct dp_run_summary *s)
{
    const char *key = "";
    int64_t most = -1;

#define X(name, purpose)              \
    if (s->memory_##purpose > most) { \
        most = s->memory_##purpose;   \
        key = #purpose;               \
    }
    DP_MEMORY_USES(X)
#undef X
    return key;
}

/* Of the rank with most memory. */
static void print_memory(const struct dp_run_summary *s, FILE *out)
{
    char peak[CELL_BYTES], predicted[CELL_BYTES], unexplained[CELL_BYTES],
        rest[2 * CELL_BYTES] = "";
    const double over = (double)(s->memory_peak - s->memory_predicted);

    if (s->memory_peak <= 0) {
        return;
    }
    if ((double)s->memory_unexplained > unexplained_most * (double)s->memory_peak) {
        (void)snprintf(rest, sizeof(rest), ", of which nothing explains %s",
                       dp_figure_bytes(unexplained, s->memory_unexplained));
    } else if (over > unexplained_most * (double)s->memory_predicted && s->memory_predicted > 0) {
        (void)snprintf(rest, sizeof(rest), ": %.0f %% more; most of it: %s",
                       100.0 * over / (double)s->memory_predicted, largest_use(s));
    }
    dp_paragraph(out, INDENT,
                 "memory of a rank: at most %s, after step %" PRId64 ", predicted %s%s%s%s",
                 dp_figure_bytes(peak, s->memory_peak), s->memory_peak_step,
                 dp_figure_count(predicted, DP_REPORT_BYTES, s->memory_predicted), rest,
                 s->memory_growing != NULL ? "; it grows: " : "",
                 s->memory_growing != NULL ? s->memory_growing : "");
}

/* Ranks whose cores others use are slow for no reason of their own. */
static void print_others(const struct dp_run_summary *s, FILE *out)
{
    struct dp_step_terms terms;

    if (dp_step_terms_find(s, &terms) && terms.others > disturbs_least * terms.step) {
        const struct dp_run_rank *rank = &s->ranks[terms.disturbed];
        dp_paragraph(out, INDENT,
                     "other programs had %.1f of the %.0f CPU%s of rank %" PRId64
                     " on %s, which waited for one %.0f %% of the step",
                     terms.others_cpus, terms.disturbed_cpus,
                     dp_plural((uint64_t)terms.disturbed_cpus), rank->rank, rank->host,
                     100.0 * terms.others / terms.step);
    }
}

static void print_staleness(const struct dp_histogram *staleness, FILE *out)
{
    char mean[CELL_BYTES];
    double count = 0, sum = 0;
    size_t most = 0;

    for (size_t i = 0; i < staleness->bins; i++) {
        count += (double)staleness->counts[i];
        sum += (double)i * (double)staleness->counts[i];
        most = staleness->counts[i] > 0 ? i : most;
    }
    if (count > 0) {
        dp_paragraph(
            out, INDENT,
            "staleness: weights of %.0f gradients lacked %s of other ranks on average, %zu "
            "at most",
            count, dp_figure_fixed(mean, sum / count, 2, ""), most);
    }
}

/* ---- the table of ranks ---- */

static bool is_text(const struct dp_report_row *row)
{
    return row->kind == DP_REPORT_NAME;
}

/* A column is as wide as its row says, but for texts only as they need. */
static int width_of(const struct dp_run_summary *summary, const struct dp_report_row *row)
{
    int width = is_text(row) ? (int)strlen(row->text) : row->width;
    char cell[CELL_BYTES];

    for (int i = 0; is_text(row) && i < summary->rank_count; i++) {
        const int length = dp_text_width(dp_figure_value(cell, row, &summary->ranks[i]));
        const int bounded = length < row->width ? length : row->width;
        width = bounded > width ? bounded : width;
    }
    return width;
}

/* A rank, or the headings where it is NULL. */
static void print_rank(const struct dp_run_summary *summary, const struct dp_run_rank *rank,
                       FILE *out)
{
    const struct dp_report_row *row;
    const char *before = "";

    for (int c = 0; (row = dp_report_rank_row(c)) != NULL; c++) {
        char cell[CELL_BYTES], padded[4 * CELL_BYTES];
        const char *text;

        if (row->kind == DP_REPORT_PARTS || row->width == 0) {
            continue; /* parts have a table of their own */
        }
        text = rank != NULL ? dp_figure_value(cell, row, rank) : row->text;
        if (is_text(row)) {
            dp_text_host_cell(text, width_of(summary, row), padded, sizeof(padded));
            (void)fprintf(out, "%s%s", before, padded);
        } else {
            (void)fprintf(out, "%s%*s", before, row->width, text);
        }
        before = " ";
    }
    (void)fprintf(out, "\n");
}

static void print_ranks(const struct dp_run_summary *s, FILE *out)
{
    const int shown = s->rank_count <= DP_RANKS_SHOWN ? s->rank_count : DP_RANKS_SHOWN;

    (void)fprintf(out, "\n");
    print_rank(s, NULL, out);
    for (int i = 0; i < shown; i++) {
        print_rank(s, &s->ranks[i], out);
    }
    if (shown < s->rank_count) {
        (void)fprintf(out, "     ... and %d more ranks: see run.json\n", s->rank_count - shown);
    }
    dp_parts_print(s, out);
    dp_limits_print(s, out);
    dp_layers_print(s, out);
    (void)fprintf(out, "\n");
}

static void begin(enum dp_colour colour, FILE *out)
{
    (void)fputs(dp_colour(colour), out);
}

void dp_run_summary_print(const struct dp_run_summary *summary, FILE *out)
{
    begin(DP_COLOUR_BOLD, out);
    print_title(summary, out);
    begin(DP_COLOUR_PLAIN, out);
    print_line(summary, DP_LINE_REASON, out);
    print_line(summary, DP_LINE_SETUP, out);
    print_line(summary, DP_LINE_PLAN, out);
    print_line(summary, DP_LINE_LOSSES, out);
    begin(dp_colour_of_share(summary->scaling_efficiency), out);
    print_line(summary, DP_LINE_RATES, out);
    begin(DP_COLOUR_PLAIN, out);
    print_baseline(summary, out);
    print_line(summary, DP_LINE_COST, out);
    print_memory(summary, out);
    print_others(summary, out);
    print_staleness(&summary->staleness, out);
    print_ranks(summary, out);
    begin(DP_COLOUR_BOLD, out);
    print_line(summary, DP_LINE_VERDICT, out);
    begin(DP_COLOUR_PLAIN, out);
    print_line(summary, DP_LINE_INPUT, out);
    (void)fflush(out);
}
