/* test_trace.c - exclusive times: the phases of a thread sum to its wall time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/trace.h"

#define MS 1000000ul

static void spin_ms(uint64_t ms)
{
    const uint64_t end_ns = dp_now_ns() + ms * MS;

    while (dp_now_ns() < end_ns) {
        /* the clock goes on */
    }
}

static uint64_t sum(const uint64_t totals[DP_PHASE_COUNT])
{
    uint64_t all = 0;

    for (int i = 0; i < DP_PHASE_COUNT; i++) {
        all += totals[i];
    }
    return all;
}

static void nested_spans_share_the_time_without_overlap(void **state)
{
    uint64_t before[DP_PHASE_COUNT], after[DP_PHASE_COUNT];
    struct dp_span step, forward, wait;
    uint64_t least_ns, most_ns;
    (void)state;

    dp_trace_totals(before);
    dp_span_open(&step, DP_PHASE_STEP, 1);
    spin_ms(2);
    dp_span_open(&forward, DP_PHASE_FORWARD, 0);
    spin_ms(4);
    dp_span_open(&wait, DP_PHASE_WAIT, 7);
    spin_ms(6);
    assert_int_equal(dp_trace_open_spans(), 3);
    dp_span_close(&wait);
    dp_span_close(&forward);
    least_ns = dp_now_ns() - step.begin_ns;
    dp_span_close(&step);
    most_ns = dp_now_ns() - step.begin_ns;
    dp_trace_totals(after);

    assert_int_equal(dp_trace_open_spans(), 0);
    assert_true(after[DP_PHASE_STEP] - before[DP_PHASE_STEP] >= 2 * MS);
    assert_true(after[DP_PHASE_FORWARD] - before[DP_PHASE_FORWARD] >= 4 * MS);
    assert_true(after[DP_PHASE_WAIT] - before[DP_PHASE_WAIT] >= 6 * MS);
    assert_true(sum(after) - sum(before) >= least_ns);
    assert_true(sum(after) - sum(before) <= most_ns);
}

static void open_spans_count_up_to_now(void **state)
{
    uint64_t before[DP_PHASE_COUNT], inside[DP_PHASE_COUNT], after[DP_PHASE_COUNT];
    struct dp_span step, input;
    (void)state;

    dp_trace_totals(before);
    dp_span_open(&step, DP_PHASE_STEP, 0);
    spin_ms(2);
    dp_span_open(&input, DP_PHASE_INPUT, 0);
    spin_ms(3);
    dp_trace_totals(inside);
    dp_span_close(&input);
    dp_span_close(&step);
    dp_trace_totals(after);

    assert_true(inside[DP_PHASE_STEP] - before[DP_PHASE_STEP] >= 2 * MS);
    assert_true(inside[DP_PHASE_INPUT] - before[DP_PHASE_INPUT] >= 3 * MS);
    for (int i = 0; i < DP_PHASE_COUNT; i++) {
        assert_true(after[i] >= inside[i]);
    }
    assert_int_equal(inside[DP_PHASE_REDUCE], before[DP_PHASE_REDUCE]);
}

static int leave_early(int leave)
{
    DP_SPAN(DP_PHASE_BACKWARD, 5);

    if (leave) {
        return dp_trace_open_spans();
    }
    return -1;
}

static void a_span_closes_on_every_exit_of_its_block(void **state)
{
    (void)state;

    assert_int_equal(leave_early(1), 1);
    assert_int_equal(dp_trace_open_spans(), 0);
    assert_int_equal(leave_early(0), -1);
    assert_int_equal(dp_trace_open_spans(), 0);
}

static void *reduce_for_a_while(void *totals)
{
    DP_SPAN(DP_PHASE_REDUCE, 0);

    spin_ms(2);
    dp_trace_totals(totals);
    return NULL;
}

