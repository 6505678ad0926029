/* test_config_override.c - variables and --set that do not mean what they seem to. */
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

static void misspelled_variables_are_a_warning_and_strangers_nothing(void **state)
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

static void lists_have_no_variables_and_say_so(void **state)
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

static void a_text_with_a_colon_too_many_is_shown(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misspelled_variables_are_a_warning_and_strangers_nothing),
        cmocka_unit_test(lists_have_no_variables_and_say_so),
        cmocka_unit_test(a_text_with_a_colon_too_many_is_shown),
    };

    return cmocka_run_group_tests_name("config_override", tests, NULL, NULL);
}
