/*
 * test_autotune_turns.c - which candidates have turns while `auto` measures, and how many, by a
 * clock of this test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/strategy_autotune.h"
#include "collectives/strategies/comm.h"
#include "tests/support/local_world.h"
#include "tests/support/memory/marked_end.h"
#include "tests/support/stderr_text.h"

/* Buckets of 128 KB and of a megabyte, the last one first, and the tail. */
enum { LARGE = 262144, SMALL = 32768, TRAINED = LARGE + SMALL, TOTAL = TRAINED + DP_BLOCK };
enum { MS = 1000000 };

static const struct dp_tensor tensors[] = {{.name = "a", .count = LARGE},
                                           {.name = "b", .begin = LARGE, .count = SMALL}};

/* Of a rank, which is a thread. It is looked at when autotuning begins, and when each turn begins
 * and ends, a millisecond later. */
static _Thread_local uint64_t clock_ns;
static _Thread_local int looks;

static uint64_t look(void)
{
    clock_ns += looks++ % 2 == 0 ? MS : 0;
    return clock_ns;
}

/* ---- strategies that share nothing, in no time ---- */

static bool wanted[2];

static bool quick_is_wanted(const struct dp_group *group, const char **why_not)
{
    (void)group;
    *why_not = "it is not wanted";
    return wanted[0];
}

static bool slow_is_wanted(const struct dp_group *group, const char **why_not)
{
    (void)group;
    *why_not = "it is not wanted";
    return wanted[1];
}

/* Beats of this rank since a strategy of this test was opened, and when the last one was. */
static _Thread_local int beats, beats_between;

static void count_beat(void)
{
    beats++;
}

static dp_status open_none(void *state, struct dp_group *group, size_t max_count)
{
    (void)state;
    (void)group;
    (void)max_count;
    beats_between = beats;
    beats = 0;
    return DP_OK;
}

static atomic_int turns_of_small, turns_of_large; /* buckets */

enum { TURNS = 6 };

/* Of a rank: whose its first turns were. */
static _Thread_local char order[TURNS + 1];

static void note_turn(char who)
{
    const size_t count = strlen(order);

    if (count < TURNS) {
        order[count] = who;
        order[count + 1] = '\0';
    }
}

static dp_status sum_quickly(void *state, struct dp_slice data, enum dp_keep keep)
{
    (void)state;
    (void)keep;
    note_turn('q');
    atomic_fetch_add(&turns_of_small, data.count == SMALL);
    atomic_fetch_add(&turns_of_large, data.count == LARGE);
    clock_ns -= MS / 4;
    return DP_OK;
}

static dp_status sum_slowly(void *state, struct dp_slice data, enum dp_keep keep)
{
    (void)state;
    (void)data;
    (void)keep;
    note_turn('s');
    clock_ns += (uint64_t)100 * MS;
    return DP_OK;
}

static dp_status gather_none(void *state, struct dp_slice data)
{
    (void)state;
    (void)data;
    return DP_OK;
}

static void close_none(void *state)
{
    (void)state;
}

static bool keeps_order(const void *state, const struct dp_group *group)
{
    (void)state;
    (void)group;
    return true;
}

/* They come after those of the library, in this order. */
static const struct dp_strategy quick = {.plugin = {.name = "quick", .state_bytes = 1},
                                         .ordered = true,
                                         .keeps_order = keeps_order,
                                         .supports = quick_is_wanted,
                                         .open = open_none,
                                         .sum = sum_quickly,
                                         .gather = gather_none,
                                         .close = close_none};
static const struct dp_strategy slow = {.plugin = {.name = "slow", .state_bytes = 1},
                                        .ordered = true,
                                        .keeps_order = keeps_order,
                                        .supports = slow_is_wanted,
                                        .open = open_none,
                                        .sum = sum_slowly,
                                        .gather = gather_none,
                                        .close = close_none};

/* ---- autotuning ---- */

static struct dp_strategy_autotune_config config = {.now = look};
static struct dp_strategy_autotune_result result; /* of rank 0 */
static int seen;                                  /* its looks */
static int beaten;                                /* its beats_between */
static char turns[TURNS + 1];                     /* its order */

static size_t measures(struct dp_group *group, const void *ordered)
{
    struct dp_strategy_autotune_result mine;

    looks = 0;
    order[0] = '\0';
    group->ordered = ordered != NULL;
    if (dp_strategy_autotune_run(group, &config, &mine) != DP_OK) {
        return 1;
    }
    if (group->rank == 0) {
        result = mine;
        seen = looks;
        beaten = beats_between;
        memcpy(turns, order, sizeof(turns));
    }
    return 0;
}

static struct dp_bucket_plan *planned(void)
{
    struct dp_bucket_plan *plan = NULL;

    assert_int_equal(dp_bucket_plan_create(tensors, 2, TRAINED, TOTAL,
                                           &(struct dp_bucket_sizes){64, 64, false}, &plan),
                     DP_OK);
    return plan;
}

