#include "runtime/report/page/page_timeline.h"

#include <math.h>

#include "runtime/report/figure_text.h"
#include "runtime/report/layers/layer_order.h"
#include "runtime/report/page/chart.h"
#include "runtime/report/page/page_buckets.h"
#include "runtime/report/page/page_step.h"

/* What of a step computes, in the order in which it does. */
static const enum dp_step_part computing[] = {DP_PART_INPUT, DP_PART_COPY, DP_PART_FORWARD,
                                              DP_PART_BACKWARD};
enum { COMPUTING = sizeof(computing) / sizeof(computing[0]), TICKS = 6 };

static const double labelled = 0.06; /* of the width: a layer's bar that has room for its name */

static int shown(const struct dp_run_summary *s)
{
    return s->bucket_count < DP_PAGE_BUCKETS_MOST ? s->bucket_count : DP_PAGE_BUCKETS_MOST;
}

static double part_ms(const struct dp_run_summary *s, enum dp_step_part part)
{
    const double ms = dp_step_mean_ms(s, part);

    return ms > 0.0 && isfinite(ms) ? ms : 0.0;
}

/* The milliseconds that fill the width; 0: nothing is known. */
static double width_ms(const struct dp_run_summary *s)
{
    double longest = 0.0, step = 0.0;

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        step += part_ms(s, (enum dp_step_part)i);
    }
    for (int i = 0; i < shown(s); i++) {
        longest = s->buckets[i].done_ms > longest ? s->buckets[i].done_ms : longest;
    }
    return isfinite(longest) && isfinite(step) ? fmax(longest, step) : 0.0;
}

/* ---- rows ---- */

/* A piece of a row. What follows is its title, and `after` the title what is in it. */
static void begin_piece(struct dp_html *h, const char *class, double from_ms, double ms,
                        double width)
{
    dp_html_print(h, "<i class=\"%s\" style=\"left:%.2f%%;width:%.2f%%\" title=\"", class,
                  100.0 * from_ms / width, 100.0 * ms / width);
}

static void begin_row(struct dp_html *h)
{
    dp_html_add(h, "</span><span class=\"of-step\" aria-hidden=\"true\">");
}

static void end_row(struct dp_html *h, double end_ms)
{
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "</span><span class=\"sum\">%s ms</span></li>\n", dp_figure_ms(text, end_ms));
}

static void add_computing(struct dp_html *h, const struct dp_run_summary *s, double width)
{
    char text[DP_FIGURE_BYTES];
    double end = 0.0;

    dp_html_add(h, "<li><span class=\"who\">computing");
    begin_row(h);
    for (int i = 0; i < COMPUTING; i++) {
        const double ms = part_ms(s, computing[i]);

        if (ms > 0.0) {
            begin_piece(h, dp_step_part_key(computing[i]), end, ms, width);
            dp_html_print(h, "%s %s ms\"></i>", dp_step_part_name(computing[i]),
                          dp_figure_ms(text, ms));
            end += ms;
        }
    }
    end_row(h, end);
}

/* ---- layers ---- */

static double layer_ms(const struct dp_run_layer *layer, bool backward)
{
    const double ms = backward ? layer->backward_ms : layer->forward_ms;

    return ms > 0.0 && isfinite(ms) ? ms : 0.0;
}

static double sum_of_layers(const struct dp_run_summary *s, bool backward)
{
    double sum = 0.0;

    for (int i = 0; i < s->layer_count; i++) {
        sum += layer_ms(&s->layers[i], backward);
    }
    return sum;
}

static void add_layer(struct dp_html *h, const struct dp_run_layer *layer, bool backward,
                      double from_ms, double ms, double width)
{
    static const char *const classes[] = {"forward layer", "backward layer"};
    char text[DP_FIGURE_BYTES];

    begin_piece(h, classes[backward], from_ms, ms, width);
    dp_html_text(h, layer->name);
    dp_html_add(h, " (");
    dp_html_text(h, layer->kind);
    dp_html_print(h, "): %s %s ms\">", backward ? "backward" : "forward", dp_figure_ms(text, ms));
    if (ms > labelled * width) {
        dp_html_text(h, layer->kind);
        dp_html_add(h, " ");
        dp_html_text(h, layer->name);
    }
    dp_html_add(h, "</i>");
}

/* Forward in order, then backward in the reverse one. Layers were timed by themselves: what each
 * took there is its share of what forward, or backward, takes in a step. */
static void add_layers(struct dp_html *h, const struct dp_run_summary *s, double width)
{
    const double sums[] = {sum_of_layers(s, false), sum_of_layers(s, true)};
    double at = part_ms(s, DP_PART_INPUT) + part_ms(s, DP_PART_COPY);

    if (!(sums[0] > 0.0) || !(sums[1] > 0.0)) {
        return;
    }
    dp_html_add(h, "<li><span class=\"who\">layers");
    begin_row(h);
    for (int k = 0; k < 2 * s->layer_count; k++) {
        const bool backward = k >= s->layer_count;
        const int i = backward ? 2 * s->layer_count - 1 - k : k;
        const double part = part_ms(s, backward ? DP_PART_BACKWARD : DP_PART_FORWARD);
        const double ms = part * layer_ms(&s->layers[i], backward) / sums[backward];

        if (ms > 0.0) {
            add_layer(h, &s->layers[i], backward, at, ms, width);
        }
        at += ms;
    }
    end_row(h, at);
}

