#include "runtime/report/page/page_buckets.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/report/figure_text.h"
#include "runtime/report/page/page_step.h"

/* What of a step computes, in the order in which it does. */
static const enum dp_step_part computing[] = {DP_PART_INPUT, DP_PART_COPY, DP_PART_FORWARD,
                                              DP_PART_BACKWARD};
enum { COMPUTING = sizeof(computing) / sizeof(computing[0]) };

static int shown(const struct dp_run_summary *s)
{
    return s->bucket_count < DP_PAGE_BUCKETS_MOST ? s->bucket_count : DP_PAGE_BUCKETS_MOST;
}

/* ---- the timeline ---- */

/* The milliseconds that fill the width; 0: nothing is known. */
static double width_ms(const struct dp_run_summary *s)
{
    double longest = 0.0, step = 0.0;

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        const double ms = dp_step_mean_ms(s, i);
        step += ms > 0.0 && isfinite(ms) ? ms : 0.0;
    }
    for (int i = 0; i < shown(s); i++) {
        longest = s->buckets[i].done_ms > longest ? s->buckets[i].done_ms : longest;
    }
    return isfinite(longest) && isfinite(step) ? fmax(longest, step) : 0.0;
}

static bool is_known(const struct dp_run_bucket *b)
{
    return b->ready_ms >= 0.0 && b->sent_ms >= b->ready_ms && b->done_ms >= b->sent_ms &&
           isfinite(b->done_ms);
}

static void add_computing(struct dp_html *h, const struct dp_run_summary *s, double width)
{
    char text[DP_FIGURE_BYTES];
    double end = 0.0;

    dp_html_add(h, "<li><span class=\"who\">computing</span><span class=\"bar of-step\" "
                   "aria-hidden=\"true\">");
    for (int i = 0; i < COMPUTING; i++) {
        const double ms = dp_step_mean_ms(s, computing[i]);

        if (ms > 0.0 && isfinite(ms)) {
            dp_html_print(h, "<i class=\"%s\" style=\"width:%.2f%%\" title=\"%s %s ms\"></i>",
                          dp_step_part_key(computing[i]), 100.0 * ms / width,
                          dp_step_part_heading(computing[i]), dp_figure_ms(text, ms));
            end += ms;
        }
    }
    dp_html_print(h, "</span><span class=\"sum\">%s ms</span></li>\n", dp_figure_ms(text, end));
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
    dp_html_print(h,
                  "<li><span class=\"who\">%d <span class=\"soft\">%s</span></span>"
                  "<span class=\"bar of-step\" aria-hidden=\"true\">"
                  "<i class=\"queued\" style=\"margin-left:%.2f%%;width:%.2f%%\" title=\"ready at "
                  "%s ms, sent at %s ms\"></i>"
                  "<i class=\"shared\" style=\"width:%.2f%%\" title=\"sent at %s ms, summed at %s "
                  "ms; the step waits %s ms for it\"></i></span>"
                  "<span class=\"sum\">%s ms</span></li>\n",
                  i, dp_figure_count(bytes, DP_REPORT_BYTES, b->bytes), 100.0 * b->ready_ms / width,
                  100.0 * (b->sent_ms - b->ready_ms) / width, ready, sent,
                  100.0 * (b->done_ms - b->sent_ms) / width, sent, done, exposed, done);
}

static void add_timeline(struct dp_html *h, const struct dp_run_summary *s)
{
    const double width = width_ms(s);

    if (!(width > 0.0)) {
        return;
    }
    dp_html_add(h, "<p>From the begin of a mean steady step: computing, and for each bucket of the "
                   "gradient when it is ready, sent and summed. What lies beside computing is "
                   "hidden by it.</p><ul class=\"legend\" aria-label=\"what the bars are\">");
    for (int i = 0; i < COMPUTING; i++) {
        dp_html_print(h, "<li><i class=\"%s\"></i>%s</li>", dp_step_part_key(computing[i]),
                      dp_step_part_heading(computing[i]));
    }
    dp_html_add(h, "<li><i class=\"queued\"></i>ready, not sent</li><li><i class=\"shared\"></i>"
                   "sent, not summed</li></ul><div class=\"scroll\" tabindex=\"0\" role=\"group\" "
                   "aria-label=\"timeline of a step, as bars; the table below has the figures\">"
                   "<ul class=\"bars\">\n");
    add_computing(h, s, width);
    for (int i = 0; i < shown(s); i++) {
        add_bucket(h, &s->buckets[i], i, width);
    }
    dp_html_add(h, "</ul></div>\n");
    if (shown(s) < s->bucket_count) {
        dp_html_print(h, "<p class=\"soft\">%d more buckets are in run.json.</p>\n",
                      s->bucket_count - shown(s));
    }
}

