/*
 * test_plugin_limits.c - what options of strategies and compressors may be: up to their limits, no
 * further, and no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/compressors/compressor.h"
#include "collectives/strategies/strategy.h"

struct limits {
    const char *good, *bad, *words;
};

static void assert_limits(const struct dp_plugin_family *family, const struct limits *l)
{
    const struct dp_plugin *plugin = NULL;
    char problem[256] = "";
    void *state = NULL;

    if (dp_plugin_create(family, l->good, &plugin, &state, problem, sizeof(problem)) != DP_OK) {
        fail_msg("%s: %s", l->good, problem);
    }
    dp_free(state);
    state = NULL;
    if (dp_plugin_create(family, l->bad, &plugin, &state, problem, sizeof(problem)) !=
        DP_ERR_CONFIG) {
        fail_msg("%s is taken", l->bad);
    }
    assert_null(state);
    if (strstr(problem, l->words) == NULL) {
        fail_msg("%s: \"%s\" does not say \"%s\"", l->bad, problem, l->words);
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void strategies_take_options_up_to_their_limits(void **state)
{
    static const struct limits limits[] = {
        {"ring:segment_kb=0", "ring:segment_kb=-1", "segment_kb"},
        {"ring:segment_kb=65536", "ring:segment_kb=65537", "segment_kb"},
        {"ring", "ring:other=1", "other"},
        {"tree:segment_kb=0", "tree:segment_kb=-1", "segment_kb"},
        {"tree:segment_kb=65536", "tree:segment_kb=65537", "segment_kb"},
        {"tree", "tree:other=1", "other"},
        {"direct:segment_kb=0", "direct:segment_kb=-1", "segment_kb"},
        {"direct:segment_kb=65536", "direct:segment_kb=65537", "segment_kb"},
        {"direct", "direct:other=1", "other"},
        {"doubling:segment_kb=0", "doubling:segment_kb=-1", "segment_kb"},
        {"doubling:segment_kb=65536", "doubling:segment_kb=65537", "segment_kb"},
        {"doubling", "doubling:other=1", "other"},
        {"rhd:segment_kb=0", "rhd:segment_kb=-1", "segment_kb"},
        {"rhd:segment_kb=65536", "rhd:segment_kb=65537", "segment_kb"},
        {"rhd", "rhd:other=1", "other"},
        {"mpi:nonblocking=0", "mpi:nonblocking=-1", "nonblocking"},
        {"mpi:nonblocking=1", "mpi:nonblocking=2", "nonblocking"},
        {"mpi", "mpi:other=1", "other"},
        {"hier:rails=0", "hier:rails=-1", "rails"},
        {"hier:rails=1", "hier:rails=2", "rails"},
        {"hier", "hier:other=1", "other"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        assert_limits(&dp_strategies, &limits[i]);
    }
}

static void compressors_take_options_up_to_their_limits(void **state)
{
    static const struct limits limits[] = {
        {"topk:ratio=0.000001", "topk:ratio=0.0000009", "ratio"},
        {"topk:ratio=1", "topk:ratio=1.001", "ratio"},
        {"topk:momentum=0", "topk:momentum=-0.001", "momentum"},
        {"topk:momentum=0.9999", "topk:momentum=1", "momentum"},
        {"topk:warmup_steps=0", "topk:warmup_steps=-1", "warmup_steps"},
        {"topk:warmup_steps=1000000000", "topk:warmup_steps=1000000001", "warmup_steps"},
        {"topk", "topk:other=1", "other"},
        {"randomk:ratio=0.000001", "randomk:ratio=0.0000009", "ratio"},
        {"randomk:ratio=1", "randomk:ratio=1.001", "ratio"},
        {"randomk", "randomk:other=1", "other"},
        {"powersgd:rank=1", "powersgd:rank=0", "rank"},
        {"powersgd:rank=256", "powersgd:rank=257", "rank"},
        {"powersgd", "powersgd:other=1", "other"},
        {"int8", "int8:other=1", "other"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        assert_limits(&dp_compressors, &limits[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_take_options_up_to_their_limits),
        cmocka_unit_test(compressors_take_options_up_to_their_limits),
    };

    return cmocka_run_group_tests_name("plugin_limits", tests, NULL, NULL);
}
