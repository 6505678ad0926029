/*
 * test_config_plugins.c - sections of model.cfg whose keys are also options of plug-ins: each
 * optimizer and schedule has options, defaults and help of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"

static const char model[] = "model: {input: [4], layers: [dense: {units: 2}]}\n";
static char *const no_environment[] = {NULL};

/* An optimizer of another program, two of whose options have names of adamw's. */
struct sign {
    struct dp_numbers betas;
    double weight_decay, sharpness;
};

static const struct dp_option sign_options[] = {
    DP_NUMBERS(struct sign, betas, "0.9,0.99", 0, 0.999999999, "decay rates"),
    DP_DOUBLE(struct sign, weight_decay, "0.5", 0, 1000, "on all parameters"),
    DP_DOUBLE(struct sign, sharpness, "3", 0, 10, "of the sign"),
    {0},
};

static const struct dp_optimizer sign = {.plugin = {.name = "sign",
                                                    .help = "the sign of an average",
                                                    .options = sign_options,
                                                    .state_bytes = sizeof(struct sign)}};

static int add_sign(void **state)
{
    (void)state;
    return dp_plugin_add(&dp_optimizers, &sign.plugin) == DP_OK ? 0 : -1;
}

/* The resolved text of an `optimizer: {...}`, without its tail; owned by the caller. */
static char *resolve(const char *optimizer, char *const *environment)
{
    char content[500];
    char *text = NULL;

    (void)snprintf(content, sizeof(content), "optimizer: {%s}\n%s", optimizer, model);
    assert_int_equal(
        dp_config_resolve_text(content, strlen(content), "small.cfg", environment, NULL, 0, &text),
        DP_OK);
    return text;
}

static struct dp_config *load(const char *optimizer)
{
    struct dp_config *config = NULL;
    char *text = resolve(optimizer, no_environment);

    assert_int_equal(dp_config_parse(text, "text", &config), DP_OK);
    dp_free(text);
    return config;
}

static void has_value(const struct dp_config *config, const char *key, const char *value)
{
    char text[DP_OPTION_PRINTED];

    dp_config_value(config, key, text, sizeof(text));
    assert_string_equal(text, value);
}

static bool has_line(const char *text, const char *line)
{
    char wanted[100];

    (void)snprintf(wanted, sizeof(wanted), "\n  %s\n", line);
    return strstr(text, wanted) != NULL;
}

static void each_optimizer_has_its_own_defaults(void **state)
{
    struct dp_config *c = load("name: sign");
    const struct sign *options = c->optimizer.chosen.state;
    (void)state;

    assert_ptr_equal(dp_optimizer_of(&c->optimizer), &sign);
    assert_true(options->betas.count == 2 && options->betas.value[1] == 0.99);
    assert_true(options->weight_decay == 0.5 && options->sharpness == 3);
    has_value(c, "optimizer.betas", "[0.9, 0.99]");
    has_value(c, "optimizer.weight_decay", "0.5");
    dp_config_destroy(c);
    c = load("name: adamw");
    has_value(c, "optimizer.betas", "[0.9, 0.999]");
    has_value(c, "optimizer.weight_decay", "0");
    has_value(c, "optimizer.sharpness", "3");
    dp_config_destroy(c);
    c = load("name: sgd");
    has_value(c, "optimizer.weight_decay", "0");
    has_value(c, "optimizer.momentum", "0.9");
    dp_config_destroy(c);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_given_option_applies_to_every_optimizer_that_has_it(void **state)
{
    static const char *const names[] = {"name: sign", "name: adamw", "name: sgd"};
    (void)state;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[100];
        struct dp_config *c;
        /* Before the name, too. */
        (void)snprintf(text, sizeof(text), "betas: [0.5, 0.25], %s, weight_decay: 0.125", names[i]);
        c = load(text);
        has_value(c, "optimizer.betas", "[0.5, 0.25]");
        has_value(c, "optimizer.weight_decay", "0.125");
        dp_config_destroy(c);
    }
}

