#include "runtime/report/page/page_course.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "runtime/report/figure_text.h"
#include "runtime/report/page/chart.h"

/* What the charts show, taken out of a history. */
struct course {
    double step[DP_HISTORY_POINTS], loss[DP_HISTORY_POINTS], rate[DP_HISTORY_POINTS];
    double eval_step[DP_HISTORY_EVALS], test_loss[DP_HISTORY_EVALS], metric[DP_HISTORY_EVALS];
    struct dp_figure_metric last; /* metric */
};

static void take_out(const struct dp_history *h, struct course *c)
{
    c->last = dp_figure_metric((double)NAN, (double)NAN);
    for (int i = 0; i < h->count; i++) {
        c->step[i] = (double)h->points[i].last;
        c->loss[i] = dp_history_loss(&h->points[i]);
        c->rate[i] = dp_history_rate(&h->points[i]);
    }
    for (int i = 0; i < h->eval_count; i++) {
        c->eval_step[i] = (double)h->evals[i].step;
        c->test_loss[i] = h->evals[i].test_loss;
        c->last = dp_figure_metric(h->evals[i].test_accuracy, h->evals[i].test_error);
        c->metric[i] = (c->last.kind == DP_REPORT_ACCURACY ? 100.0 : 1.0) * c->last.value;
    }
}

/* "from 2.31 to 0.25", of the values that are numbers. */
static const char *say_course(char text[DP_FIGURE_BYTES], const double *values, int count,
                              const char *unit)
{
    char first[DP_FIGURE_BYTES] = "-", last[DP_FIGURE_BYTES] = "-";
    bool any = false;

    for (int i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            (void)dp_figure_short(any ? last : first, values[i]);
            any = true;
        }
    }
    (void)snprintf(text, DP_FIGURE_BYTES, "from %.40s%s to %.40s%s", first, unit, last, unit);
    return text;
}

static void add_charts(struct dp_html *html, const struct dp_history *h, const struct course *c)
{
    char loss[DP_FIGURE_BYTES], metric[DP_FIGURE_BYTES], rate[DP_FIGURE_BYTES];
    const bool answers = c->last.kind == DP_REPORT_ACCURACY;
    const char *unit = answers ? " %" : "";
    const double from = h->count > 0 ? c->step[0] : 0.0; /* one axis for all three */
    const double to = h->count > 0 ? c->step[h->count - 1] : 0.0;
    const struct dp_chart charts[] = {
        {.id = "chart-loss",
         .title = "Loss",
         .unit = "",
         .summary = say_course(loss, c->loss, h->count, ""),
         .series = {{"train", c->step, c->loss, h->count, false},
                    {"test", c->eval_step, c->test_loss, h->eval_count, true}},
         .series_count = 2,
         .from = from,
         .to = to},
        {.id = "chart-accuracy",
         .title = answers ? "Test accuracy" : "Test mean absolute error",
         .unit = unit,
         .summary = say_course(metric, c->metric, h->eval_count, unit),
         .series = {{c->last.heading, c->eval_step, c->metric, h->eval_count, true}},
         .series_count = 1,
         .from = from,
         .to = to},
        {.id = "chart-rate",
         .title = "Samples/s",
         .unit = "",
         .summary = say_course(rate, c->rate, h->count, ""),
         .from_zero = true,
         .series = {{"samples/s", c->step, c->rate, h->count, false}},
         .series_count = 1},
    };

    dp_html_add(html, "<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof(charts) / sizeof(charts[0]); i++) {
        dp_chart_add(html, &charts[i]);
    }
    dp_html_add(html, "</div>\n");
}

static void add_evaluations(struct dp_html *html, const struct dp_history *h, const char *metric)
{
    char text[DP_FIGURE_BYTES];

    if (h->eval_count == 0) {
        return;
    }
    dp_html_add(html, "<details><summary>Evaluations</summary><div class=\"scroll\" tabindex=\"0\" "
                      "role=\"region\" aria-label=\"table of evaluations\"><table><caption>"
                      "Evaluations; the training loss is the mean since the one before</caption>"
                      "<thead><tr><th scope=\"col\">step</th><th scope=\"col\">after</th>"
                      "<th scope=\"col\">train loss</th><th scope=\"col\">test loss</th>"
                      "<th scope=\"col\">test ");
    dp_html_text(html, metric);
    dp_html_add(html, "</th></tr></thead><tbody>\n");
    for (int i = 0; i < h->eval_count; i++) {
        const struct dp_history_eval *e = &h->evals[i];
        const struct dp_figure_metric m = dp_figure_metric(e->test_accuracy, e->test_error);
        dp_html_print(html, "<tr><th scope=\"row\">%" PRId64 "</th>", e->step);
        dp_html_print(html, "<td>%s</td>", dp_figure_fixed(text, e->time - h->begin_time, 1, " s"));
        dp_html_print(html, "<td>%s</td>", dp_figure_number(text, DP_REPORT_LOSS, e->train_loss));
        dp_html_print(html, "<td>%s</td>", dp_figure_number(text, DP_REPORT_LOSS, e->test_loss));
        dp_html_print(html, "<td>%s</td></tr>\n", dp_figure_number(text, m.kind, m.value));
    }
    dp_html_add(html, "</tbody></table></div></details>\n");
}

void dp_page_course(struct dp_html *html, const struct dp_history *history)
{
    struct course course;

    if (history->count == 0 && history->eval_count == 0) {
        dp_html_add(html, "<p class=\"none\">no steps yet</p>");
        return;
    }
    take_out(history, &course);
    add_charts(html, history, &course);
    dp_html_print(html,
                  "<p class=\"soft\">A point is %s%" PRId64
                  " step%s. Point at a chart, or give it the focus and press the arrow keys, to "
                  "read values.</p>",
                  history->per_point == 1 ? "" : "the mean of ", history->per_point,
                  history->per_point == 1 ? "" : "s");
    add_evaluations(html, history, course.last.name);
}
