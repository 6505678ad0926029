/* test_bucket_times.c - times of buckets are added up, and those of spaced steps are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/exchange/bucket_times.h"

enum { STEP_NS = 1000000 };

static struct dp_bucket_times *created(int count)
{
    struct dp_bucket_times *times = NULL;

    assert_int_equal(dp_bucket_times_create(count, &times), DP_OK);
    return times;
}

static void submit(struct dp_bucket_times *times, int b)
{
    dp_bucket_times_submitted(times, b);
}

/* The bucket of the step that began at `begin_ns` is ready 10 ns after that and after each bucket
 * before it, sent 1 ns later, done 5 ns later; the step waits from 3 to 6 ns after it was ready. */
static void take_sum(struct dp_bucket_times *times, int b, uint64_t begin_ns)
{
    const uint64_t ready_ns = begin_ns + 10 * (uint64_t)(b + 1);
    const struct dp_bucket_time time = {ready_ns, ready_ns + 3, ready_ns + 6};

    dp_bucket_times_summed(times, b, &time, ready_ns + 1, ready_ns + 5);
}

static uint64_t begin_of(int step)
{
    return (uint64_t)(step + 1) * STEP_NS;
}

static void do_step(struct dp_bucket_times *times, int step)
{
    dp_bucket_times_begin(times, begin_of(step));
    for (int b = 0; b < times->count; b++) {
        submit(times, b);
    }
    for (int b = 0; b < times->count; b++) {
        take_sum(times, b, begin_of(step));
    }
}

static void sums_count_from_the_begin_of_the_step(void **state)
{
    struct dp_bucket_times *times = created(3);
    (void)state;

    for (int step = 0; step < 7; step++) {
        do_step(times, step);
    }
    dp_bucket_times_exposed(times, 1, 100);
    dp_bucket_times_coded(times, 2, 30, 20);
    dp_bucket_times_coded(times, 2, 3, 2);
    for (int b = 0; b < 3; b++) {
        const struct dp_bucket_sums *sums = &times->sums[b];
        const uint64_t ready_ns = 10 * (uint64_t)(b + 1);

        assert_int_equal(sums->steps, 7);
        assert_int_equal(sums->ready_ns, 7 * ready_ns);
        assert_int_equal(sums->sent_ns, 7 * (ready_ns + 1));
        assert_int_equal(sums->done_ns, 7 * (ready_ns + 5));
        assert_int_equal(sums->exposed_ns, 7 * 3 + (b == 1 ? 100 : 0));
        assert_int_equal(sums->encode_ns, b == 2 ? 33 : 0);
        assert_int_equal(sums->decode_ns, b == 2 ? 22 : 0);
    }
    assert_int_equal(times->steps, 7);
    dp_bucket_times_destroy(times);
    assert_int_equal(dp_mem_live(), 0);
}

static void kept_steps_are_evenly_spaced(void **state)
{
    static const int counts[] = {1, 4, 700, DP_BUCKET_TIMES_KEPT, 3000};
    (void)state;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const int steps = 7000 / counts[i] + 9;
        struct dp_bucket_times *times = created(counts[i]);

        for (int step = 0; step < steps; step++) {
            do_step(times, step);
        }
        assert_in_range(times->kept, 2, times->most);
        assert_true(times->kept * (int64_t)times->every >= steps);
        assert_true((times->kept - 1) * (int64_t)times->every < steps);
        for (int row = 0; row < times->kept; row++) {
            const int step = row * (int)times->every;
            for (int b = 0; b < counts[i]; b++) {
                assert_int_equal(times->times[(size_t)row * (size_t)counts[i] + (size_t)b].ready_ns,
                                 begin_of(step) + 10 * (uint64_t)(b + 1));
            }
        }
        dp_bucket_times_destroy(times);
    }
}

/* A deferred bucket is waited for in the step after its own, when rows may have moved. */
static void a_deferred_bucket_belongs_to_the_step_that_submitted_it(void **state)
{
    struct dp_bucket_times *times = created(2);
    const int steps = 3 * times->most;
    (void)state;

    for (int step = 0; step < steps; step++) {
        dp_bucket_times_begin(times, begin_of(step));
        if (step > 0) {
            take_sum(times, 1, begin_of(step - 1));
        }
        submit(times, 0);
        take_sum(times, 0, begin_of(step));
        submit(times, 1);
    }
    assert_int_equal(times->sums[0].steps, steps);
    assert_int_equal(times->sums[1].steps, steps - 1);
    assert_int_equal(times->sums[1].ready_ns, 20 * (uint64_t)(steps - 1));
    for (int row = 0; row < times->kept; row++) {
        const int step = row * (int)times->every;
        assert_int_equal(times->times[(size_t)row * 2].ready_ns, begin_of(step) + 10);
        assert_int_equal(times->times[(size_t)row * 2 + 1].ready_ns,
                         step == steps - 1 ? 0 : begin_of(step) + 20);
    }
    dp_bucket_times_destroy(times);
}

static void a_restart_forgets_also_what_is_in_flight(void **state)
{
    struct dp_bucket_times *times = created(2);
    (void)state;

    do_step(times, 0);
    dp_bucket_times_begin(times, begin_of(1));
    submit(times, 0);
    submit(times, 1);
    take_sum(times, 0, begin_of(1));
    times->end_wait_ns = 5;
    dp_bucket_times_restart(times);
    take_sum(times, 1, begin_of(1));
    dp_bucket_times_exposed(times, 1, 100);
    dp_bucket_times_coded(times, 1, 30, 20);
    assert_int_equal(times->sums[0].steps + times->sums[1].steps + times->sums[1].exposed_ns, 0);
    assert_int_equal(times->sums[1].encode_ns + times->sums[1].decode_ns, 0);
    assert_int_equal(times->steps + times->end_wait_ns + (uint64_t)times->kept, 0);
    do_step(times, 2);
    assert_int_equal(times->sums[1].ready_ns, 20);
    assert_int_equal(times->times[1].ready_ns, begin_of(2) + 20);
    dp_bucket_times_destroy(times);
}

/* Whatever an earlier step left there: with no sum yet nothing has happened. */
static void a_row_begins_as_zeros(void **state)
{
    static const struct dp_bucket_time none;
    struct dp_bucket_times *times = created(2);
    (void)state;

    for (int step = 0; step < 5; step++) {
        do_step(times, step);
    }
    dp_bucket_times_restart(times);
    for (int step = 0; step < 5; step++) {
        const struct dp_bucket_time *row = times->times + 2 * (size_t)step;
        dp_bucket_times_begin(times, begin_of(step));
        assert_int_equal(times->kept, step + 1);
        assert_memory_equal(&row[0], &none, sizeof(none));
        assert_memory_equal(&row[1], &none, sizeof(none));
        submit(times, 1);
        take_sum(times, 1, begin_of(step));
        assert_int_equal(row[1].ready_ns, begin_of(step) + 20);
    }
    assert_int_equal(times->times[1].ready_ns, begin_of(0) + 20);
    dp_bucket_times_destroy(times);
}

static void failed_allocations_leave_nothing(void **state)
{
    struct dp_bucket_times *times;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth <= 4; nth++) {
        dp_mem_fail_nth(nth);
        assert_int_equal(dp_bucket_times_create(3, &times), DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_count_from_the_begin_of_the_step),
        cmocka_unit_test(kept_steps_are_evenly_spaced),
        cmocka_unit_test(a_deferred_bucket_belongs_to_the_step_that_submitted_it),
        cmocka_unit_test(a_restart_forgets_also_what_is_in_flight),
        cmocka_unit_test(a_row_begins_as_zeros),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
