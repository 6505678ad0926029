/*
 * test_verify.c - packed records are looked through: wherever something is wrong in them, it is
 * found, and said with its place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/scratch.h"

enum { ROWS = 300, FEATURES = 250, CLASSES = 6, PICTURES = 5, FILE_MOST = 1 << 20 };

static struct dp_records *open_packed(void)
{
    const struct dp_shard_store_config store = {.dir = scratch_path("to")};
    struct dp_records *records = NULL;

    assert_int_equal(dp_records_open(&store, &records), DP_OK);
    return records;
}

static void pack_folder(void)
{
    char from[512], to[512];
    const struct dp_pack_options options = {
        .from = from, .to = to, .shard_bytes = 150000, .threads = 1};
    struct dp_pack_result result;

    (void)snprintf(from, sizeof(from), "%s", scratch_path("from"));
    (void)snprintf(to, sizeof(to), "%s", scratch_path("to"));
    assert_int_equal(dp_pack(&options, &result), DP_OK);
}

/* Rows of two sets, and labels of so many numbers, of the type "|u1" or "<f8". */
static void pack_rows(const char *type, int label_numbers, const void *labels, size_t label_bytes)
{
    static float numbers[ROWS * FEATURES];
    char shape[32];

    (void)mkdir(scratch_path("from"), 0700);
    for (int i = 0; i < ROWS * FEATURES; i++) {
        numbers[i] = (float)i;
    }
    (void)snprintf(shape, sizeof(shape), label_numbers > 1 ? "(300, %d)" : "(300,)", label_numbers);
    for (int set = 0; set < 2; set++) {
        npy_file(scratch_path("from"), set == 0 ? "train_images.npy" : "test_images.npy", "<f4",
                 "(300, 250)", numbers, sizeof(numbers));
        npy_file(scratch_path("from"), set == 0 ? "train_labels.npy" : "test_labels.npy", type,
                 shape, (const uint8_t *)labels + (size_t)set * ROWS * label_bytes,
                 ROWS * label_bytes);
    }
    pack_folder();
}

