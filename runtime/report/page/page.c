#include "runtime/report/page/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/layers/limits_table.h"
#include "runtime/report/layers/page_layers.h"
#include "runtime/report/page/page_buckets.h"
#include "runtime/report/page/page_course.h"
#include "runtime/report/page/page_figures.h"
#include "runtime/report/page/page_step.h"
#include "runtime/report/page/page_template.h"
#include "runtime/report/page/page_timeline.h"
#include "runtime/report/record/comparison_print.h"
#include "runtime/report/resources/page_resources.h"
#include "runtime/report/verdict.h"

/* ---- the head ---- */

static void add_reload(struct dp_html *h, const struct dp_run_record *r)
{
    if (r->state == DP_RUN_STATE_GOING) {
        dp_html_print(h, "<meta http-equiv=\"refresh\" content=\"%d\">\n", DP_PAGE_RELOAD_S);
    }
}

static void add_name(struct dp_html *h, const struct dp_run_record *r)
{
    dp_html_text(h, dp_figure_or_dash(r->summary.name));
}

static void add_title(struct dp_html *h, const struct dp_run_record *r)
{
    add_name(h, r);
    dp_html_print(h, ": %s - Lockstep",
                  r->has_summary ? dp_run_exit_text(r->summary.exit) : dp_run_state_key(r->state));
}

static void add_state(struct dp_html *h, const struct dp_run_record *r)
{
    const struct dp_run_summary *s = &r->summary;
    char steps[DP_FIGURE_BYTES], ranks[DP_FIGURE_BYTES], epochs[DP_FIGURE_BYTES];
    const char *cause = dp_figure_cause(s->reason);
    int64_t counted = s->steps;

    dp_html_print(h, "<strong>%s</strong> after %s",
                  r->has_summary ? dp_run_exit_text(s->exit) : dp_run_state_key(r->state),
                  dp_figure_count(steps, DP_REPORT_COUNT, s->steps));
    if (!r->has_summary && r->history.start.steps > 0) {
        counted = r->history.start.steps;
        dp_html_print(h, " of %" PRId64, counted);
    }
    dp_html_print(h, " step%s", dp_plural((uint64_t)counted));
    if (isfinite(s->epochs)) {
        dp_html_print(h, " (%s epochs)",
                      dp_figure_fixed(epochs, s->epochs, s->epochs < 1 ? 2 : 1, ""));
    }
    dp_html_print(h, " on %s rank%s", dp_figure_count(ranks, DP_REPORT_COUNT, s->world_size),
                  dp_plural((uint64_t)s->world_size));
    dp_html_add(h, *cause != '\0' ? ": " : "");
    dp_html_text(h, cause);
    if (r->state == DP_RUN_STATE_GOING) {
        dp_html_print(h, "; this page loads itself again every %d s", DP_PAGE_RELOAD_S);
    }
}

static void add_missing(struct dp_html *h, const struct dp_run_record *r)
{
    if (r->note_count == 0 && r->state != DP_RUN_STATE_BROKEN) {
        return;
    }
    dp_html_add(h, "<section class=\"missing\" aria-label=\"what is missing\"><strong>");
    dp_html_print(h, "The run %s. Not all of it is known:</strong><ul>",
                  dp_run_state_text(r->state));
    for (int i = 0; i < r->note_count; i++) {
        dp_html_add(h, "<li>");
        dp_html_text(h, r->notes[i]);
        dp_html_add(h, "</li>");
    }
    dp_html_add(h, "</ul></section>\n");
}

/* ---- efficiency and verdict ---- */

/* class NULL: an ordinary tile; after: a second line, or NULL. Our own texts and numbers. */
static void add_tile(struct dp_html *h, const char *class, const char *what, const char *value,
                     const char *after)
{
    dp_html_print(h, "<div%s%s%s><dt>%s</dt><dd>%s</dd>", class != NULL ? " class=\"" : "",
                  class != NULL ? class : "", class != NULL ? "\"" : "", what, value);
    if (after != NULL) {
        dp_html_print(h, "<dd class=\"unit\">%s</dd>", after);
    }
    dp_html_add(h, "</div>\n");
}

