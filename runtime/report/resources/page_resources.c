#include "runtime/report/resources/page_resources.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/page/chart.h"
#include "runtime/report/resources/memory_use.h"

/* ---- memory ---- */

static void take_memory(const struct dp_run_rank *rank, int64_t bytes[DP_MEMORY_USE_COUNT])
{
#define X(name, key) bytes[DP_MEMORY_##name] = rank->memory_##key;
    DP_MEMORY_USES(X)
#undef X
}

static int64_t memory_of(const struct dp_run_rank *rank)
{
    int64_t bytes[DP_MEMORY_USE_COUNT], sum = 0;

    take_memory(rank, bytes);
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        sum += bytes[i] > 0 ? bytes[i] : 0;
    }
    return sum;
}

static void add_legend(struct dp_html *h)
{
    dp_html_add(h, "<ul class=\"legend\" aria-label=\"purposes of memory\">");
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        dp_html_print(h, "<li><i class=\"m-%s\"></i>%s</li>", dp_memory_use_key(i),
                      dp_memory_use_key(i));
    }
    dp_html_add(h, "</ul>");
}

/* `largest`: the bytes that fill the width. */
static void add_bar(struct dp_html *h, const struct dp_run_rank *rank, int64_t largest)
{
    int64_t bytes[DP_MEMORY_USE_COUNT];
    char text[DP_FIGURE_BYTES];

    take_memory(rank, bytes);
    dp_html_print(h, "<li><span class=\"who\">%" PRId64 " <span class=\"soft\">", rank->rank);
    dp_html_text(h, rank->host);
    dp_html_add(h, "</span></span><span class=\"bar\" aria-hidden=\"true\">");
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        if (bytes[i] > 0) {
            dp_html_print(h, "<i class=\"m-%s\" style=\"width:%.2f%%\" title=\"%s %s\"></i>",
                          dp_memory_use_key(i), 100.0 * (double)bytes[i] / (double)largest,
                          dp_memory_use_key(i), dp_figure_bytes(text, bytes[i]));
        }
    }
    dp_html_print(h, "</span><span class=\"sum\">%s</span></li>\n",
                  dp_figure_bytes(text, memory_of(rank)));
}

static void add_memory_row(struct dp_html *h, const struct dp_run_rank *rank)
{
    int64_t bytes[DP_MEMORY_USE_COUNT];
    char text[DP_FIGURE_BYTES];

    take_memory(rank, bytes);
    dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th>", rank->rank);
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_BYTES, bytes[i]));
    }
    dp_html_print(h, "<td>%s</td>",
                  dp_figure_count(text, DP_REPORT_BYTES, rank->memory_unexplained));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_BYTES, rank->memory_predicted));
    dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_BYTES, rank->peak_rss_bytes));
    dp_html_print(h, "<td>%s</td></tr>\n",
                  dp_figure_count(text, DP_REPORT_COUNT, rank->memory_peak_step));
}

