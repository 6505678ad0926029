/* test_unpack.c - unpacked records are what was packed, in files that other programs read. */
#include <setjmp.h>
#include <stdarg.h>
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
#include "runtime/data/records/unpack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

enum { TRAIN = 300, TEST = 40, FEATURES = 300 };

static char root[64], from[96], packed[96], to[96];

static int make_folders(void **state)
{
    (void)state;

    (void)snprintf(root, sizeof(root), "/tmp/test_unpack.XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(from, sizeof(from), "%s/from", root);
    (void)snprintf(packed, sizeof(packed), "%s/packed", root);
    (void)snprintf(to, sizeof(to), "%s/to", root);
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

/* An array of one sample of so many bytes, all of them a hole in the file. */
static void write_large(size_t bytes)
{
    char shape[40], path[160];
    struct stat info;

    (void)snprintf(shape, sizeof(shape), "(1, %zu)", bytes);
    npy_file(from, "train_images.npy", "|u1", shape, "", 0);
    npy_file(from, "train_labels.npy", "|u1", "(1,)", "", 1);
    (void)snprintf(path, sizeof(path), "%s/train_images.npy", from);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size + (off_t)bytes), 0);
}

/* Where it is to be packed to is no folder, which is found after the size is checked. */
static void samples_of_half_a_gigabyte_are_the_largest(void **state)
{
    const size_t most = (size_t)512 << 20;
    struct dp_pack_options options = {.from = from, .threads = 1};
    struct dp_pack_result result;
    char file[160];
    (void)state;

    (void)snprintf(file, sizeof(file), "%s/train_labels.npy", from);
    options.to = file;
    assert_int_equal(mkdir(from, 0700), 0);
    write_large(most);
    assert_int_equal(dp_pack(&options, &result), DP_ERR_WRITE);
    write_large(most + 1);
    assert_int_equal(dp_pack(&options, &result), DP_ERR_DATA);
}

static bool stopped_at_once(void)
{
    return true;
}

/* Packs `from` into several blocks and shards, and unpacks that. */
static dp_status unpack_to(const char *place, bool decode, bool (*stopped)(void))
{
    const struct dp_pack_options options = {.from = from,
                                            .to = packed,
                                            .shard_bytes = 50000,
                                            .zstd = 1,
                                            .decode = decode,
                                            .threads = 1};
    const struct dp_shard_store_config config = {.dir = packed};
    struct dp_records *records = NULL;
    struct dp_pack_result result;
    struct dp_log_capture capture;
    dp_status status;

    if (access(packed, F_OK) != 0) {
        assert_int_equal(dp_pack(&options, &result), DP_OK);
    }
    assert_int_equal(dp_records_open(&config, &records), DP_OK);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_records_unpack(records, place, stopped);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_records_close(records);
    assert_int_equal(dp_mem_live(), 0);
    return status;
}

static dp_status unpack_again(bool decode, bool (*stopped)(void))
{
    return unpack_to(to, decode, stopped);
}

/* Whether both have the same samples, in the same order. */
static void same_samples(const char *source)
{
    const struct dp_source_config before = {.dir = from}, after = {.dir = to};
    struct outcome a = run_source_well(source, &before), b = run_source_well(source, &after);

    assert_int_equal(a.bytes, b.bytes);
    assert_int_equal(a.info.classes, b.info.classes);
    for (int set = 0; set < DP_SETS; set++) {
        const size_t words = a.info.count[set] * dp_label_words(&a.info) * sizeof(int32_t);
        assert_int_equal(a.info.count[set], b.info.count[set]);
        assert_memory_equal(a.images[set], b.images[set], a.info.count[set] * a.bytes);
        assert_memory_equal(a.labels[set], b.labels[set], words);
    }
    outcome_release(&a);
    outcome_free(&b);
}

/* What numpy writes before rows of one number: padded with spaces. */
static void make_header(char header[128 + 1], const char *type, int rows)
{
    char text[100];

    (void)snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }",
                   type, rows);
    (void)snprintf(header, 128 + 1, "\x93NUMPY%c%cv%c%-117s\n", 1, 0, 0, text);
}

