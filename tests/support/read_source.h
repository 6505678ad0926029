/*
 * read_source.h - for tests: opens, loads and closes a source of data, and keeps what it gave.
 */
#ifndef DP_TESTS_SUPPORT_READ_SOURCE_H
#define DP_TESTS_SUPPORT_READ_SOURCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/data/source.h"

struct outcome {
    dp_status opened, loaded;
    struct dp_source_info info;
    uint8_t *images[2]; /* train, test */
    int32_t *labels[2];
};
static inline void outcome_free(struct outcome *o)
{
    for (int i = 0; i < 2; i++) {
        dp_free(o->images[i]);
        dp_free(o->labels[i]);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Opens, loads and closes; the outcome is released with outcome_free(). */
static inline struct outcome run_source(const char *name, const struct dp_source_config *config)
{
    struct outcome o = {.opened = DP_ERR_INTERNAL, .loaded = DP_ERR_INTERNAL};
    const struct dp_plugin *plugin = dp_plugin_find(&dp_sources, name, strlen(name));
    const struct dp_source *source = (const struct dp_source *)plugin;
    void *state;

    assert_non_null(plugin);
    state = dp_zalloc(1, plugin->state_bytes);
    assert_non_null(state);
    o.opened = source->open(state, config, &o.info);
    if (o.opened == DP_OK) {
        const size_t counts[] = {o.info.train_count, o.info.test_count};
        for (int i = 0; i < 2; i++) {
            o.images[i] = dp_zalloc(counts[i], o.info.sample_bytes);
            o.labels[i] = dp_zalloc(counts[i], sizeof(*o.labels[i]));
            assert_true(o.images[i] != NULL && o.labels[i] != NULL);
        }
        o.loaded = source->load(state, o.images[0], o.labels[0], o.images[1], o.labels[1]);
        source->close(state);
    }
    dp_free(state);
    return o;
}

/* Whichever allocation fails, open() says so, sets nothing, and leaves nothing behind. */
static inline void assert_open_survives_failed_allocations(const char *name,
                                                           const struct dp_source_config *config)
{
    const struct dp_plugin *plugin = dp_plugin_find(&dp_sources, name, strlen(name));
    const struct dp_source *source = (const struct dp_source *)plugin;
    dp_status status = DP_ERR_NOMEM;

    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_source_info info = {.train_count = 77};
        void *state = dp_zalloc(1, plugin->state_bytes);
        assert_non_null(state);
        dp_mem_fail_nth(nth);
        status = source->open(state, config, &info);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((info.train_count == 77) == (status != DP_OK));
        assert_true(status != DP_OK || nth > 2);
        if (status == DP_OK) {
            source->close(state);
        }
        dp_free(state);
        assert_int_equal(dp_mem_live(), 0);
    }
}

#endif
