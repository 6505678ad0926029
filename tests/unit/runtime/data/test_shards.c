/*
 * test_shards.c - the files of packed records: blocks are checked when they are read, and shards
 * may lie in several folders.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/folder_list.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/records/records.h"
#include "runtime/data/records/shard_cache.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"
#include "tests/support/same_blocks.h"

enum { ROWS = 700, FEATURES = 300, SHARDS = 3, NAMES = 5 };

static char root[64], folder[NAMES][96]; /* arrays, packed whole, and three for shards of it */
enum { ARRAYS, WHOLE, FIRST, SECOND, THIRD };

static int make_folders(void **state)
{
    static const char *const names[NAMES] = {"arrays", "whole", "first", "second", "third"};
    static uint8_t numbers[ROWS * FEATURES], labels[ROWS];
    (void)state;

    (void)snprintf(root, sizeof(root), "/tmp/test_shards.XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    for (int i = 0; i < NAMES; i++) {
        (void)snprintf(folder[i], sizeof(folder[i]), "%s/%s", root, names[i]);
        if (i != WHOLE && mkdir(folder[i], 0700) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < ROWS * FEATURES; i++) {
        numbers[i] = (uint8_t)(i % 251);
    }
    npy_file(folder[ARRAYS], "train_images.npy", "|u1", "(700, 300)", numbers, sizeof(numbers));
    npy_file(folder[ARRAYS], "train_labels.npy", "|u1", "(700,)", labels, sizeof(labels));
    npy_file(folder[ARRAYS], "test_images.npy", "|u1", "(40, 300)", numbers, (size_t)40 * FEATURES);
    npy_file(folder[ARRAYS], "test_labels.npy", "|u1", "(40,)", labels, 40);
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

/* Two shards to train on, one to test with. */
static void pack_anew(void)
{
    const struct dp_pack_options options = {
        .from = folder[ARRAYS], .to = folder[WHOLE], .shard_bytes = 150000, .threads = 1};
    struct dp_pack_result result;

    if (access(folder[WHOLE], F_OK) == 0) {
        remove_tree(folder[WHOLE]);
    }
    assert_int_equal(dp_pack(&options, &result), DP_OK);
}

/* Copies a file, with bit 0 of byte `flipped` changed; SIZE_MAX: of none. */
static void copy(const char *name, int from, int to, size_t flipped)
{
    static uint8_t bytes[1 << 20];
    char path[128];
    FILE *in;
    size_t count;

    (void)snprintf(path, sizeof(path), "%s/%s", folder[from], name);
    in = fopen(path, "rb");
    assert_non_null(in);
    count = fread(bytes, 1, sizeof(bytes), in);
    assert_int_equal(fclose(in), 0);
    if (flipped < count) {
        bytes[flipped] ^= 1;
    }
    write_bytes(folder[to], name, bytes, count);
}

/* Files with that ending. */
static int count_files(const char *dir, const char *ending)
{
    DIR *entries = opendir(dir);
    const struct dirent *entry;
    int count = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        const size_t length = strlen(entry->d_name), end = strlen(ending);
        count += length > end && strcmp(entry->d_name + length - end, ending) == 0;
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return count;
}

/* ---- checking ---- */

static dp_status open_list(const char *dir, struct dp_records **records,
                           struct dp_log_capture *capture)
{
    const struct dp_shard_store_config config = {.dir = dir};
    dp_status status;

    dp_log_capture_begin(capture, DP_LOG_ERROR);
    status = dp_records_open(&config, records);
    dp_log_capture_end(capture, DP_LOG_DROP);
    return status;
}

/* Whether a block is read, again, without a word. */
static bool is_read(const struct dp_records *records, const struct dp_records_block *block,
                    struct dp_buffer memory[2])
{
    struct dp_log_capture capture;
    struct dp_block_view view;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_records_read(records, block, &memory[0], &memory[1], &view);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_true(status == DP_OK || strstr(dp_log_captured(&capture), "is damaged") != NULL);
    return status == DP_OK;
}

/* A disk may give other bytes later: hashes are compared each time that a block is read. */
static void damage_is_found_whenever_a_block_is_read(void **state)
{
    const struct dp_shard_store_config config = {.dir = folder[WHOLE]};
    struct dp_buffer memory[2] = {{NULL, 0}, {NULL, 0}};
    const struct dp_records_block *block;
    struct dp_records *records = NULL;
    size_t at;
    (void)state;

    pack_anew();
    assert_int_equal(dp_records_open(&config, &records), DP_OK);
    block = dp_records_block(records, DP_SET_TRAIN, 1);
    assert_int_equal(block->shard, 0);
    at = (size_t)block->block.at + 5;
    copy("shard-00000.rec", WHOLE, WHOLE, at);
    for (int i = 0; i < 3; i++) {
        assert_false(is_read(records, block, memory));
    }
    copy("shard-00000.rec", WHOLE, WHOLE, at);
    assert_true(is_read(records, block, memory));
    copy("shard-00000.rec", WHOLE, WHOLE, at);
    assert_false(is_read(records, block, memory));
    dp_buffer_release(&memory[0]);
    dp_buffer_release(&memory[1]);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
}

/* The same where the file ends, as long as it does; and what another file has in its place changes
 * nothing. */
static void a_file_that_is_cut_off_or_replaced_is_noticed(void **state)
{
    const struct dp_shard_store_config config = {.dir = folder[WHOLE]};
    struct dp_buffer memory[2] = {{NULL, 0}, {NULL, 0}};
    const struct dp_records_block *block;
    struct dp_records *records = NULL;
    struct dp_log_capture capture;
    struct dp_block_view view;
    char path[128], words[128];
    (void)state;

    pack_anew();
    (void)snprintf(path, sizeof(path), "%s/shard-00000.rec", folder[WHOLE]);
    assert_int_equal(dp_records_open(&config, &records), DP_OK);
    assert_true(is_read(records, dp_records_block(records, DP_SET_TRAIN, 1), memory));
    copy("shard-00000.rec", WHOLE, FIRST, SIZE_MAX);
    block = dp_records_block(records, DP_SET_TRAIN, 1);
    assert_int_equal(truncate(path, (off_t)block->block.at + 5), 0);
    for (int i = 0; i < 2; i++) {
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        assert_int_equal(dp_records_read(records, block, &memory[0], &memory[1], &view),
                         DP_ERR_DATA);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        (void)snprintf(words, sizeof(words), "the file ends before byte %llu,",
                       (unsigned long long)block->block.at + block->block.stored);
        assert_non_null(strstr(dp_log_captured(&capture), words));
        assert_non_null(strstr(dp_log_captured(&capture), "shard-00000.rec: block 1 (samples "));
    }
    assert_true(is_read(records, dp_records_block(records, DP_SET_TRAIN, 0), memory));
    copy("shard-00000.rec", FIRST, WHOLE, SIZE_MAX);
    assert_true(is_read(records, block, memory));
    assert_int_equal(unlink(path), 0);
    write_bytes(folder[WHOLE], "shard-00000.rec", "another", 7);
    assert_true(is_read(records, block, memory));
    (void)snprintf(path, sizeof(path), "%s/shard-00000.rec", folder[FIRST]);
    assert_int_equal(unlink(path), 0);
    dp_buffer_release(&memory[0]);
    dp_buffer_release(&memory[1]);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
}

/* Its memory holds the damaged block by then, and no sample of another one. */
static void samples_after_a_damaged_block_are_what_they_were(void **state)
{
    const struct dp_source_config config = {
        .dir = folder[WHOLE], .input = {.count = FEATURES}, .classes = 2};
    struct dp_samples *samples = NULL;
    struct dp_sample_reader *reader = NULL;
    struct dp_log_capture capture;
    uint8_t out[FEATURES];
    const size_t damaged = 300; /* of block 1, as byte 100000 */
    int32_t label;
    (void)state;

    pack_anew();
    copy("shard-00000.rec", WHOLE, WHOLE, 100000);
    assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (size_t row = 0; row < 3; row++) {
        assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, row, out, &label), DP_OK);
        for (size_t i = 0; i < FEATURES; i++) {
            assert_int_equal(out[i], (row * FEATURES + i) % 251);
        }
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, damaged, out, &label),
                         DP_ERR_DATA);
        dp_log_capture_end(&capture, DP_LOG_DROP);
    }
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

