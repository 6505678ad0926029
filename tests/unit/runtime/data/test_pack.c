/*
 * test_pack.c - packing: what is told meanwhile and in the end, and which files it deletes. What is
 * packed is read by test_records.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
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

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/pack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"

enum { ROWS = 700, TEST = 40, FEATURES = 30 };

static char root[64], from[80], packed[80];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/test_pack.XXXXXX");
    (void)snprintf(from, sizeof(from), "%s/from", mkdtemp(root) == NULL ? "" : root);
    (void)snprintf(packed, sizeof(packed), "%s/packed", root);
    return mkdir(from, 0700);
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static void write_arrays(void)
{
    static const uint8_t bytes[ROWS * FEATURES];

    npy_file(from, "train_images.npy", "|u1", "(700, 30)", bytes, sizeof(bytes));
    npy_file(from, "train_labels.npy", "|u1", "(700,)", bytes, ROWS);
    npy_file(from, "test_images.npy", "|u1", "(40, 30)", bytes, (size_t)TEST * FEATURES);
    npy_file(from, "test_labels.npy", "|u1", "(40,)", bytes, TEST);
}

/* ---- what is told ---- */

struct told {
    struct dp_pack_progress last;
    int times;
};

static void tell(void *context, const struct dp_pack_progress *progress)
{
    struct told *told = context;

    assert_true(progress->done > told->last.done && progress->done <= progress->all);
    assert_int_equal(progress->bytes, progress->done * FEATURES);
    assert_true(progress->seconds >= told->last.seconds);
    told->last = *progress;
    told->times++;
}

static void progress_counts_samples_and_bytes_of_both_sets(void **state)
{
    struct told told = {.times = 0};
    const struct dp_pack_options options = {.from = from,
                                            .to = packed,
                                            .shard_bytes = 1 << 20,
                                            .threads = 2,
                                            .progress = tell,
                                            .context = &told};
    struct dp_pack_result result;
    (void)state;

    write_arrays();
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_true(told.times > 2);
    assert_int_equal(told.last.all, ROWS + TEST);
    assert_int_equal(told.last.done, ROWS + TEST);
    assert_int_equal(result.samples, ROWS + TEST);
    assert_int_equal(result.read_bytes, told.last.bytes);
    assert_int_equal(dp_mem_live(), 0);
}

static uint64_t file_bytes(const char *name)
{
    char path[128];
    struct stat info;

    (void)snprintf(path, sizeof(path), "%s/%s", from, name);
    assert_int_equal(stat(path, &info), 0);
    return (uint64_t)info.st_size;
}

/* Pixels have a known size, before and after; of files, all but one are written anew. */
static void the_effect_of_a_smaller_size_is_summed_over_pictures(void **state)
{
    struct dp_pack_options options = {.from = from,
                                      .to = packed,
                                      .shard_bytes = 1 << 20,
                                      .resize = 10,
                                      .quality = 90,
                                      .decode = true};
    struct dp_pack_result result;
    uint64_t files = 0;
    (void)state;

    for (int i = 0; i < 6; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "a/%d.png", i);
        picture_file(from, name, 20 + 2 * i, 20, 3, (unsigned)i); /* becomes 10 + i x 10 */
        files += file_bytes(name);
    }
    picture_file(from, "b/small.png", 9, 9, 3, 7);
    for (options.threads = 1; options.threads <= 3; options.threads++) {
        assert_int_equal(dp_pack(&options, &result), DP_OK);
        assert_int_equal(result.effect.pictures, 7);
        assert_int_equal(result.effect.resized, 6);
        assert_int_equal(result.effect.bytes, (6 * 20 + 2 * 15) * 20 * 3);
        assert_int_equal(result.effect.resized_bytes, (6 * 10 + 15) * 10 * 3);
        remove_tree(packed);
    }
    options.decode = false;
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_int_equal(result.effect.bytes, files);
    assert_int_equal(result.effect.resized_bytes, result.read_bytes - file_bytes("b/small.png"));
    assert_int_equal(dp_mem_live(), 0);
}

static void a_picture_that_cannot_be_read_is_named(void **state)
{
    const struct dp_pack_options options = {
        .from = from, .to = packed, .shard_bytes = 1 << 20, .threads = 2};
    struct dp_pack_result result;
    struct dp_log_capture capture;
    (void)state;

    for (int i = 0; i < 9; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "%c/%d.png", i < 5 ? 'a' : 'b', i);
        picture_file(from, name, 20, 20, 3, (unsigned)i);
    }
    write_bytes(from, "b/6.png", "no picture", 10);
    write_bytes(from, "b/8.png", "no picture", 10);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_pack(&options, &result), DP_ERR_DATA);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture), "/from/b/6.png: is no PNG and no JPEG"));
    assert_int_not_equal(access(packed, F_OK), 0);
    assert_int_equal(dp_mem_live(), 0);
}

