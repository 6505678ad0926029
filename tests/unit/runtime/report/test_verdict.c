/* test_verdict.c - the verdict names what takes the most time from computing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/report/verdict.h"

enum { RANKS = 2 };

/* Two ranks alike, of one step of `compute` + `exposed` + `input` ms. */
struct run {
    struct dp_run_rank ranks[RANKS];
    struct dp_run_summary summary;
};

static void fill(struct run *run, double compute, double exposed, double input)
{
    memset(run, 0, sizeof(*run));
    for (int i = 0; i < RANKS; i++) {
        struct dp_run_rank *rank = &run->ranks[i];
        rank->rank = i;
        rank->compute_efficiency = 1.0;
        rank->step_ms[DP_PART_FORWARD] = compute / 4;
        rank->step_ms[DP_PART_BACKWARD] = compute * 3 / 4;
        rank->step_ms[DP_PART_EXPOSED] = exposed;
        rank->step_ms[DP_PART_INPUT] = input;
    }
    run->summary.ranks = run->ranks;
    run->summary.rank_count = RANKS;
    run->summary.strategy = "ring";
}

static void assert_verdict(const struct run *run, const char *expected)
{
    char text[256] = "";

    assert_string_equal(dp_verdict(&run->summary, text, sizeof(text)), expected);
}

static void the_largest_loss_of_time_is_named(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 95, 5, 0);
    assert_verdict(&run, "compute-bound: 95.0 % of the step computes, 5.0 % waits for gradients");
    fill(&run, 70, 20, 10);
    assert_verdict(&run, "communication-bound: 20 % of the step waits for gradients (ring)");
    fill(&run, 70, 10, 20);
    assert_verdict(&run, "input-bound: 20 % of the step waits for data");
}

static void mutual_slowdown_is_contention(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 88, 12, 0);
    run.ranks[0].compute_efficiency = run.ranks[1].compute_efficiency = 0.8;
    assert_verdict(&run, "contention: ranks compute 25 % longer together than one does alone (they "
                         "share memory, caches or cores); 12 % of the step waits for gradients");
    run.ranks[0].compute_efficiency = run.ranks[1].compute_efficiency = 0.95;
    assert_verdict(&run, "communication-bound: 12 % of the step waits for gradients (ring)");
    run.ranks[0].compute_efficiency = (double)NAN; /* not measured */
    assert_verdict(&run, "communication-bound: 12 % of the step waits for gradients (ring)");
}

static void one_slow_rank_is_imbalance(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 60, 40, 0);
    run.ranks[1].step_ms[DP_PART_BACKWARD] += 40;
    run.ranks[1].step_ms[DP_PART_EXPOSED] -= 40;
    assert_verdict(&run, "imbalance: rank 1 computes 25 % longer than the mean; the others wait "
                         "for it (20 % of the step)");
}

static void without_steady_steps_there_is_no_verdict(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 0, 0, 0);
    assert_verdict(&run, "too few steps to know what bounds this run");
    run.summary.rank_count = 0;
    assert_verdict(&run, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_loss_of_time_is_named),
        cmocka_unit_test(mutual_slowdown_is_contention),
        cmocka_unit_test(one_slow_rank_is_imbalance),
        cmocka_unit_test(without_steady_steps_there_is_no_verdict),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
