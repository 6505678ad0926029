/* test_bucket_table.c - late ranks are found by when they arrive at buckets, and what waiting for
 * them costs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/report/summary_read.h"
#include "runtime/timeline/bucket_table.h"

enum { MS = 1000000, STEPS = 8, MOST_RANKS = 256, MOST_BUCKETS = 1000 };

/* A run of so many ranks, whose times the test plants. */
struct planted {
    struct dp_rank_times ranks[MOST_RANKS];
    struct dp_bucket_sums sums[MOST_RANKS][MOST_BUCKETS];
    struct dp_bucket_time times[MOST_RANKS][STEPS * MOST_BUCKETS];
    struct dp_bucket buckets[MOST_BUCKETS];
    struct dp_bucket_plan plan;
    struct dp_all_times all;
    struct dp_run_summary summary;
    double waiting_ms;
};

static struct planted run;

typedef double lateness(int rank, int step, int b);

/* Bucket b is ready `late_ms` after (b + 1) ms; the rank waits for it from then on until 0.5 ms
 * after the last rank has it. */
static void plant_rank(int rank, int ranks, lateness *late_ms)
{
    const int buckets = run.plan.count;

    run.ranks[rank] =
        (struct dp_rank_times){STEPS, 0, buckets, STEPS, run.sums[rank], run.times[rank]};
    for (int i = 0; i < STEPS * buckets; i++) {
        const int step = i / buckets, b = i % buckets;
        const uint64_t begin_ns = (uint64_t)(step + 1) * 10000 * MS;
        struct dp_bucket_time *time = &run.times[rank][i];
        double last_ms = 0.0;

        for (int k = 0; k < ranks; k++) {
            last_ms = fmax(last_ms, late_ms(k, step, b));
        }
        time->ready_ns = begin_ns + (uint64_t)((b + 1 + late_ms(rank, step, b)) * MS);
        time->wait_ns = time->ready_ns;
        time->wait_ended_ns = begin_ns + (uint64_t)((b + 1 + last_ms + 0.5) * MS);
        run.sums[rank][b] = (struct dp_bucket_sums){.steps = STEPS,
                                                    .ready_ns = STEPS * 2ul * MS,
                                                    .sent_ns = STEPS * 3ul * MS,
                                                    .done_ns = STEPS * 5ul * MS,
                                                    .exposed_ns = STEPS * 1ul * MS,
                                                    .encode_ns = STEPS * (uint64_t)(rank * b) * MS,
                                                    .decode_ns = STEPS * (uint64_t)b * MS};
    }
}

static void plant(int ranks, int buckets, lateness *late_ms)
{
    run.plan = (struct dp_bucket_plan){.buckets = run.buckets, .count = buckets};
    run.all = (struct dp_all_times){run.ranks, ranks};
    for (int b = 0; b < buckets; b++) {
        run.buckets[b].range.count = 1000 * (size_t)(b + 1);
    }
    for (int rank = 0; rank < ranks; rank++) {
        plant_rank(rank, ranks, late_ms);
    }
    dp_run_summary_clear(&run.summary);
}

