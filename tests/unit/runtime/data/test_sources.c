/*
 * test_sources.c - what every source of data must do, checked for every registered one: on a small
 * data set in files, and without it. Files of another format are added in make_files().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/data/records/pack.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

enum { SIDE = 28, PIXELS = SIDE * SIDE, TRAIN = 30, TEST = 12, CLASSES = 10 };

static char folder[64];

static const char *const file_names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static void path_of(char *path, size_t size, int file)
{
    assert_true(snprintf(path, size, "%s/%s", folder, file_names[file]) < (int)size);
}

/* Rows of pixels, or of one label each. */
static void write_idx(int file)
{
    const bool images = file % 2 == 0;
    const unsigned char rows = file < 2 ? TRAIN : TEST;
    const unsigned char header[16] = {0, 0, 8, images ? 3 : 1, 0, 0, 0, rows,
                                      0, 0, 0, SIDE,           0, 0, 0, SIDE};
    char path[128];
    FILE *out;

    path_of(path, sizeof(path), file);
    out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(header, images ? 16 : 8, 1, out), 1);
    for (int i = 0; i < rows * (images ? PIXELS : 1); i++) {
        assert_true(fputc(images ? i * 7 % 251 : i % CLASSES, out) != EOF);
    }
    assert_int_equal(fclose(out), 0);
}

/* Class folders "0" to "9", for both sets. */
static void write_pictures(void)
{
    for (int i = 0; i < TRAIN + TEST; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s/%d/%d.%s", i < TRAIN ? "train" : "test", i % CLASSES,
                       i, i % 3 == 0 ? "jpg" : "png");
        picture_file(folder, name, 20 + i, 50 - i, i % 2 == 0 ? 1 : 3, (unsigned)i);
    }
}

/* Rows of 784 numbers of float32. */
static void write_arrays(void)
{
    static float numbers[TRAIN * PIXELS];
    static int64_t labels[TRAIN];

    for (int i = 0; i < TRAIN * PIXELS; i++) {
        numbers[i] = (float)i / 100.0f;
    }
    for (int i = 0; i < TRAIN; i++) {
        labels[i] = i % CLASSES;
    }
    npy_file(folder, "train_images.npy", "<f4", "(30, 784)", numbers, sizeof(numbers));
    npy_file(folder, "train_labels.npy", "<i8", "(30,)", labels, sizeof(labels));
    npy_file(folder, "test_images.npy", "<f4", "(12, 784)", numbers, sizeof(float) * TEST * PIXELS);
    npy_file(folder, "test_labels.npy", "|u1", "(12,)", "\0\1\2\3\4\5\6\7\0\1\2\3", TEST);
}

/* Lines of a label and 784 numbers. */
static void write_table(const char *name, int rows)
{
    static char text[TRAIN * (PIXELS + 1) * 4];
    size_t used = 0;

    for (int i = 0; i < rows; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%d", i % CLASSES);
        for (int k = 0; k < PIXELS; k++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, ",%d", (i + k) % 256);
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "\n");
    }
    assert_true(used < sizeof(text) - 1);
    write_bytes(folder, name, text, used);
}

/* The same images as records; index.json and shards have names of their own. */
static int pack_records(void)
{
    static char from[64], to[80];
    const struct dp_pack_options options = {
        .source = "idx", .from = from, .to = to, .shard_bytes = 1 << 20, .threads = 1};
    struct dp_pack_result result;

    (void)snprintf(from, sizeof(from), "%s", folder);
    (void)snprintf(to, sizeof(to), "%s/packed", folder);
    if (dp_pack(&options, &result) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"index.json", "shard-00000.rec", "shard-00001.rec"};
        char old[128], new[128];
        (void)snprintf(old, sizeof(old), "%s/%s", to, names[i]);
        (void)snprintf(new, sizeof(new), "%s/%s", folder, names[i]);
        if (rename(old, new) != 0) {
            return 1;
        }
    }
    return rmdir(to);
}

static int make_files(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_sources.XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    for (int file = 0; file < 4; file++) {
        write_idx(file);
    }
    write_pictures();
    write_arrays();
    write_table("train.csv", TRAIN);
    write_table("test.csv", TEST);
    cifar10_file(folder, "data_batch_1.bin", TRAIN, 0);
    cifar10_file(folder, "test_batch.bin", TEST, 0);
    return pack_records();
}

