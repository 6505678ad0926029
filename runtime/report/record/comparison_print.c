#include "runtime/report/record/comparison_print.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/paragraph.h"

/* Columns of the table on a terminal. */
enum { BROAD = 11, CHANGE = 10, NARROW = 7 };

static const char noise_help[] =
    "A change counts where it is larger than the noise: twice the standard error, by what each "
    "run varies in itself; parts of the step that wait have that of the whole step. Runs made at "
    "other times may differ more. \"pp\" are percentage points.";

/* ---- values ---- */

static const char *value_text(char text[DP_FIGURE_BYTES], enum dp_report_kind kind, double value)
{
    if (!(fabs(value) < 1e18)) { /* NaN, or no figure of a run: an int64_t holds the others */
        (void)snprintf(text, DP_FIGURE_BYTES, "-");
        return text;
    }
    return kind == DP_REPORT_PARTS   ? dp_figure_ms(text, value)
           : kind == DP_REPORT_BYTES ? dp_figure_bytes(text, (int64_t)fabs(value))
                                     : dp_figure_number(text, kind, value);
}

/* Of two values; between shares it is in percentage points, not a share of one of them. */
static const char *difference_text(char text[DP_FIGURE_BYTES], enum dp_report_kind kind,
                                   double value)
{
    char *percent = strstr(value_text(text, kind, value), " %");

    if (percent != NULL) {
        (void)snprintf(percent, sizeof(" pp"), " pp");
    }
    return text;
}

/* The text, or the value in another form where it takes more columns, at least 7. */
static const char *fitting(char text[DP_FIGURE_BYTES], double value, size_t columns)
{
    if (strlen(text) > columns) {
        (void)snprintf(text, DP_FIGURE_BYTES, "%.*e", columns < BROAD ? 1 : 3, value);
    }
    return text;
}

static const char *fitting_text(char text[DP_FIGURE_BYTES], enum dp_report_kind kind, double value)
{
    (void)value_text(text, kind, value);
    return fitting(text, value, BROAD);
}

/* With its sign. */
static const char *change_text(char text[DP_FIGURE_BYTES], const struct dp_change *change,
                               size_t columns)
{
    const double difference = change->after - change->before;
    char size[DP_FIGURE_BYTES];

    if (!isfinite(difference)) {
        return value_text(text, change->kind, difference);
    }
    (void)difference_text(size, change->kind, fabs(difference));
    (void)snprintf(text, DP_FIGURE_BYTES, "%s%.60s",
                   difference < 0.0   ? "-"
                   : difference > 0.0 ? "+"
                                      : "",
                   fitting(size, fabs(difference), columns - 1));
    return text;
}

/* The change as a share of what it was before. */
static const char *share_text(char text[DP_FIGURE_BYTES], const struct dp_change *change)
{
    const double share = (change->after - change->before) / fabs(change->before);

    if (!isfinite(share) || fabs(share) >= 10.0) {
        (void)snprintf(text, DP_FIGURE_BYTES, "-");
    } else {
        (void)snprintf(text, DP_FIGURE_BYTES, "%+.1f %%", 100.0 * share);
    }
    return text;
}

/* ---- terminal ---- */

static void print_differences(const struct dp_comparison *c, FILE *out)
{
    const char *group = "";

    if (c->difference_count == 0) {
        (void)fprintf(out, "changed     nothing that the runs' files know of\n");
    }
    for (int i = 0; i < c->difference_count; i++) {
        const struct dp_difference *d = &c->differences[i];
        if (strcmp(group, d->group) != 0) {
            group = d->group;
            (void)fprintf(out, "changed in the %s\n", group);
        }
        dp_paragraph(out, 6, "    %s: %s -> %s", d->key, d->before, d->after);
    }
    if (c->left_out > 0) {
        (void)fprintf(out, "    ... and %d more\n", c->left_out);
    }
}

static void print_change(const struct dp_change *change, FILE *out)
{
    char before[DP_FIGURE_BYTES], after[DP_FIGURE_BYTES], by[DP_FIGURE_BYTES];
    char share[DP_FIGURE_BYTES], noise[DP_FIGURE_BYTES];

    (void)difference_text(noise, change->kind, change->noise);
    (void)fprintf(out, "%-18s %11s %11s %10s %9s %7s %s\n", change->what,
                  fitting_text(before, change->kind, change->before),
                  fitting_text(after, change->kind, change->after), change_text(by, change, CHANGE),
                  share_text(share, change), fitting(noise, change->noise, NARROW),
                  dp_change_verdict_text(dp_change_verdict(change)));
}

void dp_comparison_print(const struct dp_comparison *comparison, FILE *out)
{
    dp_paragraph(out, 12, "A           %s", comparison->before->path);
    dp_paragraph(out, 12, "B           %s", comparison->after->path);
    for (int run = 0; run < 2; run++) {
        const struct dp_run_record *r = run == 0 ? comparison->before : comparison->after;
        for (int i = 0; i < r->note_count; i++) {
            dp_paragraph(out, 12, "incomplete  %c: %s", 'A' + run, r->notes[i]);
        }
    }
    print_differences(comparison, out);
    (void)fprintf(out, "\n%-18s %11s %11s %10s %9s %7s %s\n", "", "A", "B", "change", "of A",
                  "noise", "B is");
    for (int i = 0; i < comparison->change_count; i++) {
        print_change(&comparison->changes[i], out);
    }
    (void)fprintf(out, "\n");
    dp_paragraph(out, 0, "%s", noise_help);
}