/* How many bytes of the file are those; 0: there is no such file. */
static size_t begins_with(const char *name, const void *bytes, size_t count)
{
    static uint8_t found[PICTURE_ROOM];
    char path[192];
    size_t got, i = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", to, name);
    file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    got = fread(found, 1, sizeof(found), file);
    (void)fclose(file);
    while (i < got && i < count && found[i] == ((const uint8_t *)bytes)[i]) {
        i++;
    }
    return i;
}

static void clean(void)
{
    char part[128];
    const char *folders[] = {from, packed, to, part};

    (void)snprintf(part, sizeof(part), "%s.part", to);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        if (access(folders[i], F_OK) == 0) {
            remove_tree(folders[i]);
        }
    }
}

/* Labels are whole numbers, also where there is one class. */
static void samples_of_one_class_are_the_same_again(void **state)
{
    char header[128 + 1];
    static uint8_t numbers[TRAIN * FEATURES];
    static uint8_t labels[TRAIN];
    (void)state;

    write_bytes(from, "x", "", 0); /* makes the folder */
    remove_file(from, "x");
    npy_file(from, "train_images.npy", "|u1", "(300, 10, 10, 3)", numbers, sizeof(numbers));
    npy_file(from, "train_labels.npy", "|u1", "(300,)", labels, sizeof(labels));
    npy_file(from, "test_images.npy", "|u1", "(40, 10, 10, 3)", numbers, (size_t)TEST * FEATURES);
    npy_file(from, "test_labels.npy", "|u1", "(40,)", labels, TEST);
    assert_int_equal(unpack_again(false, NULL), DP_OK);
    same_samples("npy");
    make_header(header, "<i8", TRAIN);
    assert_int_equal(begins_with("train_labels.npy", header, 128), 128);
    clean();
}

static void arrays_of_bytes_with_classes_are_the_same_again(void **state)
{
    static uint8_t numbers[TRAIN * FEATURES];
    static uint8_t labels[TRAIN];
    (void)state;

    for (int i = 0; i < TRAIN * FEATURES; i++) {
        numbers[i] = (uint8_t)(i % 251);
    }
    for (int i = 0; i < TRAIN; i++) {
        labels[i] = (uint8_t)(i % 7);
    }
    write_bytes(from, "x", "", 0); /* makes the folder */
    remove_file(from, "x");
    npy_file(from, "train_images.npy", "|u1", "(300, 10, 10, 3)", numbers, sizeof(numbers));
    npy_file(from, "train_labels.npy", "|u1", "(300,)", labels, sizeof(labels));
    npy_file(from, "test_images.npy", "|u1", "(40, 10, 10, 3)", numbers, (size_t)TEST * FEATURES);
    npy_file(from, "test_labels.npy", "|u1", "(40,)", labels, TEST);
    assert_int_equal(unpack_again(false, NULL), DP_OK);
    same_samples("npy");
    assert_int_equal(unpack_again(false, NULL), DP_ERR_USAGE); /* it is there already */
    same_samples("npy");
    remove_tree(to);
    assert_int_equal(unpack_again(false, stopped_at_once), DP_STOPPED);
    assert_int_equal(access(to, F_OK), -1);
    assert_int_equal(unpack_again(false, NULL), DP_ERR_USAGE); /* what there was so far is */
    clean();
}

