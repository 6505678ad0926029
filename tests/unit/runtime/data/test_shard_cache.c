/*
 * test_shard_cache.c - records that are read through copies on a local disk: the same bytes, within
 * the budget, whatever befalls the copies.
 */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/disk.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

enum { ROWS = 1600, FEATURES = 300, TWO_SHARDS = 1800000 };

static char root[64], arrays[80], packed[80], cache[80];

static int count_copies(uint64_t *bytes, char name[64]);

/* Bytes that the disk has for the copies, whether free or taken by them; 0: as it is. */
static uint64_t disk_bytes;

/* The linker takes this one, and not libc's. */
int statvfs(const char *restrict file, struct statvfs *restrict buf)
{
    struct statfs info;
    char name[64];
    uint64_t taken;

    memset(buf, 0, sizeof(*buf));
    if (statfs(file, &info) != 0) {
        return -1;
    }
    buf->f_frsize = (unsigned long)info.f_bsize;
    buf->f_bavail = info.f_bavail;
    if (disk_bytes > 0) {
        (void)count_copies(&taken, name);
        buf->f_frsize = 1;
        buf->f_bavail = disk_bytes > taken ? disk_bytes - taken : 0;
    }
    return 0;
}

/* About 2 MB in three shards. */
static int make_folder(void **state)
{
    static float numbers[ROWS * FEATURES];
    static uint8_t labels[ROWS];
    struct dp_pack_options options = {.from = arrays, .to = packed, .shard_bytes = 800000};
    struct dp_pack_result result;
    (void)state;

    (void)snprintf(root, sizeof(root), "/tmp/test_shard_cache.XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(arrays, sizeof(arrays), "%s/arrays", root);
    (void)snprintf(packed, sizeof(packed), "%s/packed", root);
    (void)snprintf(cache, sizeof(cache), "%s/cache", root);
    for (int i = 0; i < ROWS * FEATURES; i++) {
        numbers[i] = (float)((i * 4003) % 100003) / 64.0f;
    }
    if (mkdir(arrays, 0700) != 0) {
        return 1;
    }
    npy_file(arrays, "train_images.npy", "<f4", "(1600, 300)", numbers, sizeof(numbers));
    npy_file(arrays, "train_labels.npy", "|u1", "(1600,)", labels, sizeof(labels));
    options.threads = 1;
    return dp_pack(&options, &result) == DP_OK && result.shards == 3 ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static int no_cache(void **state)
{
    (void)state;
    if (access(cache, F_OK) == 0) {
        remove_tree(cache);
    }
    return 0;
}

/* Reads all of it; 0 is the budget's default. */
static dp_status read_all(uint64_t budget)
{
    const struct dp_shard_store_config config = {
        .dir = packed, .cache = cache, .cache_bytes = budget};
    struct dp_records *records;
    dp_status status = dp_records_open(&config, &records);

    if (status == DP_OK) {
        status = dp_records_verify(records);
        dp_records_close(records);
    }
    return status;
}

/* All blocks, as a run reads them. */
static dp_status read_blocks(const struct dp_records *records)
{
    struct dp_buffer stored = {NULL, 0}, memory = {NULL, 0};
    struct dp_block_view view;
    dp_status status = DP_OK;

    for (int set = 0; set < DP_SETS; set++) {
        const size_t count = dp_records_blocks(records, (enum dp_set)set);
        for (size_t i = 0; status == DP_OK && i < count; i++) {
            status = dp_records_read(records, dp_records_block(records, (enum dp_set)set, i),
                                     &stored, &memory, &view);
        }
    }
    dp_buffer_release(&stored);
    dp_buffer_release(&memory);
    return status;
}

static void copy_file(const char *from, const char *to)
{
    struct stat info;
    FILE *file = fopen(from, "rb");
    char *bytes;

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    bytes = malloc((size_t)info.st_size);
    if (bytes == NULL) {
        abort();
    }
    assert_int_equal(fread(bytes, 1, (size_t)info.st_size, file), info.st_size);
    assert_int_equal(fclose(file), 0);
    file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, (size_t)info.st_size, file), info.st_size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

/* Copies in the cache, and their bytes; the name of the first that readdir() gives. */
static int count_copies(uint64_t *bytes, char name[64])
{
    DIR *entries = opendir(cache);
    const struct dirent *entry;
    struct stat info;
    int count = 0;

    *bytes = 0;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (strlen(entry->d_name) == 36 && strcmp(entry->d_name + 32, ".rec") == 0) {
            (void)snprintf(name, 64, "%.63s", entry->d_name);
            assert_int_equal(fstatat(dirfd(entries), entry->d_name, &info, 0), 0);
            *bytes += (uint64_t)info.st_size;
            count++;
        } else if (disk_bytes > 0) { /* it is being read: half a copy takes what is reserved */
            const bool there = fstatat(dirfd(entries), entry->d_name, &info, 0) == 0;
            *bytes += there && S_ISREG(info.st_mode) ? (uint64_t)info.st_blocks * 512 : 0;
        } else {
            assert_true(entry->d_name[0] == '.' || strcmp(entry->d_name, "letter") == 0);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return count;
}

static void copies_are_made_once_and_read(void **state)
{
    struct stat before, after;
    char name[64], path[160];
    uint64_t bytes;
    (void)state;

    assert_int_equal(read_all(0), DP_OK);
    assert_int_equal(count_copies(&bytes, name), 3);
    (void)snprintf(path, sizeof(path), "%s/%s", cache, name);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(read_all(0), DP_OK);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(dp_mem_live(), 0);
}

/* Of three shards two fit, so that reading all of them always misses one. */
static void the_budget_is_kept_and_other_files_stay(void **state)
{
    const uint64_t budget = TWO_SHARDS;
    char name[64];
    uint64_t bytes;
    (void)state;

    assert_int_equal(mkdir(cache, 0700), 0);
    write_bytes(cache, "letter", "dear", 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_all(budget), DP_OK);
        assert_int_equal(count_copies(&bytes, name), 2);
        assert_true(bytes <= budget);
    }
    (void)snprintf(name, sizeof(name), "%.40s/letter", cache);
    assert_int_equal(access(name, F_OK), 0);
    assert_int_equal(read_all(700000), DP_ERR_CONFIG); /* less than a shard */
    assert_int_equal(dp_mem_live(), 0);
}

/* By default copies take nine tenths of what the disk has. */
static void copies_leave_a_tenth_of_the_disk_free(void **state)
{
    char name[64];
    uint64_t all, bytes;
    (void)state;

    assert_int_equal(read_all(0), DP_OK);
    assert_int_equal(count_copies(&all, name), 3);
    for (int fits = 0; fits < 2; fits++) {
        remove_tree(cache);
        disk_bytes = fits == 1 ? all * 100 / 88 : all * 100 / 92;
        assert_int_equal(read_all(0), DP_OK);
        disk_bytes = 0;
        assert_int_equal(count_copies(&bytes, name), fits == 1 ? 3 : 2);
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void flip(const char *dir, const char *name, long at)
{
    char path[160];
    FILE *file;
    int byte;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void a_damaged_or_short_copy_is_made_again(void **state)
{
    char name[64], path[160];
    uint64_t bytes;
    (void)state;

    assert_int_equal(read_all(0), DP_OK);
    assert_int_equal(count_copies(&bytes, name), 3);
    flip(cache, name, 5000);
    assert_int_equal(read_all(0), DP_OK);
    (void)snprintf(path, sizeof(path), "%s/%s", cache, name);
    assert_int_equal(truncate(path, 4000), 0);
    assert_int_equal(read_all(0), DP_OK);
    assert_int_equal(count_copies(&bytes, name), 3);
    assert_int_equal(dp_mem_live(), 0);
}

/* While they are open, by two jobs. The second one takes what the first one has made again. */
static void a_copy_that_is_damaged_while_it_is_read_is_made_again_once(void **state)
{
    const struct dp_shard_store_config config = {.dir = packed, .cache = cache};
    struct dp_records *records[2];
    struct dp_log_capture capture;
    struct stat made[2];
    const char *said;
    char name[64], path[160];
    uint64_t bytes;
    (void)state;

    for (int damage = 0; damage < 2; damage++) {
        for (int job = 0; job < 2; job++) {
            assert_int_equal(dp_records_open(&config, &records[job]), DP_OK);
            assert_int_equal(dp_records_verify(records[job]), DP_OK);
        }
        assert_int_equal(count_copies(&bytes, name), 3);
        (void)snprintf(path, sizeof(path), "%s/%s", cache, name);
        if (damage == 0) {
            assert_int_equal(truncate(path, 4000), 0);
        } else {
            flip(cache, name, 5000);
        }
        dp_log_set_level(DP_LOG_WARN);
        dp_log_capture_begin(&capture, DP_LOG_WARN);
        for (int job = 0; job < 2; job++) {
            assert_int_equal(read_blocks(records[job]), DP_OK);
            assert_int_equal(stat(path, &made[job]), 0);
            dp_records_close(records[job]);
        }
        dp_log_capture_end(&capture, DP_LOG_DROP);
        dp_log_set_level(DP_LOG_NONE);
        said = strstr(capture.lines, "was damaged: it is made again");
        assert_non_null(said); /* once, though two have met the damage */
        assert_null(strstr(said + 1, "was damaged"));
        assert_int_equal(made[0].st_ino, made[1].st_ino);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Between its opening and the copying of it. */
static void an_origin_that_is_cut_or_overwritten_before_it_is_copied_is_refused(void **state)
{
    const struct dp_shard_store_config config = {.dir = packed, .cache = cache};
    struct dp_records *records;
    struct dp_log_capture capture;
    char path[160], kept[160];
    (void)state;

    (void)snprintf(path, sizeof(path), "%s/shard-00001.rec", packed);
    (void)snprintf(kept, sizeof(kept), "%s/kept", root);
    for (int damage = 0; damage < 2; damage++) {
        uint64_t bytes;
        char name[64];
        copy_file(path, kept);
        assert_int_equal(dp_records_open(&config, &records), DP_OK);
        if (damage == 0) {
            assert_int_equal(truncate(path, 4000), 0);
        } else {
            flip(packed, "shard-00001.rec", 5000);
        }
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        assert_int_equal(read_blocks(records), DP_ERR_DATA);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        dp_records_close(records);
        assert_non_null(strstr(dp_log_captured(&capture),
                               damage == 0 ? "packed/shard-00001.rec: ends at byte 4000, "
                                           : "packed/shard-00001.rec: its hash is another than"));
        assert_true(strlen(capture.lines) + 1 >= capture.used); /* one line */
        assert_true(count_copies(&bytes, name) < 3);
        assert_int_equal(rename(kept, path), 0);
    }
    assert_int_equal(read_all(0), DP_OK);
    assert_int_equal(dp_mem_live(), 0);
}

static void damage_of_the_origin_is_no_copy(void **state)
{
    struct dp_log_capture capture;
    char name[64];
    uint64_t bytes;
    (void)state;

    flip(packed, "shard-00001.rec", 5000);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(read_all(0), DP_ERR_DATA);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture),
                           "packed/shard-00001.rec: its hash is another than in index.json"));
    assert_true(strlen(capture.lines) + 1 >= capture.used);
    flip(packed, "shard-00001.rec", 5000);
    assert_true(count_copies(&bytes, name) < 3);
    assert_int_equal(dp_mem_live(), 0);
}

static int count_lines(const struct dp_log_capture *capture, const char *words)
{
    int count = 0;

    for (size_t at = 0; at < capture->used; at += strlen(capture->lines + at) + 1) {
        count += strstr(capture->lines + at, words) != NULL;
    }
    return count;
}

/* From the first file on, and from the middle of the second copy. */
static void a_full_disk_is_one_warning_and_reading_goes_on(void **state)
{
    static const char *const faults[] = {"full:write=1", "full:write=4"};
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct dp_fault *fault;
        struct dp_log_capture capture;
        char name[64];
        uint64_t bytes;
        if (i == 0) {
            assert_int_equal(mkdir(cache, 0700), 0);
        }
        assert_int_equal(dp_faults_create(faults[i], &fault), DP_OK);
        dp_log_set_level(DP_LOG_WARN);
        dp_log_capture_begin(&capture, DP_LOG_WARN);
        dp_disk_set_faults(fault, 0);
        assert_int_equal(read_all(0), DP_OK);
        dp_disk_set_faults(NULL, 0);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        dp_log_set_level(DP_LOG_NONE);
        dp_faults_destroy(fault);
        assert_non_null(strstr(capture.lines, "from now on shards are read from "));
        assert_true(strlen(capture.lines) + 1 >= capture.used); /* nothing more is said */
        assert_true(count_copies(&bytes, name) <= i);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Two ranks of a job, and then another job, after these have ended. */
static void a_full_disk_is_one_warning_of_all_ranks_of_a_job(void **state)
{
    const struct dp_shard_store_config config = {.dir = packed, .cache = cache};
    struct dp_fault *fault;
    struct dp_log_capture capture;
    (void)state;

    assert_int_equal(mkdir(cache, 0700), 0);
    assert_int_equal(dp_faults_create("full:write=1", &fault), DP_OK);
    dp_log_set_level(DP_LOG_WARN);
    dp_log_capture_begin(&capture, DP_LOG_WARN);
    dp_disk_set_faults(fault, 0);
    for (int job = 1; job <= 2; job++) {
        struct dp_records *ranks[2];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(dp_records_open(&config, &ranks[i]), DP_OK);
            assert_int_equal(read_blocks(ranks[i]), DP_OK);
        }
        for (int i = 0; i < 2; i++) {
            dp_records_close(ranks[i]);
        }
        assert_int_equal(count_lines(&capture, "from now on shards are read from "), job);
    }
    dp_disk_set_faults(NULL, 0);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_log_set_level(DP_LOG_NONE);
    dp_faults_destroy(fault);
    assert_int_equal(dp_mem_live(), 0);
}

static void *read_beside(void *context)
{
    dp_status *status = context;

    for (int i = 0; i < 3 && *status == DP_OK; i++) {
        *status = read_all(TWO_SHARDS);
    }
    return NULL;
}

static void two_jobs_share_the_folder(void **state)
{
    dp_status status = DP_OK, other = DP_OK;
    pthread_t thread;
    char name[64];
    uint64_t bytes;
    (void)state;

    assert_int_equal(pthread_create(&thread, NULL, read_beside, &other), 0);
    (void)read_beside(&status);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(status, DP_OK);
    assert_int_equal(other, DP_OK);
    assert_in_range(count_copies(&bytes, name), 1, 3);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_folder_that_cannot_be_made_is_refused(void **state)
{
    (void)state;
    write_bytes(root, "cache", "", 0);
    assert_int_equal(read_all(0), DP_ERR_WRITE);
    remove_file(root, "cache");
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies_are_made_once_and_read, no_cache),
        cmocka_unit_test_setup(the_budget_is_kept_and_other_files_stay, no_cache),
        cmocka_unit_test_setup(copies_leave_a_tenth_of_the_disk_free, no_cache),
        cmocka_unit_test_setup(a_damaged_or_short_copy_is_made_again, no_cache),
        cmocka_unit_test_setup(a_copy_that_is_damaged_while_it_is_read_is_made_again_once,
                               no_cache),
        cmocka_unit_test_setup(an_origin_that_is_cut_or_overwritten_before_it_is_copied_is_refused,
                               no_cache),
        cmocka_unit_test_setup(damage_of_the_origin_is_no_copy, no_cache),
        cmocka_unit_test_setup(a_full_disk_is_one_warning_and_reading_goes_on, no_cache),
        cmocka_unit_test_setup(a_full_disk_is_one_warning_of_all_ranks_of_a_job, no_cache),
        cmocka_unit_test_setup(two_jobs_share_the_folder, no_cache),
        cmocka_unit_test_setup(a_folder_that_cannot_be_made_is_refused, no_cache),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
