/* test_comparison.c - two runs: what was changed, and which changes are more than noise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/report/record/comparison_print.h"
#include "tests/support/scratch.h"

static const char config[] = "name: small # not a comment of ours\n"
                             "data:\n"
                             "  source: idx\n"
                             "  normalize: {mean: [0.5, 1], std: []}\n"
                             "model:\n"
                             "  input: [8, 8, 1]\n"
                             "  layers:\n"
                             "    - flatten: {}\n"
                             "    - repeat:\n"
                             "        times: 2\n"
                             "        layers:\n"
                             "          - dense: {units: 64, bias: true}\n"
                             "          - relu: {}\n"
                             "    - dense: {units: 10, bias: true}\n"
                             "\n"
                             "# plan: {\"a\":1}\n";

static void a_configuration_has_keys_and_values(void **state)
{
    static const char *const expected[][2] = {
        {"name", "small # not a comment of ours"},
        {"data.source", "idx"},
        {"data.normalize.mean", "[0.5, 1]"},
        {"data.normalize.std", "[]"},
        {"model.input", "[8, 8, 1]"},
        {"model.layers[0].flatten", "{}"},
        {"model.layers[1].repeat.times", "2"},
        {"model.layers[1].repeat.layers[0].dense.units", "64"},
        {"model.layers[1].repeat.layers[0].dense.bias", "true"},
        {"model.layers[1].repeat.layers[1].relu", "{}"},
        {"model.layers[2].dense.units", "10"},
        {"model.layers[2].dense.bias", "true"},
    };
    struct dp_config_keys keys;
    (void)state;

    assert_int_equal(dp_config_keys_parse(config, &keys), DP_OK);
    assert_int_equal(keys.count, sizeof(expected) / sizeof(expected[0]));
    for (int i = 0; i < keys.count; i++) {
        assert_string_equal(keys.entries[i].key, expected[i][0]);
        assert_string_equal(keys.entries[i].value, expected[i][1]);
    }
    assert_null(dp_config_keys_find(&keys, "model"));
    dp_config_keys_release(&keys);
    assert_int_equal(dp_mem_live(), 0);
}

/* Nothing is read beyond the text, and all of it ends. */
static void any_text_makes_some_keys(void **state)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        ":",
                                        "- - - -",
                                        "{",
                                        "a: {{{{",
                                        "a: {b: {c: }",
                                        "a: {b, c}",
                                        "- a: {b: \"x, y\", c: 1}",
                                        " : :",
                                        "a:b",
                                        "\xff\x1b: {\xff: }"};
    static char deep[4096];
    struct dp_config_keys keys;
    (void)state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(dp_config_keys_parse(texts[i], &keys), DP_OK);
        dp_config_keys_release(&keys);
    }
    for (size_t i = 0; i + 2 < sizeof(deep); i += 2) {
        deep[i] = i < sizeof(deep) / 2 ? '-' : 'a';
        deep[i + 1] = i < sizeof(deep) / 2 ? ' ' : ':';
    }
    assert_int_equal(dp_config_keys_parse(deep, &keys), DP_OK);
    dp_config_keys_release(&keys);
    memset(deep, '{', sizeof(deep) - 1);
    deep[0] = 'a';
    deep[1] = ':';
    deep[2] = ' ';
    assert_int_equal(dp_config_keys_parse(deep, &keys), DP_OK);
    dp_config_keys_release(&keys);
}

static void what_is_larger_than_the_noise_counts(void **state)
{
    const struct {
        struct dp_change change;
        enum dp_change_verdict verdict;
    } cases[] = {
        {{"", DP_REPORT_RATE, 100, 104, 5, 1}, DP_CHANGE_SAME},
        {{"", DP_REPORT_RATE, 100, 106, 5, 1}, DP_CHANGE_BETTER},
        {{"", DP_REPORT_RATE, 100, 94, 5, 1}, DP_CHANGE_WORSE},
        {{"", DP_REPORT_RATE, 100, 94, 5, -1}, DP_CHANGE_BETTER},
        {{"", DP_REPORT_RATE, 100, 94, (double)NAN, 1}, DP_CHANGE_UNKNOWN},
        {{"", DP_REPORT_RATE, (double)NAN, 94, 5, 1}, DP_CHANGE_UNKNOWN},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(dp_change_verdict(&cases[i].change), cases[i].verdict);
    }
}

/* A run in FOLDER/name: steps of `ms` that vary by 10 %; half is forward, and half waits. */
static struct dp_run_record *make_run(const char *name, const char *units, double ms)
{
    struct dp_run_record *record = NULL;
    char inside[64];
    FILE *out;

