#include "runtime/report/parts_table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text_width.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/page/page_step.h"

enum { HOST_WIDTH = 8, HOST_BYTES = 64 };

/* A row of parts and their sum, or their headings where step_ms is NULL. */
static void print_parts(const double *step_ms, FILE *out)
{
    char text[DP_FIGURE_BYTES];

    (void)fprintf(out, " %6s",
                  step_ms == NULL ? "step" : dp_figure_ms(text, dp_step_total_ms(step_ms)));
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        (void)fprintf(out, " %*s", (int)fmax(6.0, (double)strlen(dp_step_part_heading(i))),
                      step_ms == NULL ? dp_step_part_heading(i) : dp_figure_ms(text, step_ms[i]));
    }
    (void)fprintf(out, "\n");
}

static void print_rank(const struct dp_run_rank *rank, FILE *out)
{
    char host[HOST_BYTES];

    dp_text_host_cell(rank->host, HOST_WIDTH, host, sizeof(host));
    (void)fprintf(out, "%4" PRId64 " %s", rank->rank, host);
    print_parts(rank->step_ms, out);
}

void dp_parts_print(const struct dp_run_summary *s, FILE *out)
{
    const int shown = s->rank_count <= DP_RANKS_SHOWN ? s->rank_count : DP_RANKS_SHOWN;
    double means[DP_STEP_PART_COUNT];

    if (!dp_step_known(s)) {
        return;
    }
    (void)fprintf(out, "\nparts of a mean steady step, in ms\n%4s %-*s", "rank", HOST_WIDTH,
                  "host");
    print_parts(NULL, out);
    for (int i = 0; i < shown; i++) {
        print_rank(&s->ranks[i], out);
    }
    if (shown < s->rank_count) {
        (void)fprintf(out, "     ... and %d more ranks: see the page\n", s->rank_count - shown);
    }
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        means[i] = dp_step_mean_ms(s, i);
    }
    if (s->rank_count > 1) {
        (void)fprintf(out, "%4s %-*s", "mean", HOST_WIDTH, "");
        print_parts(means, out);
    }
}