/* ---- buckets ---- */

static bool is_known(const struct dp_run_bucket *b)
{
    return b->ready_ms >= 0.0 && b->sent_ms >= b->ready_ms && b->done_ms >= b->sent_ms &&
           isfinite(b->done_ms);
}

/* From where its gradient is there: until it is sent, and until it is summed. */
static void add_bucket(struct dp_html *h, const struct dp_run_bucket *b, int i, double width)
{
    char ready[DP_FIGURE_BYTES], sent[DP_FIGURE_BYTES], done[DP_FIGURE_BYTES];
    char exposed[DP_FIGURE_BYTES], bytes[DP_FIGURE_BYTES];

    if (!is_known(b)) {
        return;
    }
    (void)dp_figure_ms(ready, b->ready_ms);
    (void)dp_figure_ms(sent, b->sent_ms);
    (void)dp_figure_ms(done, b->done_ms);
    (void)dp_figure_ms(exposed, b->exposed_ms);
    dp_html_print(h, "<li><span class=\"who\">bucket %d <span class=\"soft\">%s</span>", i,
                  dp_figure_count(bytes, DP_REPORT_BYTES, b->bytes));
    begin_row(h);
    begin_piece(h, "queued", b->ready_ms, b->sent_ms - b->ready_ms, width);
    dp_html_print(h, "ready at %s ms, sent at %s ms\"></i>", ready, sent);
    begin_piece(h, "shared", b->sent_ms, b->done_ms - b->sent_ms, width);
    dp_html_print(h, "sent at %s ms, summed at %s ms; the step waits %s ms for it\"></i>", sent,
                  done, exposed);
    end_row(h, b->done_ms);
}

/* ---- all ---- */

static void add_axis(struct dp_html *h, double width)
{
    const double step = dp_chart_step(width, TICKS);
    const int decimals = step < 1.0 ? (int)ceil(-log10(step) - 1e-9) : 0;
    char text[DP_FIGURE_BYTES];

    dp_html_add(h, "<li class=\"ticks\" aria-hidden=\"true\"><span class=\"who\">ms");
    begin_row(h);
    for (int i = 0; i * step <= width && i <= 2 * TICKS; i++) {
        dp_html_print(h, "<b style=\"left:%.2f%%\">%s</b>", 100.0 * i * step / width,
                      dp_figure_fixed(text, i * step, decimals, ""));
    }
    dp_html_add(h, "</span><span class=\"sum\"></span></li>\n");
}

static void add_legend(struct dp_html *h, bool has_buckets)
{
    dp_html_add(h, "<ul class=\"legend\" aria-label=\"what the bars are\">");
    for (int i = 0; i < COMPUTING; i++) {
        dp_html_print(h, "<li><i class=\"%s\"></i>%s</li>", dp_step_part_key(computing[i]),
                      dp_step_part_name(computing[i]));
    }
    dp_html_add(h, has_buckets ? "<li><i class=\"queued\"></i>ready, not sent</li><li><i "
                                 "class=\"shared\"></i>sent, not summed</li></ul>"
                               : "</ul>");
}

static void add_rows(struct dp_html *h, const struct dp_run_summary *s, double width)
{
    dp_html_add(h, "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"timeline of a "
                   "step, as bars; the tables of layers and buckets have the figures\">"
                   "<ul class=\"bars\">\n");
    add_computing(h, s, width);
    add_layers(h, s, width);
    for (int i = 0; i < shown(s); i++) {
        add_bucket(h, &s->buckets[i], i, width);
    }
    add_axis(h, width);
    dp_html_add(h, "</ul></div>\n");
    if (shown(s) < s->bucket_count) {
        dp_html_print(h, "<p class=\"soft\">%d more buckets are in run.json.</p>\n",
                      s->bucket_count - shown(s));
    }
}

void dp_page_timeline(struct dp_html *html, const struct dp_run_summary *summary)
{
    const double width = width_ms(summary);

    if (!(width > 0.0)) {
        dp_html_add(html, "<p class=\"none\">known when a run with steady steps has ended</p>");
        return;
    }
    dp_html_add(html, "<p>A mean steady step from its begin, all ranks together.");
    if (summary->bucket_count > 0) {
        dp_html_add(html, " Buckets are pieces of the gradient: what lies below computing is "
                          "hidden by it.");
    }
    if (summary->layer_count > 0) {
        dp_html_add(html, " Layers have the shares of forward and backward that they took when "
                          "each was timed by itself, on rank 0; where rows go through several "
                          "layers in tiles, these really take turns.");
    }
    dp_html_add(html, "</p>");
    if (summary->plan != NULL && summary->bucket_count > 0) {
        dp_html_add(html, "<p class=\"soft\">");
        dp_html_text(html, summary->plan);
        dp_html_add(html, "</p>");
    }
    add_legend(html, summary->bucket_count > 0);
    add_rows(html, summary, width);
}
