/*
 * test_records.c - records: what is packed comes back, byte for byte; and whatever is damaged is
 * refused, with one line that names it.
 */
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

#include "runtime/data/pictures/picture.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

enum { ROWS = 700, FEATURES = 300, TEST = 40 };

static char root[64], arrays[80], packed[80];

static void write_arrays(void)
{
    static float numbers[ROWS * FEATURES];
    static uint8_t labels[ROWS];

    for (int i = 0; i < ROWS * FEATURES; i++) {
        numbers[i] = (float)(i % 1009) - 400.5f;
    }
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(i % 7);
    }
    npy_file(arrays, "train_images.npy", "<f4", "(700, 300)", numbers, sizeof(numbers));
    npy_file(arrays, "train_labels.npy", "|u1", "(700,)", labels, sizeof(labels));
    npy_file(arrays, "test_images.npy", "<f4", "(40, 300)", numbers + 5,
             sizeof(float) * TEST * FEATURES);
    npy_file(arrays, "test_labels.npy", "|u1", "(40,)", labels, TEST);
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/test_records.XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(arrays, sizeof(arrays), "%s/arrays", root);
    (void)snprintf(packed, sizeof(packed), "%s/packed", root);
    if (mkdir(arrays, 0700) != 0) {
        return 1;
    }
    write_arrays();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static struct dp_pack_options usual(void)
{
    return (struct dp_pack_options){
        .from = arrays, .to = packed, .shard_bytes = 200000, .threads = 2};
}

static void remove_packed(void)
{
    if (access(packed, F_OK) == 0) {
        remove_tree(packed);
    }
}

static void pack_well(const struct dp_pack_options *options)
{
    struct dp_pack_result result;

    remove_packed();
    assert_int_equal(dp_pack(options, &result), DP_OK);
    assert_int_equal(dp_mem_live(), 0);
}

static struct dp_source_config config_of(const char *dir)
{
    return (struct dp_source_config){
        .dir = dir, .input = {.count = FEATURES, .element = DP_ELEMENT_FLOAT}, .classes = 7};
}

/* ---- what comes back ---- */

static void assert_same_as_arrays(void)
{
    const struct dp_source_config from = config_of(arrays), to = config_of(packed);
    struct outcome a = run_source_well("npy", &from), b = run_source_well("records", &to);

    for (int set = 0; set < DP_SETS; set++) {
        const size_t count = a.info.count[set];
        assert_int_equal(b.info.count[set], count);
        assert_memory_equal(a.images[set], b.images[set], count * a.bytes);
        assert_memory_equal(a.labels[set], b.labels[set], count * sizeof(int32_t));
    }
    outcome_release(&a);
    outcome_free(&b);
}

static void what_is_packed_comes_back_compressed_or_not(void **state)
{
    struct dp_pack_options options = usual();
    (void)state;

    for (int level = 0; level <= 3; level += 3) {
        struct dp_records *records;
        options.zstd = level;
        pack_well(&options);
        assert_same_as_arrays();
        assert_int_equal(dp_records_open(&(struct dp_shard_store_config){.dir = packed}, &records),
                         DP_OK);
        assert_true(dp_records_index(records)->shard_count > 2 || level > 0);
        assert_int_equal(dp_records_index(records)->classes, 7);
        assert_int_equal(dp_records_verify(records), DP_OK);
        size_t stored = 0, raw = 0;
        for (size_t i = 0; i < dp_records_blocks(records, DP_SET_TRAIN); i++) {
            const struct dp_shard_block *block = &dp_records_block(records, DP_SET_TRAIN, i)->block;
            assert_int_equal(block->at % 64, 0);
            stored += block->stored;
            raw += block->raw;
        }
        assert_true(level > 0 ? stored < raw : stored == raw);
        dp_records_close(records);
    }
}

