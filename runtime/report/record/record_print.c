#include "runtime/report/record/record_print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/report/colour.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/layers/layers_table.h"
#include "runtime/report/layers/limits_table.h"
#include "runtime/report/paragraph.h"
#include "runtime/report/parts_table.h"

enum { COURSE_ROWS = 8 };

/* ---- the head ---- */

static void print_title(const struct dp_run_record *r, FILE *out)
{
    const struct dp_run_summary *s = &r->summary;
    char steps[DP_FIGURE_BYTES], ranks[DP_FIGURE_BYTES], planned[48] = "";
    const char *cause = dp_figure_cause(s->reason);
    int64_t counted = s->steps;

    if (!r->has_summary && r->history.start.steps > 0) {
        counted = r->history.start.steps;
        (void)snprintf(planned, sizeof(planned), " of %" PRId64, r->history.start.steps);
    }
    dp_paragraph(out, 0, "%s: %s after %s%s step%s on %s rank%s%s%s", dp_figure_or_dash(s->name),
                 r->has_summary ? dp_run_exit_text(s->exit) : dp_run_state_key(r->state),
                 dp_figure_count(steps, DP_REPORT_COUNT, s->steps), planned,
                 dp_plural((uint64_t)counted),
                 dp_figure_count(ranks, DP_REPORT_COUNT, s->world_size),
                 dp_plural((uint64_t)s->world_size), *cause != '\0' ? ": " : "", cause);
}

static void print_efficiency(const struct dp_run_record *r, FILE *out)
{
    const struct dp_run_summary *s = &r->summary;
    const double varies = dp_run_record_varies(r);
    const bool varied = isfinite(varies) && isfinite(s->samples_per_second);
    char first[DP_FIGURE_BYTES], second[DP_FIGURE_BYTES], third[DP_FIGURE_BYTES];

    if (isfinite(s->scaling_efficiency)) {
        (void)fputs(dp_colour(dp_colour_of_share(s->scaling_efficiency)), out);
        dp_paragraph(out, 12, "efficiency  %s of what %s rank%s alone would do: %s samples/s each",
                     dp_figure_number(first, DP_REPORT_FRACTION, s->scaling_efficiency),
                     dp_figure_count(second, DP_REPORT_COUNT, s->world_size),
                     dp_plural((uint64_t)s->world_size),
                     dp_figure_number(third, DP_REPORT_RATE, s->single_rank_samples_per_second));
        (void)fputs(dp_colour(DP_COLOUR_PLAIN), out);
    }
    if (s->verdict != NULL && *s->verdict != '\0') {
        (void)fputs(dp_colour(DP_COLOUR_BOLD), out);
        dp_paragraph(out, 12, "verdict     %s", s->verdict);
        (void)fputs(dp_colour(DP_COLOUR_PLAIN), out);
    }
    dp_paragraph(out, 12, "samples/s   %s%s%s%s%s",
                 dp_figure_number(first, DP_REPORT_RATE, s->samples_per_second),
                 varied ? ", varies by " : "",
                 varied ? dp_figure_number(second, DP_REPORT_FRACTION, varies) : "",
                 isfinite(s->samples_per_dollar) ? ", per dollar " : "",
                 isfinite(s->samples_per_dollar)
                     ? dp_figure_number(third, DP_REPORT_PER_DOLLAR, s->samples_per_dollar)
                     : "");
}

static void print_results(const struct dp_run_record *r, FILE *out)
{
    const struct dp_run_summary *s = &r->summary;
    const struct dp_figure_metric metric =
        dp_figure_metric(s->final_test_accuracy, s->final_test_error);
    char first[DP_FIGURE_BYTES], second[DP_FIGURE_BYTES], third[DP_FIGURE_BYTES];
    char top[DP_FIGURE_BYTES], best[2 * DP_FIGURE_BYTES] = "";

    if (isfinite(s->final_test_top5)) {
        (void)snprintf(best, sizeof(best), ", among the best 5 %s",
                       dp_figure_number(top, DP_REPORT_ACCURACY, s->final_test_top5));
    }
    dp_paragraph(out, 12, "result      %s %s%s, test loss %s, train loss %s, in %s s", metric.name,
                 dp_figure_number(first, metric.kind, metric.value), best,
                 dp_figure_number(second, DP_REPORT_LOSS, s->final_test_loss),
                 dp_figure_number(third, DP_REPORT_LOSS, s->final_train_loss),
                 dp_figure_fixed((char[DP_FIGURE_BYTES]){0}, s->seconds, 1, ""));
    dp_paragraph(out, 12, "setup       device %s, %s, strategy %s, compressor %s, global batch %s",
                 dp_figure_or_dash(s->device), dp_figure_or_dash(s->precision),
                 dp_figure_or_dash(s->strategy), dp_figure_or_dash(s->compressor),
                 dp_figure_count(first, DP_REPORT_COUNT, s->global_batch));
}