static void add_rates(struct dp_html *h, const struct dp_run_record *r)
{
    const struct dp_run_summary *s = &r->summary;
    const double varies = dp_run_record_varies(r);
    char value[DP_FIGURE_BYTES], other[DP_FIGURE_BYTES], after[2 * DP_FIGURE_BYTES];

    (void)snprintf(after, sizeof(after), "of %s samples/s a rank alone",
                   dp_figure_number(other, DP_REPORT_RATE, s->single_rank_samples_per_second));
    add_tile(h, "first", "scaling efficiency",
             dp_figure_number(value, DP_REPORT_FRACTION, s->scaling_efficiency),
             isfinite(s->single_rank_samples_per_second) ? after : NULL);
    (void)snprintf(after, sizeof(after), "varies by %s",
                   dp_figure_number(other, DP_REPORT_FRACTION, varies));
    add_tile(h, "first", "samples/s",
             dp_figure_number(value, DP_REPORT_RATE, s->samples_per_second),
             isfinite(varies) && isfinite(s->samples_per_second) ? after : NULL);
    if (isfinite(s->samples_per_dollar)) {
        add_tile(h, "first", "samples per dollar",
                 dp_figure_number(value, DP_REPORT_PER_DOLLAR, s->samples_per_dollar), NULL);
    }
    if (isfinite(s->dollars)) {
        (void)snprintf(after, sizeof(after), "%s to the target",
                       dp_figure_dollars(other, s->dollars_to_target));
        add_tile(h, NULL, "cost", dp_figure_dollars(value, s->dollars),
                 isfinite(s->dollars_to_target) ? after : NULL);
    }
}

static void add_results(struct dp_html *h, const struct dp_run_record *r)
{
    const struct dp_run_summary *s = &r->summary;
    const struct dp_history_point recent = dp_history_recent(&r->history);
    const double loss = dp_history_loss(&recent);
    const struct dp_figure_metric metric =
        dp_figure_metric(s->final_test_accuracy, s->final_test_error);
    char value[DP_FIGURE_BYTES], last[DP_FIGURE_BYTES], after[2 * DP_FIGURE_BYTES];
    char name[DP_FIGURE_BYTES], top[2 * DP_FIGURE_BYTES];

    (void)snprintf(after, sizeof(after), "of the last steps: %s",
                   dp_figure_number(last, DP_REPORT_LOSS, loss));
    (void)snprintf(name, sizeof(name), "test %s", metric.name);
    (void)snprintf(top, sizeof(top), "among the best 5: %s",
                   dp_figure_number(last, DP_REPORT_ACCURACY, s->final_test_top5));
    add_tile(h, NULL, name, dp_figure_number(value, metric.kind, metric.value),
             isfinite(s->final_test_top5) ? top : NULL);
    add_tile(h, NULL, "test loss", dp_figure_number(value, DP_REPORT_LOSS, s->final_test_loss),
             NULL);
    add_tile(h, NULL, "training loss", dp_figure_number(value, DP_REPORT_LOSS, s->final_train_loss),
             isfinite(loss) ? after : NULL);
    add_tile(h, NULL, "time", dp_figure_fixed(value, s->seconds, 1, " s"), NULL);
}

/* What is typed is shown as such. */
static void add_action(struct dp_html *h, const char *action)
{
    const bool typed = action[0] == '-';

    dp_html_add(h, typed ? "<code>" : "");
    dp_html_text(h, action);
    dp_html_add(h, typed ? "</code>" : "");
}

/* What bounds the run and, on a line of its own, what to do next. */
static void add_verdict(struct dp_html *h, const struct dp_run_summary *s)
{
    char gain[DP_VERDICT_GAIN], bound[DP_FIGURE_BYTES];

    if (s->verdict == NULL || *s->verdict == '\0') {
        return;
    }
    dp_html_add(h, "<p class=\"verdict\"><strong>Verdict:</strong> ");
    if (s->verdict_evidence != NULL) { /* "compute-bound", without the action */
        (void)snprintf(bound, sizeof(bound), "%.*s", (int)strcspn(s->verdict, ":"), s->verdict);
        dp_html_text(h, bound);
        dp_html_add(h, ": ");
        dp_html_text(h, s->verdict_evidence);
    } else {
        dp_html_text(h, s->verdict);
    }
    dp_html_add(h, "</p>\n");
    if (s->verdict_action == NULL) {
        return;
    }
    dp_html_add(h, "<p class=\"verdict\"><strong>Next:</strong> ");
    add_action(h, s->verdict_action);
    dp_html_add(h, dp_verdict_gain(s, gain));
    dp_html_add(h, "</p>\n");
}