/* Room is made for as many blocks as it says: for no more than a file of that length may have. */
static void an_index_that_says_more_blocks_is_refused(void **state)
{
    static const char *const words[] = {
        "/shard-00000.rec: is not the shard that index.json describes",
        "whole: says more blocks than fit into a shard"};
    (void)state;

    for (uint64_t more = 0; more < 2; more++) {
        struct dp_records *records = NULL;
        struct dp_log_capture capture;
        struct dp_records_index_file file;
        pack_anew();
        assert_int_equal(dp_records_index_read(folder[WHOLE], &file), DP_OK);
        file.index.shards[0].blocks = file.index.shards[0].bytes / DP_SHARD_ROW + more;
        remove_file(folder[WHOLE], DP_RECORDS_INDEX);
        assert_int_equal(dp_records_index_save(&file.index, folder[WHOLE]), DP_OK);
        dp_records_index_release(&file);
        assert_int_equal(open_list(folder[WHOLE], &records, &capture), DP_ERR_DATA);
        assert_non_null(strstr(dp_log_captured(&capture), words[more]));
        assert_int_equal(dp_mem_live(), 0);
    }
}

/* What ddp_data packed before blocks began at multiples of 64: 9 rows of 4,000 numbers, each half
 * its row, in blocks of 4; 3 rows to test with. */