/* ---- page ---- */

static void add_differences(const struct dp_comparison *c, struct dp_html *h)
{
    if (c->difference_count == 0) {
        dp_html_add(h, "<p>Nothing was changed that the runs' files know of.</p>\n");
        return;
    }
    dp_html_add(h, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
                   "what was changed\"><table><caption>What was changed</caption><thead><tr>"
                   "<th scope=\"col\">of the</th><th scope=\"col\" class=\"text\">key</th>"
                   "<th scope=\"col\" class=\"text\">A</th>"
                   "<th scope=\"col\" class=\"text\">B</th></tr></thead><tbody>\n");
    for (int i = 0; i < c->difference_count; i++) {
        const struct dp_difference *d = &c->differences[i];
        dp_html_print(h, "<tr><td>%s</td><th scope=\"row\" class=\"text\"><code>", d->group);
        dp_html_text(h, d->key);
        dp_html_add(h, "</code></th><td class=\"text\">");
        dp_html_text(h, d->before);
        dp_html_add(h, "</td><td class=\"text\">");
        dp_html_text(h, d->after);
        dp_html_add(h, "</td></tr>\n");
    }
    dp_html_add(h, "</tbody></table></div>\n");
    if (c->left_out > 0) {
        dp_html_print(h, "<p>and %d more</p>\n", c->left_out);
    }
}

static void add_change(const struct dp_change *change, struct dp_html *h)
{
    static const char *const classes[] = {[DP_CHANGE_UNKNOWN] = "soft",
                                          [DP_CHANGE_SAME] = "soft",
                                          [DP_CHANGE_BETTER] = "better",
                                          [DP_CHANGE_WORSE] = "worse"};
    const enum dp_change_verdict verdict = dp_change_verdict(change);
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%s</th>", change->what);
    dp_html_print(h, "<td>%s</td>", value_text(text, change->kind, change->before));
    dp_html_print(h, "<td>%s</td>", value_text(text, change->kind, change->after));
    dp_html_print(h, "<td>%s</td>", change_text(text, change, DP_FIGURE_BYTES));
    dp_html_print(h, "<td>%s</td>", share_text(text, change));
    dp_html_print(h, "<td>%s</td>", difference_text(text, change->kind, change->noise));
    dp_html_print(h, "<td class=\"text %s\">%s</td></tr>\n", classes[verdict],
                  dp_change_verdict_text(verdict));
}

void dp_comparison_add(const struct dp_comparison *comparison, struct dp_html *html)
{
    dp_html_add(html, "<section aria-labelledby=\"h-comparison\"><h2 id=\"h-comparison\">Compared "
                      "with another run</h2>\n<p>A is this run, B is <code>");
    dp_html_text(html, comparison->after->path);
    dp_html_add(html, "</code>.</p>\n");
    add_differences(comparison, html);
    dp_html_add(html,
                "<div class=\"scroll whole\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
                "figures of both runs\"><table><caption>What that did</caption><thead><tr>"
                "<th scope=\"col\">figure</th><th scope=\"col\">A</th>"
                "<th scope=\"col\">B</th><th scope=\"col\">change</th>"
                "<th scope=\"col\">of A</th><th scope=\"col\">noise</th>"
                "<th scope=\"col\" class=\"text\">B is</th></tr></thead><tbody>\n");
    for (int i = 0; i < comparison->change_count; i++) {
        add_change(&comparison->changes[i], html);
    }
    dp_html_print(html, "</tbody></table></div>\n<p class=\"soft\">%s</p></section>\n", noise_help);
}

/* ---- JSON ---- */

dp_status dp_comparison_put(const struct dp_comparison *comparison, struct dp_json *object)
{
    struct dp_json *list = dp_json_set_array(object, "changed");

    for (int i = 0; i < comparison->difference_count; i++) {
        const struct dp_difference *d = &comparison->differences[i];
        struct dp_json *row = dp_json_push_object(list);
        DP_TRY(dp_json_set_text(row, "of", d->group));
        DP_TRY(dp_json_set_text(row, "key", d->key));
        DP_TRY(dp_json_set_text(row, "a", d->before));
        DP_TRY(dp_json_set_text(row, "b", d->after));
    }
    list = dp_json_set_array(object, "figures");
    for (int i = 0; i < comparison->change_count; i++) {
        const struct dp_change *change = &comparison->changes[i];
        struct dp_json *row = dp_json_push_object(list);
        DP_TRY(dp_json_set_text(row, "figure", change->what));
        DP_TRY(dp_json_set_real(row, "a", change->before));
        DP_TRY(dp_json_set_real(row, "b", change->after));
        DP_TRY(dp_json_set_real(row, "noise", change->noise));
        DP_TRY(dp_json_set_text(row, "b_is", dp_change_verdict_text(dp_change_verdict(change))));
    }
    return list == NULL ? DP_ERR_NOMEM : DP_OK;
}
