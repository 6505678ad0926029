/*
 * test_config.c - resolving a configuration: defaults, precedence, layers, and its text.
 * test_config_errors.c has what is refused, and the messages.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/config/config.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"
#include "tests/support/arrays.h"

static const char model[] = "model: {input: [4], layers: [dense: {units: 2}]}\n";
static char *const no_environment[] = {NULL};

/* The resolved text of `head` and a small model. */
static char *resolve(const char *head, char *const *environment, const char *const *sets, int count)
{
    char content[2000];
    char *text = NULL;

    (void)snprintf(content, sizeof(content), "%s%s", head, model);
    assert_int_equal(dp_config_resolve_text(content, strlen(content), "runs/small.cfg", environment,
                                            sets, count, &text),
                     DP_OK);
    return text;
}

static struct dp_config *parse(const char *text)
{
    struct dp_config *config = NULL;

    assert_int_equal(dp_config_parse(text, "text", &config), DP_OK);
    return config;
}

static struct dp_config *load(const char *head, const char *const *sets, int count)
{
    char *text = resolve(head, no_environment, sets, count);
    struct dp_config *config = parse(text);

    dp_free(text);
    return config;
}

static void has_line(const char *text, const char *line)
{
    char wanted[200];

    (void)snprintf(wanted, sizeof(wanted), "\n%s\n", line);
    if (strstr(text, wanted) == NULL) {
        print_message("no line '%s' in\n%s\n", line, text);
        fail();
    }
}

static void has_value(const struct dp_config *config, const char *key, const char *value)
{
    char text[DP_OPTION_PRINTED];

    dp_config_value(config, key, text, sizeof(text));
    assert_string_equal(text, value);
}

static void only_the_model_is_required(void **state)
{
    struct dp_config *c = load("", NULL, 0);
    (void)state;

    assert_string_equal(c->name, "small");
    assert_string_equal(c->data.source, "fashion-mnist");
    assert_string_equal(c->data.dir, "/usr/share/datasets/fashion-mnist");
    assert_int_equal(c->data.shuffle, DP_SHUFFLE_ON);
    assert_false(c->data.drop_last);
    assert_int_equal(c->data.normalize.mean.count, 0);
    assert_int_equal(c->train.global_batch, 256);
    assert_int_equal(c->train.epochs, 3);
    assert_int_equal(c->train.steps, 0);
    assert_int_equal(c->train.seed, 1);
    assert_int_equal(c->train.eval_every, 1);
    assert_string_equal(c->optimizer.name, "sgd");
    assert_true(c->optimizer.lr == 0.05);
    assert_string_equal(c->optimizer.schedule.name, "constant");
    assert_int_equal(c->optimizer.schedule.warmup_steps, 0);
    assert_string_equal(c->comm.strategy, "auto");
    assert_string_equal(c->comm.compressor, "none");
    assert_true(c->comm.bucket_mb == 25.0 && c->comm.first_bucket_mb == 1.0);
    assert_int_equal(c->comm.overlap, DP_OVERLAP_AUTO);
    assert_int_equal(c->checkpoint.every_steps, 500);
    assert_int_equal(c->checkpoint.keep, 3);
    assert_true(isnan(c->report.price_per_hour));
    assert_int_equal(c->report.price_per, DP_PRICE_PER_NODE);
    assert_true(c->report.html && c->report.tensorboard);
    assert_string_equal(c->device.name, "auto");
    dp_config_destroy(c);
    assert_int_equal(dp_mem_live(), 0);
}

static void scalars_are_typed_by_the_table(void **state)
{
    static const char head[] =
        "name: 007\n"
        "data: {shuffle: off, drop_last: yes, normalize: {mean: 0.5, std: [1e-3]}}\n"
        "train: {epochs: 2}\n"
        "optimizer: {lr: 1e-3, momentum: 0, schedule: {name: linear}}\n"
        "comm: {overlap: no, strategy: \"hier:inner=shm,outer=ring\"}\n"
        "report: {price_per_hour: null, price_per: rank}\n"
        "checkpoint:\n";
    struct dp_config *c = load(head, NULL, 0);
    (void)state;

    assert_string_equal(c->name, "007");
    assert_int_equal(c->data.shuffle, DP_SHUFFLE_OFF);
    assert_true(c->data.drop_last);
    assert_true(c->data.normalize.mean.value[0] == 0.5 && c->data.normalize.std.value[0] == 1e-3);
    assert_int_equal(c->train.epochs, 2);
    assert_true(c->optimizer.lr == 1e-3);
    has_value(c, "optimizer.momentum", "0");
    has_value(c, "optimizer.schedule.name", "linear");
    assert_false(dp_config_is_default(c, "train.epochs"));
    assert_true(dp_config_is_default(c, "data.remote_wait_s"));
    assert_true(dp_config_is_default(c, "data.window"));
    assert_false(dp_config_is_default(c, "data.windows")); /* there is none */
    assert_int_equal(c->comm.overlap, DP_OVERLAP_OFF);
    assert_string_equal(c->comm.strategy, "hier:inner=shm,outer=ring");
    assert_int_equal(c->report.price_per, DP_PRICE_PER_RANK);
    dp_config_destroy(c);
}

