/* test_clock.c - hosts with different clocks, here threads with one each: times by that of rank 0.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/core/clock.h"
#include "tests/support/local_world.h"

enum { MS = 1000000 };
static const uint64_t DAY_NS = 86400ul * 1000 * MS;

/* The clock of a host: so far ahead of the real one since it was at `from_ns`, and faster by
 * `drift`. A thread has that of its host. */
struct host_clock {
    int64_t ahead_ns;
    double drift;
};

static _Thread_local struct host_clock mine;
static uint64_t from_ns;

static uint64_t now(void)
{
    const uint64_t real_ns = dp_now_ns();

    return real_ns + (uint64_t)mine.ahead_ns +
           (uint64_t)(int64_t)(mine.drift * (double)(real_ns - from_ns));
}

static void spin_ms(uint64_t ms)
{
    const uint64_t end_ns = dp_now_ns() + ms * MS;

    while (dp_now_ns() < end_ns) {
        /* the clock goes on */
    }
}

/* Whether this rank's time, now, is that of rank 0 to within what the marks say. */
static size_t agrees(const struct dp_clock *clock, double error_ns)
{
    const uint64_t before_ns = dp_now_ns(), shared_ns = dp_clock_shared(clock, now());
    const uint64_t after_ns = dp_now_ns();

    return (double)shared_ns + error_ns < (double)before_ns ||
           (double)shared_ns > (double)after_ns + error_ns;
}

static size_t marks_twice(struct dp_group *group, const void *clocks)
{
    struct dp_clock clock = {0};
    size_t wrong = 0;
    double error_ns;

    mine = ((const struct host_clock *)clocks)[group->node_of[group->rank]];
    wrong += dp_clock_shared(&clock, 12345) != 12345;
    group->spin_ns = 12345;
    wrong += dp_clock_mark(&clock, group, now) != DP_OK;
    wrong += group->spin_ns != 12345; /* whoever waits later waits as before */
    wrong += clock.marks != 1 || agrees(&clock, (double)clock.error_ns[0] + 0.1 * MS);
    spin_ms(20);
    wrong += dp_clock_mark(&clock, group, now) != DP_OK;
    /* In between, and as long after the last mark as between the two. */
    error_ns = 2.0 * (double)(clock.error_ns[0] + clock.error_ns[1]) + 1e3;
    wrong += clock.marks != 2 || agrees(&clock, error_ns);
    spin_ms(20);
    wrong += agrees(&clock, 2.0 * error_ns);
    /* A third mark replaces the second one. */
    wrong += dp_clock_mark(&clock, group, now) != DP_OK;
    wrong += clock.marks != 2 || agrees(&clock, error_ns + 2.0 * (double)clock.error_ns[1]);
    if (group->node_of[group->rank] == 0) {
        wrong += clock.ahead_ns[0] != 0 || clock.ahead_ns[1] != 0 || clock.error_ns[1] != 0;
    } else { /* far more than any error */
        wrong += fabs((double)(clock.ahead_ns[1] - mine.ahead_ns)) > 50.0 * MS;
    }
    return wrong;
}

static void other_hosts_get_the_time_of_rank_0(void **state)
{
    static const int node_of[] = {0, 0, 1, 1, 2};
    const struct host_clock clocks[] = {
        {0, 0.0}, {(int64_t)(30 * DAY_NS), 1e-4}, {-(int64_t)500 * MS, -1e-4}};
    (void)state;

    from_ns = dp_now_ns();
    assert_int_equal(on_local_nodes(5, node_of, marks_twice, clocks), 0);
    assert_int_equal(dp_mem_live(), 0);
}

