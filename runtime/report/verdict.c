#include "runtime/report/verdict.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/report/ledger.h"

/* Fractions of the mean step of all ranks. */
struct shares {
    double compute, exposed, input;
    double contention;    /* the part of compute that a rank alone would not need */
    double slower;        /* how much longer computing takes than alone: 0.25 is 25 % */
    double slowest_extra; /* how much longer the slowest rank computes than the mean */
    int slowest;          /* its index */
};

/* False: no steady step was measured. */
static bool share_out(const struct dp_run_summary *s, struct shares *out)
{
    double means[DP_STEP_PART_COUNT] = {0}, alone_ms = 0.0, step_ms = 0.0, most_ms = 0.0;
    struct shares shares = {0};

    for (int i = 0; i < s->rank_count; i++) {
        const struct dp_run_rank *rank = &s->ranks[i];
        const double own_ms = dp_compute_ms(rank->step_ms);
        for (int p = 0; p < DP_STEP_PART_COUNT; p++) {
            means[p] += rank->step_ms[p] / s->rank_count;
            step_ms += rank->step_ms[p] / s->rank_count;
        }
        alone_ms += own_ms * rank->compute_efficiency / s->rank_count;
        if (own_ms > most_ms) {
            most_ms = own_ms;
            shares.slowest = i;
        }
    }
    if (!(step_ms > 0.0) || !(dp_compute_ms(means) > 0.0)) {
        return false;
    }
    shares.compute = dp_compute_ms(means) / step_ms;
    shares.exposed = means[DP_PART_EXPOSED] / step_ms;
    shares.input = means[DP_PART_INPUT] / step_ms;
    shares.slowest_extra = most_ms / dp_compute_ms(means) - 1.0;
    if (alone_ms > 0.0) { /* not where it is unknown: NaN */
        shares.contention = (dp_compute_ms(means) - alone_ms) / step_ms;
        shares.slower = dp_compute_ms(means) / alone_ms - 1.0;
    }
    *out = shares;
    return true;
}

const char *dp_verdict(const struct dp_run_summary *s, char *text, size_t size)
{
    const double least = 0.1; /* of the step: a smaller share bounds nothing */
    struct shares a;

    if (s->rank_count == 0) {
        return text;
    }
    if (!share_out(s, &a)) {
        (void)snprintf(text, size, "too few steps to know what bounds this run");
    } else if (a.input > least && a.input > fmax(a.exposed, a.contention)) {
        (void)snprintf(text, size, "input-bound: %.0f %% of the step waits for data",
                       100 * a.input);
    } else if (a.contention > least && a.contention > a.exposed) {
        (void)snprintf(text, size,
                       "contention: ranks compute %.0f %% longer together than one does alone "
                       "(they share memory, caches or cores); %.0f %% of the step waits for "
                       "gradients",
                       100 * a.slower, 100 * a.exposed);
    } else if (a.exposed > least && a.slowest_extra > least) {
        (void)snprintf(text, size,
                       "imbalance: rank %d computes %.0f %% longer than the mean; the others wait "
                       "for it (%.0f %% of the step)",
                       (int)s->ranks[a.slowest].rank, 100 * a.slowest_extra, 100 * a.exposed);
    } else if (a.exposed > least) {
        (void)snprintf(text, size,
                       "communication-bound: %.0f %% of the step waits for gradients (%s)",
                       100 * a.exposed, s->strategy);
    } else {
        (void)snprintf(text, size,
                       "compute-bound: %.1f %% of the step computes, %.1f %% waits for gradients",
                       100 * a.compute, 100 * a.exposed);
    }
    return text;
}