static void a_run_is_named_after_its_file_but_for_what_a_terminal_obeys(void **state)
{
    static const char *const cases[][2] = {
        {"a/m\xc3\xb6 2.b.cfg", "\nname: \"m\xc3\xb6 2.b\"\n"},
        {"\xe6\x97\xa5", "\nname: \"\xe6\x97\xa5\"\n"},
        {"..a\033\xff\n\xc2\x9b.cfg", "\nname: _.a_____\n"}, /* U+009B begins a sequence */
        {"a/.cfg", "\nname: run\n"},
    };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        char *text = NULL, whole[4096];

        assert_int_equal(dp_config_resolve_text(model, strlen(model), cases[i][0], no_environment,
                                                NULL, 0, &text),
                         DP_OK);
        (void)snprintf(whole, sizeof(whole), "\n%s", text);
        if (strstr(whole, cases[i][1]) == NULL) {
            fail_msg("%.200s", whole);
        }
        dp_free(text);
    }
}

/* As some editors put one in front. */
static void a_byte_order_mark_is_skipped(void **state)
{
    struct dp_config *c = load("\xef\xbb\xbfname: it\ntrain: {seed: 2}\n", NULL, 0);
    (void)state;

    assert_string_equal(c->name, "it");
    assert_int_equal(c->train.seed, 2);
    dp_config_destroy(c);
}

static void set_overrides_environment_overrides_file_overrides_defaults(void **state)
{
    static char seed[] = "DP_TRAIN_SEED=5", batch[] = "DP_TRAIN_GLOBAL_BATCH=64",
                gamma[] = "DP_OPTIMIZER_SCHEDULE_GAMMA=0.25",
                mean[] = "DP_DATA_NORMALIZE_MEAN=[0.5]", deviation[] = "DP_DATA_NORMALIZE_STD=2",
                other[] = "OTHER=1", metric[] = "DP_NAME=it", input[] = "DP_MODEL_INPUT=[2, 2, 3]",
                parts[] = "DP_MODEL_RECOMPUTE=auto";
    static char *const environment[] = {seed,  batch,  gamma, mean,  deviation,
                                        other, metric, input, parts, NULL};
    static const char *const sets[] = {"train.seed=6", "train.seed=7"};
    char *text =
        resolve("train: {seed: 2, global_batch: 32, eval_every: 4}\n", environment, sets, 2);
    struct dp_config *c = parse(text);
    (void)state;

    assert_int_equal(c->train.seed, 7);
    assert_int_equal(c->train.global_batch, 64);
    assert_int_equal(c->train.eval_every, 4);
    has_value(c, "optimizer.schedule.gamma", "0.25");
    assert_true(c->data.normalize.mean.value[0] == 0.5 && c->data.normalize.std.value[0] == 2.0);
    assert_string_equal(c->name, "it");
    assert_int_equal(c->model.input.dims, 3);
    assert_int_equal(c->model.input.dim[2], 3);
    assert_int_equal(c->model.recompute, DP_RECOMPUTE_AUTO);
    dp_config_destroy(c);
    dp_free(text);
}

static void steps_replace_epochs_and_epochs_steps(void **state)
{
    static char env_steps[] = "DP_TRAIN_STEPS=70";
    static char *const environment[] = {env_steps, NULL};
    static const char *const steps[] = {"train.steps=90"}, *const epochs[] = {"train.epochs=9"};
    static const char *const both[] = {"train.steps=90", "train.epochs=9"};
    struct dp_config *c = load("train: {epochs: 5}\n", steps, 1);
    char *text;
    (void)state;

    assert_true(c->train.steps == 90 && c->train.epochs == 0);
    dp_config_destroy(c);
    c = load("train: {steps: 5}\n", epochs, 1);
    assert_true(c->train.steps == 0 && c->train.epochs == 9);
    dp_config_destroy(c);
    c = load("", both, 2); /* the later one */
    assert_true(c->train.steps == 0 && c->train.epochs == 9);
    dp_config_destroy(c);
    c = load("train: {steps: 5}\n", NULL, 0);
    assert_true(c->train.steps == 5 && c->train.epochs == 0);
    dp_config_destroy(c);
    text = resolve("train: {epochs: 5}\n", environment, epochs, 1); /* --set wins over DP_* */
    has_line(text, "  epochs: 9");
    assert_null(strstr(text, "steps: 70"));
    dp_free(text);
    text = resolve("train: {epochs: 5}\n", environment, NULL, 0);
    has_line(text, "  steps: 70");
    assert_null(strstr(text, "epochs:"));
    dp_free(text);
}