/* A clock that is a day ahead, and gains 0.1 %: marked at 0 and at 1000 s of rank 0. */
static void drift_is_taken_out_between_two_marks_and_after_them(void **state)
{
    const uint64_t second_ns = 1000ul * MS;
    const struct dp_clock clock = {
        .marks = 2,
        .at_ns = {DAY_NS, DAY_NS + 1001 * second_ns},
        .ahead_ns = {(int64_t)DAY_NS, (int64_t)(DAY_NS + second_ns)},
    };
    (void)state;

    for (uint64_t s = 0; s <= 2000; s += 250) {
        const uint64_t own_ns = DAY_NS + s * second_ns + s * second_ns / 1000;
        assert_in_range(dp_clock_shared(&clock, own_ns) + 2, s * second_ns, s * second_ns + 4);
    }
}

static void ranks_of_one_host_have_one_clock(void **state)
{
    const struct host_clock clocks[] = {{0, 0.0}};
    (void)state;

    assert_int_equal(on_local_ranks(3, marks_twice, clocks), 0);
}

static size_t says_nothing(struct dp_group *group, const void *unused)
{
    const uint64_t sent = group->wire_bytes;
    struct dp_clock clock = {0};
    (void)unused;

    return (dp_clock_mark(&clock, group, dp_now_ns) != DP_OK) + (group->wire_bytes != sent) +
           (clock.marks != 1) + (dp_clock_shared(&clock, 77) != 77);
}

/* Clocks that go on only when somebody looks at them. Rank 0's round trip k begins at k seconds and
 * takes TAKEN ms, but one that takes less; the other host's clock is AHEAD ms ahead, and has the
 * question in the middle of that one only. */
enum { SHORTEST = 5, TAKEN = 10, LEAST = 4, AHEAD = 70 };

static _Thread_local uint64_t looks;

static uint64_t asks_at(void)
{
    const uint64_t turn = looks / 2, taken = turn == SHORTEST ? LEAST : TAKEN;

    return (1000 * (turn + 1) + (looks++ % 2 == 0 ? 0 : taken)) * MS;
}

static uint64_t is_asked_at(void)
{
    const uint64_t turn = looks++, late = turn == SHORTEST ? LEAST / 2 : TAKEN - 1;

    return (1000 * (turn + 1) + late + AHEAD) * MS;
}

static size_t compares(struct dp_group *group, const void *unused)
{
    struct dp_clock clock = {0};
    size_t wrong;
    (void)unused;

    looks = 0;
    wrong = dp_clock_mark(&clock, group, group->rank == 0 ? asks_at : is_asked_at) != DP_OK;
    if (group->rank == 1) {
        wrong += clock.error_ns[0] != (uint64_t)LEAST / 2 * MS;
        wrong += clock.ahead_ns[0] != (int64_t)AHEAD * MS;
        wrong += clock.at_ns[0] != (1000 * (SHORTEST + 1) + LEAST / 2 + AHEAD) * (uint64_t)MS;
    }
    return wrong;
}

/* In its middle, as far as one can know. */
static void the_shortest_round_trip_tells_the_time(void **state)
{
    static const int node_of[] = {0, 1};
    (void)state;

    assert_int_equal(on_local_nodes(2, node_of, compares, NULL), 0);
}

static void on_one_host_no_message_is_sent(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(1, says_nothing, NULL), 0);
    assert_int_equal(on_local_ranks(4, says_nothing, NULL), 0);
}

static size_t marks_once(struct dp_group *group, const void *unused)
{
    struct dp_clock clock = {0};
    (void)unused;

    return dp_clock_mark(&clock, group, dp_now_ns) != DP_OK;
}

static void a_failed_allocation_is_one_of_all_ranks(void **state)
{
    static const int node_of[] = {0, 1};
    (void)state;

    check_failing_allocations(2, node_of, marks_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_hosts_get_the_time_of_rank_0),
        cmocka_unit_test(drift_is_taken_out_between_two_marks_and_after_them),
        cmocka_unit_test(ranks_of_one_host_have_one_clock),
        cmocka_unit_test(the_shortest_round_trip_tells_the_time),
        cmocka_unit_test(on_one_host_no_message_is_sent),
        cmocka_unit_test(a_failed_allocation_is_one_of_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
