#include "runtime/report/layers/limits_table.h"

#include <string.h>

#include "base/text.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/paragraph.h"

enum { NAME_WIDTH = 20, LIMIT_WIDTH = 30 };

static const char raised_text[] =
    "the run itself was faster than the machine was measured: that is now the limit";

static const char alone_text[] =
    "products and other layers: each layer was timed alone; within the step they take less";

static double ms_of(const struct dp_run_summary *s, const char *name)
{
    for (int i = 0; i < s->part_count; i++) {
        if (strcmp(s->parts[i].name, name) == 0) {
            return s->parts[i].ms;
        }
    }
    return 0.0;
}

/* As those of a step that a GPU replays as a whole, which waits for no launches. */
static bool take_longer_alone(const struct dp_run_summary *s)
{
    return ms_of(s, "products") + ms_of(s, "other layers") >
           1.05 * ms_of(s, "forward and backward");
}

/* ---- a terminal ---- */

static void print_part(const struct dp_run_part *part, FILE *out)
{
    char name[NAME_WIDTH + 1], limit[LIMIT_WIDTH + 1];
    char ms[DP_FIGURE_BYTES], limit_ms[DP_FIGURE_BYTES], of[DP_FIGURE_BYTES];

    (void)dp_text_clean(part->name, name, sizeof(name));
    (void)dp_text_clean(part->limit, limit, sizeof(limit));
    (void)fprintf(out, "%-*s %8s %8s %8s  %s\n", NAME_WIDTH, name, dp_figure_ms(ms, part->ms),
                  dp_figure_ms(limit_ms, part->limit_ms),
                  dp_figure_number(of, DP_REPORT_FRACTION, part->of_limit), limit);
}

void dp_limits_print(const struct dp_run_summary *s, FILE *out)
{
    if (s->part_count == 0) {
        return;
    }
    (void)fprintf(out, "\n%-*s %8s %8s %8s  %s\n", NAME_WIDTH, "part", "ms", "at limit", "of limit",
                  "limit");
    for (int i = 0; i < s->part_count; i++) {
        print_part(&s->parts[i], out);
    }
    if (take_longer_alone(s)) {
        dp_paragraph(out, 4, "%s", alone_text);
    }
    if (s->limits_raised != NULL) {
        dp_paragraph(out, 4, "limits.%s: %s", s->limits_raised, raised_text);
    }
}

/* ---- the page ---- */

static void add_part(struct dp_html *h, const struct dp_run_part *part)
{
    char text[DP_FIGURE_BYTES];

    dp_html_add(h, "<tr><th scope=\"row\" class=\"text\">");
    dp_html_text(h, part->name);
    dp_html_print(h, "</th><td>%s</td>", dp_figure_ms(text, part->ms));
    dp_html_print(h, "<td>%s</td>", dp_figure_ms(text, part->limit_ms));
    dp_html_print(h, "<td>%s</td><td class=\"text name\">",
                  dp_figure_number(text, DP_REPORT_FRACTION, part->of_limit));
    dp_html_text(h, part->limit);
    dp_html_add(h, "</td></tr>\n");
}

void dp_page_limits(struct dp_html *h, const struct dp_run_summary *s)
{
    if (s->part_count == 0) {
        return;
    }
    dp_html_add(h, "<div class=\"scroll whole\" tabindex=\"0\" role=\"region\" "
                   "aria-label=\"table of limits\"><table><caption>Parts and their limits, in ms"
                   "</caption><thead><tr><th scope=\"col\" class=\"text\">part</th>"
                   "<th scope=\"col\">ms</th><th scope=\"col\">at limit</th>"
                   "<th scope=\"col\">of limit</th><th scope=\"col\" class=\"text\">limit</th>"
                   "</tr></thead><tbody>\n");
    for (int i = 0; i < s->part_count; i++) {
        add_part(h, &s->parts[i]);
    }
    dp_html_add(h, "</tbody></table></div>\n");
    if (take_longer_alone(s)) {
        dp_html_print(h, "<p class=\"soft\">%s</p>\n", alone_text);
    }
    if (s->limits_raised != NULL) {
        dp_html_add(h, "<p class=\"soft\">limits.");
        dp_html_text(h, s->limits_raised);
        dp_html_print(h, ": %s</p>\n", raised_text);
    }
}