/* Labels of three numbers, with fewer numbers a sample than a label has. */
static void labels_of_several_numbers_come_back(void **state)
{
    static double labels[ROWS * 3];
    struct dp_pack_options options = usual();
    struct dp_source_config config;
    struct dp_records_index_file file;
    struct outcome a, b;
    char dir[96];
    (void)state;

    (void)snprintf(dir, sizeof(dir), "%s/numbers", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < ROWS * 3; i++) {
        labels[i] = (double)i / 7.0 - 50.0;
    }
    for (int set = 0; set < 2; set++) {
        npy_file(dir, set == 0 ? "train_images.npy" : "test_images.npy", "<f4", "(700, 2)", labels,
                 sizeof(float) * ROWS * 2);
        npy_file(dir, set == 0 ? "train_labels.npy" : "test_labels.npy", "<f8", "(700, 3)", labels,
                 sizeof(labels));
    }
    options.from = dir;
    pack_well(&options);
    assert_int_equal(dp_records_index_read(packed, &file), DP_OK);
    assert_int_equal(file.index.label_numbers, 3);
    assert_int_equal(file.index.classes, 0);
    dp_records_index_release(&file);
    config = (struct dp_source_config){
        .dir = dir, .input = {.count = 2, .element = DP_ELEMENT_FLOAT}, .targets = 3};
    a = run_source_well("npy", &config);
    config.dir = packed;
    b = run_source_well("records", &config);
    assert_int_equal(b.info.targets, 3);
    for (int set = 0; set < DP_SETS; set++) {
        assert_memory_equal(a.images[set], b.images[set], ROWS * a.bytes);
        assert_memory_equal(a.labels[set], b.labels[set], sizeof(float) * ROWS * 3);
    }
    outcome_release(&a);
    outcome_free(&b);
    config.targets = 2;
    assert_source_refuses("records", &config, DP_ERR_DATA,
                          "its labels are 3 numbers each, the model has 2 outputs: give its last "
                          "dense layer units: 3");
    config.targets = 0;
    config.classes = 3;
    assert_source_refuses("records", &config, DP_ERR_DATA,
                          "3 numbers each, no classes: set train.loss to mse");
    config.input.count = 1; /* which does not fit either, but is found later */
    assert_source_refuses("records", &config, DP_ERR_DATA,
                          "3 numbers each, no classes: set train.loss to mse");
}

/* Size of every picture of a set, and whether it is a JPEG; how many bytes they have together. */
static size_t sizes_of(bool jpeg[4], int side[4][2])
{
    struct dp_records *records;
    struct dp_buffer stored = {NULL, 0}, memory = {NULL, 0}, pixels = {NULL, 0};
    struct dp_block_view view;
    struct dp_problem problem;
    struct dp_picture picture;
    struct dp_jpeg *decoder;
    struct dp_raw raw;
    size_t bytes = 0;

    assert_int_equal(dp_records_open(&(struct dp_shard_store_config){.dir = packed}, &records),
                     DP_OK);
    assert_int_equal(dp_jpeg_create(&decoder), DP_OK);
    assert_int_equal(dp_records_read(records, dp_records_block(records, DP_SET_TRAIN, 0), &stored,
                                     &memory, &view),
                     DP_OK);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(
            dp_records_sample(records, dp_records_block(records, DP_SET_TRAIN, 0), &view, i, &raw),
            DP_OK);
        jpeg[i] = dp_jpeg_is(raw.data, raw.bytes);
        assert_int_equal(
            dp_picture_decode(decoder, raw.data, raw.bytes, 3, &pixels, &picture, &problem), DP_OK);
        side[i][0] = picture.height;
        side[i][1] = picture.width;
        bytes += raw.bytes;
    }
    dp_buffer_release(&stored);
    dp_buffer_release(&memory);
    dp_buffer_release(&pixels);
    dp_jpeg_destroy(decoder);
    dp_records_close(records);
    return bytes;
}

/* Files stay of their kind, the shorter side is at most 40, and small pictures stay as they are. */
static void pictures_are_made_smaller_as_files(void **state)
{
    static const int expected[4][2] = {{40, 60}, {30, 50}, {45, 40}, {40, 40}};
    struct dp_pack_options options = usual();
    struct dp_pack_result result;
    char dir[96];
    bool jpeg[4];
    int side[4][2];
    size_t bytes;
    (void)state;

    (void)snprintf(dir, sizeof(dir), "%s/pictures", root);
    picture_file(dir, "a/1.jpg", 120, 80, 3, 1);
    picture_file(dir, "a/2.jpg", 50, 30, 3, 2);
    picture_file(dir, "b/3.png", 80, 90, 3, 3);
    picture_file(dir, "b/4.jpg", 100, 100, 1, 4);
    options.from = dir;
    options.resize = 40;
    options.quality = 90;
    remove_packed();
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_int_equal(result.effect.resized, 3);
    assert_int_equal(result.effect.pictures, 4);
    assert_true(result.effect.resized_bytes < result.effect.bytes);
    bytes = sizes_of(jpeg, side);
    assert_memory_equal(side, expected, sizeof(side));
    assert_true(jpeg[0] && jpeg[1] && !jpeg[2] && jpeg[3]);
    options.quality = 10;
    pack_well(&options);
    assert_true(sizes_of(jpeg, side) < bytes);
    assert_int_equal(dp_mem_live(), 0);
}