/* Fails unless it is as it should be, or what is wrong is said. */
static void assert_verified(const char *words)
{
    struct dp_records *records = open_packed();
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_records_verify(records);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_records_close(records);
    assert_int_equal(status, words == NULL ? DP_OK : DP_ERR_DATA);
    if (words != NULL && strstr(dp_log_captured(&capture), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", dp_log_captured(&capture), words);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Says in the index that there are so many classes. */
static void say_classes(int classes)
{
    struct dp_records_index_file file;

    assert_int_equal(dp_records_index_read(scratch_path("to"), &file), DP_OK);
    file.index.classes = classes;
    assert_int_equal(dp_records_index_save(&file.index, scratch_path("to")), DP_OK);
    dp_records_index_release(&file);
}

/* Changes the hash that the index has of a shard; once more, and it is what it was. */
static void change_hash(size_t shard)
{
    static const char digits[] = "0123456789abcdef";
    struct dp_records_index_file file;
    char *digit;

    assert_int_equal(dp_records_index_read(scratch_path("to"), &file), DP_OK);
    digit = file.index.shards[shard].hash;
    *digit = digits[(strchr(digits, *digit) - digits) ^ 1];
    assert_int_equal(dp_records_index_save(&file.index, scratch_path("to")), DP_OK);
    dp_records_index_release(&file);
}

static void a_label_is_found_wherever_it_is(void **state)
{
    static const struct {
        int set, row;
        const char *words;
    } cases[] = {
        {0, 0, "sample 0 of it (sample 0 of the train"},
        {0, 1, "sample 1 of it (sample 1 of the train"},
        {0, ROWS - 1, "(sample 299 of the train"},
        {1, ROWS - 1, "(sample 299 of the test"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t labels[2][ROWS];
        for (int row = 0; row < 2 * ROWS; row++) {
            labels[row / ROWS][row % ROWS] = (uint8_t)(row % CLASSES);
        }
        labels[cases[i].set][cases[i].row] = CLASSES;
        (void)scratch_create_fast(state);
        pack_rows("|u1", 1, labels, 1);
        assert_verified(NULL);
        say_classes(CLASSES);
        assert_verified(cases[i].words);
        (void)scratch_destroy(state);
    }
}

/* The file of the first shard. */
struct shard {
    uint8_t bytes[FILE_MOST];
    size_t count;
    struct dp_shard_block block;    /* its first one */
    size_t label, data, data_bytes; /* where a sample's label is, and the sample */
};

/* Finds a sample of the first block. */
static void read_shard(struct shard *s, uint64_t row)
{
    struct dp_records *records = open_packed();
    const struct dp_records_block *block = dp_records_block(records, DP_SET_TRAIN, 0);
    struct dp_buffer stored = {0}, memory = {0};
    FILE *file = fopen(scratch_path("to/shard-00000.rec"), "rb");
    struct dp_block_view view;
    struct dp_raw raw;

    assert_non_null(file);
    s->count = fread(s->bytes, 1, sizeof(s->bytes), file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(s->count, DP_SHARD_FOOT, sizeof(s->bytes) - 1);
    s->block = block->block;
    assert_true(!block->block.zstd && block->shard == 0 && row < block->block.samples);
    assert_int_equal(dp_records_read(records, block, &stored, &memory, &view), DP_OK);
    assert_int_equal(dp_records_sample(records, block, &view, row, &raw), DP_OK);
    s->label = (size_t)s->block.at + (size_t)row * view.form.label_numbers * 8;
    s->data = (size_t)s->block.at + (size_t)((const uint8_t *)raw.data - view.labels);
    s->data_bytes = raw.bytes;
    dp_buffer_release(&stored);
    dp_buffer_release(&memory);
    dp_records_close(records);
}

/* Writes it; `hashes`: as if it had been packed so, but for the hash of the file. */
static void write_shard(struct shard *s, bool hashes)
{
    uint8_t *end = s->bytes + s->count - DP_SHARD_FOOT;
    struct dp_records_index_file file;
    struct dp_shard_foot foot;
    struct dp_problem problem;

    if (hashes) {
        assert_int_equal(dp_shard_foot_read(end, s->count, &foot, &problem), DP_OK);
        s->block.hash = dp_shard_hash(s->bytes + s->block.at, s->block.stored);
        dp_shard_row_write(s->bytes + foot.table_at, &s->block);
        foot.table_hash =
            dp_shard_hash(s->bytes + foot.table_at, (size_t)foot.blocks * DP_SHARD_ROW);
        dp_shard_foot_write(end, &foot);
        assert_int_equal(dp_records_index_read(scratch_path("to"), &file), DP_OK);
        file.index.shards[0].table_hash = foot.table_hash;
        assert_int_equal(dp_records_index_save(&file.index, scratch_path("to")), DP_OK);
        dp_records_index_release(&file);
    }
    scratch_write(scratch_path("to/shard-00000.rec"), s->bytes, s->count);
}

/* Changes the second half of a picture. */
static void damage_picture(uint64_t row, bool hashes)
{
    static struct shard shard;
    size_t half;

    read_shard(&shard, row);
    half = shard.data_bytes / 2;
    memset(shard.bytes + shard.data + half, 0xff, shard.data_bytes - half);
    write_shard(&shard, hashes);
}

static void numbers_of_labels_are_finite_floats(void **state)
{
    static double labels[2 * ROWS][3];
    static struct shard shard;
    static const struct {
        size_t at;
        double value;
        const char *words; /* NULL: there is nothing wrong with it */
    } cases[] = {
        {0, 0.5, NULL},
        {1, 1e300, "number 1 of its label (counted from 0) is 1e+300"},
        {2, -1e39, "number 2 of its label (counted from 0) is -1e+39"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bits;
        (void)scratch_create_fast(state);
        labels[1][0] = 0.5;
        pack_rows("<f8", 3, labels, sizeof(labels[0]));
        if (cases[i].words != NULL) {
            read_shard(&shard, 1);
            memcpy(&bits, &cases[i].value, sizeof(bits));
            dp_shard_put(shard.bytes + shard.label + cases[i].at * 8, bits, 8);
            write_shard(&shard, true);
        }
        assert_verified(cases[i].words);
        (void)scratch_destroy(state);
    }
}

static void a_shard_of_another_hash_is_named(void **state)
{
    static uint8_t labels[2 * ROWS];
    (void)state;

    (void)scratch_create_fast(state);
    pack_rows("|u1", 1, labels, 1);
    change_hash(0);
    assert_verified("shard-00000.rec: its hash is another");
    change_hash(1);
    assert_verified("shard-00000.rec: its hash is another");
    change_hash(0);
    assert_verified("shard-00001.rec: its hash is another");
    change_hash(1);
    assert_verified(NULL);
    (void)scratch_destroy(state);
}

static void pack_pictures(void)
{
    char name[64];

    (void)mkdir(scratch_path("from"), 0700);
    for (int i = 0; i < PICTURES; i++) {
        (void)snprintf(name, sizeof(name), "train/%c/%d.png", "ab"[i % 2], i);
        picture_file(scratch_path("from"), name, 20 + 10 * i, 30, 3, 1);
    }
    picture_file(scratch_path("from"), "test/a/0.png", 4, 4, 3, 1);
    pack_folder();
}

static void pictures_are_decoded(void **state)
{
    (void)state;

    for (uint64_t row = 0; row < PICTURES; row += 2) {
        char words[64];
        (void)scratch_create_fast(state);
        pack_pictures();
        assert_verified(NULL);
        damage_picture(row, true);
        (void)snprintf(words, sizeof(words), "(sample %d of the training set", (int)row);
        assert_verified(words);
        for (int shuffled = 0; shuffled < 2; shuffled++) {
            struct dp_records *records = open_packed();
            struct dp_records_timing timing;
            struct dp_log_capture capture;
            dp_log_capture_begin(&capture, DP_LOG_ERROR);
            assert_int_equal(dp_records_time(records, shuffled != 0, 1e6, &timing), DP_ERR_DATA);
            dp_log_capture_end(&capture, DP_LOG_DROP);
            assert_non_null(strstr(dp_log_captured(&capture), words));
            dp_records_close(records);
        }
        (void)scratch_destroy(state);
    }
}

static void damaged_blocks_are_not_timed(void **state)
{
    struct dp_records *records;
    struct dp_records_timing timing;
    struct dp_log_capture capture;
    (void)state;

    (void)scratch_create_fast(state);
    pack_pictures();
    damage_picture(1, false);
    assert_verified("block 0");
    records = open_packed();
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_records_time(records, false, 1e6, &timing), DP_ERR_DATA);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_int_equal(timing.samples, 0);
    dp_records_close(records);
    (void)scratch_destroy(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_label_is_found_wherever_it_is),
        cmocka_unit_test(numbers_of_labels_are_finite_floats),
        cmocka_unit_test(a_shard_of_another_hash_is_named),
        cmocka_unit_test(pictures_are_decoded),
        cmocka_unit_test(damaged_blocks_are_not_timed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
