/* test_verdict_contention.c - ranks, or other programs, that take a core from each other. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/judged_run.h"

static void mutual_slowdown_is_contention(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 88, 12, 0);
    run.ranks[0].compute_efficiency = run.ranks[1].compute_efficiency = 0.8;
    assert_verdict(&run, "contention", 0.176, 1000.0 * 100 / (100 - 17.6));
    run.ranks[0].compute_efficiency = run.ranks[1].compute_efficiency = 0.95;
    assert_verdict(&run, "communication", 0.12, 1000.0 * 2 * 100 / (2 * 88 + 12));
    run.ranks[0].compute_efficiency = (double)NAN; /* not measured */
    assert_verdict(&run, "communication", 0.12, 1000.0 * 2 * 100 / (2 * 88 + 12));
}

/* Of the CPU of a rank: what it has itself, and what all programs have; its wait in a step. */
static void share_cpu(struct dp_run_rank *rank, double own, double busy, double queued_ms)
{
    rank->threads = 1;
    rank->compute_cores = own;
    rank->communication_cores = rank->input_cores = rank->writer_cores = rank->other_cores = 0.0;
    rank->busy_cores = busy;
    rank->queued_ms = queued_ms;
}

static void other_programs_on_a_ranks_core_are_contention(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 88, 12, 0);
    set_text(run.ranks[0].cpus, "0");
    set_text(run.ranks[1].cpus, "1");
    share_cpu(&run.ranks[0], 0.9, 0.95, 3.0);
    share_cpu(&run.ranks[1], 0.5, 1.0, 60.0); /* others had half of the step, it waited more */
    assert_verdict(&run, "contention", 0.5, 1000.0 * 100 / 50);
    assert_action(&run, "end other work on the CPUs of h (ddp_top and top show it)");
    assert_non_null(strstr(judged(&run).evidence, "0.5 of the 1 CPU of rank 1 on h"));
    assert_non_null(strstr(judged(&run).text, "show it), which would give 2,000 samples/s"));
    share_cpu(&run.ranks[1], 0.5, 1.0, 20.0); /* it was ready for less of the time */
    assert_verdict(&run, "contention", 0.2, 1000.0 * 100 / 80);
    share_cpu(&run.ranks[1], 0.5, (double)NAN, 60.0);
    assert_verdict(&run, "communication", 0.12, 1000.0 * 2 * 100 / (2 * 88 + 12));
    share_cpu(&run.ranks[1], 0.3, 2.4, 60.0); /* the kernel counted time from before the steps */
    assert_non_null(strstr(judged(&run).evidence, "0.7 of the 1 CPU of rank 1 on h"));
    /* Both ranks have the CPU: what the other one takes is nobody else's. */
    set_text(run.ranks[1].cpus, "0");
    share_cpu(&run.ranks[0], 0.5, 1.0, 60.0);
    share_cpu(&run.ranks[1], 0.5, 1.0, 60.0);
    assert_null(strstr(judged(&run).evidence, "other programs"));
}

/* A rank that comes last since others use its core is no straggler. */
static void a_rank_that_others_delay_is_no_straggler(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 50, 50, 0);
    set_text(run.ranks[0].cpus, "0");
    set_text(run.ranks[1].cpus, "1");
    run.ranks[1].step_ms[DP_PART_BACKWARD] += 50;
    run.ranks[1].step_ms[DP_PART_EXPOSED] = 0;
    assert_string_equal(judged(&run).bound, "straggler");
    share_cpu(&run.ranks[0], 0.5, 0.5, 0.0);
    share_cpu(&run.ranks[1], 0.52, 1.0, 50.0);
    assert_string_equal(judged(&run).bound, "contention");
}

static void ranks_on_one_core_are_told_to_leave_it(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 40, 50, 10);
    for (int i = 0; i < RANKS; i++) {
        run.ranks[i].threads = 1;
        set_text(run.ranks[i].cpus, "0");
    }
    assert_verdict(&run, "contention", 0.4, 1000.0 * 100 / 60);
    assert_action(&run, "a core for each rank (mpirun --bind-to core), or fewer ranks");
    run.summary.single_rank_samples_per_second = 1e3; /* 50 rows in 50 ms */
    run.summary.limit_sum = 5;
    assert_verdict(&run, "contention", 0.4, 1000.0 * 100 / 55);
    run.summary.baseline_fastest = 1.25e3; /* in 40 ms, when nothing else took turns with it */
    assert_verdict(&run, "contention", 0.4, 1000.0 * 100 / 45);
    run.summary.baseline_fastest = 0.1e3; /* no gain: nothing is promised */
    assert_verdict(&run, "contention", 0.4, 0);
    set_text(run.ranks[1].cpus, "1");
    assert_true(strcmp(judged(&run).action,
                       "a core for each rank (mpirun --bind-to core), or fewer ranks") != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutual_slowdown_is_contention),
        cmocka_unit_test(other_programs_on_a_ranks_core_are_contention),
        cmocka_unit_test(a_rank_that_others_delay_is_no_straggler),
        cmocka_unit_test(ranks_on_one_core_are_told_to_leave_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
