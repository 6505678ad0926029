/*
 * read_source.h - for tests: opens, loads and closes a data source, and keeps the result.
 */
#ifndef DP_TESTS_SUPPORT_FILES_READ_SOURCE_H
#define DP_TESTS_SUPPORT_FILES_READ_SOURCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/sample_reader.h"

struct outcome {
    dp_status opened, loaded;
    struct dp_samples_info info; /* without names */
    size_t bytes;                /* of a sample */
    uint8_t *images[DP_SETS];
    int32_t *labels[DP_SETS];
};

static inline void outcome_release(struct outcome *o)
{
    for (int set = 0; set < DP_SETS; set++) {
        dp_free(o->images[set]);
        dp_free(o->labels[set]);
    }
}

static inline void outcome_free(struct outcome *o)
{
    outcome_release(o);
    assert_int_equal(dp_mem_live(), 0);
}

/* Reads all samples one after another. */
static inline dp_status read_each(struct dp_samples *samples, struct outcome *o)
{
    struct dp_sample_reader *reader;
    dp_status status = o->info.any_order ? DP_OK : dp_samples_hold(samples);

    DP_TRY(status);
    DP_TRY(dp_sample_reader_create(samples, &reader));
    for (int set = 0; set < DP_SETS; set++) {
        for (size_t i = 0; i < o->info.count[set] && status == DP_OK; i++) {
            status =
                dp_sample_reader_read(reader, (enum dp_set)set, i, o->images[set] + i * o->bytes,
                                      o->labels[set] + i * dp_label_words(&o->info));
        }
    }
    dp_sample_reader_destroy(reader);
    return status;
}

/* Opens, loads and closes; memory holds `fill` before. The outcome is released with
 * outcome_free(). */
static inline struct outcome run_source_over(const char *name,
                                             const struct dp_source_config *config, int fill)
{
    struct outcome o = {.opened = DP_ERR_INTERNAL, .loaded = DP_ERR_INTERNAL};
    struct dp_samples *samples = NULL;

    o.opened = dp_samples_open(name, config, &samples);
    if (o.opened != DP_OK) {
        assert_null(samples); /* set only on success */
        return o;
    }
    o.info = *dp_samples_info(samples);
    o.bytes = dp_shape_bytes(&o.info.shape);
    for (int set = 0; set < DP_SETS; set++) {
        const size_t count = o.info.count[set];
        assert_true(count > 0);
        o.images[set] = dp_zalloc(count, o.bytes);
        o.labels[set] = dp_zalloc(count, dp_label_words(&o.info) * sizeof(int32_t));
        if (o.images[set] == NULL || o.labels[set] == NULL) {
            abort();
        }
        memset(o.images[set], fill, count * o.bytes);
        memset(o.labels[set], fill, count * dp_label_words(&o.info) * sizeof(int32_t));
    }
    o.loaded = o.info.whole ? dp_samples_load(samples, o.images, o.labels) : read_each(samples, &o);
    dp_samples_close(samples);
    return o;
}

static inline struct outcome run_source(const char *name, const struct dp_source_config *config)
{
    return run_source_over(name, config, 0);
}

/* The same of a source that has to be read. */
static inline struct outcome run_source_well(const char *name,
                                             const struct dp_source_config *config)
{
    const struct outcome o = run_source(name, config);

    if (o.opened != DP_OK || o.loaded != DP_OK || o.images[DP_SET_TRAIN] == NULL ||
        o.images[DP_SET_TEST] == NULL) {
        print_error("source %s cannot be read\n", name);
        abort();
    }
    return o;
}

/* Number `k` of the label of a row, where labels are numbers. */
static inline float label_number(const struct outcome *o, enum dp_set set, size_t row, size_t k)
{
    float number;

    memcpy(&number, &o->labels[set][row * dp_label_words(&o->info) + k], sizeof(number));
    return number;
}

/* Opening or loading fails with that status, and one line that has these words. */
static inline void assert_source_refuses(const char *name, const struct dp_source_config *config,
                                         dp_status expected, const char *words)
{
    struct dp_log_capture capture;
    struct outcome o;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    o = run_source(name, config);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (strstr(dp_log_captured(&capture), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", dp_log_captured(&capture), words);
    }
    assert_int_equal(o.opened != DP_OK ? o.opened : o.loaded, expected);
    assert_true(strlen(capture.lines) + 1 >= capture.used); /* nothing more is said */
    outcome_free(&o);
}

/* After any failed allocation opening fails, sets nothing, and leaves nothing. */
static inline void assert_open_survives_failed_allocations(const char *name,
                                                           const struct dp_source_config *config)
{
    dp_status status = DP_ERR_NOMEM;

    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_samples *samples = NULL;
        dp_mem_fail_nth(nth);
        status = dp_samples_open(name, config, &samples);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((samples == NULL) == (status != DP_OK));
        assert_true(status != DP_OK || nth > 2);
        dp_samples_close(samples);
        assert_int_equal(dp_mem_live(), 0);
    }
}

#endif