    assert_int_equal(mkdir(scratch_path(name), 0777), 0);
    (void)snprintf(inside, sizeof(inside), "%s/config.yaml", name);
    out = fopen(scratch_path(inside), "wb");
    assert_non_null(out);
    (void)fprintf(out, "name: x\nmodel:\n  layers:\n    - dense: {units: %s}\n", units);
    assert_int_equal(fclose(out), 0);
    (void)snprintf(inside, sizeof(inside), "%s/metrics.jsonl", name);
    out = fopen(scratch_path(inside), "wb");
    assert_non_null(out);
    for (int i = 1; i <= 90; i++) {
        const double took = ms * (1.0 + 0.1 * ((i - 1) / 5 % 2 == 0 ? 1 : -1));
        (void)fprintf(out,
                      "{\"type\":\"step\",\"step\":%d,\"loss\":1,\"step_ms\":%g,"
                      "\"samples_per_second\":%g}\n",
                      i, took, 8e3 / took);
    }
    assert_int_equal(fclose(out), 0);
    (void)snprintf(inside, sizeof(inside), "%s/run.json", name);
    out = fopen(scratch_path(inside), "wb");
    assert_non_null(out);
    (void)fprintf(out,
                  "{\"world_size\":1,\"plan\":\"1 bucket (measured: on %g ms)\",\"ranks\":["
                  "{\"rank\":0,\"host\":\"%s\",\"step_ms\":{\"forward\":%g,\"exposed_comm\":"
                  "%g}}],\"samples_per_second\":%g}",
                  ms, name, ms / 2, ms / 2, 8e3 / ms);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(dp_run_record_open(scratch_path(name), &record), DP_OK);
    return record;
}

static const struct dp_change *change_of(const struct dp_comparison *c, const char *what)
{
    for (int i = 0; i < c->change_count; i++) {
        if (strcmp(c->changes[i].what, what) == 0) {
            return &c->changes[i];
        }
    }
    fail_msg("no change of %s", what);
    return NULL;
}

static void two_runs_are_compared(void **state)
{
    struct dp_run_record *a = make_run("a", "64", 10.0), *b = make_run("b<", "128", 10.6),
                         *much = make_run("c", "64", 15.0);
    struct dp_comparison *c = NULL;
    struct dp_html html = {0};
    (void)state;

    assert_int_equal(dp_comparison_create(a, b, &c), DP_OK);
    assert_int_equal(c->difference_count, 2);
    assert_string_equal(c->differences[0].key, "model.layers[0].dense.units");
    assert_string_equal(c->differences[0].before, "64");
    assert_string_equal(c->differences[0].after, "128");
    assert_string_equal(c->differences[1].group, "host"); /* and the plan is the same */
    assert_string_equal(c->differences[1].after, "b< x1");
    /* Blocks of 5 steps deviate by 10 %: with 16 of them the error is 2.6 %, the noise 7.5 %. */
    assert_int_equal(dp_change_verdict(change_of(c, "step, ms")), DP_CHANGE_SAME);
    dp_comparison_add(c, &html);
    assert_non_null(strstr(html.text, "b&lt; x1"));
    assert_null(strstr(html.text, "b< x1"));
    dp_html_free(&html);
    dp_free(c);

    assert_int_equal(dp_comparison_create(a, much, &c), DP_OK);
    assert_int_equal(dp_change_verdict(change_of(c, "step, ms")), DP_CHANGE_WORSE);
    assert_int_equal(dp_change_verdict(change_of(c, "forward")), DP_CHANGE_WORSE);
    assert_int_equal(dp_change_verdict(change_of(c, "samples/s")), DP_CHANGE_WORSE);
    dp_free(c);
    dp_run_record_close(a);
    dp_run_record_close(b);
    dp_run_record_close(much);
    assert_int_equal(dp_mem_live(), 0);
}

static void any_figures_fit_the_terminal(void **state)
{
    static const double sizes[] = {0.6, 6e4, 2319804000.0, 1e14, 1e300};
    struct dp_run_record *a = make_run("a", "64", 10.0), *b = make_run("b", "64", 10.6);
    struct dp_comparison *c = NULL;
    char text[8192];
    (void)state;

    assert_int_equal(dp_comparison_create(a, b, &c), DP_OK);
    c->changes[1].kind = DP_REPORT_FRACTION;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        FILE *out = fmemopen(text, sizeof(text), "w");
        assert_non_null(out);
        for (int j = 0; j < c->change_count; j++) {
            c->changes[j].before = sizes[i];
            c->changes[j].after = j % 2 == 0 ? -sizes[i] : sizes[i] * 0.7;
            c->changes[j].noise = sizes[i] / 3;
        }
        dp_comparison_print(c, out);
        assert_int_equal(fclose(out), 0);
        for (const char *line = strstr(text, " noise B is\n"); *line != '\0';) {
            assert_true(strcspn(line, "\n") <= 80);
            line += strcspn(line, "\n");
            line += *line == '\n' ? 1 : 0;
        }
        assert_true(i != 1 || strstr(text, " 60,000 ") != NULL);
        assert_true(i != 0 || strstr(text, " 42.0 %   -18.0 pp   -30.0 % 20.0 pp ") != NULL);
    }
    dp_free(c);
    dp_run_record_close(a);
    dp_run_record_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_has_keys_and_values),
        cmocka_unit_test(any_text_makes_some_keys),
        cmocka_unit_test(what_is_larger_than_the_noise_counts),
        cmocka_unit_test_setup_teardown(two_runs_are_compared, scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(any_figures_fit_the_terminal, scratch_create,
                                        scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
