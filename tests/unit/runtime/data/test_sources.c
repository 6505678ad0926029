/*
 * test_sources.c - what every source of data must do, checked for every registered one: on a small
 * data set in files, and without it. Files of another format are added in make_files(); a source
 * that finds none of its own here is checked for what it refuses alone.
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
#include "base/mem.h"
#include "runtime/data/source.h"

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
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (int file = 0; file < 4; file++) {
        char path[128];
        path_of(path, sizeof(path), file);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static struct dp_source_config usual(void)
{
    return (struct dp_source_config){.dir = folder,
                                     .sample_bytes = PIXELS,
                                     .height = SIDE,
                                     .width = SIDE,
                                     .channels = 1,
                                     .classes = CLASSES,
                                     .seed = 5,
                                     .samples = TRAIN,
                                     .test_samples = TEST};
}

/* What a source gave; memory holds `fill` before. */
struct rows {
    dp_status opened, loaded;
    struct dp_source_info info;
    uint8_t *images[2]; /* train, test */
    int32_t *labels[2];
    int errors; /* told meanwhile */
};

static void rows_fini(struct rows *rows)
{
    for (int i = 0; i < 2; i++) {
        dp_free(rows->images[i]);
        dp_free(rows->labels[i]);
    }
    assert_int_equal(dp_mem_live(), 0);
}

static struct rows read_rows(const struct dp_source *source, const struct dp_source_config *config,
                             int fill)
{
    struct rows r = {.opened = DP_ERR_INTERNAL, .loaded = DP_OK, .errors = -dp_log_errors()};
    void *state = dp_zalloc(1, source->plugin.state_bytes);

    assert_non_null(state);
    r.opened = source->open(state, config, &r.info);
    for (int i = 0; i < 2 && r.opened == DP_OK; i++) {
        const size_t count = i == 0 ? r.info.train_count : r.info.test_count;
        r.images[i] = dp_zalloc(count, r.info.sample_bytes);
        r.labels[i] = dp_zalloc(count, sizeof(int32_t));
        assert_true(count > 0);
        assert_non_null(r.images[i]);
        assert_non_null(r.labels[i]);
        memset(r.images[i], fill, count * r.info.sample_bytes);
        memset(r.labels[i], fill, count * sizeof(int32_t));
    }
    if (r.opened == DP_OK) {
        r.loaded = source->load(state, r.images[0], r.labels[0], r.images[1], r.labels[1]);
        source->close(state);
    }
    dp_free(state);
    r.errors += dp_log_errors();
    return r;
}

static void assert_labels_below(const struct rows *r, int classes)
{
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < (i == 0 ? r->info.train_count : r->info.test_count); k++) {
            assert_in_range(r->labels[i][k], 0, classes - 1);
        }
    }
}

/* Either all is well, or it is refused as source.h says, and told once. */
static bool runs_or_refuses(const struct dp_source *source, const struct dp_source_config *config)
{
    struct rows r = read_rows(source, config, 0xee);
    const dp_status status = r.opened != DP_OK ? r.opened : r.loaded;

    assert_true(status == DP_OK || status == DP_ERR_NOINPUT || status == DP_ERR_DATA ||
                status == DP_ERR_CONFIG);
    assert_int_equal(r.errors, status == DP_OK ? 0 : 1);
    if (status == DP_OK) {
        assert_int_equal(r.info.sample_bytes, config->sample_bytes);
        assert_labels_below(&r, config->classes);
    } else if (r.opened != DP_OK) {
        assert_int_equal(r.info.train_count, 0); /* set only on success */
    }
    rows_fini(&r);
    return status == DP_OK;
}

/* The last name that was printed is the one that failed. */
static const struct dp_source *source_at(int i)
{
    const struct dp_plugin *plugin = dp_plugin_at(&dp_sources, i);

    if (plugin != NULL) {
        print_message("source %s\n", plugin->name);
    }
    return (const struct dp_source *)plugin;
}

static void every_source_writes_every_row_and_the_same_each_time(void **state)
{
    const struct dp_source_config config = usual();
    const struct dp_source *source;
    int checked = 0;
    (void)state;

    for (int i = 0; (source = source_at(i)) != NULL; i++) {
        if (!runs_or_refuses(source, &config)) {
            print_message("finds no files of its own\n");
            continue;
        }
        struct rows a = read_rows(source, &config, 0xee), b = read_rows(source, &config, 0x55);
        assert_memory_equal(&a.info, &b.info, sizeof(a.info));
        for (int k = 0; k < 2; k++) {
            const size_t count = k == 0 ? a.info.train_count : a.info.test_count;
            assert_memory_equal(a.images[k], b.images[k], count * a.info.sample_bytes);
            assert_memory_equal(a.labels[k], b.labels[k], count * sizeof(int32_t));
            dp_free(b.images[k]);
            dp_free(b.labels[k]);
        }
        rows_fini(&a);
        checked++;
    }
    assert_true(checked >= 3);
}

static void every_source_refuses_what_it_cannot_give_once_and_with_its_status(void **state)
{
    const struct dp_source *source;
    (void)state;

    for (int i = 0; (source = source_at(i)) != NULL; i++) {
        struct dp_source_config config = usual();
        config.dir = "/tmp/there-is-no-such-folder";
        (void)runs_or_refuses(source, &config);
        config = usual();
        config.classes = 3;
        (void)runs_or_refuses(source, &config);
        config = usual();
        config.height = config.width = 5;
        config.sample_bytes = 25;
        (void)runs_or_refuses(source, &config);
        config = usual();
        config.channels = 3;
        config.sample_bytes = (size_t)3 * PIXELS;
        (void)runs_or_refuses(source, &config);
        config = usual();
        config.height = config.width = config.channels = 0; /* flat */
        (void)runs_or_refuses(source, &config);
    }
}

static void every_source_survives_every_failed_allocation(void **state)
{
    const struct dp_source_config config = usual();
    const struct dp_source *source;
    (void)state;

    for (int i = 0; (source = source_at(i)) != NULL; i++) {
        dp_status status = DP_ERR_NOMEM;
        for (int nth = 1; status == DP_ERR_NOMEM; nth++) {
            struct dp_source_info info = {.train_count = 77};
            void *own = dp_zalloc(1, source->plugin.state_bytes);
            assert_non_null(own);
            dp_mem_fail_nth(nth);
            status = source->open(own, &config, &info);
            dp_mem_fail_nth(0);
            assert_true((info.train_count == 77) == (status != DP_OK));
            if (status == DP_OK) {
                source->close(own);
            }
            dp_free(own);
            assert_int_equal(dp_mem_live(), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_writes_every_row_and_the_same_each_time),
        cmocka_unit_test(every_source_refuses_what_it_cannot_give_once_and_with_its_status),
        cmocka_unit_test(every_source_survives_every_failed_allocation),
    };

    dp_log_mute(1);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
