#include "runtime/report/live/live_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/text_width.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/live/progress.h"
#include "runtime/report/paragraph.h"

enum {
    LINE_BYTES = 512,
    STILL_S = 2,
    INDENT = 4,
    NARROWEST = 20,
    CELL_BYTES = 64,
    COLUMNS_MOST = 9,
    EVERYWHERE = 0 /* a column that stays */
};

static void add_line(struct dp_live_view *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int width_of(const struct dp_live_view *v)
{
    return v->width < NARROWEST ? NARROWEST : v->width;
}

/* A line; none where the terminal is full. */
static void add_line(struct dp_live_view *v, const char *format, ...)
{
    char line[LINE_BYTES], clean[LINE_BYTES];
    va_list args;

    if (v->height > 0 && v->used >= v->height) {
        return;
    }
    va_start(args, format);
    dp_text_format(line, sizeof(line), format, args);
    va_end(args);
    (void)dp_text_cut(line, width_of(v), clean, sizeof(clean));
    (void)fprintf(v->out, "%s%s", clean, v->end_line);
    v->used++;
}

/* A text of any length on as many lines as it takes. */
static void add_text(struct dp_live_view *v, const char *text)
{
    const int width = width_of(v) > DP_PARAGRAPH_COLUMNS ? DP_PARAGRAPH_COLUMNS : width_of(v);
    int indent = 0;

    for (const char *at = text; *at != '\0'; at += strspn(at, " ")) {
        const size_t bytes = dp_paragraph_break(at, width - indent);
        add_line(v, "%*s%.*s", indent, "", (int)bytes, at);
        at += bytes;
        indent = INDENT;
    }
}

/* ---- tables of ranks ---- */

/* A column: a terminal that is too narrow loses those first that can be spared most. */
struct column {
    const char *heading;
    int width, spare;
    bool is_text; /* begins at the left, and may be cut */
};

struct table {
    const struct column *columns;
    int count;
};

static int table_width(const struct table *t, int spare)
{
    int width = -1;

    for (int c = 0; c < t->count; c++) {
        width += t->columns[c].spare < spare ? t->columns[c].width + 1 : 0;
    }
    return width;
}

/* A row, or the headings where there are no cells. */
static void add_row(struct dp_live_view *v, const struct table *t, const char *const *cells)
{
    char line[LINE_BYTES];
    int spare = COLUMNS_MOST, used = 0;

    while (spare > 1 && table_width(t, spare) > width_of(v)) {
        spare--;
    }
    for (int c = 0; c < t->count; c++) {
        const struct column *column = &t->columns[c];
        const char *text = cells != NULL ? cells[c] : column->heading;
        char cell[CELL_BYTES];

        if (column->spare >= spare) {
            continue;
        }
        dp_text_cell(text, column->width, cell, sizeof(cell));
        used += column->is_text ? snprintf(line + used, sizeof(line) - (size_t)used, "%s%s",
                                           used > 0 ? " " : "", cell)
                                : snprintf(line + used, sizeof(line) - (size_t)used, "%s%*s",
                                           used > 0 ? " " : "", column->width, text);
    }
    add_line(v, "%s", line);
}

/* ---- a job that runs here ---- */

/* Of its ranks; all of them are on this host. */
static const struct column live_columns[] = {
    {"rank", 4, EVERYWHERE, false}, {"host", 10, 7, true},  {"process", 7, 8, false},
    {"step", 8, 3, false},          {"phase", 11, 2, true}, {"samples/s", 9, 1, false},
    {"exposed", 7, 4, false},       {"cpu", 5, 6, false},   {"memory", 9, 5, false},
};
static const struct table live_table = {live_columns,
                                        sizeof(live_columns) / sizeof(live_columns[0])};

static const char *phase_of(const struct dp_live *live, char text[DP_FIGURE_BYTES])
{
    const int activity = atomic_load(&live->mark.activity), phase = atomic_load(&live->mark.phase);
    const long long bucket = atomic_load(&live->mark.bucket);

    if (atomic_load(&live->mark.open) == 0) {
        return "outside";
    }
    if (activity != DP_PHASE_STEP) {
        return dp_phase_text((enum dp_phase)(activity == DP_PHASE_OTHER ? phase : activity));
    }
    if (phase != DP_PHASE_WAIT || bucket < 0) {
        return dp_phase_text((enum dp_phase)phase);
    }
    (void)snprintf(text, DP_FIGURE_BYTES, "wait %lld", bucket);
    return text;
}

static const char *state_of(const struct dp_live_rank *rank, char text[DP_FIGURE_BYTES])
{
    const uint64_t still_s = (rank->at_ns - rank->still_ns) / 1000000000u;
    char phase[DP_FIGURE_BYTES];

    if (still_s < STILL_S) {
        (void)snprintf(text, DP_FIGURE_BYTES, "%s", phase_of(&rank->live, phase));
    } else {
        (void)snprintf(text, DP_FIGURE_BYTES, "%.12s %" PRIu64 "s", phase_of(&rank->live, phase),
                       still_s);
    }
    return text;
}

static void add_rank(struct dp_live_view *v, const struct dp_live_rank *rank)
{
    const struct dp_live *live = &rank->live;
    char phase[DP_FIGURE_BYTES], rate[DP_FIGURE_BYTES], exposed[DP_FIGURE_BYTES];
    char cpu[DP_FIGURE_BYTES], memory[DP_FIGURE_BYTES], number[DP_FIGURE_BYTES];
    char process[DP_FIGURE_BYTES], step[DP_FIGURE_BYTES];
    const double rows = atomic_load(&live->rows_per_second);

    (void)snprintf(number, sizeof(number), "%d", live->who.rank);
    (void)snprintf(process, sizeof(process), "%" PRId64, rank->process);
    (void)snprintf(step, sizeof(step), "%lld", (long long)atomic_load(&live->mark.step));
    add_row(v, &live_table,
            (const char *const[]){
                number,
                live->who.host,
                process,
                step,
                state_of(rank, phase),
                dp_figure_number(rate, DP_REPORT_RATE, rows > 0.0 ? rows : (double)NAN),
                dp_figure_number(exposed, DP_REPORT_FRACTION,
                                 rows > 0.0 ? atomic_load(&live->exposed) : (double)NAN),
                dp_figure_fixed(cpu, 100.0 * rank->cores, 0, "%"),
                dp_figure_bytes(memory, atomic_load(&live->memory)),
            });
}

static const char *time_left(const struct dp_live *live, double rate, char text[DP_FIGURE_BYTES])
{
    const double steps = (double)(live->who.steps - atomic_load(&live->mark.step));
    const double batch = atomic_load(&live->batch);

    if (!(rate > 0.0) || !(batch > 0.0) || steps < 0.0) {
        return "-";
    }
    const long long left = llround(steps * batch / rate);
    (void)snprintf(text, DP_FIGURE_BYTES, "%lld:%02lld:%02lld", left / 3600, left / 60 % 60,
                   left % 60);
    return text;
}

/* The first rank here says what the job does. */
static void add_job(struct dp_live_view *v, const struct dp_live_rank *ranks, int count)
{
    const struct dp_live *live = &ranks[0].live;
    const double rate = atomic_load(&live->samples_per_second);
    char left[DP_FIGURE_BYTES], speed[DP_FIGURE_BYTES], loss[DP_FIGURE_BYTES], line[LINE_BYTES];

    (void)snprintf(line, sizeof(line),
                   "%s: step %lld of %" PRId64 ", loss %s, %s samples/s, %s left", live->who.name,
                   (long long)atomic_load(&live->mark.step), live->who.steps,
                   dp_figure_number(loss, DP_REPORT_LOSS, atomic_load(&live->loss)),
                   dp_figure_number(speed, DP_REPORT_RATE, rate > 0.0 ? rate : (double)NAN),
                   time_left(live, rate, left));
    add_text(v, line);
    if (live->who.folder[0] != '\0') {
        add_line(v, "%s", live->who.folder);
    }
    if (count < live->who.ranks) {
        add_line(v, "%d of %d ranks: the others are on other hosts, or another user's", count,
                 live->who.ranks);
    }
    add_row(v, &live_table, NULL);
    for (int i = 0; i < count; i++) {
        if (v->height > 0 && v->used + 1 >= v->height && i + 1 < count) {
            add_line(v, "     ... and %d more ranks", count - i);
            return;
        }
        add_rank(v, &ranks[i]);
    }
}

/* ---- the run that was asked for ---- */

static void add_results(struct dp_live_view *v, const struct dp_run_summary *s)
{
    const struct dp_figure_metric metric =
        dp_figure_metric(s->final_test_accuracy, s->final_test_error);
    char value[DP_FIGURE_BYTES], loss[DP_FIGURE_BYTES], verdict[DP_TEXT_LINE];

    if (isfinite(s->final_test_loss)) {
        add_line(v, "test %s %s, test loss %s", metric.name,
                 dp_figure_number(value, metric.kind, metric.value),
                 dp_figure_number(loss, DP_REPORT_LOSS, s->final_test_loss));
    }
    if (s->verdict != NULL) {
        (void)snprintf(verdict, sizeof(verdict), "verdict: %s", s->verdict);
        add_text(v, verdict);
    }
}

/* No rank of it is seen here. */
static void add_record(struct dp_live_view *v, const struct dp_run_record *r)
{
    const struct dp_run_summary *s = &r->summary;
    char rate[DP_FIGURE_BYTES];

    add_line(v, "%s: %s after %" PRId64 " step%s, %s samples/s", dp_figure_or_dash(s->name),
             r->has_summary ? dp_run_exit_text(s->exit) : dp_run_state_key(r->state), s->steps,
             dp_plural((uint64_t)s->steps),
             dp_figure_number(rate, DP_REPORT_RATE, s->samples_per_second));
    add_line(v, "%s", r->path);
    if (r->state == DP_RUN_STATE_GOING) {
        add_line(v, "its ranks are on other hosts, or another user's");
    }
    add_results(v, s);
}

enum { HOST_WIDTH = 14 };

static const struct column ended_columns[] = {{"rank", 4, EVERYWHERE, false},
                                              {"host", HOST_WIDTH, 2, true},
                                              {"samples/s", 9, 1, false},
                                              {"exposed", 8, 4, false},
                                              {"memory", 9, 3, false}};
static const struct table ended_table = {ended_columns,
                                         sizeof(ended_columns) / sizeof(ended_columns[0])};

static void add_ended_rank(struct dp_live_view *v, const struct dp_run_rank *rank)
{
    char rate[DP_FIGURE_BYTES], exposed[DP_FIGURE_BYTES], memory[DP_FIGURE_BYTES];
    char number[DP_FIGURE_BYTES], host[CELL_BYTES];
    double step_ms = 0.0;

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        step_ms += rank->step_ms[i];
    }
    (void)snprintf(number, sizeof(number), "%" PRId64, rank->rank);
    dp_text_host_cell(rank->host, HOST_WIDTH, host, sizeof(host));
    add_row(
        v, &ended_table,
        (const char *const[]){
            number,
            host,
            dp_figure_number(rate, DP_REPORT_RATE, rank->samples_per_second),
            dp_figure_number(exposed, DP_REPORT_FRACTION, rank->step_ms[DP_PART_EXPOSED] / step_ms),
            dp_figure_count(memory, DP_REPORT_BYTES, rank->peak_rss_bytes),
        });
}

static void add_ended_ranks(struct dp_live_view *v, const struct dp_run_summary *s)
{
    if (s->rank_count > 0) {
        add_row(v, &ended_table, NULL);
    }
    for (int i = 0; i < s->rank_count; i++) {
        add_ended_rank(v, &s->ranks[i]);
    }
}

void dp_live_view_print(struct dp_live_view *v, const struct dp_live_jobs *jobs,
                        const struct dp_run_record *record)
{
    int end;

    if (record != NULL && jobs->count == 0) {
        add_record(v, record);
        add_ended_ranks(v, &record->summary);
    }
    if (record == NULL && jobs->count == 0) {
        add_line(v, "no job of yours runs on this host");
    }
    for (int i = 0; i < jobs->count; i = end) {
        for (end = i; end < jobs->count &&
                      strcmp(jobs->ranks[end].live.who.job, jobs->ranks[i].live.who.job) == 0;) {
            end++;
        }
        if (v->used > 0) {
            add_line(v, "%s", "");
        }
        add_job(v, &jobs->ranks[i], end - i);
    }
    if (record != NULL && jobs->count > 0) {
        add_results(v, &record->summary);
    }
}
