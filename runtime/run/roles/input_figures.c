#include "runtime/run/roles/input_figures.h"

#include <math.h>
#include <stdio.h>

static double mean_wait_ms(const struct dp_run_summary *s)
{
    double sum = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        sum += s->ranks[i].step_ms[DP_PART_INPUT];
    }
    return s->rank_count > 0 ? sum / s->rank_count : (double)NAN;
}

/* Of a whole batch, shared by the ranks that train and all of their threads. */
static double work_ms(const struct dp_training *run, const struct dp_run_summary *s)
{
    const double rows = (double)run->figures.input.rows,
                 work_ns = (double)run->figures.input.work_ns;
    const double cores = (double)s->world_size * run->job.threads;

    return rows > 0.0 ? work_ns / rows * (double)s->global_batch / cores / 1e6 : (double)NAN;
}

void dp_input_figures_summarize(const struct dp_training *run, struct dp_run_summary *s,
                                char text[DP_INPUT_VERDICT])
{
    s->input_ranks = run->job.world->roles.count[DP_ROLE_READ];
    s->input_wait_ms = s->input_work_ms = (double)NAN;
    if (s->input_ranks == 0) {
        return;
    }
    s->input_wait_ms = mean_wait_ms(s);
    s->input_work_ms = work_ms(run, s);
    if (isfinite(s->input_wait_ms) && isfinite(s->input_work_ms)) {
        (void)snprintf(text, DP_INPUT_VERDICT,
                       "training waits %.2g ms a step for batches; reading them itself would take "
                       "%.2g ms of its cores: they %s",
                       s->input_wait_ms, s->input_work_ms,
                       s->input_work_ms > s->input_wait_ms ? "save time" : "do not pay");
        s->input_verdict = text;
    }
}
