/* test_trace_ring.c - single events are kept while a trace is recorded, and only then. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "base/trace_ring.h"

enum { THREADS = 4, SPANS = 2000 };

static struct dp_trace_ring *recording(size_t capacity)
{
    struct dp_trace_ring *ring = NULL;

    assert_int_equal(dp_trace_ring_create(capacity, &ring), DP_OK);
    dp_trace_record(ring);
    return ring;
}

static void a_span(enum dp_phase phase, int64_t arg)
{
    DP_SPAN(phase, arg);
}

static void spans_jobs_arrows_and_counters_are_kept_in_their_order(void **state)
{
    struct dp_trace_ring *ring;
    struct dp_trace_event *events;
    size_t count;
    uint64_t lost, before_ns;
    (void)state;

    dp_trace_set_lane(DP_LANE_COMPUTE, 0);
    a_span(DP_PHASE_FORWARD, 1); /* before */
    ring = recording(16);
    before_ns = dp_now_ns();
    a_span(DP_PHASE_WAIT, 7);
    dp_trace_add_arrow(5, 1000);
    dp_trace_add_job(DP_TRACE_BUCKET, 3, 5, 1100, 1200);
    dp_trace_add_count(DP_COUNT_SAMPLES, 2.5, 1300);
    dp_trace_record(NULL);
    a_span(DP_PHASE_FORWARD, 2); /* after */
    events = dp_trace_ring_events(ring, &count, &lost);
    assert_int_equal(count, 4);
    assert_int_equal(lost, 0);
    assert_int_equal(events[0].kind, DP_TRACE_SPAN);
    assert_int_equal(events[0].what, DP_PHASE_WAIT);
    assert_int_equal(events[0].arg, 7);
    assert_int_equal(events[0].lane, DP_LANE_COMPUTE);
    assert_in_range(events[0].begin_ns, before_ns, events[0].end_ns);
    assert_int_equal(events[1].kind, DP_TRACE_ARROW);
    assert_int_equal(events[1].begin_ns, 1000);
    assert_int_equal(events[1].number, 5);
    assert_int_equal(events[2].kind, DP_TRACE_JOB);
    assert_int_equal(events[2].lane, DP_LANE_COMMUNICATION);
    assert_int_equal(events[2].arg, 3);
    assert_int_equal(events[2].end_ns - events[2].begin_ns, 100);
    assert_int_equal(events[3].kind, DP_TRACE_COUNTER);
    assert_true(events[3].value == 2.5);
    dp_trace_ring_destroy(ring);
    assert_int_equal(dp_mem_live(), 0);
}

static void what_does_not_fit_is_counted(void **state)
{
    struct dp_trace_ring *ring = recording(3);
    size_t count;
    uint64_t lost;
    (void)state;

    dp_trace_set_lane(DP_LANE_COMPUTE, 0);
    for (int i = 0; i < 10; i++) {
        a_span(DP_PHASE_WAIT, i);
    }
    dp_trace_record(NULL);
    assert_int_equal(dp_trace_ring_events(ring, &count, &lost)[2].arg, 2);
    assert_int_equal(count, 3);
    assert_int_equal(lost, 7);
    dp_trace_ring_destroy(ring);
}

static void *without_a_lane(void *unused)
{
    (void)unused;
    a_span(DP_PHASE_LOAD, 1);
    return NULL;
}

static void a_thread_without_a_lane_records_nothing(void **state)
{
    struct dp_trace_ring *ring = recording(8);
    pthread_t thread;
    size_t count;
    uint64_t lost;
    (void)state;

    assert_int_equal(pthread_create(&thread, NULL, without_a_lane, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    dp_trace_record(NULL);
    (void)dp_trace_ring_events(ring, &count, &lost);
    assert_int_equal(count, 0);
    dp_trace_ring_destroy(ring);
}

static void *many_spans(void *index)
{
    dp_trace_set_lane(DP_LANE_INPUT, *(const int *)index);
    for (int i = 0; i < SPANS; i++) {
        a_span(DP_PHASE_LOAD, i);
    }
    return NULL;
}

static void threads_record_beside_each_other(void **state)
{
    struct dp_trace_ring *ring = recording((size_t)THREADS * SPANS);
    int indices[THREADS], next[THREADS] = {0};
    pthread_t threads[THREADS];
    struct dp_trace_event *events;
    size_t count;
    uint64_t lost;
    (void)state;

    for (int i = 0; i < THREADS; i++) {
        indices[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, many_spans, &indices[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    dp_trace_record(NULL);
    events = dp_trace_ring_events(ring, &count, &lost);
    assert_int_equal(count, THREADS * SPANS);
    assert_int_equal(lost, 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(events[i].kind, DP_TRACE_SPAN);
        assert_in_range(events[i].index, 0, THREADS - 1);
        assert_int_equal(events[i].arg, next[events[i].index]++);
    }
    dp_trace_ring_destroy(ring);
}

static void failed_allocations_leave_nothing(void **state)
{
    struct dp_trace_ring *ring;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth <= 2; nth++) {
        dp_mem_fail_nth(nth);
        assert_int_equal(dp_trace_ring_create(8, &ring), DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_jobs_arrows_and_counters_are_kept_in_their_order),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(a_thread_without_a_lane_records_nothing),
        cmocka_unit_test(threads_record_beside_each_other),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