static int remove_files(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

/* Images are resized; rows of numbers cannot be. */
static struct dp_source_config usual(const char *source)
{
    const bool flat = strcmp(source, "csv") == 0 || strcmp(source, "npy") == 0;

    return (struct dp_source_config){
        .dir = folder,
        .input = {.height = SIDE, .width = SIDE, .channels = 1, .count = PIXELS},
        .classes = CLASSES,
        .seed = 5,
        .samples = TRAIN,
        .test_samples = TEST,
        .resize = flat ? DP_RESIZE_AUTO : DP_RESIZE_BILINEAR};
}

static void assert_labels_below(const struct outcome *o, int classes)
{
    for (int set = 0; set < DP_SETS; set++) {
        for (size_t k = 0; k < o->info.count[set]; k++) {
            assert_in_range(o->labels[set][k], 0, classes - 1);
        }
    }
}

/* Either it succeeds, or it is refused as source.h says, and reported once. */
static bool runs_or_refuses(const char *source, const struct dp_source_config *config)
{
    const int errors = dp_log_errors();
    struct outcome o = run_source_over(source, config, 0xee);
    const dp_status status = o.opened != DP_OK ? o.opened : o.loaded;

    assert_true(status == DP_OK || status == DP_ERR_NOINPUT || status == DP_ERR_DATA ||
                status == DP_ERR_CONFIG);
    assert_int_equal(dp_log_errors() - errors, status == DP_OK ? 0 : 1);
    if (status == DP_OK) {
        assert_int_equal(o.info.shape.count, config->input.count);
        assert_labels_below(&o, config->classes);
    }
    outcome_free(&o);
    return status == DP_OK;
}

/* The last name that was printed is the one that failed. */
static const char *source_at(int i)
{
    const struct dp_plugin *plugin = dp_plugin_at(&dp_sources, i);

    if (plugin != NULL) {
        print_message("source %s\n", plugin->name);
    }
    return plugin == NULL ? NULL : plugin->name;
}

static void every_source_writes_every_row_and_the_same_each_time(void **state)
{
    struct dp_source_config config;
    const char *source;
    (void)state;

    for (int i = 0; (source = source_at(i)) != NULL; i++) {
        config = usual(source);
        assert_true(runs_or_refuses(source, &config)); /* make_files() has some for it */
        struct outcome a = run_source_over(source, &config, 0xee);
        struct outcome b = run_source_over(source, &config, 0x55);
        for (int set = 0; set < DP_SETS; set++) {
            const size_t count = a.info.count[set];
            assert_int_equal(count, b.info.count[set]);
            assert_memory_equal(a.images[set], b.images[set], count * a.bytes);
            assert_memory_equal(a.labels[set], b.labels[set], count * sizeof(int32_t));
        }
        outcome_release(&b);
        outcome_free(&a);
    }
}

static void every_source_refuses_impossible_input_once_with_its_status(void **state)
{
    const char *source;
    (void)state;

    for (int i = 0; (source = source_at(i)) != NULL; i++) {
        struct dp_source_config config = usual(source);
        config.dir = "/tmp/there-is-no-such-folder";
        (void)runs_or_refuses(source, &config);
        config = usual(source);
        config.classes = 3;
        (void)runs_or_refuses(source, &config);
        config = usual(source);
        config.resize = DP_RESIZE_AUTO;
        (void)runs_or_refuses(source, &config);
        config.input.height = config.input.width = 5;
        config.input.count = 25;
        (void)runs_or_refuses(source, &config);
        config = usual(source);
        config.input.channels = 3;
        config.input.count = (size_t)3 * PIXELS;
        (void)runs_or_refuses(source, &config);
        config = usual(source);
        config.input.height = config.input.width = config.input.channels = 0; /* flat */
        (void)runs_or_refuses(source, &config);
    }
}

static void every_source_survives_every_failed_allocation(void **state)
{
    struct dp_source_config config;
    const char *source;
    (void)state;

    for (int i = 0; (source = source_at(i)) != NULL; i++) {
        config = usual(source);
        assert_open_survives_failed_allocations(source, &config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_writes_every_row_and_the_same_each_time),
        cmocka_unit_test(every_source_refuses_impossible_input_once_with_its_status),
        cmocka_unit_test(every_source_survives_every_failed_allocation),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