static void labels_of_other_lengths_are_counted_in_words(void **state)
{
    const struct dp_pack_options options = {
        .from = from, .to = packed, .shard_bytes = 1 << 20, .threads = 1, .label_numbers = 2};
    struct dp_pack_result result;
    struct dp_log_capture capture;
    (void)state;

    write_arrays();
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_pack(&options, &result), DP_ERR_USAGE);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture), "--label-numbers 2: the labels of "));
    assert_non_null(strstr(dp_log_captured(&capture), "/from are 1 number each"));
}

/* What is said where that is packed. */
static const char *refusal(const char *source, const char *path, dp_status expected,
                           struct dp_log_capture *capture)
{
    const struct dp_pack_options options = {
        .source = source, .from = path, .to = packed, .shard_bytes = 1 << 20, .threads = 1};
    struct dp_pack_result result;

    dp_log_capture_begin(capture, DP_LOG_ERROR);
    assert_int_equal(dp_pack(&options, &result), expected);
    dp_log_capture_end(capture, DP_LOG_DROP);
    return dp_log_captured(capture);
}

static void what_is_no_folder_is_refused_in_words_of_the_command(void **state)
{
    static const char *const sources[] = {NULL,  "folder",  "csv",    "npy",
                                          "idx", "cifar10", "records"};
    char missing[96], archive[96];
    (void)state;

    (void)snprintf(missing, sizeof(missing), "%s/missing", from);
    (void)snprintf(archive, sizeof(archive), "%s/data.zip", from);
    write_bytes(from, "data.zip", "PK", 2);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct dp_log_capture capture;
        const bool records = sources[i] != NULL && strcmp(sources[i], "records") == 0;
        const char *said = refusal(sources[i], missing, DP_ERR_NOINPUT, &capture);
        assert_non_null(strstr(said, records
                                         ? "missing: no index.json, nor such a folder: make it"
                                         : "missing: No such file or directory: give the folder "
                                           "of the data set as SRC"));
        assert_null(strstr(said, "data.dir"));
        said = refusal(sources[i], archive, DP_ERR_NOINPUT, &capture);
        assert_non_null(strstr(said, "data.zip: "));
        assert_non_null(strstr(said, "unpack an archive first"));
        assert_null(strstr(said, "data.dir"));
    }
}

static void made_up_samples_are_not_packed(void **state)
{
    struct dp_log_capture capture;
    (void)state;

    assert_non_null(strstr(refusal("synthetic", from, DP_ERR_USAGE, &capture),
                           "--source synthetic: has no files to pack"));
    assert_false(access(packed, F_OK) == 0);
}

/* ---- files of an earlier try ---- */

static bool is_there(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", packed, name);
    return access(path, F_OK) == 0;
}

static void a_killed_try_loses_its_shards_and_no_other_file(void **state)
{
    static const char *const names[] = {
        "shard-00077.rec",  "shard-00078.rec.part", "shard-00079.red", "shard-0008.rec",
        "shard-000080.rec", "shard-00081.rec.old",  "Shard-00082.rec", "shard-0008x.rec"};
    const struct dp_pack_options options = {
        .from = from, .to = packed, .shard_bytes = 1 << 20, .threads = 1};
    struct dp_pack_result result;
    (void)state;

    write_arrays();
    write_bytes(packed, ".lockstep-records", "", 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        write_bytes(packed, names[i], "", 0);
    }
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(is_there(names[i]), i > 1);
    }
}

/* ---- what a machine keeps that stops ---- */

static int unsure;  /* files that were renamed since their folder was last synchronised */
static int indexes; /* that were */

/* The linker takes these, and not libc's. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int rename(const char *before, const char *after)
{
    const char *const name = strrchr(after, '/');
    int (*of_library)(const char *, const char *);

    if (name != NULL && strcmp(name, "/index.json") == 0) {
        assert_int_equal(unsure, 0);
        indexes++;
    }
    unsure++;
    *(void **)&of_library = dlsym(RTLD_NEXT, "rename");
    return of_library(before, after);
}

int fsync(int fd)
{
    struct stat info;
    int (*of_library)(int);

    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        unsure = 0;
    }
    *(void **)&of_library = dlsym(RTLD_NEXT, "fsync");
    return of_library(fd);
}

static void an_index_names_shards_that_are_there_for_sure(void **state)
{
    const struct dp_pack_options options = {
        .from = from, .to = packed, .shard_bytes = 10000, .threads = 1};
    struct dp_pack_result result;
    (void)state;

    write_arrays();
    indexes = 0;
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_in_range(result.shards, 2, 10);
    assert_int_equal(indexes, 1);
    assert_int_equal(unsure, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(progress_counts_samples_and_bytes_of_both_sets, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(the_effect_of_a_smaller_size_is_summed_over_pictures,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_picture_that_cannot_be_read_is_named, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(labels_of_other_lengths_are_counted_in_words, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_folder_is_refused_in_words_of_the_command,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(made_up_samples_are_not_packed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_killed_try_loses_its_shards_and_no_other_file,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_index_names_shards_that_are_there_for_sure, make_folder,
                                        remove_folder),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