static void arrays_of_numbers_with_targets_are_the_same_again(void **state)
{
    static float numbers[TRAIN * 5];
    static double targets[TRAIN * 2];
    (void)state;

    for (int i = 0; i < TRAIN * 5; i++) {
        numbers[i] = (float)i / 7.0F;
    }
    for (int i = 0; i < TRAIN * 2; i++) {
        targets[i] = i / -3.0;
    }
    write_bytes(from, "x", "", 0);
    remove_file(from, "x");
    npy_file(from, "train_images.npy", "<f4", "(300, 5)", numbers, sizeof(numbers));
    npy_file(from, "train_labels.npy", "<f8", "(300, 2)", targets, sizeof(targets));
    npy_file(from, "test_images.npy", "<f4", "(40, 5)", numbers, (size_t)TEST * 5 * sizeof(float));
    npy_file(from, "test_labels.npy", "<f8", "(40, 2)", targets, (size_t)TEST * 2 * sizeof(double));
    assert_int_equal(unpack_again(false, NULL), DP_OK);
    same_samples("npy");
    for (size_t i = 0; i < 4; i++) { /* of version 1.0, as numpy reads it */
        static const char *const names[] = {"train_images.npy", "train_labels.npy",
                                            "test_images.npy", "test_labels.npy"};
        assert_int_equal(begins_with(names[i], "\x93NUMPY\1\0", 8), 8);
    }
    clean();
}

static void make_pictures(void)
{
    picture_file(from, "train/a/1.jpg", 12, 8, 3, 1);
    picture_file(from, "train/a/2.png", 12, 8, 3, 2);
    picture_file(from, "train/b/3.jpg", 12, 8, 3, 3);
    picture_file(from, "test/b/4.png", 12, 8, 3, 4);
    picture_file(from, "test/a/5.png", 12, 8, 3, 5);
}

/* They are what they were, byte for byte, each with the ending of its kind. */
static void pictures_stay_files_of_their_kind(void **state)
{
    static struct picture_bytes jpeg, png;
    (void)state;

    picture_jpeg(&(struct picture_spec){12, 8, 3, 1, 8, 0, 0}, 0, &jpeg);
    picture_png(&(struct picture_spec){12, 8, 3, 2, 8, 0, 0}, &png);
    make_pictures();
    assert_int_equal(unpack_again(false, NULL), DP_OK);
    assert_int_equal(begins_with("train/a/00000000.jpg", jpeg.bytes, jpeg.count), jpeg.count);
    assert_int_equal(begins_with("train/a/00000001.png", png.bytes, png.count), png.count);
    assert_true(begins_with("train/b/00000002.jpg", jpeg.bytes, 2) == 2);
    assert_true(begins_with("test/a/00000000.png", png.bytes, 8) == 8);
    assert_true(begins_with("test/b/00000001.png", png.bytes, 8) == 8);
    clean();
}

/* Stored as pixels, they become PNG files. */
static void pixels_become_pictures(void **state)
{
    static struct picture_bytes png;
    (void)state;

    picture_png(&(struct picture_spec){12, 8, 3, 2, 8, 0, 0}, &png);
    make_pictures();
    assert_int_equal(unpack_again(true, NULL), DP_OK);
    assert_true(begins_with("train/a/00000000.png", png.bytes, 8) == 8);
    assert_int_equal(begins_with("train/a/00000000.jpg", png.bytes, 1), 0);
    assert_true(begins_with("test/b/00000001.png", png.bytes, 8) == 8);
    clean();
}

/* A folder that is not there cannot be written to; one whose name is longer than a path can be,
 * with ".part" after it, is not tried. */
static void too_long_a_name_is_the_users_mistake(void **state)
{
    enum { MOST = DP_PATH_BYTES - 1 - 5 };
    char name[MOST + 3];
    (void)state;

    make_pictures();
    for (size_t length = MOST - 1; length <= MOST + 2; length++) {
        for (size_t i = 0; i < length; i++) {
            name[i] = i % 100 == 0 ? '/' : 'x';
        }
        name[length] = '\0';
        assert_int_equal(unpack_to(name, false, NULL), length > MOST ? DP_ERR_USAGE : DP_ERR_WRITE);
    }
    clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_of_half_a_gigabyte_are_the_largest),
        cmocka_unit_test(samples_of_one_class_are_the_same_again),
        cmocka_unit_test(arrays_of_bytes_with_classes_are_the_same_again),
        cmocka_unit_test(arrays_of_numbers_with_targets_are_the_same_again),
        cmocka_unit_test(pictures_stay_files_of_their_kind),
        cmocka_unit_test(pixels_become_pictures),
        cmocka_unit_test(too_long_a_name_is_the_users_mistake),
    };

    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
