/* test_verdict.c - the verdict names what takes the most time from computing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/judged_run.h"

static void the_largest_loss_of_time_is_named(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 95, 5, 0);
    assert_verdict(&run, "compute", 0.95, 0);
    assert_string_equal(judged(&run).text,
                        "compute-bound: 95.0 % of the step computes, 5.0 % waits for gradients");
    fill(&run, 70, 20, 10);
    assert_verdict(&run, "communication", 0.2, 1000.0 * 2 * 100 / (2 * 80 + 20));
    fill(&run, 70, 10, 20);
    assert_verdict(&run, "input", 0.2, 1000.0 * 100 / 80);
}

static void more_threads_prepare_batches_where_there_are_cores(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 60, 0, 40);
    run.summary.limit_input = 1e3; /* all of the step: 100 ms for a batch of 100 */
    for (int i = 0; i < RANKS; i++) {
        run.ranks[i].input_workers = 1;
        set_text(run.ranks[i].input_stage, "decode");
        set_text(run.ranks[i].cpus, i == 0 ? "0-3" : "4,6-8");
        run.ranks[i].threads = 2;
    }
    assert_verdict(&run, "input", 0.4, 1000.0 * 100 / 60);
    assert_action(&run, "--set data.workers=2");
    assert_string_equal(judged(&run).evidence,
                        "40 % of the step waits for data, mostly to decode it");
    run.summary.limit_input = 600; /* even two threads are the slowest part */
    assert_verdict(&run, "input", 0.4, 1000.0 * 100 / (100 / 0.6 / 2));
    run.summary.limit_input = 400; /* 125 ms, which is no gain */
    assert_verdict(&run, "input", 0.4, 0);
    run.summary.limit_input = 1e3; /* on two cores: (100 + 2 x 60) / 2 ms, which is none either */
    set_text(run.ranks[0].cpus, "0,1");
    assert_verdict(&run, "input", 0.4, 0);
    run.summary.limit_input = 2e3; /* (50 + 2 x 60) / 2 ms */
    assert_verdict(&run, "input", 0.4, 1000.0 * 100 / 85);
    run.summary.limit_input = 1e3;
    for (int i = 0; i < RANKS; i++) { /* of the 100 ms of a batch 30 waited for a core */
        run.ranks[i].input_cores = 0.7;
        run.ranks[i].compute_cores = 0.8;
        run.ranks[i].queued = 0.3;
    }
    assert_verdict(&run, "input", 0.4, 1000.0 * 100 / 75);
    run.ranks[0].compute_cores = run.ranks[1].compute_cores = 0.2;
    assert_verdict(&run, "input", 0.4, 1000.0 * 100 / 60);
    run.summary.limit_input = 500; /* 200 ms, of which 170 waited for a disk, or ran */
    assert_verdict(&run, "input", 0.4, 1000.0 * 100 / 85);
}

static void one_slow_rank_is_a_straggler(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 60, 40, 0);
    run.ranks[1].step_ms[DP_PART_BACKWARD] += 40;
    run.ranks[1].step_ms[DP_PART_EXPOSED] -= 40;
    assert_verdict(&run, "straggler", 0.4, 1000.0 * 100 / 60);
    assert_non_null(strstr(judged(&run).evidence, "rank 1 on h comes last, by its backward"));
    /* By arrival at buckets: of 80 ms before, 5 are added by sending, and 15 by waiting. */
    struct dp_run_straggler stragglers[RANKS] = {{.rank = 0, .last_at = 0.5},
                                                 {.rank = 1, .last_at = 0.5}};
    fill(&run, 80, 20, 0);
    run.summary.stragglers = stragglers;
    run.summary.straggler_count = RANKS;
    assert_verdict(&run, "communication", 0.2, 1000.0 * 2 * 100 / (2 * 80 + 20));
    run.summary.efficiency_exposed = 80.0 / 85;
    run.summary.efficiency_waiting = 0.85;
    assert_verdict(&run, "straggler", 0.15, 1000.0 * 100 / 85);
    assert_non_null(strstr(judged(&run).evidence, "ranks come late in turns"));
    stragglers[1].last_at = 0.9;
    assert_verdict(&run, "straggler", 0.2, 1000.0 * 100 / 80);
    assert_non_null(strstr(judged(&run).evidence, "rank 1 on h comes last"));
    fill(&run, 20, 80, 0); /* nobody can save more than it waits */
    run.summary.stragglers = stragglers;
    run.summary.straggler_count = RANKS;
    run.summary.efficiency_exposed = 20.0 / 21;
    run.summary.efficiency_waiting = 0.21;
    assert_verdict(&run, "straggler", 0.8, 1000.0 * 100 / 20);
    /* Ranks that mostly waited are as fast without that as one rank alone, and the sum. */
    run.summary.single_rank_samples_per_second = 50e3 / 14; /* 50 rows in 14 ms */
    run.summary.limit_sum = 2;
    assert_verdict(&run, "straggler", 0.8, 1000.0 * 100 / 16);
    run.summary.single_rank_samples_per_second = 50e3 / 19; /* no faster than what is left */
    assert_verdict(&run, "straggler", 0.8, 1000.0 * 100 / 20);
}

