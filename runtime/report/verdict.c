#include "runtime/report/verdict.h"

#include <math.h>
#include <stdio.h>

#include "runtime/report/ledger.h"

/* Mean over ranks of one part. */
static double mean_part(const struct dp_run_summary *s, enum dp_step_part part)
{
    double sum = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        sum += s->ranks[i].step_ms[part];
    }
    return sum / s->rank_count;
}

const char *dp_verdict(const struct dp_run_summary *s, char *text, size_t size)
{
    double means[DP_STEP_PART_COUNT], step = 0.0, compute, exposed, input, slowest = 0.0;
    int slow = 0;

    if (s->rank_count == 0) {
        return text;
    }
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        means[i] = mean_part(s, (enum dp_step_part)i);
        step += means[i];
    }
    if (step <= 0.0) {
        (void)snprintf(text, size, "too few steps to tell what bounds this run");
        return text;
    }
    for (int i = 0; i < s->rank_count; i++) {
        const double own = dp_compute_ms(s->ranks[i].step_ms);
        slow = own > slowest ? i : slow;
        slowest = own > slowest ? own : slowest;
    }
    compute = dp_compute_ms(means) / step;
    exposed = means[DP_PART_EXPOSED] / step;
    input = means[DP_PART_INPUT] / step;
    if (input > exposed && input > 0.1) {
        (void)snprintf(text, size, "input-bound: %.0f %% of the step waits for data", 100 * input);
    } else if (exposed > 0.1 && slowest > 1.1 * dp_compute_ms(means)) {
        (void)snprintf(text, size,
                       "imbalance: rank %d computes %.0f %% longer than the mean; the others wait "
                       "for it (%.0f %% of the step)",
                       s->ranks[slow].rank, 100 * (slowest / dp_compute_ms(means) - 1),
                       100 * exposed);
    } else if (exposed > 0.1) {
        (void)snprintf(text, size,
                       "communication-bound: %.0f %% of the step waits for gradients (%s)",
                       100 * exposed, s->strategy);
    } else {
        (void)snprintf(text, size,
                       "compute-bound: %.1f %% of the step computes, %.1f %% waits for gradients",
                       100 * compute, 100 * exposed);
    }
    return text;
}