static void records_of_version_1_are_read(void **state)
{
    const struct dp_source_config config = {.dir = DP_SOURCE_DIR "/tests/golden/records-1",
                                            .input = {.count = 4000, .element = DP_ELEMENT_FLOAT},
                                            .classes = 3};
    const struct dp_shard_store_config store = {.dir = config.dir};
    struct dp_records *records;
    struct outcome o = run_source_well("records", &config);
    (void)state;

    assert_int_equal(o.info.count[DP_SET_TRAIN], 9);
    assert_int_equal(o.info.count[DP_SET_TEST], 3);
    for (int set = 0; set < DP_SETS; set++) {
        for (size_t i = 0; i < o.info.count[set] * 4000; i++) {
            const size_t row = i / 4000;
            float number;
            memcpy(&number, o.images[set] + i * sizeof(number), sizeof(number));
            assert_true(number == 0.5f * (float)row);
            assert_int_equal(o.labels[set][row], row % 3);
        }
    }
    outcome_free(&o);
    assert_int_equal(dp_records_open(&store, &records), DP_OK);
    assert_int_equal(dp_records_block(records, DP_SET_TRAIN, 0)->block.at, DP_SHARD_HEAD);
    assert_int_equal(dp_records_verify(records), DP_OK);
    dp_records_close(records);
}

/* ---- a cache ---- */

static dp_status open_with_cache(const char *cache, uint64_t bytes, struct dp_records **records,
                                 struct dp_log_capture *capture)
{
    const struct dp_shard_store_config config = {
        .dir = folder[WHOLE], .cache = cache, .cache_bytes = bytes};
    dp_status status;

    dp_log_capture_begin(capture, DP_LOG_WARN);
    status = dp_records_open(&config, records);
    status = status == DP_OK ? dp_records_verify(*records) : status;
    dp_log_capture_end(capture, DP_LOG_DROP);
    dp_records_close(*records);
    *records = NULL;
    return status;
}