/* As much as the run varied, and one rank alone where the prediction rests on that. */
static void a_prediction_says_how_far_it_may_be_off(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 20, 80, 0);
    run.ranks[1].step_ms[DP_PART_BACKWARD] += 80;
    run.ranks[1].step_ms[DP_PART_EXPOSED] -= 80;
    assert_true(isnan(judged(&run).error)); /* not known */
    run.summary.rate_cv = 0.03;
    run.summary.baseline_spread = 0.08;
    assert_double_near(judged(&run).error, 0.03);
    assert_non_null(strstr(judged(&run).text, "would give 5,000 samples/s (+400 %)"));
    run.summary.single_rank_samples_per_second = 50e3 / 14; /* 50 rows in 14 ms */
    assert_double_near(judged(&run).error, 0.05);
    run.summary.rate_cv = 0.04;
    run.summary.baseline_spread = 0.06;
    assert_double_near(judged(&run).error, 0.05);
    run.summary.baseline_spread = 0.2;
    assert_non_null(
        strstr(judged(&run).text, "would give 7,143 samples/s (+614 %, give or take 11 %)"));
    run.summary.rate_cv = 1.1; /* nothing that one could use: a figure for those who want it */
    assert_double_near(judged(&run).error, hypot(1.1, 0.1));
    assert_null(strstr(judged(&run).text, "would give"));
    fill(&run, 95, 5, 0); /* nothing is predicted */
    run.summary.rate_cv = 0.2;
    assert_true(isnan(judged(&run).error));
}

static void communication_gets_the_action_that_fits(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 50, 40, 10);
    run.ranks[0].hidden_comm_ms = run.ranks[1].hidden_comm_ms = 20;
    run.summary.wire_bytes_per_step = 6000000;
    assert_verdict(&run, "communication", 0.4, 1000.0 * 2 * 100 / (2 * 60 + 20));
    assert_string_equal(judged(&run).evidence,
                        "40 % of the step waits for gradients (ring): 6.00 MB "
                        "in 60.0 ms of jobs, 100 MB/s");
    set_text(run.ranks[1].host, "other"); /* half the bytes take half of 60 ms */
    assert_verdict(&run, "communication", 0.4, 1000.0 * 100 / 70);
    assert_action(&run, "--set comm.compressor=fp16");
    run.summary.limit_sum = 50; /* many small buckets */
    run.summary.limit_whole = 20;
    assert_verdict(&run, "communication", 0.4, 1000.0 * 100 / (100 - 60 + 20 + 10));
    assert_action(&run, "--set comm.bucket_mb=25 --set comm.first_bucket_mb=1");
    struct dp_run_bucket buckets[10] = {{.bytes = 1000}};
    run.summary.buckets = buckets; /* of 10 jobs one is left, and 1 of 10 ms besides sums */
    run.summary.bucket_count = 10;
    assert_verdict(&run, "communication", 0.4, 1000.0 * 100 / (100 - 60 + 20 + 1));
    run.summary.limit_sum = 65; /* measured as slower than it was: then jobs are sums alone */
    assert_verdict(&run, "communication", 0.4, 1000.0 * 100 / (100 - 40));
    run.summary.limit_whole = 50; /* less than sums before, but not than what jobs took */
    assert_action(&run, "--set comm.compressor=fp16");
    run.summary.bucket_count = 0;
    run.summary.compressor = "onebit"; /* without it the sums take 30 ms */
    run.summary.limit_sum = 30;
    assert_verdict(&run, "communication", 0.4, 1000.0 * 100 / 70);
    assert_action(&run, "--set comm.compressor=none");
    /* Codes also slow computing down: 50 ms of it, of which one rank alone needs 40. */
    run.ranks[0].compute_efficiency = 0.7;
    run.ranks[1].compute_efficiency = 0.8;
    assert_verdict(&run, "communication", 0.4, 1000.0 * 100 / 60);
    assert_action(&run, "--set comm.compressor=none");
}