/* So that another optimizer, taken with --set from this text, has its own default. */
static void a_default_that_others_do_not_share_is_not_printed(void **state)
{
    char *text = resolve("name: sgd", no_environment);
    (void)state;

    assert_null(strstr(text, "betas"));
    assert_true(has_line(text, "weight_decay: 0"));
    assert_true(has_line(text, "eps: 1e-08"));
    assert_true(has_line(text, "sharpness: 3"));
    dp_free(text);
    text = resolve("name: sgd, betas: [0.5, 0.25]", no_environment);
    assert_true(has_line(text, "betas: [0.5, 0.25]"));
    dp_free(text);
    text = resolve("name: adamw", no_environment);
    assert_true(has_line(text, "betas: [0.9, 0.999]"));
    dp_free(text);
}

static void options_have_variables(void **state)
{
    static char sharpness[] = "DP_OPTIMIZER_SHARPNESS=7", gamma[] = "DP_OPTIMIZER_SCHEDULE_GAMMA=2";
    static char *const environment[] = {sharpness, gamma, NULL};
    char *text = resolve("name: sgd", environment);
    (void)state;

    assert_true(has_line(text, "sharpness: 7"));
    assert_non_null(strstr(text, "gamma: 2"));
    dp_free(text);
}

static void an_optimizer_that_is_not_used_refuses_nothing(void **state)
{
    struct dp_config *c = load("name: adamw, nesterov: true, momentum: 0");
    (void)state;

    has_value(c, "optimizer.nesterov", "true");
    dp_config_destroy(c);
    c = load("schedule: {name: cosine, step_size: 0}");
    has_value(c, "optimizer.schedule.step_size", "0");
    dp_config_destroy(c);
}

/* A resumed run compares them. */
static void every_option_changes_bits(void **state)
{
    static const char *const keys[] = {"optimizer.betas", "optimizer.sharpness",
                                       "optimizer.momentum", "optimizer.schedule.eta_min"};
    (void)state;

    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        char key[DP_CONFIG_KEY];
        unsigned flags = 0;
        int found = 0;
        for (int i = 0; dp_config_flagged(i, key, &flags); i++) {
            if (strcmp(key, keys[k]) == 0) {
                found++;
                assert_int_equal(flags, DP_KEY_BITS);
            }
        }
        assert_int_equal(found, 1);
    }
}

/* One value applies to all plug-ins that have the key, and never to the section itself. */
static void check_family(const struct dp_plugin_family *family, const char *const *taken)
{
    const struct dp_plugin *a, *b;

    for (int i = 0; (a = dp_plugin_at(family, i)) != NULL; i++) {
        for (const struct dp_option *row = a->options; row != NULL && row->name != NULL; row++) {
            print_message("%s %s: %s\n", family->noun, a->name, row->name);
            for (int t = 0; taken[t] != NULL; t++) {
                assert_string_not_equal(row->name, taken[t]);
            }
            for (int k = 0; (b = dp_plugin_at(family, k)) != NULL; k++) {
                const struct dp_option *other = dp_option_find(b->options, row->name);
                assert_true(other == NULL || (other->kind == row->kind && other->low == row->low &&
                                              other->high == row->high));
            }
        }
    }
}

static void options_of_the_same_name_have_the_same_type_and_range(void **state)
{
    static const char *const of_optimizer[] = {"name", "lr", "clip_norm", "schedule", NULL};
    static const char *const of_schedule[] = {"name", "warmup_steps", NULL};
    (void)state;

    check_family(&dp_optimizers, of_optimizer);
    check_family(&dp_schedules, of_schedule);
}

/* The resolved text of data.augment, owned by the caller; NULL: it was refused. */
static char *resolve_augment(const char *list)
{
    char content[500];
    char *text = NULL;

    (void)snprintf(content, sizeof(content), "data: {augment: %s}\n%s", list, model);
    return dp_config_resolve_text(content, strlen(content), "small.cfg", no_environment, NULL, 0,
                                  &text) == DP_OK
               ? text
               : NULL;
}