static void sets_reach_into_layers_as_written(void **state)
{
    static const char content[] =
        "model:\n"
        "  input: [8, 8, 1]\n"
        "  layers:\n"
        "    - repeat: {times: 2, layers: [relu, dropout: {rate: 0.1}]}\n"
        "    - residual: {body: [relu: {}, conv2d: {filters: 1, kernel: 1}]}\n"
        "    - flatten\n"
        "    - dense: {units: 9}\n";
    static const char *const sets[] = {"model.layers[0].repeat.layers[1].dropout.rate=0.25",
                                       "model.layers[0].repeat.times=3",
                                       "model.layers[1].residual.body[1].conv2d.kernel=3",
                                       "model.layers[2].flatten={}",
                                       "model.layers[3].dense.bias=false",
                                       "model.layers[1].residual.shortcut=[gelu]"};
    struct dp_config *c;
    char *text = NULL;
    (void)state;

    assert_int_equal(
        dp_config_resolve_text(content, strlen(content), "m.cfg", no_environment, sets, 6, &text),
        DP_OK);
    has_line(text, "          - dropout: {rate: 0.25}");
    has_line(text, "          - conv2d: {filters: 1, kernel: 3, stride: 1, padding: 0, groups: 1, "
                   "bias: true}");
    has_line(text, "    - dense: {units: 9, bias: false}");
    c = parse(text);
    assert_int_equal(c->model.layer_count, 3 * 2 + 3);
    assert_string_equal(c->model.layers[5].type->plugin.name, "dropout");
    assert_string_equal(c->model.layers[5].where,
                        "m.cfg:4:41: model.layers[0].repeat.layers[1].dropout");
    assert_ptr_not_equal(c->model.layers[5].options, c->model.layers[3].options);
    assert_string_equal(c->model.layers[6].type->plugin.name, "residual");
    assert_int_equal(c->model.layers[6].body_count, 2);
    assert_int_equal(c->model.layers[6].shortcut_count, 1);
    assert_string_equal(c->model.layers[6].body[1].where,
                        "m.cfg:5:35: model.layers[1].residual.body[1].conv2d");
    assert_string_equal(c->model.layers[6].shortcut[0].where,
                        "--set model.layers[1].residual.shortcut=[gelu]: "
                        "model.layers[1].residual.shortcut[0].gelu");
    dp_config_destroy(c);
    dp_free(text);
}

static void keys_know_where_they_were_given(void **state)
{
    static const char *const sets[] = {"comm.compressor=fp16"};
    struct dp_config *c = load("name: x\ncomm:\n  strategy:   rnig\n", sets, 1);
    char where[300];
    (void)state;

    assert_string_equal(dp_config_where(c, "comm.strategy", where, sizeof(where)),
                        "runs/small.cfg:3:15: comm.strategy");
    assert_string_equal(dp_config_where(c, "comm.compressor", where, sizeof(where)),
                        "--set comm.compressor=fp16: comm.compressor");
    assert_string_equal(dp_config_where(c, "optimizer.name", where, sizeof(where)),
                        "optimizer.name");
    assert_string_equal(c->model.layers[0].where, "runs/small.cfg:4:30: model.layers[0].dense");
    dp_config_destroy(c);
}

/* What people get of a resolved text. */
static char *clean(const char *text)
{
    char *copy = dp_strdup(text);

    assert_non_null(copy);
    copy[dp_config_text_length(text)] = '\0';
    return copy;
}

static void printed_text_resolves_to_itself(void **state)
{
    static const char head[] =
        "name: \"a b\"\ndata: {dir: 'x: \"y\" \\z', source: \"null\", normalize: {mean: [0.2860], "
        "std: 0.1}}\noptimizer: {lr: 0.30000000000000004, eps: 1e-12}\ntrain: {steps: 12}\n"
        "comm: {strategy: \"on\", compressor: '5'}\n";
    char *text = resolve(head, no_environment, NULL, 0), *first = clean(text), *again = NULL,
         *second;
    (void)state;

    assert_null(strstr(first, "#@"));
    has_line(first, "  dir: \"x: \\\"y\\\" \\\\z\"");
    has_line(first, "  lr: 0.30000000000000004");
    assert_int_equal(dp_config_resolve_text(first, strlen(first), "elsewhere/config.yaml",
                                            no_environment, NULL, 0, &again),
                     DP_OK);
    second = clean(again);
    assert_string_equal(first, second);
    dp_free(text);
    dp_free(first);
    dp_free(again);
    dp_free(second);
}

