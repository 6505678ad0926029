/* test_load_samples.c - a whole set into memory by several threads: the same bytes as one by one;
 * of bad samples the first is named, or all are replaced and counted. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/data/load_samples.h"
#include "runtime/data/sample_reader.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/held_mutexes.h"

enum { SIDE = 6, BYTES = SIDE * SIDE * 3, PER_CLASS = 40, TRAIN = 2 * PER_CLASS, TEST = 10 };
enum { ALL = TRAIN + TEST };

static char folder[64];
static uint8_t plain[ALL * BYTES];
static int32_t plain_labels[ALL];

static const struct dp_source_config config = {
    .dir = folder,
    .input = {.height = SIDE, .width = SIDE, .channels = 3, .count = BYTES},
    .classes = 2};

static const char *name_of(size_t at, char name[64])
{
    const bool train = at < TRAIN;
    const size_t i = train ? at : at - TRAIN, each = train ? PER_CLASS : TEST / 2;

    (void)snprintf(name, 64, "%s/%s/%02zu.png", train ? "train" : "test", i < each ? "cat" : "dog",
                   i % each);
    return name;
}

static void mend(size_t at)
{
    char name[64];

    picture_file(folder, name_of(at, name), 9, 7, 3, (unsigned)at);
}

static void spoil(size_t at)
{
    char name[64];

    write_bytes(folder, name_of(at, name), "no picture", 10);
}

/* A load of the whole set by `threads`, into memory that begins with a pattern. */
struct load {
    struct dp_load_job job;
    struct dp_load_state state;
    uint8_t out[ALL * BYTES], bad[ALL];
    int32_t labels[ALL];
    size_t place;
    dp_status status;
};

static void prepare(struct load *l, int threads, bool skips)
{
    memset(l, 0, sizeof(*l));
    memset(l->out, 0xa5, sizeof(l->out));
    l->job = (struct dp_load_job){.state = &l->state,
                                  .out = {l->out, l->out + (size_t)TRAIN * BYTES},
                                  .labels = {l->labels, l->labels + TRAIN},
                                  .bad = skips ? l->bad : NULL,
                                  .threads = threads};
    assert_int_equal(dp_samples_open("folder", &config, &l->job.samples), DP_OK);
}

static void run(struct load *l, struct dp_log_capture *capture)
{
    dp_log_capture_begin(capture, DP_LOG_DEBUG);
    l->status = dp_load_samples(&l->job, &l->place);
    dp_log_capture_end(capture, DP_LOG_DROP);
}

static void finish(struct load *l)
{
    dp_samples_close(l->job.samples);
    assert_int_equal(dp_mem_live(), 0);
}

static int make_pictures(void **state)
{
    struct dp_sample_reader *reader = NULL;
    struct dp_samples *samples = NULL;
    (void)state;

    (void)snprintf(folder, sizeof(folder), "/tmp/test_load_samples.XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    for (size_t at = 0; at < ALL; at++) {
        mend(at);
    }
    assert_int_equal(dp_samples_open("folder", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t at = 0; at < ALL; at++) {
        const enum dp_set set = at < TRAIN ? DP_SET_TRAIN : DP_SET_TEST;
        assert_int_equal(dp_sample_reader_read(reader, set, set == DP_SET_TRAIN ? at : at - TRAIN,
                                               plain + at * BYTES, &plain_labels[at]),
                         DP_OK);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    return 0;
}

static int remove_pictures(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static struct load load; /* too large for a stack */

typedef int start_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static int started; /* threads of this process */

/* The linker takes this one, and not libc's. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run_it)(void *),
                   void *arg)
{
    start_function *start;

    *(void **)&start = dlsym(RTLD_NEXT, "pthread_create");
    started++;
    return start(thread, attributes, run_it, arg);
}

static void threads_load_what_one_reader_reads(void **state)
{
    struct dp_log_capture capture;
    (void)state;

    for (int threads = 1; threads <= 7; threads += 3) {
        prepare(&load, threads, false);
        started = 0;
        run(&load, &capture);
        assert_int_equal(started, threads - 1); /* and this one */
        assert_int_equal(load.status, DP_OK);
        assert_int_equal(load.place, 0);
        assert_int_equal(atomic_load(&load.state.done), ALL);
        assert_memory_equal(load.out, plain, sizeof(plain));
        assert_memory_equal(load.labels, plain_labels, sizeof(plain_labels));
        finish(&load);
    }
}

static void the_first_bad_sample_is_named_whoever_meets_it(void **state)
{
    static const size_t bad[] = {70, 21, 85, 22};
    struct dp_log_capture capture;
    char name[64];
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        spoil(bad[i]);
    }
    for (int threads = 1; threads <= 7; threads++) {
        prepare(&load, threads, false);
        run(&load, &capture);
        assert_int_equal(load.status, DP_ERR_DATA);
        assert_int_equal(load.place, 22);
        assert_int_equal(atomic_load(&load.state.first_bad), 22);
        assert_non_null(strstr(dp_log_captured(&capture), name_of(21, name)));
        assert_non_null(strstr(dp_log_captured(&capture), "is no PNG and no JPEG"));
        finish(&load);
    }
    for (size_t i = 0; i < 4; i++) {
        mend(bad[i]);
    }
}

/* Which sample is found in the place of each. */
static size_t stands_for(size_t at)
{
    switch (at) {
    case 0:
    case 79:
        return 1;
    case 21:
    case 22:
        return 23;
    case 85:
        return 86;
    default:
        return at;
    }
}