static void print_resources(const struct dp_run_summary *s, FILE *out)
{
    char first[DP_FIGURE_BYTES], second[DP_FIGURE_BYTES], third[DP_FIGURE_BYTES];

    if (s->memory_peak > 0) {
        dp_paragraph(out, 12, "memory      at most %s a rank, after step %s, predicted %s%s%s",
                     dp_figure_bytes(first, s->memory_peak),
                     dp_figure_count(second, DP_REPORT_COUNT, s->memory_peak_step),
                     dp_figure_count(third, DP_REPORT_BYTES, s->memory_predicted),
                     s->memory_growing != NULL ? "; it grows: " : "",
                     s->memory_growing != NULL ? s->memory_growing : "");
    }
    if (isfinite(s->cpu_use)) {
        dp_paragraph(out, 12, "use         %s of the ranks' cores, network %s MB/s, disks %s MB/s",
                     dp_figure_number(first, DP_REPORT_FRACTION, s->cpu_use),
                     dp_figure_fixed(second, s->net_mb_s, 1, ""),
                     dp_figure_fixed(third, s->disk_mb_s, 1, ""));
    }
    if (isfinite(s->gpu_use)) {
        dp_paragraph(out, 12, "GPUs        %s busy%s%s",
                     dp_figure_number(first, DP_REPORT_FRACTION, s->gpu_use),
                     isfinite(s->joules_per_sample) ? ", joules a sample: " : "",
                     isfinite(s->joules_per_sample) ? dp_figure_short(second, s->joules_per_sample)
                                                    : "");
    }
    if (isfinite(s->rate_drift)) {
        dp_paragraph(out, 12,
                     "stability   samples/s vary by %s between windows of %s, and change by %s "
                     "from the beginning to the end",
                     dp_figure_number(first, DP_REPORT_FRACTION, s->rate_cv),
                     dp_figure_fixed(second, s->window_s, 1, " s"),
                     dp_figure_number(third, DP_REPORT_FRACTION, s->rate_drift));
    }
    if (isfinite(s->dollars)) {
        dp_paragraph(
            out, 12, "cost        %s%s%s", dp_figure_dollars(first, s->dollars),
            isfinite(s->dollars_to_target) ? ", until the target was reached " : "",
            isfinite(s->dollars_to_target) ? dp_figure_dollars(second, s->dollars_to_target) : "");
    }
}

/* ---- the course ---- */

/* The last evaluation at a step or before, or NULL. */
static const struct dp_history_eval *evaluation_at(const struct dp_history *h, int64_t step)
{
    const struct dp_history_eval *found = NULL;

    for (int i = 0; i < h->eval_count && h->evals[i].step <= step; i++) {
        found = &h->evals[i];
    }
    return found;
}

/* All points from `from` up to `to`, as one. */
static struct dp_history_point points_between(const struct dp_history *h, int from, int to)
{
    struct dp_history_point sum = {0};

    for (int i = from; i < to; i++) {
        sum.last = h->points[i].last;
        sum.loss_sum += h->points[i].loss_sum;
        sum.losses += h->points[i].losses;
        sum.samples += h->points[i].samples;
        sum.ms += h->points[i].ms;
    }
    return sum;
}

static struct dp_figure_metric metric_of(const struct dp_history_eval *e)
{
    return e != NULL ? dp_figure_metric(e->test_accuracy, e->test_error)
                     : dp_figure_metric((double)NAN, (double)NAN);
}

static void print_course(const struct dp_history *h, FILE *out)
{
    const int rows = h->count < COURSE_ROWS ? h->count : COURSE_ROWS;
    char loss[DP_FIGURE_BYTES], rate[DP_FIGURE_BYTES], test[DP_FIGURE_BYTES];
    char text[DP_FIGURE_BYTES];

    if (h->count == 0) {
        return;
    }
    (void)fprintf(out, "\nmeans of the steps since the line above\n%12s %12s %12s %12s %10s\n",
                  "to step", "train loss", "samples/s", "test loss",
                  metric_of(h->eval_count > 0 ? &h->evals[h->eval_count - 1] : NULL).heading);
    for (int row = 0; row < rows; row++) {
        const struct dp_history_point sum =
            points_between(h, h->count * row / rows, h->count * (row + 1) / rows);
        const struct dp_history_eval *e = evaluation_at(h, sum.last);
        const struct dp_figure_metric metric = metric_of(e);
        (void)fprintf(
            out, "%12" PRId64 " %12s %12s %12s %10s\n", sum.last,
            dp_figure_number(loss, DP_REPORT_LOSS, dp_history_loss(&sum)),
            dp_figure_number(rate, DP_REPORT_RATE, dp_history_rate(&sum)),
            dp_figure_number(test, DP_REPORT_LOSS, e != NULL ? e->test_loss : (double)NAN),
            dp_figure_number(text, metric.kind, metric.value));
    }
}

void dp_record_print(const struct dp_run_record *record, FILE *out)
{
    (void)fputs(dp_colour(DP_COLOUR_BOLD), out);
    print_title(record, out);
    (void)fputs(dp_colour(DP_COLOUR_PLAIN), out);
    for (int i = 0; i < record->note_count; i++) {
        (void)fputs(dp_colour(DP_COLOUR_NOTICE), out);
        dp_paragraph(out, 12, "incomplete  %s", record->notes[i]);
        (void)fputs(dp_colour(DP_COLOUR_PLAIN), out);
    }
    print_efficiency(record, out);
    print_results(record, out);
    print_resources(&record->summary, out);
    dp_parts_print(&record->summary, out);
    dp_limits_print(&record->summary, out);
    dp_layers_print(&record->summary, out);
    print_course(&record->history, out);
    (void)fprintf(out, "\n");
}
