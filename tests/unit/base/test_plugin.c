/* test_plugin.c - finding plug-ins by name, their options, and additions at run time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/plugin.h"

struct ring_state {
    int segments;
    bool eager;
    const char *outer;
    int untouched;
};

static const struct dp_option ring_options[] = {
    DP_INT(struct ring_state, segments, "2", 1, 64, "pieces of a slice"),
    DP_SWITCH(struct ring_state, eager, "false", "send at once"),
    DP_STRING(struct ring_state, outer, "tree", "what goes between nodes"),
    {0},
};

static const char *ring_refuse(const void *opened, const char **key)
{
    const struct ring_state *r = opened;

    *key = "eager";
    return r->eager && r->segments == 1 ? "needs more than one segment" : NULL;
}

static const struct dp_plugin ring = {.name = "ring",
                                      .help = "in a circle",
                                      .options = ring_options,
                                      .state_bytes = sizeof(struct ring_state),
                                      .refuse = ring_refuse};
static const struct dp_plugin direct = {.name = "direct", .help = "each from all"};
static const struct dp_plugin *const rows[] = {&ring, &direct};

static struct dp_plugin_family family_of_two(void)
{
    const struct dp_plugin_family family = {.noun = "strategy", .rows = rows, .count = 2};

    return family;
}

static void plugins_are_found_by_their_whole_name(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    (void)state;

    assert_ptr_equal(dp_plugin_find(&family, "ring", 4), &ring);
    assert_ptr_equal(dp_plugin_find(&family, "ring:segments=4", 4), &ring);
    assert_ptr_equal(dp_plugin_find(&family, "direct", 6), &direct);
    assert_null(dp_plugin_find(&family, "rin", 3));
    assert_null(dp_plugin_find(&family, "rings", 5));
    assert_null(dp_plugin_find(&family, "", 0));
}

static void a_family_is_walked_until_null(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    (void)state;

    assert_ptr_equal(dp_plugin_at(&family, 0), &ring);
    assert_ptr_equal(dp_plugin_at(&family, 1), &direct);
    assert_null(dp_plugin_at(&family, 2));
    assert_null(dp_plugin_at(&family, -1));
}

static void a_misspelled_name_is_recognised(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    (void)state;

    assert_string_equal(dp_plugin_nearest(&family, "rnig"), "ring");
    assert_string_equal(dp_plugin_nearest(&family, "dirct"), "direct");
    assert_null(dp_plugin_nearest(&family, "hierarchical"));
}

static void equal_options_are_printed_alike(void **state)
{
    static const char whole[] = "ring:segments=2,eager=false,outer=tree";
    const struct dp_plugin_family family = family_of_two();
    char spelt[64];
    (void)state;

    dp_plugin_spell(&family, "ring", spelt, sizeof(spelt));
    assert_string_equal(spelt, whole);
    dp_plugin_spell(&family, "ring:eager=off,segments=2", spelt, sizeof(spelt));
    assert_string_equal(spelt, whole);
    dp_plugin_spell(&family, "ring:segments=3", spelt, sizeof(spelt));
    assert_string_not_equal(spelt, whole);
    dp_plugin_spell(&family, "direct", spelt, sizeof(spelt));
    assert_string_equal(spelt, "direct");
    dp_plugin_spell(&family, "rings", spelt, sizeof(spelt));
    assert_string_equal(spelt, "rings");
    dp_plugin_spell(&family, "ring", spelt, 12);
    assert_string_equal(spelt, "ring:segmen");
}

static void a_listed_plugin_prints_its_options(void **state)
{
    static const struct dp_option options[] = {
        DP_INT(struct ring_state, untouched, NULL, 1, 9, "required"),
        DP_STRING(struct ring_state, outer, "", "none by default"),
        {0},
    };
    static const struct dp_plugin required = {.name = "required",
                                              .help = "asks",
                                              .options = options,
                                              .state_bytes = sizeof(struct ring_state)};
    char text[64];
    (void)state;

    dp_plugin_describe(&ring, text, sizeof(text));
    assert_string_equal(text, "in a circle; segments=2, eager=false, outer=tree");
    dp_plugin_describe(&direct, text, sizeof(text));
    assert_string_equal(text, "each from all");
    dp_plugin_describe(&required, text, sizeof(text));
    assert_string_equal(text, "asks; untouched, outer");
    dp_plugin_describe(&ring, text, 16);
    assert_string_equal(text, "in a circle; se");
    assert_int_equal(dp_mem_live(), 0);
}

static void a_plain_name_gives_a_state_with_the_defaults(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    const struct dp_plugin *plugin = NULL;
    struct ring_state *ring_state = NULL;
    void *opened = NULL;
    char problem[256];
    (void)state;

    assert_int_equal(dp_plugin_create(&family, "ring", &plugin, &opened, problem, sizeof(problem)),
                     DP_OK);
    assert_ptr_equal(plugin, &ring);
    ring_state = opened;
    assert_int_equal(ring_state->segments, 2);
    assert_false(ring_state->eager);
    assert_string_equal(ring_state->outer, "tree");
    assert_int_equal(ring_state->untouched, 0);
    dp_free(opened);
}

static void options_follow_the_name(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    const struct dp_plugin *plugin = NULL;
    struct ring_state *ring_state = NULL;
    char text[] = "ring:segments=8,outer=shm,eager=on";
    void *opened = NULL;
    char problem[256];
    (void)state;

    assert_int_equal(dp_plugin_create(&family, text, &plugin, &opened, problem, sizeof(problem)),
                     DP_OK);
    memset(text, '?', sizeof(text) - 1); /* the state must not point into the caller's text */
    ring_state = opened;
    assert_int_equal(ring_state->segments, 8);
    assert_true(ring_state->eager);
    assert_string_equal(ring_state->outer, "shm");
    dp_free(opened);
    assert_int_equal(
        dp_plugin_create(&family, "direct:", &plugin, &opened, problem, sizeof(problem)), DP_OK);
    assert_ptr_equal(plugin, &direct);
    dp_free(opened);
}

