/*
 * test_raw_cache.c - units of a data set in memory: all ranks of a node fill it in together, and
 * samples are what they were, also when the files are gone.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/sample_reader.h"
#include "runtime/data/stream/raw_cache.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/scratch.h"

/* More than one thread takes at once, and not a multiple of that. */
enum { SIDE = 4, TRAIN = 37, TEST = 7, UNITS = TRAIN + TEST, SAMPLE = SIDE * SIDE * 3 };

/* Rows are in the order of names within a class; each set has one class. */
static const char *name_of(size_t u)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "%s/a/%02zu.png", u < TRAIN ? "train" : "test", u);
    return name;
}

static const char *path_of(size_t u)
{
    return scratch_path(name_of(u));
}

static size_t file_bytes(size_t u)
{
    struct stat info;

    return stat(path_of(u), &info) == 0 ? (size_t)info.st_size : 0;
}

typedef int start_function(pthread_t *thread, const pthread_attr_t *attributes,
                           void *(*run_it)(void *), void *arg);

static int started; /* threads */

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

static struct dp_source_config config; /* borrowed by the data set */

static struct dp_samples *opened(void)
{
    struct dp_samples *samples = NULL;

    for (size_t u = 0; u < UNITS; u++) { /* of different lengths */
        picture_file(scratch_folder, name_of(u), 4 + (int)u, 50 - (int)u, 3, (unsigned)u);
    }
    config = (struct dp_source_config){
        .dir = scratch_folder,
        .input = {.height = SIDE, .width = SIDE, .channels = 3, .count = SAMPLE}};
    assert_int_equal(dp_samples_open("folder", &config, &samples), DP_OK);
    assert_int_equal(dp_samples_info(samples)->units, UNITS);
    return samples;
}

/* Reads all samples; returns how many bytes of files were read for them. */
static uint64_t read_all(struct dp_samples *samples, uint8_t out[UNITS][SAMPLE])
{
    struct dp_sample_reader *reader = NULL;
    struct dp_stage_times times;
    int32_t label;

    memset(&times, 0, sizeof(times));
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t u = 0; u < UNITS; u++) {
        const enum dp_set set = u < TRAIN ? DP_SET_TRAIN : DP_SET_TEST;
        assert_int_equal(
            dp_sample_reader_read(reader, set, u < TRAIN ? u : u - TRAIN, out[u], &label), DP_OK);
        assert_int_equal(label, 0);
    }
    dp_sample_reader_take_times(reader, &times);
    dp_sample_reader_destroy(reader);
    assert_int_equal(times.bytes[DP_STAGE_DECODE], UNITS * SAMPLE);
    return times.bytes[DP_STAGE_READ];
}

/* The index, filled in by several ranks in turn. */
static void *measured(const struct dp_samples *samples, int ranks, int threads)
{
    void *index = dp_zalloc(1, dp_raw_cache_index_bytes(UNITS));

    assert_non_null(index);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(dp_raw_cache_measure(samples, index, threads), DP_OK);
    }
    return index;
}

static uint8_t before[UNITS][SAMPLE], after[UNITS][SAMPLE];

static void check_kept(int ranks, int threads)
{
    struct dp_samples *samples = opened();
    void *index = measured(samples, ranks, threads);
    const int before_reading = started;
    size_t all = 0, at = 0;
    uint8_t *bytes;

    for (size_t u = 0; u < UNITS; u++) {
        all += file_bytes(u);
    }
    assert_int_equal(dp_raw_cache_place(index, UNITS), all);
    assert_int_equal(dp_raw_cache_bytes(index, UNITS), all);
    bytes = dp_zalloc(1, all + 1);
    assert_non_null(bytes);
    bytes[all] = 0x5a;
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(dp_raw_cache_read(samples, index, bytes, threads), DP_OK);
    }
    assert_int_equal(bytes[all], 0x5a);
    assert_int_equal(started - before_reading, ranks * (threads - 1)); /* and this one */
    for (size_t u = 0; u < UNITS; u++) { /* as they lie in files, one after another */
        static char file[1 << 16];
        const size_t length = (size_t)scratch_read(path_of(u), file, sizeof(file));
        assert_memory_equal(bytes + at, file, length);
        at += length;
    }
    assert_int_equal(read_all(samples, before), all);
    dp_raw_cache_use(samples, index, bytes);
    for (size_t u = 0; u < UNITS; u++) {
        assert_int_equal(unlink(path_of(u)), 0);
    }
    assert_int_equal(read_all(samples, after), 0);
    assert_memory_equal(after, before, sizeof(before));
    dp_samples_close(samples);
    dp_free(bytes);
    dp_free(index);
    assert_int_equal(dp_mem_live(), 0);
}