/* Others are named once, with their times, the shortest first. */
static void check_ascending(const char *why)
{
    double before = 0.0;
    int others = 0;

    for (const char *at = why; (at = strchr(at, ',')) != NULL; others++) {
        const size_t text = strcspn(at + 1, ",");
        const char *time = at + text;
        while (*time != ' ') {
            time--;
        }
        const double ms = strtod(time, NULL);
        assert_true(ms >= before);
        before = ms;
        at++;
    }
    assert_int_equal(others, 2); /* those that take as long as another one are left out */
}

/* The fastest one, which is the last but one, begins each round; the last one has dropped out. */
static void after_one_that_dropped_out_all_have_their_turns(void **state)
{
    static const int two_hosts[] = {0, 1};
    struct dp_bucket_plan *plan = planned();
    (void)state;

    wanted[0] = wanted[1] = true;
    config.plan = plan;
    config.budget_s = 10.0;
    mark_ends(true);
    assert_int_equal(on_local_nodes(2, two_hosts, measures, NULL), 0);
    mark_ends(false);
    assert_int_equal(atomic_load(&marks_lost), 0);
    assert_string_equal(result.strategy, "quick");
    check_ascending(result.why);
    assert_non_null(strstr(result.why, ", ring "));
    assert_null(strstr(result.why, ", ring about "));
    assert_non_null(strstr(result.why, ", slow about "));
    assert_true(atomic_load(&turns_of_small) > 0 && atomic_load(&turns_of_large) > 0);
    dp_bucket_plan_destroy(plan);
}

/* It may have connected; but not one that takes a large part of the time. */
static void a_short_first_turn_is_repeated(void **state)
{
    static const struct {
        double budget_s;
        const char *turns;
    } cases[] = {{10.0, "qqssqs"}, {1.0, "qqsqs"}};
    struct dp_bucket_plan *plan = planned();
    (void)state;

    wanted[0] = wanted[1] = true;
    config.plan = plan;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        config.budget_s = cases[i].budget_s;
        assert_int_equal(on_local_nodes(2, (const int[]){0, 1}, measures, NULL), 0);
        assert_memory_equal(turns, cases[i].turns, strlen(cases[i].turns));
    }
    dp_bucket_plan_destroy(plan);
}

/* No candidate takes so long to open that this rank seems to be stuck. */
static void between_two_candidates_there_is_a_beat(void **state)
{
    struct dp_bucket_plan *plan = planned();
    struct dp_trace_mark mark = {0};
    (void)state;

    wanted[0] = wanted[1] = true;
    config.plan = plan;
    config.budget_s = 1e-9;
    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    dp_trace_at_beats(count_beat);
    assert_int_equal(on_local_nodes(2, (const int[]){0, 1}, measures, NULL), 0);
    dp_trace_at_beats(NULL);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    assert_true(beaten > 0); /* from `quick` to `slow` */
    dp_bucket_plan_destroy(plan);
}

/* direct and quick, of which each has two; then there is no time but for a turn of one. */
static void with_a_compressor_the_tail_of_each_is_timed_twice(void **state)
{
    static const int odd_hosts[] = {0, 0, 1};
    struct dp_bucket_plan *plan = planned();
    (void)state;

    wanted[0] = true;
    wanted[1] = false;
    config.plan = plan;
    config.compressor = "fp16";
    config.budget_s = 1e-9;
    assert_int_equal(on_local_nodes(3, odd_hosts, measures, &config), 0);
    config.compressor = NULL;
    assert_int_equal(seen, 1 + 2 * (2 * 2 + 1));
    dp_bucket_plan_destroy(plan);
}

static void memory_that_lacks_is_named(void **state)
{
    struct dp_bucket_plan *plan = planned();
    struct dp_group *alone = NULL;
    int named = 0;
    (void)state;

    config.plan = plan;
    assert_int_equal(dp_local_alone(&alone), DP_OK);
    for (int nth = 1; nth <= 3; nth++) {
        stderr_begin();
        dp_mem_fail_nth(nth);
        const dp_status status = dp_strategy_autotune_run(alone, &config, &result);
        dp_mem_fail_nth(0);
        stderr_end();
        assert_int_equal(status, DP_ERR_NOMEM);
        named += strstr(stderr_text, "choosing a strategy needs 1 MB") != NULL;
    }
    assert_int_equal(named, 1);
    dp_group_destroy(alone);
    dp_bucket_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_one_that_dropped_out_all_have_their_turns),
        cmocka_unit_test(a_short_first_turn_is_repeated),
        cmocka_unit_test(between_two_candidates_there_is_a_beat),
        cmocka_unit_test(with_a_compressor_the_tail_of_each_is_timed_twice),
        cmocka_unit_test(memory_that_lacks_is_named),
    };

    if (dp_plugin_add(&dp_strategies, &quick.plugin) != DP_OK ||
        dp_plugin_add(&dp_strategies, &slow.plugin) != DP_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("autotune_turns", tests, NULL, NULL);
}