static void a_value_with_options_takes_the_rest_of_the_text(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    const struct dp_plugin *plugin = NULL;
    struct ring_state *ring_state = NULL;
    void *opened = NULL;
    char problem[256];
    (void)state;

    assert_int_equal(dp_plugin_create(&family, "ring:segments=8,outer=ring:outer=shm,eager=on",
                                      &plugin, &opened, problem, sizeof(problem)),
                     DP_OK);
    ring_state = opened;
    assert_int_equal(ring_state->segments, 8);
    assert_false(ring_state->eager);
    assert_string_equal(ring_state->outer, "ring:outer=shm,eager=on");
    dp_free(opened);
}

static void mistakes_are_reported_in_one_line(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"rnig", "unknown strategy 'rnig' (did you mean 'ring'?)"},
        {"nothing-like-it", "unknown strategy 'nothing-like-it'; known are: ring, direct"},
        {"", "unknown strategy ''"},
        {"ring:segments", "expected key=value, found 'segments'"},
        {"ring:pieces=3", "ring: unknown option 'pieces'; known are: segments"},
        {"ring:segments=0", "ring: segments: "},
        {"ring:segments=65", "ring: segments: "},
        {"ring:segments=many", "'many'"},
        {"ring:segments=1,eager=on", "ring: eager: needs more than one segment"},
        {"direct:segments=4", "direct: unknown option 'segments', it has none"},
    };
    const struct dp_plugin_family family = family_of_two();
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_plugin *plugin = NULL;
        void *opened = NULL;
        char problem[256] = "";
        assert_int_equal(
            dp_plugin_create(&family, cases[i].text, &plugin, &opened, problem, sizeof(problem)),
            DP_ERR_CONFIG);
        assert_non_null(strstr(problem, cases[i].part));
        assert_null(strchr(problem, '\n'));
        assert_null(opened);
        assert_null(plugin);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void an_added_plugin_is_found_like_the_others(void **state)
{
    static const struct dp_plugin mine = {
        .name = "mine", .help = "of the embedding program", .state_bytes = 16};
    struct dp_plugin_family family = family_of_two();
    (void)state;

    assert_int_equal(dp_plugin_add(&family, &mine), DP_OK);
    assert_ptr_equal(dp_plugin_find(&family, "mine", 4), &mine);
    assert_ptr_equal(dp_plugin_at(&family, 2), &mine);
    assert_null(dp_plugin_at(&family, 3));
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_plugin_add(&family, &mine), DP_ERR_ARG);
    assert_int_equal(dp_plugin_add(&family, &ring), DP_ERR_ARG);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(family.added_count, 1);
}

static void a_full_table_refuses_more(void **state)
{
    static char names[DP_PLUGIN_ADDED_MAX + 1][16];
    static struct dp_plugin added[DP_PLUGIN_ADDED_MAX + 1];
    struct dp_plugin_family family = family_of_two();
    (void)state;

    for (int i = 0; i <= DP_PLUGIN_ADDED_MAX; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "x%d", i);
        added[i].name = names[i];
        dp_log_set_level(i == DP_PLUGIN_ADDED_MAX ? DP_LOG_NONE : DP_LOG_INFO);
        assert_int_equal(dp_plugin_add(&family, &added[i]),
                         i == DP_PLUGIN_ADDED_MAX ? DP_ERR_ARG : DP_OK);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(family.added_count, DP_PLUGIN_ADDED_MAX);
}

static void survives_every_failed_allocation(void **state)
{
    const struct dp_plugin_family family = family_of_two();
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    int nth = 0;
    (void)state;

    while (status != DP_OK) {
        const struct dp_plugin *plugin = NULL;
        void *opened = NULL;
        char problem[256];
        dp_mem_fail_nth(++nth);
        status =
            dp_plugin_create(&family, "ring:outer=shm", &plugin, &opened, problem, sizeof(problem));
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((opened != NULL) == (status == DP_OK));
        dp_free(opened);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_mem_fail_nth(0);
    assert_true(nth > 1); /* at least one failed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugins_are_found_by_their_whole_name),
        cmocka_unit_test(a_family_is_walked_until_null),
        cmocka_unit_test(a_misspelled_name_is_recognised),
        cmocka_unit_test(equal_options_are_printed_alike),
        cmocka_unit_test(a_listed_plugin_prints_its_options),
        cmocka_unit_test(a_plain_name_gives_a_state_with_the_defaults),
        cmocka_unit_test(options_follow_the_name),
        cmocka_unit_test(a_value_with_options_takes_the_rest_of_the_text),
        cmocka_unit_test(mistakes_are_reported_in_one_line),
        cmocka_unit_test(an_added_plugin_is_found_like_the_others),
        cmocka_unit_test(a_full_table_refuses_more),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
}