static void moving_state_is_memory(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 60, 0, 0);
    run.ranks[0].step_ms[DP_PART_OPTIMIZER] = run.ranks[1].step_ms[DP_PART_OPTIMIZER] = 40;
    run.summary.samples_per_second = 1000;
    assert_verdict(&run, "memory", 0.4, 1000.0 * 100 / 80);
    assert_action(&run, "--set comm.strategy=zero1");
    run.summary.strategy = "zero1:over=shm";
    assert_verdict(&run, "memory", 0.4, 1000.0 * 4 * 100 / (4 * 60 + 40));
    assert_action(&run, "--set train.global_batch=400");
    /* Rank 0 writes a checkpoint after each step, and rank 1 waits for it. */
    fill(&run, 50, 0, 0);
    run.ranks[0].step_ms[DP_PART_CHECKPOINT] = 50;
    run.ranks[1].step_ms[DP_PART_EXPOSED] = 50;
    run.summary.samples_per_second = 1000;
    assert_verdict(&run, "memory", 0.5, 1000.0 * 100 / 50);
    assert_action(&run, "--set checkpoint.every_steps=500");
    /* Most of the step: the writer has disturbed the rest of it, too. */
    fill(&run, 40, 0, 0);
    run.ranks[0].step_ms[DP_PART_CHECKPOINT] = 60;
    run.ranks[1].step_ms[DP_PART_EXPOSED] = 60;
    run.ranks[0].compute_efficiency = 0.7;
    run.ranks[1].compute_efficiency = 0.8;
    run.summary.samples_per_second = 1000;
    run.summary.single_rank_samples_per_second = 50e3 / 20;
    run.summary.limit_sum = 5;
    assert_verdict(&run, "memory", 0.6, 1000.0 * 100 / (20 / 0.8 + 5));
}

static void waiting_for_pages_from_a_disk_is_memory(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 100, 0, 0);
    run.ranks[1].paging_ms = 60;
    run.ranks[1].major_faults = 123;
    assert_verdict(&run, "memory", 0.6, 1000.0 * 100 / 40);
    /* Layers that were measured one by one had their pages. */
    struct dp_run_layer layers[] = {{.forward_ms = 5, .backward_ms = 10}, {.forward_ms = 10}};
    struct dp_run_part part = {.name = "optimizer", .limit_ms = 7};
    run.summary.layers = layers;
    run.summary.layer_count = 2;
    run.summary.parts = &part;
    run.summary.part_count = 1;
    assert_verdict(&run, "memory", 0.6, 1000.0 * 100 / 32);
    part.limit_ms = 70;
    assert_verdict(&run, "memory", 0.6, 1000.0 * 100 / 40);
    assert_string_equal(judged(&run).evidence,
                        "rank 1 on h waits for pages that had left its memory 60 % of the step: "
                        "123 a step came from a disk");
    /* The others wait for it, and both compute longer than one rank alone: that has one cause. */
    fill(&run, 100, 0, 0);
    run.ranks[1].paging_ms = 60;
    run.ranks[0].step_ms[DP_PART_FORWARD] = 0;
    run.ranks[0].step_ms[DP_PART_BACKWARD] = 50;
    run.ranks[0].step_ms[DP_PART_EXPOSED] = 50;
    run.ranks[0].compute_efficiency = 0.9;
    run.ranks[1].compute_efficiency = 0.4;
    assert_verdict(&run, "memory", 0.6, 1000.0 * 100 / 40);
    run.ranks[1].paging_ms = 5; /* too little to be the cause */
    assert_string_equal(judged(&run).bound, "straggler");
}

static void calls_that_cost_more_than_they_compute_are_launch(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 90, 0, 0);
    run.ranks[0].step_ms[DP_PART_OTHER] = run.ranks[1].step_ms[DP_PART_OTHER] = 10;
    run.summary.samples_per_second = 1000;
    run.summary.limit_larger = 2; /* four times the rows take twice the time */
    assert_verdict(&run, "launch", 0.45 + 0.1, 1000.0 * 4 * 100 / 190);
    assert_action(&run, "--set train.global_batch=400");
    run.summary.limit_larger = 4;
    run.ranks[0].step_ms[DP_PART_OTHER] = 9;
    assert_string_equal(judged(&run).bound, "compute");
}

