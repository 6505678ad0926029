/* test_exchange_speed.c - how fast an exchange sums, within the time there is for that. */
#define _DEFAULT_SOURCE /* syscall() */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_speed.h"
#include "collectives/strategies/strategy.h"
#include "tests/support/local_world.h"

enum {
    RANKS = 2,
    SMALL = 1 << 10, /* elements of the buckets */
    LARGE = 1 << 20,
    HUGE = 7 << 20, /* more bytes than DP_EXCHANGE_WHOLE_BYTES */
    BYTE_NS = 1000
};

/* How much later it is for this thread than for others, so that only sums of the strategy below
 * take long. The linker takes this clock, and not libc's. */
static _Thread_local uint64_t later_ns;

int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    const int result = (int)syscall(SYS_clock_gettime, clock_id, tp);
    const uint64_t ns = (uint64_t)tp->tv_nsec + later_ns;

    tp->tv_sec += (time_t)(ns / 1000000000u);
    tp->tv_nsec = (long)(ns % 1000000000u);
    return result;
}

/* ---- a strategy whose sums take a thousandth of a millisecond a byte ---- */

static size_t most_bytes[RANKS]; /* of a sum */
static int sums[RANKS];

struct slow {
    int rank;
};

static bool slow_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status slow_open(void *state, struct dp_group *group, size_t max_count)
{
    struct slow *slow = state;
    (void)max_count;

    slow->rank = group->rank;
    return DP_OK;
}

static dp_status slow_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct slow *slow = state;
    const size_t bytes = dp_slice_bytes(data);
    (void)keep;

    most_bytes[slow->rank] = bytes > most_bytes[slow->rank] ? bytes : most_bytes[slow->rank];
    later_ns += bytes * BYTE_NS;
    sums[slow->rank]++;
    return DP_OK;
}

static dp_status slow_gather(void *state, struct dp_slice data)
{
    (void)state;
    (void)data;
    return DP_OK;
}

static void slow_close(void *state)
{
    (void)state;
}

static const struct dp_strategy slow_strategy = {
    .plugin = {.name = "slow", .help = "for this test", .state_bytes = sizeof(struct slow)},
    .supports = slow_supports,
    .open = slow_open,
    .sum = slow_sum,
    .gather = slow_gather,
    .close = slow_close,
};

/* ---- its exchange ---- */

static struct dp_exchange_speed found[RANKS];

struct task {
    size_t large; /* elements of the larger bucket */
    double seconds;
};

