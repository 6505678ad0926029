/* test_config_override.c - misleading variables and --set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/config/config.h"
#include "runtime/config/config_load.h"
#include "tests/support/stderr_text.h"

#define MODEL "model: {input: [8, 8, 1], layers: [{flatten: {}}, {dense: {units: 3}}]}\n"

static char *const no_environment[] = {NULL};

static void misspelled_variables_are_a_warning_and_unknown_ones_are_ignored(void **state)
{
    static char seed[] = "DP_TRAIN_SEDE=5", cuda[] = "DP_CUDA=1", home[] = "HOME=/";
    static char *const environment[] = {cuda, seed, home, NULL};
    char *text = NULL;
    dp_status status;
    (void)state;

    stderr_begin();
    status = dp_config_resolve_text(MODEL, strlen(MODEL), "m.cfg", environment, NULL, 0, &text);
    stderr_end();
    assert_int_equal(status, DP_OK);
    assert_string_equal(stderr_text,
                        "lockstep: warning: unknown variable DP_TRAIN_SEDE is ignored (did "
                        "you mean DP_TRAIN_SEED?)\n");
    dp_free(text);
}

/* Resolves with these two variables, NULL for none; expects `complaint` on stderr. */
static void resolves(char *first, char *second, dp_status expected, const char *complaint,
                     const char *line)
{
    char *const environment[] = {first, second, NULL};
    char *text = NULL;
    dp_status status;

    stderr_begin();
    status = dp_config_resolve_text(MODEL, strlen(MODEL), "m.cfg",
                                    first != NULL ? environment : environment + 1, NULL, 0, &text);
    stderr_end();
    assert_int_equal(status, expected);
    assert_string_equal(stderr_text, complaint);
    assert_true(line == NULL || strstr(text, line) != NULL);
    dp_free(text);
}

static void a_variable_has_one_alias(void **state)
{
    static char name[] = "DP_TRAIN_SEED=5", alias[] = "DDP_TRAIN_SEED=5",
                other[] = "DDP_TRAIN_SEED=6";
    static char wrong[] = "DDP_TRAIN_SEED=x", epochs[] = "DDP_TRAIN_EPOCHS=2";
    static char steps[] = "DP_TRAIN_STEPS=3";
    (void)state;

    resolves(NULL, name, DP_OK, "", "\n  seed: 5\n");
    resolves(NULL, alias, DP_OK, "", "\n  seed: 5\n");
    resolves(name, alias, DP_OK, "", "\n#@ train.seed\tDP_TRAIN_SEED\n");
    resolves(name, other, DP_ERR_CONFIG,
             "lockstep: error: DP_TRAIN_SEED: its alias DDP_TRAIN_SEED has another value: "
             "unset one\n",
             NULL);
    resolves(other, name, DP_ERR_CONFIG,
             "lockstep: error: DP_TRAIN_SEED: its alias DDP_TRAIN_SEED has another value: "
             "unset one\n",
             NULL);
    resolves(NULL, wrong, DP_ERR_CONFIG,
             "lockstep: error: DDP_TRAIN_SEED: train.seed: expected an integer from 0 to "
             "2147483647, found 'x'\n",
             NULL);
    resolves(epochs, steps, DP_ERR_CONFIG,
             "lockstep: error: DP_TRAIN_STEPS: train.steps: DDP_TRAIN_EPOCHS is set too; give one "
             "of them\n",
             NULL);
}

static void variables_for_lists_are_ignored_with_a_warning(void **state)
{
    static char layers[] = "DDP_MODEL_LAYERS=[relu: {}]", entry[] = "DP_MODEL_LAYERS_0_RELU={}";
    static char *const environment[] = {layers, entry, NULL};
    char *text = NULL, expected[512] = "";
    dp_status status;
    (void)state;

    for (int i = 0; i < 2; i++) {
        (void)snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected),
                       "lockstep: warning: %s is ignored: the list of layers has no variable; use "
                       "the file, or --set model.layers[0].dense.units=64\n",
                       i == 0 ? "DDP_MODEL_LAYERS" : "DP_MODEL_LAYERS_0_RELU");
    }
    stderr_begin();
    status = dp_config_resolve_text(MODEL, strlen(MODEL), "m.cfg", environment, NULL, 0, &text);
    stderr_end();
    assert_int_equal(status, DP_OK);
    assert_string_equal(stderr_text, expected);
    dp_free(text);
}