static const struct {
    const char *path;
    int layers;
    const char *last; /* and one line of its text */
} shipped[] = {
    {DP_SOURCE_DIR "/models/mlp.cfg", 6, "    - dense: {units: 10, bias: true}"},
    {DP_SOURCE_DIR "/models/lenet.cfg", 10, "  normalize: {mean: [0.286], std: [0.353]}"},
    {DP_SOURCE_DIR "/models/resnet20.cfg", 3 + 9 * 2 + 3, "              shortcut: []"},
    {DP_SOURCE_DIR "/models/resnet50.cfg", 4 + 16 * 2 + 3, "  input: [224, 224, 3]"},
};

static void shipped_models_resolve_and_their_text_is_stable(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(shipped) / sizeof(shipped[0]); i++) {
        char *text = NULL, *again = NULL, *first, *second;
        struct dp_config *c;
        assert_int_equal(dp_config_resolve(shipped[i].path, no_environment, NULL, 0, &text), DP_OK);
        c = parse(text);
        assert_int_equal(c->model.layer_count, shipped[i].layers);
        assert_non_null(strstr(shipped[i].path, c->name)); /* named after their files */
        dp_config_destroy(c);
        first = clean(text);
        has_line(first, shipped[i].last);
        assert_int_equal(dp_config_resolve_text(first, strlen(first), "config.yaml", no_environment,
                                                NULL, 0, &again),
                         DP_OK);
        second = clean(again);
        assert_string_equal(first, second);
        dp_free(text);
        dp_free(first);
        dp_free(again);
        dp_free(second);
    }
}

static void parsing_survives_every_failed_allocation(void **state)
{
    static const char head[] = "data: {normalize: {mean: [0.5], std: [0.5]}}\ntrain: {steps: 3}\n";
    char *text = resolve(head, no_environment, NULL, 0);
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_config *config = NULL;
        dp_mem_fail_nth(nth);
        status = dp_config_parse(text, "text", &config);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((config != NULL) == (status == DP_OK));
        dp_config_destroy(config);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    dp_free(text);
}

static void resolving_survives_every_failed_allocation(void **state)
{
    static const char *const sets[] = {"train.steps=9", "model.layers[1].residual.shortcut=[gelu]"};
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        static const char content[] =
            "model: {input: [4], layers: [relu, residual: {body: [relu]}, dense: {units: 2}]}";
        char *text = NULL;
        dp_mem_fail_nth(nth);
        status =
            dp_config_resolve_text(content, strlen(content), "x", no_environment, sets, 2, &text);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((text != NULL) == (status == DP_OK));
        dp_free(text);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Any damage gives a status, and accepted text is accepted again. */
static void damaged_files_never_crash(void **state)
{
    static const char junk[] = "{}[]:,-#&*!|>'\"%@` \n\t0aZ\xff\0";
    char *text = NULL, *damaged;
    uint32_t seed = 1;
    (void)state;

    assert_int_equal(dp_config_resolve(shipped[1].path, no_environment, NULL, 0, &text), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    for (int round = 0; round < 3000; round++) {
        size_t length = dp_config_text_length(text);
        char *again = NULL;
        struct dp_config *config = NULL;
        damaged = dp_strdup(text);
        assert_non_null(damaged);
        for (uint32_t hits = next_random(&seed) % 3; hits > 0; hits--) {
            damaged[next_random(&seed) % length] = junk[next_random(&seed) % (sizeof(junk) - 1)];
        }
        length = round % 2 == 0 ? next_random(&seed) % length : length;
        if (dp_config_resolve_text(damaged, length, "lenet.cfg", no_environment, NULL, 0, &again) ==
            DP_OK) {
            assert_int_equal(dp_config_parse(again, "lenet.cfg", &config), DP_OK);
        }
        dp_config_destroy(config);
        dp_free(again);
        dp_free(damaged);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_free(text);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_model_is_required),
        cmocka_unit_test(scalars_are_typed_by_the_table),
        cmocka_unit_test(a_run_is_named_after_its_file_but_for_what_a_terminal_obeys),
        cmocka_unit_test(a_byte_order_mark_is_skipped),
        cmocka_unit_test(set_overrides_environment_overrides_file_overrides_defaults),
        cmocka_unit_test(steps_replace_epochs_and_epochs_steps),
        cmocka_unit_test(sets_reach_into_layers_as_written),
        cmocka_unit_test(keys_know_where_they_were_given),
        cmocka_unit_test(printed_text_resolves_to_itself),
        cmocka_unit_test(shipped_models_resolve_and_their_text_is_stable),
        cmocka_unit_test(parsing_survives_every_failed_allocation),
        cmocka_unit_test(resolving_survives_every_failed_allocation),
        cmocka_unit_test(damaged_files_never_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