static void samples_come_from_memory_as_they_were(void **state)
{
    (void)state;
    check_kept(1, 1);
    check_kept(1, 3);
    check_kept(3, 2);
}

static dp_status read_one(struct dp_samples *samples, size_t row, struct dp_log_capture *capture)
{
    struct dp_sample_reader *reader = NULL;
    uint8_t out[SAMPLE];
    int32_t label;
    dp_status status;

    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    dp_log_capture_begin(capture, DP_LOG_ERROR);
    status = dp_sample_reader_read(reader, DP_SET_TRAIN, row, out, &label);
    dp_log_capture_end(capture, DP_LOG_DROP);
    dp_sample_reader_destroy(reader);
    return status;
}

/* One is missing when units are measured, one goes and one grows before they are read. */
static void units_that_cannot_be_read_are_left_out(void **state)
{
    static const size_t gone = 3, late = 20, grown = 21;
    struct dp_samples *samples = opened();
    struct dp_log_capture capture;
    uint8_t *bytes;
    void *index;
    size_t all;
    (void)state;

    assert_int_equal(unlink(path_of(gone)), 0);
    index = measured(samples, 1, 2);
    all = dp_raw_cache_place(index, UNITS);
    bytes = dp_zalloc(1, all);
    assert_non_null(bytes);
    assert_int_equal(unlink(path_of(late)), 0);
    picture_file(scratch_folder, name_of(grown), 60, 60, 3, 21);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_raw_cache_read(samples, index, bytes, 2), DP_OK);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_string_equal(dp_log_captured(&capture), ""); /* whoever wants it reports it */
    dp_raw_cache_use(samples, index, bytes);
    assert_int_equal(read_one(samples, gone, &capture), DP_ERR_NOINPUT);
    assert_non_null(strstr(dp_log_captured(&capture), name_of(gone)));
    assert_int_equal(read_one(samples, late, &capture), DP_ERR_NOINPUT);
    assert_non_null(strstr(dp_log_captured(&capture), name_of(late)));
    assert_int_equal(read_one(samples, grown, &capture), DP_OK); /* from its file */
    assert_int_equal(read_one(samples, gone + 1, &capture), DP_OK);
    dp_samples_close(samples);
    dp_free(bytes);
    dp_free(index);
}

static void threads_need_memory(void **state)
{
    struct dp_samples *samples = opened();
    void *index = dp_zalloc(1, dp_raw_cache_index_bytes(UNITS));
    const size_t live = dp_mem_live();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_raw_cache_measure(samples, index, 2), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), live);
    dp_free(index);
    dp_samples_close(samples);
}

/* What a reader needs is found by reading samples here and there, of which nothing is left. */
static void what_a_reader_needs_is_found_and_leaves_nothing(void **state)
{
    struct dp_samples *samples = opened();
    const size_t live = dp_mem_live();
    size_t need, before_it;
    (void)state;

    before_it = dp_sample_reader_need(samples);
    assert_true(before_it > SAMPLE);
    for (size_t eighth = 0; eighth < 8; eighth++) { /* each larger than those before */
        const int width = 200 + 100 * (int)eighth;
        picture_file(scratch_folder, name_of(eighth * TRAIN / 8), width, 300, 3, 1);
        need = dp_sample_reader_need(samples);
        assert_true(need > before_it);
        before_it = need;
    }
    assert_int_equal(dp_mem_live(), live);
    dp_samples_close(samples);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_create_fast, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(samples_come_from_memory_as_they_were),
        TEST(units_that_cannot_be_read_are_left_out),
        TEST(threads_need_memory),
        TEST(what_a_reader_needs_is_found_and_leaves_nothing),
    };

    return cmocka_run_group_tests_name("raw_cache", tests, NULL, NULL);
}
