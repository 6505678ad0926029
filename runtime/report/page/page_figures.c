#include "runtime/report/page/page_figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/report/figure_text.h"

/* ---- environment ---- */

static void add_pair(struct dp_html *h, const char *what, const char *outside)
{
    dp_html_print(h, "<tr><th scope=\"row\">%s</th><td class=\"text\">", what);
    dp_html_text(h, dp_figure_or_dash(outside));
    dp_html_add(h, "</td></tr>\n");
}

static void add_setup(struct dp_html *h, const struct dp_run_summary *s)
{
    char text[DP_FIGURE_BYTES];

    dp_html_add(h, "<table><caption>How it ran</caption><tbody>\n");
    add_pair(h, "lockstep", s->version);
    add_pair(h, "started", s->started);
    add_pair(h, "device", s->device);
    add_pair(h, "precision", s->precision);
    add_pair(h, "ranks", dp_figure_count(text, DP_REPORT_COUNT, s->world_size));
    add_pair(h, "global batch", dp_figure_count(text, DP_REPORT_COUNT, s->global_batch));
    add_pair(h, "strategy", s->strategy);
    add_pair(h, "compressor", s->compressor);
    add_pair(h, "plan", s->plan);
    dp_html_add(h, "</tbody></table>\n");
}

static void add_place(struct dp_html *h, const struct dp_run_rank *rank)
{
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th><td class=\"text\">", rank->rank);
    dp_html_text(h, dp_figure_or_dash(rank->host));
    dp_html_add(h, "</td><td class=\"text\">");
    dp_html_text(h, dp_figure_or_dash(rank->cpus));
    dp_html_print(h, "</td><td>%s</td>", dp_figure_count(text, DP_REPORT_COUNT, rank->threads));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_BYTES, rank->peak_rss_bytes));
    dp_html_print(h, "<td>%s</td></tr>\n",
                  dp_figure_count(text, DP_REPORT_BYTES, rank->peak_device_bytes));
}

void dp_page_environment(struct dp_html *html, const struct dp_run_summary *summary)
{
    add_setup(html, summary);
    if (summary->rank_count == 0) {
        return;
    }
    dp_html_add(html,
                "<h3>Ranks</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"places of ranks\"><table><caption>Where ranks ran, and the most "
                "memory of each</caption><thead><tr><th scope=\"col\">rank</th>"
                "<th scope=\"col\" class=\"text\">host</th>"
                "<th scope=\"col\" class=\"text\">cores</th><th scope=\"col\">threads</th>"
                "<th scope=\"col\">memory</th><th scope=\"col\">GPU memory</th></tr></thead>"
                "<tbody>\n");
    for (int i = 0; i < summary->rank_count; i++) {
        add_place(html, &summary->ranks[i]);
    }
    dp_html_add(html, "</tbody></table></div>\n");
}

/* ---- every figure ---- */

enum { KEY_BYTES = 192, LIST_MOST = 32, DEPTH_MOST = 6 };

/* What a key is, as `ddp_train --list report` says; empty: a file of another version has it. */
static const char *help_of(const char *key)
{
    const struct dp_report_row *row;

    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++) {
        if (strcmp(row->key, key) == 0) {
            return row->help;
        }
    }
    return "";
}

/* A text, a number, a switch or null. */
static void add_value(struct dp_html *h, const struct dp_json *json)
{
    double real;
    int64_t integer;
    bool flag;

    if (dp_json_text(json) != NULL) {
        dp_html_text(h, dp_json_text(json));
    } else if (dp_json_int(json, &integer)) {
        dp_html_print(h, "%" PRId64, integer);
    } else if (dp_json_real(json, &real)) {
        dp_html_print(h, "%.7g", real);
    } else if (dp_json_switch(json, &flag)) {
        dp_html_add(h, flag ? "yes" : "no");
    } else {
        dp_html_add(h, "-");
    }
}

static void add_list(struct dp_html *h, const struct dp_json *list)
{
    const size_t length = dp_json_length(list);

    for (size_t i = 0; i < length && i < LIST_MOST; i++) {
        const struct dp_json *item = dp_json_at(list, i);
        dp_html_add(h, i > 0 ? ", " : "");
        if (dp_json_is_object(item) || dp_json_is_array(item)) {
            dp_html_add(h, "&hellip;");
        } else {
            add_value(h, item);
        }
    }
    if (length > LIST_MOST) {
        dp_html_print(h, " and %zu more", length - LIST_MOST);
    }
    dp_html_add(h, length == 0 ? "-" : "");
}

static void add_figure(struct dp_html *h, const char *key, const struct dp_json *json)
{
    dp_html_add(h, "<tr><th scope=\"row\"><code>");
    dp_html_text(h, key);
    dp_html_add(h, "</code></th><td class=\"text\">");
    if (dp_json_is_array(json)) {
        add_list(h, json);
    } else {
        add_value(h, json);
    }
    dp_html_add(h, "</td><td class=\"text soft\">");
    dp_html_text(h, help_of(key));
    dp_html_add(h, "</td></tr>\n");
}

/* Tables, and the configuration, are shown by themselves. */
static bool is_table(const char *key)
{
    bool found = false;

    for (int t = 0; t < DP_RUN_TABLES; t++) {
        found = found || strcmp(key, dp_report_table((enum dp_run_table)t)->key) == 0;
    }
    return found;
}

/* The members of an object, and of those in it, whose keys get `before` in front. */
/* NOLINTNEXTLINE(misc-no-recursion): no deeper than DEPTH_MOST */
static void add_members(struct dp_html *h, const struct dp_json *object, const char *before,
                        int depth)
{
    struct dp_json_member member = {0};
    char key[KEY_BYTES];

    while (dp_json_next(object, &member)) {
        (void)snprintf(key, sizeof(key) - 1, "%s%s", before, member.key);
        if (dp_json_is_object(member.value) && depth < DEPTH_MOST) {
            memcpy(key + strlen(key), ".", 2);
            add_members(h, member.value, key, depth + 1);
        } else if (!is_table(key) && strcmp(key, "configuration") != 0) {
            add_figure(h, key, member.value);
        }
    }
}

void dp_page_figures(struct dp_html *html, const struct dp_json *json)
{
    if (json == NULL) {
        dp_html_add(html, "<p class=\"none\">there is no run.json</p>");
        return;
    }
    dp_html_add(html, "<details><summary>Every figure of run.json</summary>"
                      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
                      "figures\"><table class=\"all\"><caption>run.json, but for its tables"
                      "</caption><thead><tr><th scope=\"col\">key</th>"
                      "<th scope=\"col\" class=\"text\">value</th>"
                      "<th scope=\"col\" class=\"text\">what it is</th></tr></thead><tbody>\n");
    add_members(html, json, "", 0);
    dp_html_add(html, "</tbody></table></div></details>\n");
}

/* ---- configuration ---- */

void dp_page_configuration(struct dp_html *html, const char *config)
{
    if (config == NULL) {
        dp_html_add(html, "<p class=\"none\">there is no config.yaml</p>");
        return;
    }
    dp_html_add(html, "<details><summary>config.yaml, with every value that the run used</summary>"
                      "<pre tabindex=\"0\" aria-label=\"config.yaml\">");
    dp_html_lines(html, config);
    dp_html_add(html, "</pre></details>\n");
}