/* ---- tables ---- */

static void add_bucket_row(struct dp_html *h, const struct dp_run_bucket *b, int i)
{
    const double times[] = {b->ready_ms, b->sent_ms, b->done_ms, b->exposed_ms};
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%d</th><td>%s</td>", i,
                  dp_figure_count(text, DP_REPORT_BYTES, b->bytes));
    for (size_t k = 0; k < sizeof(times) / sizeof(times[0]); k++) {
        dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, times[k]));
    }
    dp_html_print(h, "<td>%s</td>", dp_figure_short(text, b->gbs));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_COUNT, b->first_rank));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_COUNT, b->last_rank));
    dp_html_print(h, "<td>%s</td></tr>\n", dp_figure_ms(text, b->spread_ms));
}

static void add_buckets(struct dp_html *h, const struct dp_run_summary *s)
{
    dp_html_add(h, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
                   "buckets\"><table><caption>Buckets, in milliseconds from the step's begin; the "
                   "rank that most often comes first and last, and the time between them</caption>"
                   "<thead><tr><th scope=\"col\">bucket</th>");
    for (int i = 0; i < dp_report_table(DP_TABLE_BUCKETS)->row_count; i++) {
        dp_html_print(h, "<th scope=\"col\">%s</th>",
                      dp_report_table(DP_TABLE_BUCKETS)->rows[i].text);
    }
    dp_html_add(h, "</tr></thead><tbody>\n");
    for (int i = 0; i < shown(s); i++) {
        add_bucket_row(h, &s->buckets[i], i);
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

static void add_stragglers(struct dp_html *h, const struct dp_run_summary *s)
{
    char text[DP_FIGURE_BYTES];

    dp_html_add(h, "<h3>Who comes late</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                   "aria-label=\"table of late ranks\"><table><caption>Share of buckets at which a "
                   "rank comes last, and how long after the first one it comes</caption><thead><tr>"
                   "<th scope=\"col\">rank</th><th scope=\"col\" class=\"text\">host</th>"
                   "<th scope=\"col\">last at</th><th scope=\"col\">ms late</th></tr></thead>"
                   "<tbody>\n");
    for (int i = 0; i < s->straggler_count; i++) {
        const struct dp_run_straggler *late = &s->stragglers[i];

        dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th><td class=\"text\">", late->rank);
        dp_html_text(h, dp_figure_or_dash(late->host));
        dp_html_print(h, "</td><td>%s</td>",
                      dp_figure_number(text, DP_REPORT_FRACTION, late->last_at));
        dp_html_print(h, "<td>%s</td></tr>\n", dp_figure_ms(text, late->late_ms));
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

/* ---- efficiency ---- */

static void add_factors(struct dp_html *h, const struct dp_run_summary *s)
{
    const struct {
        const char *name;
        double factor;
    } factors[] = {{"contention", s->efficiency_contention},
                   {"waiting for input", s->efficiency_input},
                   {"exposed communication", s->efficiency_exposed},
                   {"waiting for other ranks", s->efficiency_waiting},
                   {"all else", s->efficiency_other}};
    char text[DP_FIGURE_BYTES];
    const char *before = "";

    if (s->world_size < 2 || !isfinite(s->efficiency_other)) {
        return;
    }
    dp_html_print(h, "<p>Scaling efficiency, %s, is the product of what each cause leaves of it: ",
                  dp_figure_number(text, DP_REPORT_FRACTION, s->scaling_efficiency));
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        if (isfinite(factors[i].factor)) {
            dp_html_print(h, "%s%s %s", before, factors[i].name,
                          dp_figure_number(text, DP_REPORT_FRACTION, factors[i].factor));
            before = ", ";
        }
    }
    dp_html_add(h, ".</p>\n");
}

void dp_page_buckets(struct dp_html *html, const struct dp_run_summary *summary)
{
    add_factors(html, summary);
    if (summary->bucket_count == 0) {
        dp_html_add(html, "<p class=\"none\">known when a run with steps in common has ended</p>");
        return;
    }
    add_timeline(html, summary);
    add_buckets(html, summary);
    if (summary->straggler_count > 1) {
        add_stragglers(html, summary);
    }
}
