#include "runtime/report/page/page_buckets.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/report/figure_text.h"

static int shown(const struct dp_run_summary *s)
{
    return s->bucket_count < DP_PAGE_BUCKETS_MOST ? s->bucket_count : DP_PAGE_BUCKETS_MOST;
}

static void add_bucket_row(struct dp_html *h, const struct dp_run_bucket *b, int i)
{
    const double times[] = {b->ready_ms,   b->sent_ms,   b->done_ms,
                            b->exposed_ms, b->encode_ms, b->decode_ms};
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%d</th><td>%s</td>", i,
                  dp_figure_count(text, DP_REPORT_BYTES, b->bytes));
    for (size_t k = 0; k < sizeof(times) / sizeof(times[0]); k++) {
        dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, times[k]));
    }
    dp_html_print(h, "<td>%s</td>", dp_figure_unit(text, 1e9 * b->gbs, "B/s"));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_COUNT, b->first_rank));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_COUNT, b->last_rank));
    dp_html_print(h, "<td>%s</td><td>%s</td></tr>\n", dp_figure_ms(text, b->spread_ms),
                  b->deferred == 1   ? "yes"
                  : b->deferred == 0 ? "no"
                                     : "-");
}

static void add_buckets(struct dp_html *h, const struct dp_run_summary *s)
{
    dp_html_add(h, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
                   "buckets\"><table><caption>Buckets, in milliseconds from the step's begin; the "
                   "rank that most often comes first and last, and the time between them; "
                   "deferred: the next forward may hide it</caption>"
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
    add_buckets(html, summary);
    if (summary->straggler_count > 1) {
        add_stragglers(html, summary);
    }
}
