/*
 * test_cost_turns.c - how often a message is measured, and what is said of one: by a clock that a
 * message puts forward.
 */
#define _DEFAULT_SOURCE /* syscall() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/core/transport.h"
#include "collectives/strategies/cost.h"
#include "tests/support/local_world.h"

enum { BYTES = 64, ROW = 8 }; /* messages of a row on a wire: so many */

/* How much later it is for this thread. The linker takes this clock, and not libc's. */
static _Thread_local uint64_t later_ns;

int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    const int result = (int)syscall(SYS_clock_gettime, clock_id, tp);
    const uint64_t ns = (uint64_t)tp->tv_nsec + later_ns;

    tp->tv_sec += (time_t)(ns / 1000000000u);
    tp->tv_nsec = (long)(ns % 1000000000u);
    return result;
}

struct wire {
    double message_s, budget_s;
    int turns; /* that are expected, without the first one */
};

static _Thread_local const struct dp_transport *beneath;
static _Thread_local double message_s;
static _Thread_local const char *buffers; /* of what is measured; barriers have others */
static _Thread_local size_t buffer_bytes;
static _Thread_local int sent;

static void *take_and_note(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    void *memory = beneath->memory(group, purpose, bytes);

    buffers = memory;
    buffer_bytes = bytes;
    return memory;
}

static dp_status start_late(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                            struct dp_transfer *transfer)
{
    const char *data = out.data;

    if (transfer->to >= 0 && data >= buffers && data < buffers + buffer_bytes) {
        sent++;
        later_ns += (uint64_t)(message_s * 1e9);
    }
    return beneath->start(group, out, in, transfer);
}

static size_t measures(struct dp_group *group, const void *arg)
{
    const struct wire *wire = arg;
    struct dp_transport late = *group->transport;
    struct dp_cost cost;
    size_t wrong = 1;

    later_ns = 0;
    sent = 0;
    message_s = wire->message_s;
    beneath = group->transport;
    late.memory = take_and_note;
    late.start = start_late;
    group->transport = &late;
    /* A wire has half of all time. */
    if (dp_cost_measure(group, BYTES, 2.0 * wire->budget_s, &cost) == DP_OK) {
        const struct dp_curve *curve = &cost.exchange[DP_LINK_WIRE];
        wrong = curve->count != 1 || sent != (1 + wire->turns) * ROW;
        /* This machine's own time is little beside it. */
        wrong += curve->seconds[0] < 0.99 * message_s || curve->seconds[0] > 1.5 * message_s;
    }
    group->transport = beneath;
    return wrong;
}

/* A point gets a 32nd of the time, in 3 to 64 turns: 320 s of rows that take 8 times a message. */
static void a_message_is_measured_as_often_as_there_is_time(void **state)
{
    static const struct wire wires[] = {
        {0.1, 320.0, 12}, /* 10 s, of rows of 0.8 s */
        {0.2, 320.0, 6},  {0.5, 320.0, 3}, {1.0, 320.0, 3}, {10.0, 320.0, 3}, {0.1, 3200.0, 64},
    };
    static const int hosts[] = {0, 1};
    (void)state;

    for (size_t i = 0; i < sizeof(wires) / sizeof(wires[0]); i++) {
        if (on_local_nodes(2, hosts, measures, &wires[i]) != 0) {
            fail_msg("%g s a message, %g s", wires[i].message_s, wires[i].budget_s);
        }
    }
}

static void what_is_measured_with_is_released(void **state)
{
    static const struct wire wire = {1.0, 320.0, 3};
    static const int hosts[] = {0, 1};
    (void)state;

    assert_int_equal(on_local_nodes_twice(2, hosts, measures, &wire), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_measured_as_often_as_there_is_time),
        cmocka_unit_test(what_is_measured_with_is_released),
    };

    return cmocka_run_group_tests_name("cost_turns", tests, NULL, NULL);
}