static size_t measures(struct dp_group *group, const void *arg)
{
    const struct task *task = arg;
    const struct dp_tensor tensors[] = {{.begin = 0}, {.begin = task->large}};
    const size_t trained = task->large + SMALL;
    struct dp_exchange_config config = {.strategy = "slow",
                                        .bucket_bytes = SMALL * sizeof(float),
                                        .first_bucket_bytes = SMALL * sizeof(float),
                                        .run = DP_RUN_AT_WAIT,
                                        .threads = 1};
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = 2,
                           .trained = trained,
                           .total = trained + DP_BLOCK,
                           .owned = trained};
    struct dp_exchange *e = NULL;
    size_t wrong;

    later_ns = 0;
    if (dp_device_find("ref", &config.device) != DP_OK ||
        dp_exchange_create(group, &config, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong = dp_exchange_measure_speed(e, task->seconds, &found[group->rank]) != DP_OK;
    dp_exchange_destroy(e);
    return wrong;
}

/* The bytes of the largest sum, where there are so many seconds for all four sizes. */
static size_t largest_within(double seconds)
{
    const double step_s = (double)(LARGE + SMALL) * sizeof(float) * BYTE_NS / 1e9;
    const struct task task = {LARGE, seconds};

    most_bytes[0] = 0;
    sums[0] = 0;
    assert_int_equal(on_local_ranks(RANKS, measures, &task), 0);
    assert_true(found[0].bytes == (double)(LARGE + SMALL) * sizeof(float));
    /* Whatever this machine does beside takes little of these seconds. */
    assert_true(found[0].step_s > 0.99 * step_s && found[0].step_s < 1.5 * step_s);
    assert_true(found[0].step_s == found[1].step_s && found[0].whole_s == found[1].whole_s);
    return most_bytes[0];
}

/* A sum of all takes four seconds; a size may take up to half of a quarter of the time. */
static void sums_are_as_large_as_there_is_time_for(void **state)
{
    (void)state;
    assert_in_range(largest_within(8.0), 500000, 1000000);
    assert_in_range(largest_within(16.0), 1000000, 2000000);
    assert_int_equal(largest_within(64.0), (LARGE + SMALL) * sizeof(float));
}

/* The first one and nine others, of the smallest bucket, the largest and all, or of as many sizes
 * as there is time for: eight seconds are enough for some twenty sums of a tenth of all. */
static void a_size_gets_ten_turns_if_there_is_time(void **state)
{
    (void)state;
    assert_int_equal(largest_within(1e4), (LARGE + SMALL) * sizeof(float));
    assert_int_equal(sums[0] % 10, 0);
    assert_in_range(sums[0], 30, 40);
    (void)largest_within(8.0);
    assert_true(sums[0] < 30);
}

/* The last one of the bytes that are left; sums take as long in pieces of any size. */
static void large_buckets_have_no_more_bytes_than_there_are(void **state)
{
    const double bytes = (double)(HUGE + SMALL) * sizeof(float), wanted_s = bytes * BYTE_NS / 1e9;
    const struct task task = {HUGE, 8.0};
    (void)state;

    assert_true(bytes > DP_EXCHANGE_WHOLE_BYTES);
    assert_int_equal(on_local_ranks(RANKS, measures, &task), 0);
    assert_true(found[0].bytes == bytes);
    assert_true(found[0].whole_s > 0.99 * wanted_s && found[0].whole_s < 1.5 * wanted_s);
}

static void what_is_measured_with_is_released(void **state)
{
    const struct task task = {SMALL, 1.0};
    (void)state;
    assert_int_equal(on_local_nodes_twice(RANKS, NULL, measures, &task), 0);
}

static const struct dp_transport *beneath;
static atomic_int told;

static void *no_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    return bytes == (LARGE + SMALL) * sizeof(float) ? NULL : beneath->memory(group, purpose, bytes);
}

static size_t has_no_memory(struct dp_group *group, const void *arg)
{
    struct dp_transport full = *group->transport;
    struct dp_log_capture capture;
    size_t wrong;

    full.memory = no_memory;
    group->transport = &full;
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    wrong = measures(group, arg) != 1;
    dp_log_capture_end(&capture, DP_LOG_DROP);
    group->transport = beneath;
    /* One of them tells it; the others may have been cancelled by then. */
    atomic_fetch_add(&told, strstr(dp_log_captured(&capture), "sum alone needs 4100 kB") != NULL);
    return wrong;
}

static size_t notes_transport(struct dp_group *group, const void *arg)
{
    (void)arg;
    beneath = group->transport;
    return 0;
}

static void memory_that_is_not_there_is_told(void **state)
{
    const struct task task = {LARGE, 1.0};
    (void)state;

    assert_int_equal(on_local_ranks(1, notes_transport, NULL), 0);
    assert_int_equal(on_local_ranks(RANKS, has_no_memory, &task), 0);
    assert_in_range(atomic_load(&told), 1, RANKS);
}

static void a_rank_alone_sums_nothing(void **state)
{
    static const struct dp_exchange_speed nothing;
    const struct task task = {LARGE, 1.0};
    (void)state;

    memset(&found[0], 1, sizeof(found[0]));
    assert_int_equal(on_local_ranks(1, measures, &task), 0);
    assert_memory_equal(&found[0], &nothing, sizeof(nothing));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_as_large_as_there_is_time_for),
        cmocka_unit_test(a_size_gets_ten_turns_if_there_is_time),
        cmocka_unit_test(large_buckets_have_no_more_bytes_than_there_are),
        cmocka_unit_test(what_is_measured_with_is_released),
        cmocka_unit_test(memory_that_is_not_there_is_told),
        cmocka_unit_test(a_rank_alone_sums_nothing),
    };

    if (dp_plugin_add(&dp_strategies, &slow_strategy.plugin) != DP_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("exchange_speed", tests, NULL, NULL);
}
