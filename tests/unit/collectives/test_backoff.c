/*
 * test_backoff.c - how long a wait spins, how long it sleeps, and what it learns of the wire.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/trace.h"
#include "collectives/core/backoff.h"

static const uint64_t us = 1000, ms = 1000000;

static uint64_t nap_after(uint64_t spin_ns, uint64_t expect_ns, uint64_t waited_ns)
{
    const struct dp_backoff p = {
        .spin_ns = spin_ns, .expect_ns = expect_ns, .waited_ns = waited_ns};

    return dp_backoff_sleep_ns(&p);
}

static void an_unpredicted_wait_sleeps_longer_and_longer(void **state)
{
    (void)state;
    assert_int_equal(nap_after(0, 0, 0), 20 * us);
    assert_int_equal(nap_after(0, 0, 35 * ms - 1), 20 * us);
    assert_int_equal(nap_after(0, 0, 35 * ms), 100 * us);
    assert_int_equal(nap_after(0, 0, 150 * ms - 1), 100 * us);
    assert_int_equal(nap_after(0, 0, 150 * ms), ms);
    assert_int_equal(nap_after(0, 0, 1024 * ms), 4 * ms);
    assert_int_equal(nap_after(0, 0, 60000 * ms), 20 * ms);
    assert_int_equal(nap_after(5 * ms, 0, 40 * ms - 1), 20 * us);
    assert_int_equal(nap_after(5 * ms, 0, 40 * ms), 100 * us);
    assert_int_equal(nap_after(5 * ms, 0, 155 * ms - 1), 100 * us);
    assert_int_equal(nap_after(5 * ms, 0, 155 * ms), ms);
}

static void a_predicted_wait_sleeps_for_half_of_the_rest(void **state)
{
    (void)state;
    assert_int_equal(nap_after(0, 8 * ms, 0), ms);
    assert_int_equal(nap_after(0, 8 * ms, 7 * ms), 500 * us);
    assert_int_equal(nap_after(0, 8 * ms, 8 * ms - us), 50 * us);
    assert_int_equal(nap_after(0, 8 * ms, 8 * ms + 4000 * us), 500 * us);
    assert_int_equal(nap_after(0, 8 * ms, 100 * ms), ms);
}

static uint64_t core_ns(void)
{
    struct timespec used;

    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    return (uint64_t)used.tv_sec * 1000000000U + (uint64_t)used.tv_nsec;
}

/* The cost of asking MPI, which is more than an iteration. */
static void look_for(uint64_t ns)
{
    const uint64_t begin = core_ns();

    while (core_ns() - begin < ns) {
    }
}

static void spinning_ends_by_the_clock_however_long_a_check_takes(void **state)
{
    struct dp_backoff p = {.spin_ns = DP_SPIN_NS};
    const uint64_t begin = core_ns();
    (void)state;

    while (p.waited_ns < 60 * ms) {
        look_for(2 * us);
        assert_true(dp_backoff_wait(&p));
    }
    /* 1 ms of spinning; then at most 3000 turns of 2 us and of going to sleep. */
    assert_in_range(core_ns() - begin, 0, 45 * ms);
}

static void a_wait_ends_when_it_is_cancelled(void **state)
{
    atomic_int cancel = 0;
    struct dp_backoff p = {.cancel = &cancel};
    (void)state;

    assert_true(dp_backoff_wait(&p));
    atomic_store(&cancel, 1);
    assert_false(dp_backoff_wait(&p));
}

static void a_wait_begins_with_its_first_iteration(void **state)
{
    const uint64_t before = dp_now_ns();
    struct dp_backoff p = {.spin_ns = DP_SPIN_NS};
    uint64_t begin_ns;
    (void)state;

    assert_true(dp_backoff_wait(&p));
    begin_ns = p.begin_ns;
    assert_true(begin_ns >= before && p.waited_ns == 0);
    assert_true(dp_backoff_wait(&p));
    assert_true(p.begin_ns == begin_ns);
}

static void the_pace_of_a_wire_is_measured_by_waits_for_long_messages(void **state)
{
    struct dp_wire_pace pace = {0};
    (void)state;

    assert_int_equal(dp_wire_pace_expect(&pace, 1 << 20), 0);
    dp_wire_pace_note(&pace, 1 << 20, 0);           /* was there already */
    dp_wire_pace_note(&pace, 1 << 10, dp_now_ns()); /* latency */
    assert_int_equal(dp_wire_pace_expect(&pace, 1 << 20), 0);

    dp_wire_pace_note(&pace, 1 << 20, dp_now_ns() - 8 * ms); /* others came just now: since then */
    assert_in_range(dp_wire_pace_expect(&pace, 1 << 20), 1, 7 * ms);
    pace = (struct dp_wire_pace){0};
    dp_wire_pace_note(&pace, 1 << 20, dp_now_ns() - 8 * ms);
    assert_in_range(dp_wire_pace_expect(&pace, 1 << 20), 8 * ms - us, 16 * ms);
    assert_in_range(dp_wire_pace_expect(&pace, 1 << 19), 4 * ms - us, 8 * ms);
    assert_int_equal(dp_wire_pace_expect(&pace, 1 << 10), 0);
}

static void from_64_kb_on_a_message_is_long(void **state)
{
    enum { LONG = 65536 };
    struct dp_wire_pace pace = {0};
    (void)state;

    dp_wire_pace_note(&pace, LONG - 1, dp_now_ns() - 8 * ms);
    assert_int_equal(dp_wire_pace_expect(&pace, LONG), 0);
    pace = (struct dp_wire_pace){0};
    dp_wire_pace_note(&pace, LONG, dp_now_ns() - 8 * ms);
    assert_true(dp_wire_pace_expect(&pace, LONG) >= 8 * ms - us);
    assert_int_equal(dp_wire_pace_expect(&pace, LONG - 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unpredicted_wait_sleeps_longer_and_longer),
        cmocka_unit_test(a_predicted_wait_sleeps_for_half_of_the_rest),
        cmocka_unit_test(spinning_ends_by_the_clock_however_long_a_check_takes),
        cmocka_unit_test(a_wait_ends_when_it_is_cancelled),
        cmocka_unit_test(a_wait_begins_with_its_first_iteration),
        cmocka_unit_test(the_pace_of_a_wire_is_measured_by_waits_for_long_messages),
        cmocka_unit_test(from_64_kb_on_a_message_is_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
