#include "runtime/report/efficiency.h"

#include <math.h>

/* Parts of a step, mean of the ranks, in milliseconds. */
struct means {
    double compute, input, exposed;
};

static struct means means_of(const struct dp_run_summary *s)
{
    struct means m = {0.0, 0.0, 0.0};

    for (int i = 0; i < s->rank_count; i++) {
        const double *ms = s->ranks[i].step_ms;

        m.compute += (ms[DP_PART_COPY] + ms[DP_PART_FORWARD] + ms[DP_PART_BACKWARD] +
                      ms[DP_PART_OPTIMIZER]) /
                     s->rank_count;
        m.input += ms[DP_PART_INPUT] / s->rank_count;
        m.exposed += ms[DP_PART_EXPOSED] / s->rank_count;
    }
    return m;
}

/* The step grows by `ms`: by what the efficiency falls. */
static double factor(double *step_ms, double ms)
{
    const double before = *step_ms;

    *step_ms += ms;
    return before / *step_ms;
}

void dp_efficiency_split(struct dp_run_summary *s, double compute_ms, double waiting_ms)
{
    const struct means m = means_of(s);
    /* Rank 0, whose clock the rate of the run is by. */
    const double *first = s->rank_count > 0 ? s->ranks[0].step_ms : NULL;
    double whole_ms = 0.0, step_ms, waiting;

    s->efficiency_contention = s->efficiency_input = s->efficiency_exposed = s->efficiency_waiting =
        s->efficiency_other = (double)NAN;
    for (int i = 0; first != NULL && i < DP_STEP_PART_COUNT; i++) {
        whole_ms += first[i];
    }
    if (!(whole_ms > 0.0) || !(s->scaling_efficiency > 0.0)) {
        return;
    }
    waiting = isnan(waiting_ms) ? 0.0 : fmin(waiting_ms, m.exposed);
    step_ms = whole_ms * s->scaling_efficiency;
    if (s->rank_count == 1) { /* there is nothing to compare it with */
        s->efficiency_contention = s->efficiency_input = s->efficiency_exposed =
            s->efficiency_waiting = s->efficiency_other = 1.0;
        return;
    }
    if (!isnan(compute_ms)) {
        s->efficiency_contention = factor(&step_ms, m.compute - compute_ms);
    }
    s->efficiency_input = factor(&step_ms, m.input);
    s->efficiency_exposed = factor(&step_ms, m.exposed - waiting);
    if (!isnan(waiting_ms)) {
        s->efficiency_waiting = factor(&step_ms, waiting);
    }
    s->efficiency_other = step_ms / whole_ms;
}