static void a_budget_below_the_largest_shard_is_refused(void **state)
{
    struct dp_records *records = NULL;
    struct dp_log_capture capture;
    struct dp_records_index_file file;
    char cache[128];
    uint64_t largest;
    (void)state;

    pack_anew();
    (void)snprintf(cache, sizeof(cache), "%s/budget", root);
    assert_int_equal(dp_records_index_read(folder[WHOLE], &file), DP_OK);
    largest = file.index.shards[0].bytes; /* others are smaller */
    assert_true(file.index.shards[1].bytes < largest && file.index.shards[2].bytes < largest);
    dp_records_index_release(&file);
    assert_int_equal(open_with_cache(cache, largest - 1, &records, &capture), DP_ERR_CONFIG);
    assert_non_null(strstr(dp_log_captured(&capture), "do not hold the largest shard"));
    assert_int_equal(open_with_cache(cache, largest, &records, &capture), DP_OK);
    assert_int_equal(dp_mem_live(), 0);
}

/* Files that this process has open, and that have no name any more. */
static int nameless_files(void)
{
    DIR *listed = opendir("/proc/self/fd");
    const struct dirent *entry;
    int count = 0;

    assert_non_null(listed);
    while ((entry = readdir(listed)) != NULL) {
        struct stat info;
        count += fstatat(dirfd(listed), entry->d_name, &info, 0) == 0 && S_ISREG(info.st_mode) &&
                 info.st_nlink == 0;
    }
    (void)closedir(listed);
    return count;
}

/* Its space is free only then. */
static void a_copy_that_makes_room_for_others_is_closed(void **state)
{
    char cache[128];
    struct dp_shard_store_config config = {.dir = folder[WHOLE], .cache = cache};
    struct dp_records_index_file file;
    struct dp_records *records = NULL;
    const int before = nameless_files();
    (void)state;

    pack_anew();
    assert_int_equal(dp_records_index_read(folder[WHOLE], &file), DP_OK);
    config.cache_bytes = file.index.shards[0].bytes; /* of the first shard, or of the others */
    dp_records_index_release(&file);
    (void)snprintf(cache, sizeof(cache), "%s/one", root);
    assert_int_equal(dp_records_open(&config, &records), DP_OK);
    assert_int_equal(dp_records_verify(records), DP_OK);
    assert_int_equal(nameless_files(), before);
    dp_records_close(records);
}

/* Nobody may look for room at the same time, and without the lock others might. */
static void without_the_lock_of_its_room_nothing_is_copied(void **state)
{
    struct dp_records *records = NULL;
    struct dp_log_capture capture;
    char cache[128];
    (void)state;

    pack_anew();
    (void)snprintf(cache, sizeof(cache), "%s/locked", root);
    write_bytes(cache, "room.lock/a", "", 0); /* a folder: no file that could be locked */
    assert_int_equal(open_with_cache(cache, 0, &records, &capture), DP_OK);
    assert_non_null(strstr(capture.lines, "from now on shards are read from "));
    remove_file(cache, "room.lock/a");
    assert_int_equal(count_files(cache, ".rec"), 0);
    assert_int_equal(dp_mem_live(), 0);
}

