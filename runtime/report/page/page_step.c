#include "runtime/report/page/page_step.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/report/figure_text.h"

static const struct {
    const char *key, *heading;
} parts[] = {
#define X(name, key, heading, help) {key, heading},
    DP_STEP_PARTS(X)
#undef X
};

const char *dp_step_part_key(int part)
{
    return parts[part].key;
}

const char *dp_step_part_heading(int part)
{
    return parts[part].heading;
}

const char *dp_step_part_name(int part)
{
    static const char *const names[DP_STEP_PART_COUNT] = {
        [DP_PART_INPUT] = "waiting for input",
        [DP_PART_COPY] = "copy",
        [DP_PART_FORWARD] = "forward",
        [DP_PART_BACKWARD] = "backward",
        [DP_PART_EXPOSED] = "exposed communication",
        [DP_PART_OPTIMIZER] = "optimizer",
        [DP_PART_CHECKPOINT] = "checkpoint",
        [DP_PART_OTHER] = "other",
    };

    return names[part];
}

double dp_step_total_ms(const double step_ms[DP_STEP_PART_COUNT])
{
    double sum = (double)NAN;

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        if (isfinite(step_ms[i])) {
            sum = (isfinite(sum) ? sum : 0.0) + step_ms[i];
        }
    }
    return sum;
}

bool dp_step_known(const struct dp_run_summary *s)
{
    bool known = false;

    for (int i = 0; i < s->rank_count; i++) {
        known = known || dp_step_total_ms(s->ranks[i].step_ms) > 0.0;
    }
    return known;
}

double dp_step_mean_ms(const struct dp_run_summary *s, int part)
{
    double sum = 0.0;
    int known = 0;

    for (int i = 0; i < s->rank_count; i++) {
        if (isfinite(s->ranks[i].step_ms[part])) {
            sum += s->ranks[i].step_ms[part];
            known++;
        }
    }
    return known > 0 ? sum / known : (double)NAN;
}

/* ---- bars ---- */

static void add_legend(struct dp_html *h, const struct dp_run_summary *s)
{
    double means[DP_STEP_PART_COUNT], total;
    char ms[DP_FIGURE_BYTES], share[DP_FIGURE_BYTES];

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        means[i] = dp_step_mean_ms(s, i);
    }
    total = dp_step_total_ms(means);
    dp_html_add(h, "<ul class=\"legend\" aria-label=\"parts of a step, mean over ranks\">");
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        dp_html_print(h, "<li><i class=\"%s\"></i>%s <span class=\"soft\">%s ms, %s</span></li>",
                      parts[i].key, dp_step_part_name(i), dp_figure_ms(ms, means[i]),
                      dp_figure_number(share, DP_REPORT_FRACTION, means[i] / total));
    }
    dp_html_add(h, "</ul>");
}

/* `longest`: the step, in ms, that fills the width. */
static void add_bar(struct dp_html *h, const struct dp_run_rank *rank, double longest)
{
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<li><span class=\"who\">%" PRId64 " <span class=\"soft\">", rank->rank);
    dp_html_text(h, rank->host);
    dp_html_add(h, "</span></span><span class=\"bar\" aria-hidden=\"true\">");
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        const double ms = rank->step_ms[i];
        if (ms > 0.0 && isfinite(ms)) {
            dp_html_print(h, "<i class=\"%s\" style=\"width:%.2f%%\" title=\"%s %s ms\"></i>",
                          parts[i].key, 100.0 * ms / longest, dp_step_part_name(i),
                          dp_figure_ms(text, ms));
        }
    }
    dp_html_print(h, "</span><span class=\"sum\">%s ms</span></li>\n",
                  dp_figure_ms(text, dp_step_total_ms(rank->step_ms)));
}

static void add_bars(struct dp_html *h, const struct dp_run_summary *s)
{
    double longest = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        longest = fmax(longest, dp_step_total_ms(s->ranks[i].step_ms));
    }
    if (!(longest > 0.0)) {
        dp_html_add(h, "<p class=\"none\">no steady step was measured</p>");
        return;
    }
    dp_html_add(h, "<p>The parts of a mean steady step on each rank's main thread; they sum to the "
                   "step. Communication that computing hid is not in them.</p>");
    add_legend(h, s);
    dp_html_add(h, "<div class=\"scroll\" tabindex=\"0\" role=\"group\" "
                   "aria-label=\"step of each rank, as bars; the table below has the figures\">"
                   "<ul class=\"bars\">\n");
    for (int i = 0; i < s->rank_count; i++) {
        add_bar(h, &s->ranks[i], longest);
    }
    dp_html_add(h, "</ul></div>\n");
}

/* ---- table ---- */

static void add_row(struct dp_html *h, const struct dp_run_rank *rank)
{
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th>", rank->rank);
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, rank->step_ms[i]));
    }
    dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, dp_step_total_ms(rank->step_ms)));
    dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, rank->hidden_comm_ms));
    dp_html_print(h, "<td>%s</td>",
                  dp_figure_number(text, DP_REPORT_RATE, rank->samples_per_second));
    dp_html_print(h, "<td>%s</td>",
                  dp_figure_number(text, DP_REPORT_FRACTION, rank->scaling_efficiency));
    dp_html_print(h, "<td>%s</td></tr>\n",
                  dp_figure_number(text, DP_REPORT_FRACTION, rank->compute_efficiency));
}

static void add_table(struct dp_html *h, const struct dp_run_summary *s)
{
    dp_html_add(h, "<h3>In milliseconds</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                   "aria-label=\"table of ranks\"><table><caption>Parts of a mean steady step, by "
                   "rank. Input: waits for a batch. Exposed: communication that the step waits "
                   "for; hidden: that computing hides. Scaling: samples/s, of those of one rank "
                   "alone. Compute: computing time of one rank alone, of its "
                   "own.</caption><thead><tr><th scope=\"col\">rank</th>");
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        dp_html_print(h, "<th scope=\"col\">%s</th>",
                      i == DP_PART_EXPOSED ? parts[i].heading : parts[i].key);
    }
    dp_html_add(h, "<th scope=\"col\">step</th><th scope=\"col\">hidden</th>"
                   "<th scope=\"col\">samples/s</th><th scope=\"col\">scaling</th>"
                   "<th scope=\"col\">compute</th></tr></thead><tbody>\n");
    for (int i = 0; i < s->rank_count; i++) {
        add_row(h, &s->ranks[i]);
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

void dp_page_step(struct dp_html *html, const struct dp_run_summary *summary)
{
    if (!dp_step_known(summary)) {
        dp_html_add(html, summary->rank_count == 0
                              ? "<p class=\"none\">known when the run has ended</p>"
                              : "<p class=\"none\">no step of the run was a steady one</p>");
        return;
    }
    add_bars(html, summary);
    add_table(html, summary);
}