/* All samples stay where they are, and the next good one is in the place of each bad one. */
static void bad_samples_are_replaced_and_counted(void **state)
{
    static const size_t bad[] = {0, 21, 22, 79, 85};
    struct dp_log_capture capture;
    (void)state;

    for (size_t i = 0; i < 5; i++) {
        spoil(bad[i]);
    }
    for (int threads = 1; threads <= 4; threads += 3) {
        prepare(&load, threads, true);
        run(&load, &capture);
        assert_int_equal(load.status, DP_OK);
        assert_int_equal(atomic_load(&load.state.bad), 5);
        if (threads == 1) { /* what other threads say is not captured */
            assert_non_null(strstr(capture.lines, "/train/cat/00.png: is no PNG and no JPEG"));
            assert_non_null(strstr(capture.lines, "another one stands in its place"));
        }
        assert_true(dp_load_replace(&load.job));
        for (size_t at = 0; at < ALL; at++) {
            const size_t from = stands_for(at);
            assert_memory_equal(load.out + at * BYTES, plain + from * BYTES, BYTES);
            assert_int_equal(load.labels[at], plain_labels[from]);
        }
        finish(&load);
    }
    for (size_t i = 0; i < 5; i++) {
        mend(bad[i]);
    }
}

/* How often a text stands in what was logged. */
static size_t times(const struct dp_log_capture *capture, const char *text)
{
    size_t found = 0;

    for (size_t at = 0; at + strlen(text) <= capture->used; at++) {
        found += memcmp(capture->lines + at, text, strlen(text)) == 0;
    }
    return found;
}

static void the_first_five_bad_samples_are_named(void **state)
{
    enum { BAD = 7, NAMED = 5 };
    static struct dp_log_capture capture;
    char text[300], name[64];
    (void)state;

    for (size_t i = 0; i < BAD; i++) {
        spoil(10 + 5 * i);
    }
    for (size_t bad = BAD; bad >= NAMED - 1; bad--) {
        prepare(&load, 1, true);
        run(&load, &capture);
        assert_int_equal(load.status, DP_OK);
        assert_int_equal(atomic_load(&load.state.bad), bad);
        assert_int_equal(times(&capture, "another one stands in its place"),
                         bad < NAMED ? bad : NAMED);
        (void)snprintf(
            text, sizeof(text),
            "%s: is no PNG and no JPEG: put a PNG or JPEG in its place: bad data; another "
            "one stands in its place, and so it may be for others, without a word",
            name_of(10 + 5 * (NAMED - 1), name));
        assert_int_equal(times(&capture, text), bad >= NAMED);
        assert_int_equal(times(&capture, "without a word"), bad >= NAMED);
        finish(&load);
        mend(10 + 5 * (bad - 1));
    }
    for (size_t i = 0; i < NAMED; i++) {
        mend(10 + 5 * i);
    }
}

static void a_file_that_vanishes_ends_the_load_with_its_name(void **state)
{
    struct dp_log_capture capture;
    char name[64];
    (void)state;

    for (int skips = 0; skips < 2; skips++) {
        prepare(&load, 3, skips != 0); /* lists the files */
        remove_file(folder, name_of(33, name));
        run(&load, &capture);
        assert_int_equal(load.status, DP_ERR_NOINPUT); /* not bad, but gone: never replaced */
        assert_non_null(strstr(dp_log_captured(&capture), name_of(33, name)));
        finish(&load);
        mend(33);
    }
}

static void count_progress(void *context, size_t done, size_t all)
{
    size_t *last = context;

    assert_true(done >= *last && done <= all && all == ALL);
    *last = done;
}

static atomic_bool stands; /* whether the clock does */

/* The linker takes this clock, and not libc's. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    const int result = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (atomic_load(&stands)) {
        *tp = (struct timespec){.tv_sec = 1000};
    }
    return result;
}

static void count_calls(void *context, size_t done, size_t all)
{
    (void)done;
    (void)all;
    ++*(size_t *)context;
}

/* Half a second after it began, which is never. */
static void progress_is_not_told_at_once(void **state)
{
    struct dp_log_capture capture;
    size_t calls = 0;
    (void)state;

    atomic_store(&stands, true);
    prepare(&load, 2, false);
    load.job.progress = count_calls;
    load.job.context = &calls;
    run(&load, &capture);
    atomic_store(&stands, false);
    assert_int_equal(load.status, DP_OK);
    assert_int_equal(calls, 0);
    finish(&load);
}

static void progress_is_told_by_one_thread(void **state)
{
    struct dp_trace_mark mark = {.open = 0};
    struct dp_log_capture capture;
    size_t last = 0;
    (void)state;

    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    prepare(&load, 4, false);
    load.job.progress = count_progress;
    load.job.context = &last;
    run(&load, &capture);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    assert_int_equal(load.status, DP_OK);
    assert_int_equal(atomic_load(&mark.beats), ALL); /* and by all, for the watchdog */
    finish(&load);
}

static void without_memory_it_ends(void **state)
{
    struct dp_log_capture capture;
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    for (int nth = 1; nth < 4 && status != DP_OK; nth++) {
        prepare(&load, 1, false);
        dp_mem_fail_nth(nth);
        run(&load, &capture);
        dp_mem_fail_nth(0);
        assert_int_equal(load.status, DP_ERR_NOMEM);
        finish(&load);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_load_what_one_reader_reads),
        cmocka_unit_test(the_first_bad_sample_is_named_whoever_meets_it),
        cmocka_unit_test(bad_samples_are_replaced_and_counted),
        cmocka_unit_test(the_first_five_bad_samples_are_named),
        cmocka_unit_test(a_file_that_vanishes_ends_the_load_with_its_name),
        cmocka_unit_test(progress_is_not_told_at_once),
        cmocka_unit_test(progress_is_told_by_one_thread),
        cmocka_unit_test(without_memory_it_ends),
    };

    return cmocka_run_group_tests(tests, make_pictures, remove_pictures);
}