/* One rank of each job on a host says what all of them find. */
static void each_job_speaks_for_itself(void **state)
{
    static const char *const jobs[] = {"one/1", "one/1", "two", "one/1"};
    static const bool speaks[] = {true, false, true, false};
    struct dp_shard_cache *ranks[4];
    char cache[128];
    (void)state;

    (void)snprintf(cache, sizeof(cache), "%s/jobs", root);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(setenv("PMIX_NAMESPACE", jobs[i], 1), 0);
        assert_int_equal(dp_shard_cache_open(cache, 0, &ranks[i]), DP_OK);
        assert_int_equal(dp_shard_cache_speaks(ranks[i]), speaks[i]);
    }
    assert_int_equal(unsetenv("PMIX_NAMESPACE"), 0);
    for (size_t i = 0; i < 4; i++) {
        dp_shard_cache_close(ranks[i]);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- several folders ---- */

static void shards_of_several_folders_are_one_set(void **state)
{
    struct dp_records *whole = NULL, *parts = NULL;
    struct dp_log_capture capture;
    char list[400];
    (void)state;

    pack_anew();
    copy("index.json", WHOLE, FIRST, SIZE_MAX);
    copy("shard-00000.rec", WHOLE, THIRD, SIZE_MAX);
    copy("shard-00001.rec", WHOLE, FIRST, SIZE_MAX);
    copy("shard-00002.rec", WHOLE, SECOND, SIZE_MAX);
    (void)snprintf(list, sizeof(list), "[%s, %s, %s]", folder[FIRST], folder[SECOND],
                   folder[THIRD]);
    assert_int_equal(open_list(folder[WHOLE], &whole, &capture), DP_OK);
    assert_int_equal(open_list(list, &parts, &capture), DP_OK);
    assert_int_equal(dp_records_index(parts)->shard_count, SHARDS);
    assert_same_blocks(whole, parts);
    dp_records_close(whole);
    dp_records_close(parts);
    assert_int_equal(dp_mem_live(), 0);

    /* In two of them, and in none. */
    copy("shard-00001.rec", WHOLE, SECOND, SIZE_MAX);
    assert_int_equal(open_list(list, &parts, &capture), DP_ERR_DATA);
    assert_non_null(strstr(dp_log_captured(&capture), "/first/shard-00001.rec: is also in "));
    assert_non_null(strstr(dp_log_captured(&capture), "/second: keep one of them"));
    remove_file(folder[FIRST], "shard-00001.rec");
    remove_file(folder[SECOND], "shard-00001.rec");
    assert_int_equal(open_list(list, &parts, &capture), DP_ERR_NOINPUT);
    assert_non_null(strstr(dp_log_captured(&capture), "/first/shard-00001.rec: is missing, with "));
    assert_non_null(strstr(dp_log_captured(&capture), "or to another folder of data.dir"));
    (void)snprintf(list, sizeof(list), "[%s, ]", folder[FIRST]);
    assert_int_equal(open_list(list, &parts, &capture), DP_ERR_CONFIG);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_list_is_cut_into_its_folders(void **state)
{
    struct dp_folder_list list;
    (void)state;

    assert_int_equal(dp_folder_list_read("[a b, /c/d,e]", &list), DP_OK);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.name[0], "a b");
    assert_string_equal(list.name[1], "/c/d");
    assert_string_equal(list.name[2], "e");
    dp_folder_list_release(&list);
    assert_int_equal(dp_folder_list_read("./[a, b]", &list), DP_OK);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.name[0], "./[a, b]");
    dp_folder_list_release(&list);
    assert_int_equal(dp_folder_list_read("one, with a comma", &list), DP_OK);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.name[0], "one, with a comma");
    dp_folder_list_release(&list);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_found_whenever_a_block_is_read),
        cmocka_unit_test(a_file_that_is_cut_off_or_replaced_is_noticed),
        cmocka_unit_test(samples_after_a_damaged_block_are_what_they_were),
        cmocka_unit_test(an_index_that_says_more_blocks_is_refused),
        cmocka_unit_test(records_of_version_1_are_read),
        cmocka_unit_test(a_budget_below_the_largest_shard_is_refused),
        cmocka_unit_test(a_copy_that_makes_room_for_others_is_closed),
        cmocka_unit_test(without_the_lock_of_its_room_nothing_is_copied),
        cmocka_unit_test(each_job_speaks_for_itself),
        cmocka_unit_test(shards_of_several_folders_are_one_set),
        cmocka_unit_test(a_list_is_cut_into_its_folders),
    };
    return cmocka_run_group_tests_name("shards", tests, make_folders, remove_folders);
}
