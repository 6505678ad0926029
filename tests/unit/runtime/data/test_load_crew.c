/* test_load_crew.c - threads that load samples together, with a source that says when each is read:
 * which bad one is the first, how often progress is told, and what is said of bad ones. */
#define _GNU_SOURCE /* syscall() */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/load_samples.h"
#include "runtime/data/source.h"
#include "tests/support/held_mutexes.h"

enum { TRAIN = 80, TEST = 10, ALL = TRAIN + TEST, WIDTH = 3, TARGETS = 2, NOWHERE = ALL };
enum { STANDS = 1000 /* seconds: what a clock shows that began */ };

/* What the source does. */
static struct {
    bool bad[ALL];
    size_t waits;     /* the sample that is read once another one was found bad */
    long long ns;     /* that reading a sample takes; 0: the clock is that of the system */
    atomic_llong now; /* nanoseconds since the clock began */
} made;

/* A load of all samples, into memory that begins with a pattern. */
static struct load {
    struct dp_load_job job;
    struct dp_load_state state;
    float out[ALL][WIDTH], labels[ALL][TARGETS];
    uint8_t bad[ALL];
    size_t place;
    dp_status status;
    struct dp_log_capture capture;
} load;

/* The linker takes this clock, and not libc's. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    const int result = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (made.ns > 0) {
        const long long now = atomic_load(&made.now);
        *tp = (struct timespec){.tv_sec = STANDS + now / 1000000000, .tv_nsec = now % 1000000000};
    }
    return result;
}

/* ---- the source ---- */

static float number_of(size_t place, size_t k)
{
    return (float)(100 * place + k);
}

static float target_of(size_t place, size_t k)
{
    return -(float)(10 * place + k) - 0.5f;
}

static dp_status made_open(void *state, const struct dp_source_config *c,
                           struct dp_source_info *info)
{
    (void)state;
    *info = (struct dp_source_info){.count = {TRAIN, TEST},
                                    .shape = {.count = WIDTH, .element = DP_ELEMENT_FLOAT},
                                    .targets = c->targets};
    return DP_OK;
}

/* Eight samples in a row are bad for one reason. */
static dp_status made_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                            struct dp_raw *raw)
{
    static _Thread_local float numbers[WIDTH];
    static _Thread_local double targets[TARGETS];
    const size_t place = row + (set == DP_SET_TEST ? TRAIN : 0);
    (void)state;
    (void)fetcher;

    atomic_fetch_add(&made.now, made.ns);
    while (place == made.waits && atomic_load(&load.state.first_bad) == 0) {
        (void)sched_yield();
    }
    if (made.bad[place]) {
        return DP_FAIL(DP_ERR_DATA, "reason %zu", 9 - place / 8);
    }
    for (size_t k = 0; k < WIDTH; k++) {
        numbers[k] = number_of(place, k);
    }
    for (size_t k = 0; k < TARGETS; k++) {
        targets[k] = (double)target_of(place, k);
    }
    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = numbers,
                           .bytes = sizeof(numbers),
                           .shape = {.count = WIDTH, .element = DP_ELEMENT_FLOAT},
                           .targets = targets};
    return DP_OK;
}

static void made_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    (void)state;
    (void)snprintf(text, size, "%d: row %zu", (int)set, row);
}

static void made_close(void *state)
{
    (void)state;
}

static const struct dp_source made_source = {
    .plugin = {.name = "made", .help = "for this test", .state_bytes = 1},
    .open = made_open,
    .fetch = made_fetch,
    .name = made_name,
    .close = made_close,
};

/* ---- loads ---- */

static int add_source(void **state)
{
    (void)state;
    return dp_plugin_add(&dp_sources, &made_source.plugin) == DP_OK ? 0 : 1;
}

static int prepare(void **state)
{
    (void)state;
    memset(&made, 0, sizeof(made));
    made.waits = NOWHERE;
    return 0;
}

static void begin(int threads, bool skips)
{
    const struct dp_source_config config = {.input = {.count = WIDTH}, .targets = TARGETS};
    struct dp_load_job *job = &load.job;

    memset(&load, 0, sizeof(load));
    memset(load.out, 0xa5, sizeof(load.out));
    memset(load.labels, 0xa5, sizeof(load.labels));
    *job = (struct dp_load_job){
        .state = &load.state,
        .out = {(uint8_t *)load.out, (uint8_t *)load.out[TRAIN]},
        .labels = {(int32_t *)(void *)load.labels, (int32_t *)(void *)load.labels[TRAIN]},
        .bad = skips ? load.bad : NULL,
        .threads = threads};
    load.place = SIZE_MAX;
    assert_int_equal(dp_samples_open("made", &config, &job->samples), DP_OK);
}

static void run(void)
{
    dp_log_capture_begin(&load.capture, DP_LOG_DEBUG);
    load.status = dp_load_samples(&load.job, &load.place);
    dp_log_capture_end(&load.capture, DP_LOG_DROP);
}

static void finish(void)
{
    dp_samples_close(load.job.samples);
    assert_int_equal(dp_mem_live(), 0);
}

