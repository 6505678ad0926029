/*
 * test_shard_store.c - the files of records: how many may be open, what their copies take, and that
 * none is closed while it is read.
 */
#define _GNU_SOURCE /* syscall() */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/shard_store.h"
#include "tests/support/scratch.h"

enum { SHARDS = 3, BYTES = 5000 };

/* Of a server that nobody asks. */
static const char place[] = "http://127.0.0.1:1/records";

static struct dp_records_shard shards[SHARDS];
static const struct dp_records_index index_of_all = {.shards = shards, .shard_count = SHARDS};

/* Each shard has bytes of its own. */
static int make_shards(void **state)
{
    uint8_t content[BYTES];

    if (scratch_create_fast(state) != 0) {
        return 1;
    }
    for (int i = 0; i < SHARDS; i++) {
        char name[DP_RECORDS_NAME];
        struct dp_file file;
        memset(content, 'a' + i, sizeof(content));
        dp_records_shard_name(name, (size_t)i);
        shards[i] = (struct dp_records_shard){.bytes = BYTES, .samples = 1, .blocks = (uint64_t)i};
        if (dp_file_create(&file, scratch_path(name)) != DP_OK ||
            dp_file_append(&file, content, sizeof(content)) != DP_OK ||
            dp_file_finish(&file, shards[i].hash) != DP_OK) {
            return 1;
        }
    }
    return 0;
}

static struct dp_shard_store *begun(const struct dp_shard_store_config *config)
{
    struct dp_shard_store *store = NULL;

    assert_int_equal(dp_shard_store_open(config, &store), DP_OK);
    assert_int_equal(dp_shard_store_begin(store, &index_of_all), DP_OK);
    return store;
}

/* ---- how many files, and how large ---- */

/* The limit that a process has after it has begun with that one. */
static rlim_t limit_after(rlim_t limit, const char *cache)
{
    const struct dp_shard_store_config config = {.dir = scratch_folder, .cache = cache};
    struct rlimit before, set, after;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    set = (struct rlimit){.rlim_cur = limit, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &set), 0);
    dp_shard_store_close(begun(&config));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(after.rlim_max, before.rlim_max);
    return after.rlim_cur;
}

static void a_file_may_be_open_for_each_shard_and_for_each_copy(void **state)
{
    const char *cache = scratch_path("cache");
    rlim_t one, two;
    (void)state;

    one = limit_after(32, NULL);
    two = limit_after(32, cache);
    assert_in_range(one, 32 + SHARDS, 1024);
    assert_int_equal(two, one + SHARDS);
    assert_int_equal(limit_after(two - 1, cache), two);
    assert_int_equal(limit_after(two + 1, cache), two + 1);
    assert_int_equal(dp_mem_live(), 0);
}

/* In whole megabytes: what it is, and the least that holds the largest shard. */
static void a_budget_that_is_too_small_is_refused_with_one_that_is_not(void **state)
{
    const char *cache = scratch_path("cache");
    const struct dp_shard_store_config config = {
        .dir = scratch_folder, .cache = cache, .cache_bytes = 3 << 20};
    struct dp_shard_store *store = NULL;
    struct dp_log_capture capture;
    (void)state;

    shards[1].bytes = (5 << 20) + 1;
    assert_int_equal(dp_shard_store_open(&config, &store), DP_OK);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_shard_store_begin(store, &index_of_all), DP_ERR_CONFIG);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture), "3 MB do not hold the largest shard of "));
    assert_non_null(strstr(dp_log_captured(&capture), "set at least 6"));
    dp_shard_store_close(store);
    assert_int_equal(dp_mem_live(), 0);
}

/* Of a place the table of blocks and the foot are copied by themselves, too. */
static void copies_take_what_is_copied(void **state)
{
    const char *cache = scratch_path("cache");
    const struct {
        const char *dir, *cache;
        uint64_t bytes;
    } cases[] = {
        {scratch_folder, NULL, 0},
        {scratch_folder, cache, (uint64_t)SHARDS * BYTES},
        {place, cache,
         SHARDS * (BYTES + DP_SHARD_FOOT) + (0 + 1 + 2) * DP_SHARD_ROW /* blocks of each */},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_shard_store_config config = {.dir = cases[i].dir, .cache = cases[i].cache};
        struct dp_shard_store *store = begun(&config);
        assert_int_equal(dp_shard_store_copied(store), cases[i].bytes);
        assert_int_equal(dp_shard_store_remote(store), cases[i].dir == place);
        dp_shard_store_close(store);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- a reader ---- */

static sem_t is_reading, may_read;
static _Thread_local bool is_reader, is_waiter;
static int waits;

/* The linker takes these, and not libc's. A reader is in the middle of it until it may go on. */
ssize_t pread(int fd, void *buf, size_t nbytes, off_t offset)
{
    if (is_reader) {
        is_reader = false;
        (void)sem_post(&is_reading);
        while (sem_wait(&may_read) != 0) {
        }
    }
    return (ssize_t)syscall(SYS_pread64, fd, buf, nbytes, offset);
}

int sched_yield(void)
{
    if (is_waiter && waits++ == 0) {
        (void)sem_post(&may_read);
    }
    return (int)syscall(SYS_sched_yield);
}

struct reader {
    struct dp_shard_store *store;
    dp_status status;
    size_t got;
    uint8_t bytes[100];
};

static void *read_some(void *context)
{
    struct reader *r = context;

    is_reader = true;
    r->status = dp_shard_store_read(r->store, 1, false, 50, r->bytes, sizeof(r->bytes), &r->got);
    return NULL;
}

/* Who drops it waits until it is read. */
static void a_copy_that_is_read_is_not_closed(void **state)
{
    const char *cache = scratch_path("cache");
    const struct dp_shard_store_config config = {.dir = scratch_folder, .cache = cache};
    struct dp_shard_store *store = begun(&config);
    struct reader reader = {.store = store};
    uint8_t expected[sizeof(reader.bytes)];
    bool deleted = false;
    pthread_t thread;
    size_t got;
    (void)state;

    assert_int_equal(sem_init(&is_reading, 0, 0), 0);
    assert_int_equal(sem_init(&may_read, 0, 0), 0);
    assert_int_equal(dp_shard_store_read(store, 1, false, 0, expected, 1, &got), DP_OK);
    assert_int_equal(pthread_create(&thread, NULL, read_some, &reader), 0);
    while (sem_wait(&is_reading) != 0) {
    }
    is_waiter = true;
    assert_true(dp_shard_store_drop(store, 1, &deleted));
    is_waiter = false;
    if (waits == 0) {
        (void)sem_post(&may_read);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(waits > 0);
    assert_true(deleted);
    assert_int_equal(reader.status, DP_OK);
    assert_int_equal(reader.got, sizeof(reader.bytes));
    memset(expected, 'b', sizeof(expected));
    assert_memory_equal(reader.bytes, expected, sizeof(expected));
    assert_false(dp_shard_store_drop(store, 1, &deleted)); /* it has none any more */
    assert_false(deleted);
    dp_shard_store_close(store);
    (void)sem_destroy(&is_reading);
    (void)sem_destroy(&may_read);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_may_be_open_for_each_shard_and_for_each_copy,
                                        make_shards, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_budget_that_is_too_small_is_refused_with_one_that_is_not,
                                        make_shards, scratch_destroy),
        cmocka_unit_test_setup_teardown(copies_take_what_is_copied, make_shards, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_copy_that_is_read_is_not_closed, make_shards,
                                        scratch_destroy),
    };

    return cmocka_run_group_tests_name("shard_store", tests, NULL, NULL);
}
