/* test_overlap.c - comm.overlap auto: all ranks decide the same, by the slowest rank's times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/measure/overlap.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { NEEDED = DP_OVERLAP_SKIP + 2 * DP_OVERLAP_TRIALS, STEPS = NEEDED + 5 };

/* What each rank measures, in milliseconds: without overlap, with it. */
struct times {
    const struct small_run *run;
    uint64_t ms[3][2];
    bool on; /* what must be decided */
};

/* Steps with made up times; one of them is an outlier. Returns the number of things wrong. */
static size_t try_both_ways(struct dp_trainer *t, const struct times *times, struct dp_overlap *o)
{
    struct dp_step_report report;
    size_t wrong = 0;
    int tried[2] = {0, 0};

    for (int step = 0; step < STEPS; step++) {
        dp_overlap_before(o, t);
        const int way = dp_exchange_run(t->exchange) == DP_RUN_ON_THREAD;
        wrong += dp_trainer_step(t, &report) != DP_OK;
        wrong += o->trying != (step < NEEDED);
        if (step >= DP_OVERLAP_SKIP && step < NEEDED) {
            tried[way]++;
        } else if (step >= NEEDED) {
            wrong += way != o->on;
        }
        const uint64_t ms = step == 5 ? 10000 : times->ms[t->group->rank][way];
        wrong += dp_overlap_after(o, t, ms * 1000000) != DP_OK;
    }
    return wrong + (tried[0] != DP_OVERLAP_TRIALS) + (tried[1] != DP_OVERLAP_TRIALS);
}

static size_t decides(struct dp_group *group, const void *arg)
{
    const struct times *times = arg;
    struct dp_trainer *t = NULL;
    struct dp_overlap o;
    size_t wrong;

    if (small_run_trainer(times->run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    dp_overlap_begin(&o, t, STEPS);
    wrong = !o.trying;
    wrong += try_both_ways(t, times, &o);
    wrong += o.trying || o.on != times->on;
    for (int way = 0; way < 2; way++) { /* the slowest rank's */
        uint64_t most = 0;
        for (int rank = 0; rank < group->size; rank++) {
            most = times->ms[rank][way] > most ? times->ms[rank][way] : most;
        }
        wrong += o.median_ms[way] != (double)most;
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void all_ranks_choose_what_is_faster_for_the_slowest(void **state)
{
    static const char *const sets[] = {"comm.overlap=auto", NULL};
    struct small_run run;
    struct times rows[] = {
        {NULL, {{10, 8}, {10, 8}, {10, 8}}, true},
        {NULL, {{8, 10}, {8, 10}, {8, 10}}, false},
        {NULL, {{5, 1}, {5, 1}, {8, 9}}, false}, /* faster for two of three, not for the slowest */
        {NULL, {{5, 6}, {5, 6}, {9, 8}}, true},
        {NULL, {{7, 7}, {7, 7}, {7, 7}}, false}, /* no gain: the simpler way */
    };
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rows[i].run = &run;
        assert_int_equal(on_local_ranks(3, decides, &rows[i]), 0);
    }
    small_run_destroy(&run);
}

struct fixed {
    const struct small_run *run;
    uint64_t steps;
    bool on;
};

static size_t decides_at_once(struct dp_group *group, const void *arg)
{
    const struct fixed *fixed = arg;
    struct dp_trainer *t = NULL;
    struct dp_overlap o;
    size_t wrong;

    if (small_run_trainer(fixed->run, group, fixed->steps, &t) != DP_OK) {
        return 1;
    }
    dp_overlap_begin(&o, t, fixed->steps);
    wrong = o.trying || o.on != fixed->on;
    wrong += (dp_exchange_run(t->exchange) == DP_RUN_ON_THREAD) != fixed->on;
    dp_overlap_before(&o, t);
    wrong += dp_overlap_after(&o, t, 1) != DP_OK || o.trying;
    dp_trainer_destroy(t);
    return wrong;
}

static void without_alternatives_the_trial_ends_at_once(void **state)
{
    static const struct {
        const char *sets[3];
        uint64_t steps;
        int ranks;
        bool on;
    } rows[] = {
        {{"comm.overlap=on", NULL}, STEPS, 2, true},
        {{"comm.overlap=off", NULL}, STEPS, 2, false},
        {{"comm.overlap=on", NULL}, STEPS, 1, false},
        {{"comm.overlap=auto", NULL}, STEPS, 1, false},
        {{"comm.overlap=auto", NULL}, NEEDED, 2, false},
        {{"comm.overlap=auto", "comm.strategy=none", NULL}, STEPS, 2, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct small_run run;
        struct fixed fixed = {&run, rows[i].steps, rows[i].on};
        assert_int_equal(small_run_create(&run, small_dense, rows[i].sets), 0);
        assert_int_equal(on_local_ranks(rows[i].ranks, decides_at_once, &fixed), 0);
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_choose_what_is_faster_for_the_slowest),
        cmocka_unit_test(without_alternatives_the_trial_ends_at_once),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