static void make_table(int ranks)
{
    assert_int_equal(dp_bucket_table(&run.all, ranks, &run.plan, &run.summary, &run.waiting_ms),
                     DP_OK);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static double rank_2_is_late(int rank, int step, int b)
{
    (void)step;
    (void)b;
    return rank == 2 ? 3.0 : 0.25 * rank;
}

static void a_late_rank_is_named_with_what_it_costs(void **state)
{
    (void)state;

    plant(4, 3, rank_2_is_late);
    make_table(4);
    assert_int_equal(run.summary.bucket_count, 3);
    for (int b = 0; b < 3; b++) {
        const struct dp_run_bucket *bucket = &run.summary.buckets[b];
        assert_int_equal(bucket->bytes, 4000 * (b + 1));
        assert_int_equal(bucket->first_rank, 0);
        assert_int_equal(bucket->last_rank, 2);
        assert_true(near(bucket->spread_ms, 3.0));
        assert_true(near(bucket->ready_ms, 2.0) && near(bucket->sent_ms, 3.0));
        assert_true(near(bucket->done_ms, 5.0) && near(bucket->exposed_ms, 1.0));
        assert_true(near(bucket->gbs, 4000.0 * (b + 1) / (2.0 * MS)));
        /* Encoding takes 0, 1, 2 and 3 ms in bucket 1; bucket 0 is not coded. */
        assert_true(b == 0 ? isnan(bucket->encode_ms) && isnan(bucket->decode_ms)
                           : near(bucket->encode_ms, 1.5 * b) && near(bucket->decode_ms, b));
    }
    assert_int_equal(run.summary.straggler_count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(run.summary.stragglers[i].rank, i);
        assert_true(run.summary.stragglers[i].last_at == (i == 2 ? 1.0 : 0.0));
        assert_true(near(run.summary.stragglers[i].late_ms, rank_2_is_late(i, 0, 0)));
    }
    /* Each step of 3 buckets: ranks 0, 1 and 3 wait 3, 2.75 and 2.25 ms, and all of them 0.5 more,
     * which is no waiting for others. */
    assert_true(near(run.waiting_ms, 3 * (3.0 + 2.75 + 2.25) / 4.0));
    dp_run_summary_release(&run.summary);
    assert_int_equal(dp_mem_live(), 0);
}

static void one_rank_sends_nothing(void **state)
{
    (void)state;

    plant(1, 2, rank_2_is_late);
    make_table(1);
    assert_int_equal(run.summary.bucket_count, 2);
    assert_true(isnan(run.summary.buckets[1].gbs));
    assert_true(near(run.summary.buckets[1].done_ms, 5.0));
    dp_run_summary_release(&run.summary);
}

static double ranks_take_turns(int rank, int step, int b)
{
    return rank == (step + b) % 4 ? 1.0 : 0.0;
}

static void ranks_that_take_turns_share_the_blame(void **state)
{
    (void)state;

    plant(4, 2, ranks_take_turns);
    make_table(4);
    for (int i = 0; i < 4; i++) {
        assert_true(near(run.summary.stragglers[i].last_at, 0.25));
        assert_true(near(run.summary.stragglers[i].late_ms, 0.25));
    }
    dp_run_summary_release(&run.summary);
}

static double nobody_is_late(int rank, int step, int b)
{
    (void)rank;
    (void)step;
    (void)b;
    return 0.0;
}

static void where_all_come_at_once_nobody_is_last(void **state)
{
    (void)state;

    plant(3, 2, nobody_is_late);
    make_table(3);
    for (int i = 0; i < 3; i++) {
        assert_true(run.summary.stragglers[i].last_at == 0.0);
    }
    assert_true(run.waiting_ms == 0.0 && run.summary.buckets[0].spread_ms == 0.0);
    dp_run_summary_release(&run.summary);
}

/* Servers share no gradients; a deferred bucket of the last step was never waited for; a wait at
 * the end of the step counts. */
static void what_is_missing_is_left_out(void **state)
{
    (void)state;

    plant(4, 2, rank_2_is_late);
    run.ranks[3].steps = 0;
    run.ranks[3].kept = 0;
    for (int i = 0; i < 3; i++) {
        run.times[i][(STEPS - 1) * 2 + 1].ready_ns = 0;
    }
    run.ranks[0].end_wait_ns = STEPS * 6ul * MS;
    make_table(3);
    assert_int_equal(run.summary.straggler_count, 3);
    assert_true(near(run.summary.buckets[1].spread_ms, 3.0));
    assert_true(run.summary.stragglers[2].last_at == 1.0);
    assert_true(near(run.waiting_ms, ((2 * STEPS - 1) * (3.0 + 2.75) / STEPS + 6.0) / 3.0));
    dp_run_summary_release(&run.summary);

    run.ranks[0].steps = run.ranks[1].steps = run.ranks[2].steps = 0; /* each at its own pace */
    dp_run_summary_clear(&run.summary);
    make_table(3);
    assert_true(isnan(run.waiting_ms));
    assert_int_equal(run.summary.bucket_count + run.summary.straggler_count, 0);
}

static double every_second_is_late(int rank, int step, int b)
{
    (void)step;
    (void)b;
    return rank % 2;
}

static void many_ranks_and_many_buckets_fit(void **state)
{
    (void)state;

    plant(MOST_RANKS, 4, every_second_is_late);
    make_table(MOST_RANKS);
    assert_int_equal(run.summary.straggler_count, MOST_RANKS);
    assert_true(near(run.summary.stragglers[MOST_RANKS - 1].late_ms, 1.0));
    dp_run_summary_release(&run.summary);
    plant(2, MOST_BUCKETS, every_second_is_late);
    make_table(2);
    assert_int_equal(run.summary.bucket_count, MOST_BUCKETS);
    assert_int_equal(run.summary.buckets[MOST_BUCKETS - 1].last_rank, 1);
    dp_run_summary_release(&run.summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_is_named_with_what_it_costs),
        cmocka_unit_test(one_rank_sends_nothing),
        cmocka_unit_test(ranks_that_take_turns_share_the_blame),
        cmocka_unit_test(where_all_come_at_once_nobody_is_last),
        cmocka_unit_test(what_is_missing_is_left_out),
        cmocka_unit_test(many_ranks_and_many_buckets_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