static void threads_keep_their_own_times(void **state)
{
    uint64_t before[DP_PHASE_COUNT], theirs[DP_PHASE_COUNT], after[DP_PHASE_COUNT];
    pthread_t thread;
    (void)state;

    dp_trace_totals(before);
    assert_int_equal(pthread_create(&thread, NULL, reduce_for_a_while, theirs), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    dp_trace_totals(after);
    assert_true(theirs[DP_PHASE_REDUCE] >= 2 * MS);
    assert_int_equal(theirs[DP_PHASE_STEP], 0);
    assert_int_equal(after[DP_PHASE_REDUCE], before[DP_PHASE_REDUCE]);
}

static void *beat(void *arg)
{
    (void)arg;
    dp_trace_beat();
    return NULL;
}

static int noted;

static void note_beat(void)
{
    noted++;
}

static int expects_within(double seconds, const struct dp_trace_mark *mark, bool again)
{
    DP_EXPECT(seconds);

    return again ? expects_within(seconds / 2, mark, false) : atomic_load(&mark->expects_ms);
}

static void any_thread_beats_for_its_process_which_says_what_to_expect(void **state)
{
    struct dp_trace_mark mark = {.open = 0}, other = {.open = 0};
    pthread_t thread;
    (void)state;

    dp_trace_beat(); /* nobody watches */
    assert_int_equal(expects_within(1.0, &mark, false), 0);
    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    dp_trace_publish(DP_TRACE_LIVE, &other);
    assert_int_equal(pthread_create(&thread, NULL, beat, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    dp_trace_beat();
    assert_int_equal(atomic_load(&mark.beats), 2);
    assert_int_equal(atomic_load(&other.beats), 0);
    assert_int_equal(atomic_load(&mark.changes), 0);
    assert_int_equal(expects_within(0.0, &mark, false), 1); /* 0 would be nothing */
    assert_int_equal(expects_within(1e12, &mark, false), 1000000000);
    {
        DP_EXPECT(3.0);
        assert_int_equal(expects_within(1.0, &mark, true), 500);
        assert_int_equal(atomic_load(&mark.expects_ms), 3000);
    }
    assert_int_equal(atomic_load(&mark.expects_ms), 0);
    dp_trace_at_beats(note_beat);
    dp_trace_beat();
    assert_int_equal(noted, 1); /* though nothing is expected */
    dp_trace_at_beats(NULL);
    dp_trace_beat();
    assert_int_equal(noted, 1);
    assert_int_equal(atomic_load(&mark.beats), 4);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    dp_trace_publish(DP_TRACE_LIVE, NULL);
    dp_trace_beat();
    assert_int_equal(atomic_load(&mark.beats), 4);
}

static int awaits_within(const struct dp_trace_mark *mark)
{
    DP_AWAIT_RANKS();

    return atomic_load(&mark->notes[DP_NOTE_AWAITS_RANKS]);
}

static void *await_elsewhere(void *mark)
{
    return awaits_within(mark) == 0 ? mark : NULL;
}

static void a_thread_that_waits_for_ranks_says_so_without_progress(void **state)
{
    struct dp_trace_mark mark = {.open = 0};
    pthread_t thread;
    void *unseen;
    (void)state;

    assert_int_equal(awaits_within(&mark), 0); /* nobody watches */
    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    assert_int_equal(awaits_within(&mark), 1);
    {
        DP_AWAIT_RANKS();
        assert_int_equal(awaits_within(&mark), 2);
        assert_int_equal(atomic_load(&mark.notes[DP_NOTE_AWAITS_RANKS]), 1);
    }
    assert_int_equal(pthread_create(&thread, NULL, await_elsewhere, &mark), 0);
    assert_int_equal(pthread_join(thread, &unseen), 0);
    assert_ptr_equal(unseen, &mark);
    assert_int_equal(atomic_load(&mark.notes[DP_NOTE_AWAITS_RANKS]), 0);
    assert_int_equal(atomic_load(&mark.changes), 0);
    assert_int_equal(atomic_load(&mark.beats), 0);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
}

static void what_a_thread_says_of_a_block_is_marked_while_it_lasts(void **state)
{
    struct dp_trace_mark mark = {.open = 0};
    (void)state;

    for (int i = 0; i < 2; i++) { /* at first nobody watches */
        DP_AWAIT_ONE();
        DP_WORK_BESIDE();
        assert_int_equal(atomic_load(&mark.notes[DP_NOTE_AWAITS_ONE]), i);
        assert_int_equal(atomic_load(&mark.notes[DP_NOTE_BESIDE]), i);
        dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    }
    assert_int_equal(atomic_load(&mark.notes[DP_NOTE_AWAITS_ONE]), 0);
    assert_int_equal(atomic_load(&mark.notes[DP_NOTE_BESIDE]), 0);
    assert_int_equal(atomic_load(&mark.notes[DP_NOTE_AWAITS_RANKS]), 0);
    assert_int_equal(atomic_load(&mark.changes), 0);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
}

static void every_phase_has_a_text_of_its_own(void **state)
{
    (void)state;

    for (int i = 0; i < DP_PHASE_COUNT; i++) {
        assert_string_not_equal(dp_phase_text((enum dp_phase)i), "unknown");
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(dp_phase_text((enum dp_phase)i),
                                    dp_phase_text((enum dp_phase)k));
        }
    }
    assert_string_equal(dp_phase_text(DP_PHASE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_spans_share_the_time_without_overlap),
        cmocka_unit_test(open_spans_count_up_to_now),
        cmocka_unit_test(a_span_closes_on_every_exit_of_its_block),
        cmocka_unit_test(threads_keep_their_own_times),
        cmocka_unit_test(a_thread_that_waits_for_ranks_says_so_without_progress),
        cmocka_unit_test(any_thread_beats_for_its_process_which_says_what_to_expect),
        cmocka_unit_test(what_a_thread_says_of_a_block_is_marked_while_it_lasts),
        cmocka_unit_test(every_phase_has_a_text_of_its_own),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