static void add_efficiency(struct dp_html *h, const struct dp_run_record *r)
{
    dp_html_add(h, "<dl class=\"tiles\">\n");
    add_rates(h, r);
    add_results(h, r);
    dp_html_add(h, "</dl>\n");
    add_verdict(h, &r->summary);
}

/* ---- the rest ---- */

static void add_step(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_step(h, &r->summary);
    dp_page_limits(h, &r->summary);
}

static void add_timeline(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_timeline(h, &r->summary);
}

static void add_buckets(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_buckets(h, &r->summary);
}

static void add_course(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_course(h, &r->history);
}

static void add_resources(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_resources(h, &r->summary);
}

static void add_layers(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_layers(h, &r->summary);
}

static void add_environment(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_environment(h, &r->summary);
}

static void add_figures(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_figures(h, r->json);
}

static void add_configuration(struct dp_html *h, const struct dp_run_record *r)
{
    dp_page_configuration(h, r->config);
}

static void add_footer(struct dp_html *h, const struct dp_run_record *r)
{
    const time_t now = time(NULL);
    struct tm fields;
    char text[64];

    (void)gmtime_r(&now, &fields);
    (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &fields);
    dp_html_print(h, "Lockstep " DP_VERSION ", written %s, of the run in <code>", text);
    dp_html_text(h, r->path);
    dp_html_add(h, "</code>");
}

static const struct {
    const char *name;
    void (*add)(struct dp_html *html, const struct dp_run_record *record);
} places[] = {
    {"reload", add_reload},
    {"title", add_title},
    {"name", add_name},
    {"state", add_state},
    {"missing", add_missing},
    {"efficiency", add_efficiency},
    {"step", add_step},
    {"timeline", add_timeline},
    {"buckets", add_buckets},
    {"course", add_course},
    {"layers", add_layers},
    {"resources", add_resources},
    {"environment", add_environment},
    {"figures", add_figures},
    {"configuration", add_configuration},
    {"footer", add_footer},
};

static void add_place(struct dp_html *h, const char *name, size_t length,
                      const struct dp_run_record *record, const struct dp_comparison *comparison)
{
    static const char compared[] = "comparison";

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strlen(places[i].name) == length && memcmp(places[i].name, name, length) == 0) {
            places[i].add(h, record);
        }
    }
    if (comparison != NULL && length == sizeof(compared) - 1 &&
        memcmp(compared, name, length) == 0) {
        dp_comparison_add(comparison, h);
    }
}

void dp_page_make(const struct dp_run_record *record, const struct dp_comparison *comparison,
                  struct dp_html *html)
{
    const char *at = dp_page_template(), *open, *close;

    while ((open = strstr(at, "{{")) != NULL && (close = strstr(open, "}}")) != NULL) {
        dp_html_add_bytes(html, at, (size_t)(open - at));
        add_place(html, open + 2, (size_t)(close - open - 2), record, comparison);
        at = close + 2;
    }
    dp_html_add(html, at);
}

dp_status dp_page_write(const struct dp_run_record *record, const struct dp_comparison *comparison)
{
    struct dp_html html = {0};
    char path[DP_PATH_BYTES], summary[DP_PATH_BYTES];
    dp_status status;

    DP_TRY(dp_file_join(path, record->path, "report.html"));
    DP_TRY(dp_file_join(summary, record->path, "run.json"));
    dp_page_make(record, comparison, &html);
    status = dp_html_save(&html, path, record->state == DP_RUN_STATE_GOING ? summary : NULL);
    dp_html_free(&html);
    return status;
}