static void computing_names_the_layer_that_takes_most(void **state)
{
    struct dp_run_layer layers[] = {{.name = "0", .kind = "conv2d", .share = 0.3},
                                    {.name = "3", .kind = "dense", .share = 0.7}};
    struct run run;
    (void)state;

    fill(&run, 100, 0, 0);
    run.summary.layers = layers;
    run.summary.layer_count = 2;
    run.summary.mfu = 0.5;
    assert_non_null(strstr(judged(&run).evidence,
                           "50 % of the measured peak, most of the time in layer 3 (dense)"));
}

static void without_steady_steps_there_is_no_verdict(void **state)
{
    struct run run;
    (void)state;

    fill(&run, 0, 0, 0);
    assert_string_equal(judged(&run).text, "too few steps to know what bounds this run");
    assert_null(judged(&run).bound);
    run.summary.rank_count = 0;
    assert_string_equal(judged(&run).text, "");
}

static void explain(const struct run *run, bool printed, char *text, size_t size)
{
    FILE *file = fmemopen(text, size, "w");

    assert_non_null(file);
    dp_verdict_explain(&run->summary, printed, file);
    assert_int_equal(fclose(file), 0);
}

/* Every term of the calculation is printed, and the verdict, unless it was. */
static void an_explanation_has_the_terms_and_the_verdict(void **state)
{
    static const char *const parts[] = {"a steady step of 100.000 ms", "70.000 ms  70.0 %  forward",
                                        "communication      20.000 ms  20.0 %", "2 x 80.000 ms of",
                                        "verdict: communication-bound"};
    char text[4096] = "";
    struct run run;
    (void)state;

    fill(&run, 70, 20, 10);
    const struct dp_verdict verdict = judged(&run);
    run.summary.verdict = verdict.text;
    explain(&run, true, text, sizeof(text));
    assert_non_null(strstr(text, parts[0]));
    assert_null(strstr(text, "verdict:"));
    run.summary.verdict = "another, by older rules";
    explain(&run, true, text, sizeof(text));
    assert_non_null(strstr(text, "verdict: communication-bound"));
    run.summary.rate_cv = 0.5;
    explain(&run, true, text, sizeof(text));
    assert_non_null(strstr(text, "samples/s, give or take 50"));
    run.summary.rate_cv = 1.1;
    explain(&run, true, text, sizeof(text));
    assert_null(strstr(text, "samples/s, give"));
    assert_non_null(strstr(text, "no prediction of samples/s: it may be off by 110"));
    explain(&run, false, text, sizeof(text));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("'%s' is not in:\n%s", parts[i], text);
        }
    }
}

static void a_part_that_a_file_lacks_is_nothing(void **state)
{
    char text[4096] = "";
    struct run run;
    (void)state;

    fill(&run, 70, 20, 10);
    run.ranks[0].step_ms[DP_PART_CHECKPOINT] = (double)NAN;
    run.ranks[1].step_ms[DP_PART_INPUT] = (double)NAN;
    run.ranks[1].hidden_comm_ms = (double)NAN;
    assert_verdict(&run, "communication", 0.2, 1000.0 * 2 * 100 / (2 * 80 + 20));
    explain(&run, false, text, sizeof(text));
    assert_non_null(strstr(text, "5.000 ms   5.0 %  waiting for batches"));
    assert_null(strstr(text, "nan"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_loss_of_time_is_named),
        cmocka_unit_test(more_threads_prepare_batches_where_there_are_cores),
        cmocka_unit_test(one_slow_rank_is_a_straggler),
        cmocka_unit_test(a_prediction_says_how_far_it_may_be_off),
        cmocka_unit_test(communication_gets_the_action_that_fits),
        cmocka_unit_test(moving_state_is_memory),
        cmocka_unit_test(waiting_for_pages_from_a_disk_is_memory),
        cmocka_unit_test(calls_that_cost_more_than_they_compute_are_launch),
        cmocka_unit_test(computing_names_the_layer_that_takes_most),
        cmocka_unit_test(without_steady_steps_there_is_no_verdict),
        cmocka_unit_test(an_explanation_has_the_terms_and_the_verdict),
        cmocka_unit_test(a_part_that_a_file_lacks_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