/* Of 0, 1, ... 9 in each of two channels, and of twice that. */
static void statistics_are_those_of_the_training_set(void **state)
{
    static uint8_t images[5 * 2 * 2];
    struct dp_pack_options options = usual();
    struct dp_records_index_file file;
    char dir[96];
    (void)state;

    (void)snprintf(dir, sizeof(dir), "%s/small", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 10; i++) {
        images[2 * i] = (uint8_t)i;
        images[2 * i + 1] = (uint8_t)(2 * i);
    }
    npy_file(dir, "train_images.npy", "|u1", "(5, 1, 2, 2)", images, sizeof(images));
    npy_file(dir, "train_labels.npy", "|u1", "(5,)", "\0\1\0\1\0", 5);
    options.from = dir;
    pack_well(&options);
    assert_int_equal(dp_records_index_read(packed, &file), DP_OK);
    assert_int_equal(file.index.channels, 2);
    assert_true(file.index.shape.height == 1 && file.index.shape.width == 2);
    assert_int_equal(file.index.count[DP_SET_TEST], 0);
    /* mean 4.5, variance 8.25 */
    assert_true(file.index.mean[0] * 255.0 > 4.4999 && file.index.mean[0] * 255.0 < 4.5001);
    assert_true(file.index.std[0] * 255.0 > 2.8722 && file.index.std[0] * 255.0 < 2.8723);
    assert_true(file.index.std[1] * 255.0 > 5.7445 && file.index.std[1] * 255.0 < 5.7446);
    dp_records_index_release(&file);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- damage ---- */

static char *read_whole(const char *name, size_t *bytes)
{
    char path[128], *text = calloc(1, 1 << 20);
    FILE *in;

    (void)snprintf(path, sizeof(path), "%s/%s", packed, name);
    in = fopen(path, "rb");
    if (text == NULL || in == NULL) {
        abort();
    }
    *bytes = fread(text, 1, (1 << 20) - 1, in);
    assert_int_equal(fclose(in), 0);
    return text;
}

static void assert_refused(dp_status expected, const char *words)
{
    const struct dp_source_config config = config_of(packed);

    assert_source_refuses("records", &config, expected, words);
}

/* Opening or reading says so after byte `at` of a file (from its end: negative) was flipped. */
static void assert_flip_refused(const char *name, long at, const char *words)
{
    size_t bytes;
    char *text = read_whole(name, &bytes);
    const size_t place = at < 0 ? bytes - (size_t)-at : (size_t)at;

    text[place] = (char)(text[place] ^ 4);
    write_bytes(packed, name, text, bytes);
    assert_refused(DP_ERR_DATA, words);
    text[place] = (char)(text[place] ^ 4);
    write_bytes(packed, name, text, bytes);
    free(text);
}

static void damaged_shards_are_refused_by_name(void **state)
{
    const struct dp_pack_options options = usual();
    const char *first = "shard-00000.rec";
    size_t bytes, other;
    char *text, *second;
    (void)state;

    pack_well(&options);
    assert_flip_refused(first, 5000, "shard-00000.rec: block 0 (samples 0 to 53 of the training");
    assert_flip_refused("shard-00001.rec", 70000, "shard-00001.rec: block 1 (samples ");
    assert_flip_refused(first, 2, "shard-00000.rec: is no shard of records");
    assert_flip_refused(first, 8, "has version 6, this program reads 1 to 2");
    assert_flip_refused(first, -60, "its table of blocks is damaged");
    assert_flip_refused(first, -1, "its end is damaged");
    text = read_whole(first, &bytes);
    write_bytes(packed, first, text, bytes - 7);
    assert_refused(DP_ERR_DATA, "bytes, index.json says ");
    second = read_whole("shard-00001.rec", &other);
    assert_int_equal(other, bytes);
    write_bytes(packed, first, second, bytes);
    assert_refused(DP_ERR_DATA, "is another shard than index.json says");
    remove_file(packed, first);
    assert_refused(DP_ERR_NOINPUT, "shard-00000.rec: is missing, with ");
    free(text);
    free(second);
}

/* index.json with `from` replaced by `to`. */
static void assert_edit_refused(const char *from, const char *to, const char *words)
{
    static char edited[1 << 16];
    size_t bytes;
    char *text = read_whole("index.json", &bytes);
    const char *found = strstr(text, from);
    const size_t before = found == NULL ? bytes : (size_t)(found - text);

    assert_true(before < bytes);
    (void)snprintf(edited, sizeof(edited), "%.*s%s%s", (int)before, text, to,
                   text + before + strlen(from));
    write_bytes(packed, "index.json", edited, strlen(edited));
    assert_refused(DP_ERR_DATA, words);
    write_bytes(packed, "index.json", text, bytes);
    free(text);
}

static void a_wrong_index_is_refused(void **state)
{
    const struct dp_pack_options options = usual();
    size_t bytes;
    char *text;
    (void)state;

    pack_well(&options);
    assert_edit_refused("\"version\": 1", "\"version\": 2", "has version 2, this program reads 1");
    assert_edit_refused("lockstep.records", "other", "is no index of records");
    assert_edit_refused("\"train\": 700", "\"train\": 701",
                        "says 701 samples of the training set, its shards have 700");
    assert_edit_refused("\"train\": 700", "\"train\": -1", "'train' is missing, or cannot be");
    assert_edit_refused("300\n", "301\n", "was altered, its hash is another");
    assert_edit_refused("300\n", "99999999999\n", "'shape' is missing, or cannot be");
    assert_edit_refused("\"kind\": \"array\"", "\"kind\": \"picture\"",
                        "'type' is missing, or cannot be");
    assert_edit_refused("\"classes\": 7", "\"classes\": 9", "was altered, its hash is another");
    assert_edit_refused("\"classes\": 7", "\"classes\": 1,\n\"class_names\": [\"a\\nb\"]",
                        "the name of class 0 is empty, no text, or has control characters");
    assert_edit_refused("\"classes\": 7", "\"classes\": 0,\n\"label_numbers\": 0",
                        "'label_numbers' is missing, or cannot be");
    assert_edit_refused("shard-00001.rec", "../../passwd", "'file' is missing, or cannot be");
    text = read_whole("index.json", &bytes);
    for (size_t end = 0; end + 2 < bytes; end += 97) {
        write_bytes(packed, "index.json", text, end);
        assert_refused(DP_ERR_DATA, ": copy it again, or pack again");
    }
    remove_file(packed, "index.json");
    assert_refused(DP_ERR_NOINPUT, "no index.json: make it with ddp_data pack");
    free(text);
}

static void a_label_out_of_range_is_named(void **state)
{
    const struct dp_pack_options options = usual();
    struct dp_source_config config = config_of(packed);
    (void)state;

    pack_well(&options);
    config.classes = 6;
    assert_source_refuses("records", &config, DP_ERR_DATA, "7 classes do not fit the model's 6");
}

/* ---- folders ---- */

static bool at_once(void)
{
    return true;
}

static void only_folders_of_ours_are_written_to(void **state)
{
    struct dp_pack_options options = usual();
    struct dp_pack_result result;
    (void)state;

    remove_packed();
    options.stopped = at_once;
    assert_int_equal(dp_pack(&options, &result), DP_STOPPED);
    assert_int_not_equal(access(packed, F_OK), 0); /* nothing is left */
    options.stopped = NULL;
    write_bytes(packed, "letter.txt", "dear", 4);
    assert_int_equal(dp_pack(&options, &result), DP_ERR_USAGE);
    remove_file(packed, "letter.txt");
    write_bytes(packed, ".lockstep-records", "", 0); /* as a killed one leaves it */
    write_bytes(packed, "shard-00077.rec.part", "half", 4);
    assert_int_equal(dp_pack(&options, &result), DP_OK);
    assert_int_equal(access(packed, F_OK), 0);
    assert_same_as_arrays();
    assert_int_equal(dp_pack(&options, &result), DP_ERR_USAGE); /* it is whole */
    assert_int_equal(dp_mem_live(), 0);
}

static void packing_survives_every_failed_allocation(void **state)
{
    struct dp_pack_options options = usual();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    options.threads = 1;
    remove_packed();
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_pack_result result;
        dp_mem_fail_nth(nth);
        status = dp_pack(&options, &result);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true(status == DP_OK || access(packed, F_OK) != 0);
        assert_int_equal(dp_mem_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_comes_back_compressed_or_not),
        cmocka_unit_test(labels_of_several_numbers_come_back),
        cmocka_unit_test(pictures_are_made_smaller_as_files),
        cmocka_unit_test(statistics_are_those_of_the_training_set),
        cmocka_unit_test(damaged_shards_are_refused_by_name),
        cmocka_unit_test(a_wrong_index_is_refused),
        cmocka_unit_test(a_label_out_of_range_is_named),
        cmocka_unit_test(only_folders_of_ours_are_written_to),
        cmocka_unit_test(packing_survives_every_failed_allocation),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