static void a_text_with_too_many_colons_is_quoted(void **state)
{
    static const char *const sets[] = {"comm.strategy=ring:"};
    char *text = NULL;
    dp_status status;
    (void)state;

    stderr_begin();
    status = dp_config_resolve_text(MODEL, strlen(MODEL), "m.cfg", no_environment, sets, 1, &text);
    stderr_end();
    assert_int_equal(status, DP_ERR_CONFIG);
    assert_string_equal(stderr_text, "lockstep: error: --set comm.strategy=ring:: comm.strategy: "
                                     "expected a text, found 'ring:', a section with nothing in "
                                     "it\n");
}

/* The resolved text of a file that has all three, with a key set over it. */
static char *with_set(const char *set)
{
    static const char file[] =
        "data: {source: records, dir: /r, local_cache: /c, augment: [flip: {}], "
        "normalize: {mean: [0.1], std: [2]}}\nreport: {prometheus: /p}\n" MODEL;
    char *text = NULL;

    assert_int_equal(
        dp_config_resolve_text(file, strlen(file), "m.cfg", no_environment, &set, 1, &text), DP_OK);
    return text;
}

static void a_number_sign_that_would_cut_a_value_short_is_refused(void **state)
{
    static const char *const cut[] = {"data.dir=/set #2", "data.dir=#2"};
    static const char *const whole[] = {"data.dir=\"/set #2\"", "data.dir=/set#2"};
    char *text = NULL;
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        dp_status status;
        stderr_begin();
        status = dp_config_resolve_text(MODEL, strlen(MODEL), "m.cfg", no_environment, &cut[i], 1,
                                        &text);
        stderr_end();
        assert_int_equal(status, DP_ERR_CONFIG);
        assert_non_null(strstr(stderr_text, ": data.dir: from '#' on it is a comment: put the "
                                            "value in \"...\""));
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(dp_config_resolve_text(MODEL, strlen(MODEL), "m.cfg", no_environment,
                                                &whole[i], 1, &text),
                         DP_OK);
        assert_non_null(strstr(text, i == 0 ? "/set #2" : "/set#2"));
        dp_free(text);
    }
}

static void what_the_file_has_is_taken_away_by_an_empty_text_or_null(void **state)
{
    static const struct {
        const char *set, *line;
    } cases[] = {
        {"data.local_cache=", "local_cache:"},  {"data.local_cache=''", "local_cache:"},
        {"data.augment=null", "augment:"},      {"report.prometheus=null", "prometheus:"},
        {"data.normalize=none", "mean: [0.1]"}, {"data.normalize=null", "mean: [0.1]"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *kept = with_set("train.seed=3"), *text = with_set(cases[i].set);
        assert_non_null(strstr(kept, cases[i].line));
        assert_null(strstr(text, cases[i].line));
        dp_free(kept);
        dp_free(text);
    }
}

static void a_file_may_say_that_nothing_is_normalised(void **state)
{
    static const char file[] = "data: {normalize: none, augment: , local_cache: ''}\n" MODEL;
    char *text = NULL;
    (void)state;

    assert_int_equal(
        dp_config_resolve_text(file, strlen(file), "m.cfg", no_environment, NULL, 0, &text), DP_OK);
    assert_non_null(strstr(text, "normalize: {mean: [], std: []}"));
    dp_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misspelled_variables_are_a_warning_and_unknown_ones_are_ignored),
        cmocka_unit_test(a_variable_has_one_alias),
        cmocka_unit_test(variables_for_lists_are_ignored_with_a_warning),
        cmocka_unit_test(a_text_with_too_many_colons_is_quoted),
        cmocka_unit_test(a_number_sign_that_would_cut_a_value_short_is_refused),
        cmocka_unit_test(what_the_file_has_is_taken_away_by_an_empty_text_or_null),
        cmocka_unit_test(a_file_may_say_that_nothing_is_normalised),
    };

    return cmocka_run_group_tests_name("config_override", tests, NULL, NULL);
}