/* What stands at a place is the sample of another one. */
static void assert_sample(size_t place, size_t of)
{
    for (size_t k = 0; k < WIDTH; k++) {
        assert_true(load.out[place][k] == number_of(of, k));
    }
    for (size_t k = 0; k < TARGETS; k++) {
        assert_true(load.labels[place][k] == target_of(of, k));
    }
}

static void labels_of_several_numbers_are_loaded(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        begin(threads, false);
        run();
        assert_int_equal(load.status, DP_OK);
        assert_int_equal(load.place, 0);
        assert_int_equal(load.capture.used, 0); /* nothing is said */
        for (size_t place = 0; place < ALL; place++) {
            assert_sample(place, place);
        }
        finish();
    }
}

static void bad_samples_are_marked_and_replaced_with_their_labels(void **state)
{
    static const size_t bad[] = {7, 8, 79, 85};
    (void)state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        made.bad[bad[i]] = true;
    }
    begin(1, true);
    run();
    assert_int_equal(load.status, DP_OK);
    for (size_t place = 0; place < ALL; place++) {
        assert_int_equal(load.bad[place], made.bad[place] ? 1 : 0);
    }
    assert_true(dp_load_replace(&load.job));
    for (size_t place = 0; place < ALL; place++) {
        assert_sample(place, place == 7 || place == 8 ? 9
                             : place == 79            ? 0
                             : place == 85            ? 86
                                                      : place);
    }
    memset(load.bad + TRAIN, 1, TEST);
    assert_false(dp_load_replace(&load.job)); /* none is good */
    finish();
}

/* A thread finds sample 70 bad while another one still reads 21, which is bad, too. */
static void the_first_one_counts_though_it_is_found_later(void **state)
{
    (void)state;
    made.bad[21] = made.bad[70] = true;
    made.waits = 21;
    begin(2, false);
    run();
    assert_int_equal(load.status, DP_ERR_DATA);
    assert_int_equal(load.place, 22);
    assert_int_equal(atomic_load(&load.state.first_bad), 22);
    assert_non_null(strstr(dp_log_captured(&load.capture), "reason 7"));
    finish();
}

static void after_what_another_rank_found_bad_nothing_is_read(void **state)
{
    (void)state;
    begin(1, false);
    atomic_store(&load.state.first_bad, 5);
    run();
    assert_int_equal(load.status, DP_OK);
    assert_int_equal(load.place, 0);
    assert_int_equal(atomic_load(&load.state.done), 4);
    finish();
}

/* How often a text stands in what was logged. */
static size_t times(const char *text)
{
    size_t found = 0;

    for (size_t at = 0; at + strlen(text) <= load.capture.used; at++) {
        found += memcmp(load.capture.lines + at, text, strlen(text)) == 0;
    }
    return found;
}

static void a_reason_is_told_once(void **state)
{
    (void)state;
    memset(made.bad + 8, true, 16); /* of reasons 8 and 7 */
    begin(1, true);
    run();
    assert_int_equal(load.status, DP_OK);
    assert_int_equal(atomic_load(&load.state.bad), 16);
    assert_int_equal(times("reason 8"), 1);
    assert_int_equal(times("reason 7"), 1);
    finish();
}

static void count_calls(void *context, size_t done, size_t all)
{
    assert_true(done > 0 && done <= all);
    assert_int_equal(all, ALL);
    ++*(size_t *)context;
}

static void progress_is_told_each_half_second(void **state)
{
    static const struct {
        long long ns;
        size_t every; /* sample */
    } rows[] = {{250000000, 2}, {499999999, 2}, {500000000, 1}, {100000000, 5}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t calls = 0;
        made.ns = rows[i].ns;
        atomic_store(&made.now, 0);
        begin(1, false);
        load.job.progress = count_calls;
        load.job.context = &calls;
        run();
        assert_int_equal(load.status, DP_OK);
        assert_int_equal(calls, ALL / rows[i].every);
        finish();
        begin(1, false); /* and to nobody, where nobody asks */
        run();
        assert_int_equal(load.status, DP_OK);
        finish();
    }
}

/* The first one is that of threads, of which nothing has begun; then those of readers. */
static void other_ranks_need_not_go_on_where_memory_ends(void **state)
{
    (void)state;
    for (int nth = 1; nth < 5; nth++) {
        begin(2, false);
        dp_mem_fail_nth(nth);
        run();
        dp_mem_fail_nth(0);
        assert_int_equal(load.status, DP_ERR_NOMEM);
        assert_int_equal(load.place, nth == 1 ? 0 : 1);
        assert_int_equal(atomic_load(&load.state.first_bad), nth == 1 ? 0 : 1);
        finish();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(labels_of_several_numbers_are_loaded, prepare),
        cmocka_unit_test_setup(bad_samples_are_marked_and_replaced_with_their_labels, prepare),
        cmocka_unit_test_setup(the_first_one_counts_though_it_is_found_later, prepare),
        cmocka_unit_test_setup(after_what_another_rank_found_bad_nothing_is_read, prepare),
        cmocka_unit_test_setup(a_reason_is_told_once, prepare),
        cmocka_unit_test_setup(progress_is_told_each_half_second, prepare),
        cmocka_unit_test_setup(other_ranks_need_not_go_on_where_memory_ends, prepare),
    };

    return cmocka_run_group_tests(tests, add_source, NULL);
}
