/*
 * judged_run.h - for tests: the summary of a run of two ranks, and the verdict on it.
 *
 * Header only; after <cmocka.h> and what it wants.
 */
#ifndef DP_TESTS_SUPPORT_JUDGED_RUN_H
#define DP_TESTS_SUPPORT_JUDGED_RUN_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/report/summary_read.h"
#include "runtime/report/verdict.h"

#define assert_double_near(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * fabs(b))

enum { RANKS = 2 };

struct run {
    struct dp_run_rank ranks[RANKS];
    struct dp_run_summary summary;
};

static inline void set_text(char text[DP_REPORT_NAME_BYTES], const char *value)
{
    (void)snprintf(text, DP_REPORT_NAME_BYTES, "%s", value);
}

/* Two ranks alike, of one step of `compute` + `exposed` + `input` ms and 100 rows: nothing else is
 * known. */
static inline void fill(struct run *run, double compute, double exposed, double input)
{
    const double step_ms = compute + exposed + input;

    memset(run, 0, sizeof(*run));
    dp_run_summary_clear(&run->summary);
    for (int i = 0; i < RANKS; i++) {
        struct dp_run_rank *rank = &run->ranks[i];
        rank->rank = i;
        rank->input_workers = -1;
        set_text(rank->host, "h");
        rank->compute_efficiency = 1.0;
        rank->step_ms[DP_PART_FORWARD] = compute / 4;
        rank->step_ms[DP_PART_BACKWARD] = compute * 3 / 4;
        rank->step_ms[DP_PART_EXPOSED] = exposed;
        rank->step_ms[DP_PART_INPUT] = input;
    }
    run->summary.ranks = run->ranks;
    run->summary.rank_count = RANKS;
    run->summary.strategy = "ring";
    run->summary.global_batch = 100;
    run->summary.samples_per_second = step_ms > 0.0 ? 1000.0 * 100 / step_ms : (double)NAN;
}

static inline struct dp_verdict judged(const struct run *run)
{
    struct dp_verdict verdict;

    dp_verdict_find(&run->summary, &verdict);
    return verdict;
}

/* The bound, what is lost of the step, and the samples/s that the action would give. */
static inline void assert_verdict(const struct run *run, const char *bound, double share,
                                  double rate)
{
    const struct dp_verdict verdict = judged(run);

    assert_string_equal(verdict.bound, bound);
    assert_double_near(verdict.share, share);
    if (rate > 0.0) {
        assert_double_near(verdict.rate, rate);
    } else {
        assert_true(isnan(verdict.rate));
    }
    assert_non_null(strstr(verdict.text, verdict.evidence));
    assert_non_null(strstr(verdict.text, verdict.action));
    assert_true(strncmp(verdict.text, bound, strlen(bound)) == 0);
}

static inline void assert_action(const struct run *run, const char *action)
{
    assert_string_equal(judged(run).action, action);
}

#endif