static void a_list_of_plugins_is_one_text_and_printed_as_a_list(void **state)
{
    static const struct {
        const char *list, *text, *printed;
    } cases[] = {
        {"[flip]", "flip", "[flip: {}]"},
        {"[flip: {p: 0.25}, cutout: {}]", "flip:p=0.25;cutout", "[flip: {p: 0.25}, cutout: {}]"},
        {"[a: {}, b: {c: 1, d: 2}, e: null]", "a;b:c=1,d=2;e", "[a: {}, b: {c: 1, d: 2}, e: {}]"},
        {"\"flip;cutout:size=3\"", "flip;cutout:size=3", "[flip: {}, cutout: {size: 3}]"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_config *config = NULL;
        char line[100];
        char *text = resolve_augment(cases[i].list);

        assert_non_null(text);
        (void)snprintf(line, sizeof(line), "  augment: %s\n", cases[i].printed);
        assert_non_null(strstr(text, line));
        assert_int_equal(dp_config_parse(text, "text", &config), DP_OK);
        assert_string_equal(config->data.augment, cases[i].text);
        dp_config_destroy(config);
        dp_free(text);
    }
}

static void what_is_no_list_of_plugins_is_refused(void **state)
{
    static const char *const lists[] = {"{flip: {}}",       "[{flip: {}, cutout: {}}]", "[flip: 3]",
                                        "[flip: {p: [1]}]", "[flip: {\"p;q\": 1}]",     "[[flip]]"};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_null(resolve_augment(lists[i]));
    }
    char *text = resolve_augment("[]"); /* as if it were not given */
    assert_non_null(text);
    assert_null(strstr(text, "\n  augment"));
    dp_free(text);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_list_of_folders_is_one_text(void **state)
{
    static const struct {
        const char *list, *text;
    } cases[] = {
        {"[/a, b c]", "[/a, b c]"},
        {"[\"/a\"]", "[/a]"},
        {"/a", "/a"},
        {"\"[/a, /b]\"", "[/a, /b]"},
    };
    static const char *const wrong[] = {"[]", "[a, [b]]", "[a, \"b, c\"]", "[a, null]",
                                        "[a, {b: c}]"};
    char content[500], *text = NULL;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_config *config = NULL;

        (void)snprintf(content, sizeof(content), "data: {source: records, dir: %s}\n%s",
                       cases[i].list, model);
        assert_int_equal(dp_config_resolve_text(content, strlen(content), "small.cfg",
                                                no_environment, NULL, 0, &text),
                         DP_OK);
        assert_int_equal(dp_config_parse(text, "text", &config), DP_OK);
        assert_string_equal(config->data.dir, cases[i].text);
        dp_config_destroy(config);
        dp_free(text);
    }
    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        (void)snprintf(content, sizeof(content), "data: {source: records, dir: %s}\n%s", wrong[i],
                       model);
        assert_int_equal(dp_config_resolve_text(content, strlen(content), "small.cfg",
                                                no_environment, NULL, 0, &text),
                         DP_ERR_CONFIG);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_the_same_name_have_the_same_type_and_range),
        cmocka_unit_test(each_optimizer_has_its_own_defaults),
        cmocka_unit_test(a_given_option_applies_to_every_optimizer_that_has_it),
        cmocka_unit_test(a_default_that_others_do_not_share_is_not_printed),
        cmocka_unit_test(options_have_variables),
        cmocka_unit_test(an_optimizer_that_is_not_used_refuses_nothing),
        cmocka_unit_test(every_option_changes_bits),
        cmocka_unit_test(a_list_of_plugins_is_one_text_and_printed_as_a_list),
        cmocka_unit_test(what_is_no_list_of_plugins_is_refused),
        cmocka_unit_test(a_list_of_folders_is_one_text),
    };
    return cmocka_run_group_tests_name("config_plugins", tests, add_sign, NULL);
}