static void add_memory_table(struct dp_html *h, const struct dp_run_summary *s)
{
    dp_html_add(h, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table of "
                   "memory\"><table><caption>Memory at the end of the run, by purpose; at its peak "
                   "what was resident</caption><thead><tr><th scope=\"col\">rank</th>");
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        dp_html_print(h, "<th scope=\"col\">%s</th>", dp_memory_use_key(i));
    }
    dp_html_add(h, "<th scope=\"col\">unexplained</th><th scope=\"col\">predicted</th>"
                   "<th scope=\"col\">peak</th><th scope=\"col\">at step</th></tr></thead>"
                   "<tbody>\n");
    for (int i = 0; i < s->rank_count; i++) {
        add_memory_row(h, &s->ranks[i]);
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

static void add_memory(struct dp_html *h, const struct dp_run_summary *s)
{
    int64_t largest = 0;

    for (int i = 0; i < s->rank_count; i++) {
        const int64_t bytes = memory_of(&s->ranks[i]);
        largest = bytes > largest ? bytes : largest;
    }
    if (largest == 0) {
        return;
    }
    dp_html_add(h, "<h3>Memory by purpose</h3>\n");
    if (s->memory_growing != NULL) {
        dp_html_add(h, "<p class=\"worse\"><strong>Memory grows while training, which is a leak: ");
        dp_html_text(h, s->memory_growing);
        dp_html_add(h, "</strong></p>\n");
    }
    add_legend(h);
    dp_html_add(h,
                "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"memory of each "
                "rank, as bars; the table below has the figures\"><ul class=\"bars\">\n");
    for (int i = 0; i < s->rank_count; i++) {
        add_bar(h, &s->ranks[i], largest);
    }
    dp_html_add(h, "</ul></div>\n");
    add_memory_table(h, s);
}

/* ---- processors, network, disks ---- */

/* Columns of numbers: the first is a share of the rank's cores, others have so many decimals. */
static const struct {
    const char *heading;
    size_t offset;
    int decimals;
} columns[] = {
    {"cpu", offsetof(struct dp_run_rank, cpu_use), -1},
    {"compute", offsetof(struct dp_run_rank, compute_cores), 2},
    {"communication", offsetof(struct dp_run_rank, communication_cores), 2},
    {"input", offsetof(struct dp_run_rank, input_cores), 2},
    {"writer", offsetof(struct dp_run_rank, writer_cores), 2},
    {"queued", offsetof(struct dp_run_rank, queued), 2},
    {"switches", offsetof(struct dp_run_rank, waits), 1},
    {"preempted", offsetof(struct dp_run_rank, preempted), 1},
    {"page faults", offsetof(struct dp_run_rank, minor_faults), 1},
    {"from disk", offsetof(struct dp_run_rank, major_faults), 2},
    {"network MB/s", offsetof(struct dp_run_rank, net_mb_s), 2},
    {"disk MB/s", offsetof(struct dp_run_rank, disk_mb_s), 2},
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static void add_use_row(struct dp_html *h, const struct dp_run_rank *rank)
{
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th>", rank->rank);
    for (int i = 0; i < COLUMNS; i++) {
        double value;
        memcpy(&value, (const char *)rank + columns[i].offset, sizeof(value));
        dp_html_print(h, "<td>%s</td>",
                      columns[i].decimals < 0
                          ? dp_figure_number(text, DP_REPORT_FRACTION, value)
                          : dp_figure_fixed(text, value, columns[i].decimals, ""));
    }
    dp_html_add(h, "</tr>\n");
}

static void add_use(struct dp_html *h, const struct dp_run_summary *s)
{
    if (!isfinite(s->cpu_use)) {
        return;
    }
    dp_html_add(h, "<h3>Use of processors</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                   "aria-label=\"table of utilisation\"><table><caption>In the steady steps: share "
                   "of the rank's cores; cores that each kind of thread kept busy, and threads "
                   "that were ready without one; switches and page faults a step</caption><thead>"
                   "<tr><th scope=\"col\">rank</th>");
    for (int i = 0; i < COLUMNS; i++) {
        dp_html_print(h, "<th scope=\"col\">%s</th>", columns[i].heading);
    }
    dp_html_add(h, "</tr></thead><tbody>\n");
    for (int i = 0; i < s->rank_count; i++) {
        add_use_row(h, &s->ranks[i]);
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

/* ---- GPUs ---- */

static void add_gpu_row(struct dp_html *h, const struct dp_run_rank *rank)
{
    char text[DP_FIGURE_BYTES];

    dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th><td>%s</td>", rank->rank,
                  dp_figure_number(text, DP_REPORT_FRACTION, rank->gpu_use));
    dp_html_print(h, "<td>%s</td>", dp_figure_fixed(text, rank->gpu_mhz, 0, " MHz"));
    dp_html_print(h, "<td>%s", dp_figure_number(text, DP_REPORT_FRACTION, rank->gpu_throttled));
    if (rank->gpu_throttle[0] != '\0') {
        dp_html_add(h, ": ");
        dp_html_text(h, rank->gpu_throttle);
    }
    dp_html_print(h, "</td><td>%s</td>", dp_figure_fixed(text, rank->gpu_watts, 0, " W"));
    dp_html_print(h, "<td>%s</td>", dp_figure_unit(text, rank->gpu_joules, "J"));
    dp_html_print(h, "<td>%s</td></tr>\n",
                  dp_figure_count(text, DP_REPORT_BYTES, rank->gpu_memory));
}

static void add_gpus(struct dp_html *h, const struct dp_run_summary *s)
{
    char text[DP_FIGURE_BYTES];

    if (!isfinite(s->gpu_use)) {
        return;
    }
    dp_html_print(h,
                  "<h3>Use of GPUs</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                  "aria-label=\"table of GPUs\"><table><caption>In the steady steps, as the driver "
                  "says: time in which a kernel ran, the mean clock and how often something "
                  "lowered it, power, energy, and the most memory that all processes had on it. "
                  "Energy a sample, with that of processors where it can be read: %s J</caption>",
                  dp_figure_short(text, s->joules_per_sample));
    dp_html_add(h, "<thead><tr><th scope=\"col\">rank</th><th scope=\"col\">busy</th>"
                   "<th scope=\"col\">clock</th><th scope=\"col\">lowered</th>"
                   "<th scope=\"col\">power</th><th scope=\"col\">energy</th>"
                   "<th scope=\"col\">memory</th></tr></thead><tbody>\n");
    for (int i = 0; i < s->rank_count; i++) {
        add_gpu_row(h, &s->ranks[i]);
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

/* ---- copies ---- */

static void add_copies(struct dp_html *h, const struct dp_run_summary *s)
{
    dp_html_add(h,
                "<h3>Bytes copied in a step</h3><div class=\"scroll\" tabindex=\"0\" "
                "role=\"region\" aria-label=\"table of copies\"><table><caption>Samples that the "
                "input puts together, what is sent to other ranks (of shared memory what is read "
                "from them), between host and GPU, and into snapshots of checkpoints"
                "</caption><thead><tr><th scope=\"col\">rank</th><th scope=\"col\">input</th>"
                "<th scope=\"col\">sent</th><th scope=\"col\">to the GPU</th>"
                "<th scope=\"col\">from the GPU</th><th scope=\"col\">snapshots</th></tr>"
                "</thead><tbody>\n");
    for (int i = 0; i < s->rank_count; i++) {
        const struct dp_run_rank *rank = &s->ranks[i];
        const int64_t bytes[] = {rank->copied_input, rank->copied_sent, rank->copied_to_device,
                                 rank->copied_from_device, rank->copied_snapshot};
        char text[DP_FIGURE_BYTES];

        dp_html_print(h, "<tr><th scope=\"row\">%" PRId64 "</th>", rank->rank);
        for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
            dp_html_print(h, "<td>%s</td>", dp_figure_count(text, DP_REPORT_BYTES, bytes[k]));
        }
        dp_html_add(h, "</tr>\n");
    }
    dp_html_add(h, "</tbody></table></div>\n");
}

/* ---- stability ---- */

static void add_chart(struct dp_html *h, const struct dp_run_summary *s, double *seconds)
{
    const int count = s->window_rates.count;
    char cv[DP_FIGURE_BYTES], drift[DP_FIGURE_BYTES], summary[3 * DP_FIGURE_BYTES] = "";
    struct dp_chart chart = {.id = "chart-windows",
                             .title = "Samples/s over the steady seconds",
                             .unit = "",
                             .at = "second",
                             .summary = "samples/s of each window",
                             .from_zero = true,
                             .series = {{"samples/s", seconds, s->window_rates.at, count, false}},
                             .series_count = 1};

    for (int i = 0; i < count; i++) {
        seconds[i] = s->window_s * (i + 1);
    }
    if (isfinite(s->rate_drift)) {
        (void)snprintf(
            summary, sizeof(summary),
            ": varies by %s from window to window, and changes by %s from the beginning to the "
            "end",
            dp_figure_number(cv, DP_REPORT_FRACTION, s->rate_cv),
            dp_figure_number(drift, DP_REPORT_FRACTION, s->rate_drift));
    }
    dp_html_print(h,
                  "<h3>Stability</h3><p>Samples/s of %d windows%s.</p>\n<div class=\"charts one\">",
                  count, summary);
    dp_chart_add(h, &chart);
    dp_html_add(h, "</div>\n");
}

static void add_stability(struct dp_html *h, const struct dp_run_summary *s)
{
    double *seconds = s->window_rates.count > 1 && isfinite(s->window_s)
                          ? dp_zalloc((size_t)s->window_rates.count, sizeof(*seconds))
                          : NULL;

    if (seconds != NULL) {
        add_chart(h, s, seconds);
    }
    dp_free(seconds);
}

void dp_page_resources(struct dp_html *html, const struct dp_run_summary *summary)
{
    if (summary->rank_count == 0) {
        dp_html_add(html, "<p class=\"none\">known when the run has ended</p>");
        return;
    }
    add_stability(html, summary);
    add_memory(html, summary);
    add_use(html, summary);
    add_gpus(html, summary);
    add_copies(html, summary);
}
