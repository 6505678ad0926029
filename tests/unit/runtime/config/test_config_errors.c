/* test_config_errors.c - invalid configurations, and the one line that reports each. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/config/config.h"
#include "runtime/config/config_load.h"
#include "tests/support/stderr_text.h"

#define MODEL "model: {input: [4], layers: [dense: {units: 2}]}\n"
#define IMAGE "model:\n  input: [8, 8, 2]\n  layers:\n"

static char *const no_environment[] = {NULL};

/* Resolving must fail with DP_ERR_CONFIG and only this line, and leave nothing. */
static void refuses(const char *content, size_t length, char *const *environment,
                    const char *const *sets, int count, const char *expected)
{
    char line[2000];
    char *text = NULL;
    dp_status status;

    stderr_begin();
    status = dp_config_resolve_text(content, length, "model.cfg", environment, sets, count, &text);
    stderr_end();
    dp_free(text);
    (void)snprintf(line, sizeof(line), "lockstep: error: %s\n", expected);
    assert_string_equal(stderr_text, line);
    assert_int_equal(status, DP_ERR_CONFIG);
    assert_null(text);
    assert_int_equal(dp_mem_live(), 0);
}

struct error_case {
    const char *content, *expected;
};

/* Each must be refused by its line, after "model.cfg:". */
static void refuse_all(const struct error_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char line[1000];

        (void)snprintf(line, sizeof(line), "model.cfg:%s", cases[i].expected);
        refuses(cases[i].content, strlen(cases[i].content), no_environment, NULL, 0, line);
    }
}

#define REFUSE_ALL(cases) refuse_all(cases, sizeof(cases) / sizeof((cases)[0]))

/* ---- keys ---- */

/* clang-format off */
static void unknown_repeated_and_missing_keys_are_refused(void **state)
{
    static const struct error_case cases[] = {
        {"trian: {seed: 1}\n" MODEL, "1:1: unknown key 'trian' (did you mean 'train'?)"},
        {"modell: 1\n", "1:1: unknown key 'modell' (did you mean 'model'?)"},
        {"weather: 1\n" MODEL, "1:1: unknown key 'weather'"},
        {"'': 1\n" MODEL, "1:1: unknown key ''"},
        {"data.normalize: {}\n" MODEL, "1:1: unknown key 'data.normalize'"},
        {"train:\n  sed: 1\n" MODEL, "2:3: train: unknown key 'sed' (did you mean 'seed'?)"},
        {"data: {normalise: {}}\n" MODEL,
         "1:8: data: unknown key 'normalise' (did you mean 'normalize'?)"},
        {"optimizer: {schedule: {nam: cosine}}\n" MODEL,
         "1:24: optimizer.schedule: unknown key 'nam' (did you mean 'name'?)"},
        {"train:\n  seed: 1\n  epochs: 2\n  seed: 1\n" MODEL,
         "4:3: train: repeated key 'seed' (first in line 2)"},
        {"name: a\n" MODEL "name: a\n", "3:1: repeated key 'name' (first in line 1)"},
        {"name: a\n", "1:1: missing key 'model'"},
        {"", "1:1: missing key 'model'"},
        {"# nothing\n", "1:1: missing key 'model'"},
        {"model: {layers: [relu]}\n", "1:1: model: missing key 'input'"},
        {"model: {input: [4]}\n", "1:1: model: missing key 'layers'"},
        {"model: {input: [4], layer: [relu]}\n",
         "1:21: model: unknown key 'layer' (did you mean 'layers'?)"},
        {"model: {input: [4], input: [4]}\n",
         "1:21: model: repeated key 'input' (first in line 1)"},
    };
    (void)state;

    REFUSE_ALL(cases);
}

static void wrong_types_and_ranges_are_refused(void **state)
{
    static const struct error_case cases[] = {
        {"train:\n  global_batch:  abc\n" MODEL,
         "2:18: train.global_batch: expected an integer from 1 to 16777216, found 'abc'"},
        {"train: {seed: \"5\"}\n" MODEL,
         "1:15: train.seed: expected an integer from 0 to 2147483647, found \"5\""},
        {"train: {seed: 010}\n" MODEL,
         "1:15: train.seed: expected an integer from 0 to 2147483647, found '010'"},
        {"train: {seed: 0x1F}\n" MODEL,
         "1:15: train.seed: expected an integer from 0 to 2147483647, found '0x1F'"},
        {"train: {seed: [1]}\n" MODEL,
         "1:15: train.seed: expected an integer from 0 to 2147483647, found a list"},
        {"train: {seed: {a: 1}}\n" MODEL,
         "1:15: train.seed: expected an integer from 0 to 2147483647, found a section"},
        {"train:\n  seed:\n" MODEL,
         "2:8: train.seed: expected an integer from 0 to 2147483647, found nothing"},
        {"train: {seed: null}\n" MODEL,
         "1:15: train.seed: expected an integer from 0 to 2147483647, found 'null'"},
        {"train: {steps: 0}\n" MODEL,
         "1:16: train.steps: expected an integer from 1 to 2147483647, found '0'"},
        {"optimizer: {lr: .nan}\n" MODEL,
         "1:17: optimizer.lr: expected a number from 0 to 1000000, found '.nan'"},
        {"optimizer: {lr: .inf}\n" MODEL,
         "1:17: optimizer.lr: expected a number from 0 to 1000000, found '.inf'"},
        {"optimizer: {lr: -1e-3}\n" MODEL,
         "1:17: optimizer.lr: expected a number from 0 to 1000000, found '-1e-3'"},
        {"optimizer: {betas: [0.9, one]}\n" MODEL,
         "1:26: optimizer.betas: expected a list of numbers from 0 to 0.999999999, found 'one'"},
        {"optimizer: {betas: [0.9, [1]]}\n" MODEL,
         "1:26: optimizer.betas: expected a list of numbers from 0 to 0.999999999, found a list"},
        {"data: {drop_last: 1}\n" MODEL, "1:19: data.drop_last: expected true or false, found '1'"},
        {"data: {drop_last: 'true'}\n" MODEL,
         "1:19: data.drop_last: expected true or false, found \"true\""},
        {"data: {source: [a]}\n" MODEL, "1:16: data.source: expected a text, found a list"},
        {"data:\n  source:\n" MODEL, "2:10: data.source: expected a text, found nothing"},
        {"comm: {overlap: maybe}\n" MODEL,
         "1:17: comm.overlap: expected one of auto, on, off, found 'maybe'"},
        {"comm: ring\n" MODEL, "1:7: comm: expected a section, found 'ring'"},
        {"comm: [ring]\n" MODEL, "1:7: comm: expected a section, found a list"},
        {"- a\n", "1:1: expected keys and values, found a list"},
        {"hello\n", "1:1: expected keys and values, found 'hello'"},
        {"name: a/b\n" MODEL,
         "1:7: name: expected the name of a file, of at most 128 bytes, without '/' and without "
         "'.' in front, found 'a/b'"},
        {"name: \"a\\nb\"\n" MODEL,
         "1:7: name: expected a text without control characters, found 'a?b'"},
        {"model: {input: [8, 8], layers: [relu]}\n",
         "1:16: model.input: expected [features] or [height, width, channels], found 2 numbers"},
        {"model: {input: [8, 8, 0], layers: [relu]}\n",
         "1:23: model.input: expected a list of numbers from 1 to 16777216, found '0'"},
        {"model: {input: 1.5, layers: [relu]}\n",
         "1:16: model.input: expected integers, found 1.5"},
        {"model: {input: [65536, 65536, 3], layers: [relu]}\n",
         "1:16: model.input: a sample of 12884901888 numbers is too large"},
        {"model: 5\n", "1:8: model: expected a section, found '5'"},
    };
    (void)state;

    REFUSE_ALL(cases);
}

/* ---- layers ---- */

static void impossible_layers_are_refused(void **state)
{
    static const struct error_case cases[] = {
        {IMAGE "    - relu: {}\n    - conv2d: {filter: 3}\n",
         "5:16: model.layers[1].conv2d: unknown key 'filter' (did you mean 'filters'?)"},
        {IMAGE "    - conv2d: {filters: 3}\n", "4:7: model.layers[0].conv2d: missing key 'kernel'"},
        {IMAGE "    - conv2d\n", "4:7: model.layers[0].conv2d: missing key 'filters'"},
        {IMAGE "    - conv2d: {filters: 3, kernel: 3, filters: 3}\n",
         "4:39: model.layers[0].conv2d: repeated key 'filters' (first in line 4)"},
        {IMAGE "    - conv2d: {filters: 0, kernel: 3}\n",
         "4:25: model.layers[0].conv2d.filters: expected an integer from 1 to 65536, found '0'"},
        {IMAGE "    - conv3d: {}\n",
         "4:7: model.layers[0]: unknown layer 'conv3d' (did you mean 'conv2d'?)"},
        {IMAGE "    - repaet: {}\n",
         "4:7: model.layers[0]: unknown layer 'repaet' (did you mean 'repeat'?)"},
        {IMAGE "    - attention: {}\n", "4:7: model.layers[0]: unknown layer 'attention'"},
        {IMAGE "    - relu: {}\n      gelu: {}\n",
         "5:7: model.layers[0]: expected one layer, found 'gelu' beside 'relu'"},
        {IMAGE "    - {}\n",
         "4:7: model.layers[0]: expected a layer such as relu: {}, found a section"},
        {IMAGE "    -\n", "4:6: model.layers[0]: expected a layer such as relu: {}, found nothing"},
        {IMAGE "    - [relu]\n",
         "4:7: model.layers[0]: expected a layer such as relu: {}, found a list"},
        {IMAGE "    - dense: 10\n",
         "4:14: model.layers[0].dense: expected options in braces, found '10'"},
        {IMAGE "    relu: {}\n", "4:5: model.layers: expected a list of layers, found a section"},
        {"model: {input: [4], layers: []}\n",
         "1:29: model.layers: expected a list of layers, found an empty list"},
        {IMAGE "    - residual: {shortcut: [relu]}\n",
         "4:7: model.layers[0].residual: missing key 'body'"},
        {IMAGE "    - residual: {body: [], shortcut: []}\n",
         "4:24: model.layers[0].residual.body: expected a list of layers, found an empty list"},
        {IMAGE "    - residual: {boddy: [relu]}\n",
         "4:18: model.layers[0].residual: unknown key 'boddy' (did you mean 'body'?)"},
        {IMAGE "    - residual: {body: [relu], shortcut: 5}\n",
         "4:42: model.layers[0].residual.shortcut: expected a list of layers, found '5'"},
        {IMAGE "    - residual:\n        body:\n          - relu\n          - maxpool: {sise: 2}\n",
         "7:23: model.layers[0].residual.body[1].maxpool: unknown key 'sise' (did you mean "
         "'size'?)"},
        {IMAGE "    - repeat: {layers: [relu]}\n",
         "4:7: model.layers[0].repeat: missing key 'times'"},
        {IMAGE "    - repeat: {times: 2}\n", "4:7: model.layers[0].repeat: missing key 'layers'"},
        {IMAGE "    - repeat: {times: 1001, layers: [relu]}\n",
         "4:23: model.layers[0].repeat.times: expected an integer from 1 to 1000, found '1001'"},
        {IMAGE "    - repeat: {time: 2, layers: [relu]}\n",
         "4:16: model.layers[0].repeat: unknown key 'time' (did you mean 'times'?)"},
        {IMAGE "    - repeat: {times: 1000, layers: [repeat: {times: 1000, layers: [relu]}]}\n",
         "4:69: model.layers[0].repeat.layers[0].repeat.layers[0].relu: more than 10000 layers in "
         "all"},
    };
    (void)state;

    REFUSE_ALL(cases);
}

/* ---- combinations, and missing features ---- */

static void contradictions_are_refused(void **state)
{
    static const struct error_case cases[] = {
        {"train:\n  epochs: 3\n  steps: 5\n" MODEL,
         "3:3: train: epochs and steps cannot both be given"},
        {"train: {steps: 5, epochs: 3}\n" MODEL,
         "1:19: train: epochs and steps cannot both be given"},
        {"data: {normalize: {mean: [0.5]}}\n" MODEL,
         "1:19: data.normalize: mean and std must be given together"},
        {"data: {normalize: {mean: [1, 2, 3], std: [1]}}\n" IMAGE "    - relu\n",
         "1:26: data.normalize.mean: expected one number, or one for each channel or feature of "
         "model.input"},
        {"data: {normalize: {mean: [1, 2], std: [1, 2, 3]}}\n" IMAGE "    - relu\n",
         "1:39: data.normalize.std: expected one number, or one for each channel or feature of "
         "model.input"},
        {"data: {normalize: {mean: [1], std: [0]}}\n" MODEL,
         "1:37: data.normalize.std: expected a list of numbers from 1e-15 to 1e+15, found '0'"},
        {"optimizer: {name: adamw, betas: [0.9]}\n" MODEL,
         "1:33: optimizer.betas: expected two numbers"},
        {"optimizer: {name: adam}\n" MODEL,
         "1:19: optimizer.name: unknown optimizer 'adam' (did you mean 'adamw'?)"},
        {"optimizer: {schedule: {name: cosin}}\n" MODEL,
         "1:30: optimizer.schedule.name: unknown schedule 'cosin' (did you mean 'cosine'?)"},
        {"optimizer: {name: adamw, momentun: 0}\n" MODEL,
         "1:26: optimizer: unknown key 'momentun' (did you mean 'momentum'?)"},
        {"optimizer: {name: adamw, momentum: 2}\n" MODEL,
         "1:36: optimizer.momentum: expected a number from 0 to 1, found '2'"},
        {"optimizer: {nesterov: true, momentum: 0}\n" MODEL,
         "1:23: optimizer.nesterov: nesterov needs a momentum above 0"},
        {"optimizer: {schedule: {name: step}}\n" MODEL,
         "1:23: optimizer.schedule: schedule step needs a step_size above 0"},
        {"train: {micro_batch: 8}\n" IMAGE "    - residual: {body: [batchnorm: {sync: true}]}\n",
         "1:22: train.micro_batch: cannot go with batchnorm {sync: true}, since the number of "
         "passes differs between ranks"},
        {"train: {lanes: 6}\n" MODEL, "1:16: train.lanes: expected a power of two, or 0"},
        {"train: {lanes: 8, global_batch: 4}\n" MODEL,
         "1:16: train.lanes: more lanes than train.global_batch has rows"},
        {"train: {hang_timeout_s: -1}\n" MODEL,
         "1:25: train.hang_timeout_s: expected a number from 0 to 86400, found '-1'"},
        {"train: {precision: fp8}\n" MODEL,
         "1:20: train.precision: expected one of fp32, tf32, bf16, fp16, found 'fp8'"},
        {"train: {precision: fp16, local_steps: 4}\n" MODEL,
         "1:39: train.local_steps: cannot go with train.precision fp16: ranks must skip a step "
         "together"},
        {"failure_stop: {spike_window: 1}\n" MODEL,
         "1:30: failure_stop.spike_window: expected an integer from 2 to 1000000, found '1'"},
        {"data: {shuffle: some}\n" MODEL,
         "1:17: data.shuffle: expected one of true, false, full, window, found 'some'"},
    };
    (void)state;

    REFUSE_ALL(cases);
}

static void metrics_that_a_loss_does_not_have_are_refused(void **state)
{
    static const struct error_case cases[] = {
        {"train: {loss: mse}\nearly_stop: {metric: test_accuracy, patience: 1}\n" MODEL,
         "2:22: early_stop.metric: with train.loss mse there is no accuracy: take "
         "test_mean_absolute_error, or test_loss"},
        {"train: {loss: mse}\nfailure_stop: {chance_steps: 9}\n" MODEL,
         "2:30: failure_stop.chance_steps: with train.loss mse there are no right answers"},
    };
    (void)state;

    REFUSE_ALL(cases);
}

/* Ways to train together that exclude each other. */
static void incompatible_modes_are_refused(void **state)
{
    static const struct error_case cases[] = {
        {"train: {local_steps: 4, lanes: 8}\n" MODEL,
         "1:22: train.local_steps: cannot go with train.lanes: what a rank learns alone depends "
         "on the number of ranks"},
        {"train: {local_steps: 4}\ncomm: {strategy: zero1}\n" MODEL,
         "1:22: train.local_steps: cannot go with comm.strategy zero1, where no rank updates all "
         "weights"},
        {"train: {local_steps: 4}\ncomm: {strategy: none}\n" MODEL,
         "1:22: train.local_steps: averages nothing with comm.strategy none"},
        {"train: {lanes: 4}\ncomm: {compressor: fp16}\n" MODEL,
         "2:20: comm.compressor: cannot go with train.lanes: what is rounded or left out depends "
         "on the number of ranks"},
        {"comm: {compressor: 'topk:ratio=0.1,momentum=0.9'}\n" MODEL,
         "1:20: comm.compressor: its momentum and optimizer.momentum would both count: set one of "
         "them to 0"},
        {"comm: {servers: 1, strategy: ring}\n" MODEL,
         "1:17: comm.servers: needs comm.strategy ps, or auto"},
        {"train: {mode: async}\n" MODEL,
         "1:15: train.mode: async needs comm.servers above 0, which apply gradients as they come"},
        {"train: {staleness: 2}\ncomm: {servers: 1}\n" MODEL,
         "1:20: train.staleness: needs train.mode async"},
        {"train: {mode: async, staleness: 2, lanes: 4}\ncomm: {servers: 1}\n" MODEL,
         "1:33: train.staleness: cannot go with train.lanes: gradients are applied in the order "
         "in which they come"},
        {"train: {mode: async, staleness: 2}\ncomm: {servers: 1}\n"
         "optimizer: {clip_norm: 1}\n" MODEL,
         "1:33: train.staleness: cannot go with optimizer.clip_norm, since no rank has the "
         "gradient of all ranks"},
        {"train: {mode: async, staleness: 2, precision: fp16}\ncomm: {servers: 1}\n" MODEL,
         "1:33: train.staleness: cannot go with train.precision fp16: ranks must skip a step "
         "together"},
        {"train: {mode: async, staleness: 2}\ncomm: {servers: 1, overlap: on}\n" MODEL,
         "1:33: train.staleness: cannot go with comm.overlap on: between two steps a rank gets "
         "new weights"},
        {"train: {mode: async, staleness: 2, local_steps: 2}\ncomm: {servers: 1}\n" MODEL,
         "1:49: train.local_steps: cannot go with servers: every rank updates all weights"},
        {"train: {mode: async, staleness: 2000}\ncomm: {servers: 1}\n" MODEL,
         "1:33: train.staleness: expected an integer from 0 to 1024, found '2000'"},
        {"comm: {servers: 1, compressor: fp16}\n" MODEL,
         "1:32: comm.compressor: cannot go with servers, which get gradients as they are"},
        {"comm: {strategy: none}\ntrain: {eval_rank: true}\n" MODEL,
         "2:20: train.eval_rank: cannot go with comm.strategy none, where every rank has weights "
         "of its own"},
        {"comm: {servers: 1}\ntrain: {local_steps: 2}\n" MODEL,
         "2:22: train.local_steps: cannot go with servers: every rank updates all weights"},
        {"comm: {servers: 1}\n" IMAGE "    - batchnorm: {sync: true}\n",
         "1:17: comm.servers: cannot go with batchnorm {sync: true}, where all ranks wait for "
         "each other inside a layer"},
    };
    (void)state;

    REFUSE_ALL(cases);
}

/* ---- YAML ---- */

static void yaml_that_is_not_plain_is_refused(void **state)
{
    static const struct error_case cases[] = {
        {"train: {seed: &x 1}\n" MODEL, "1:15: anchors (&name) are not allowed"},
        {"name: a\ntrain: *x\n", "2:8: aliases (*name) are not allowed"},
        {"*x : 1\n", "1:1: aliases (*name) are not allowed"},
        {"name: !!str 5\n", "1:7: tags (!name) are not allowed"},
        {"comm: !x {}\n", "1:7: tags (!name) are not allowed"},
        {"name: a\n---\nname: b\n", "2:1: a second document is not allowed"},
        {"? [a]\n: 1\n", "1:3: a key must be a plain word"},
        {"name: \"a\\0b\"\n", "1:7: zero bytes are not allowed"},
        {"train: {seed: 1\n", "2:1: not valid YAML: did not find expected ',' or '}'"},
        {"train:\n\tseed: 1\n", "2:1: not valid YAML: found character that cannot start any token"},
        {"a: b: c\n", "1:5: not valid YAML: mapping values are not allowed in this context"},
        {"name: a\nname2: \xc3\xa9\xff\n", "2:9: not valid YAML: invalid leading UTF-8 octet"},
        {"name: a\x01\n", "1:8: not valid YAML: control characters are not allowed"},
    };
    (void)state;

    REFUSE_ALL(cases);
    refuses("name: a\0b\n", 10, no_environment, NULL, 0,
            "model.cfg:1:8: not valid YAML: control characters are not allowed");
}
/* clang-format on */

static void huge_and_deep_files_are_refused(void **state)
{
    const size_t size = (1 << 20) + 1;
    char *content = malloc(size);
    (void)state;

    assert_non_null(content);
    memset(content, '[', size);
    refuses(content, size, no_environment, NULL, 0,
            "model.cfg: larger than 1 MiB: not a configuration");
    refuses(content, size - 1, no_environment, NULL, 0,
            "model.cfg:1:65: nested too deeply (more than 64 levels)");
    memset(content, '#', size);
    refuses(content, size - 1, no_environment, NULL, 0, "model.cfg:1:1: missing key 'model'");
    free(content);
}

/* ---- overrides ---- */

static void bad_sets_are_refused_by_name(void **state)
{
    static const struct error_case cases[] = {
        {"train.global_batch=abc", "--set train.global_batch=abc: train.global_batch: expected an "
                                   "integer from 1 to 16777216, found 'abc'"},
        {"train.seed=", "--set train.seed=: train.seed: expected an integer from 0 to 2147483647, "
                        "found nothing"},
        {"train.sed=1", "--set train.sed=1: train: unknown key 'sed' (did you mean 'seed'?)"},
        {"trian.seed=1", "--set trian.seed=1: unknown key 'trian' (did you mean 'train'?)"},
        {"train.seed", "--set train.seed: expected KEY=VALUE"},
        {"=5", "--set =5: expected KEY=VALUE"},
        {"train..seed=5",
         "--set train..seed=5: expected a key such as model.layers[3].dense.units"},
        {"model.layers[x]=5",
         "--set model.layers[x]=5: expected a key such as model.layers[3].dense.units"},
        {"model.layers[1].dense.units=5",
         "--set model.layers[1].dense.units=5: model.layers: the list has no entry [1]"},
        {"model.layers[0].relu.x=5", "--set model.layers[0].relu.x=5: model.layers[0]: expected "
                                     "one layer, found 'relu' beside 'dense'"},
        {"train[0]=5", "--set train[0]=5: train: expected a list, found nothing"},
        {"name.x=5", "--set name.x=5: name: expected a section, found 'it'"},
        {"data.normalize={mean: [0.5]", "--set data.normalize={mean: [0.5]: data.normalize: not "
                                        "valid YAML: did not find expected ',' or '}'"},
        {"data.normalize={men: [0.5]}", "--set data.normalize={men: [0.5]}: data.normalize: "
                                        "unknown key 'men' (did you mean 'mean'?)"},
        {"train={steps: 1, epochs: 1}",
         "--set train={steps: 1, epochs: 1}: train: epochs and steps cannot both be given"},
        {"name=*x", "--set name=*x: name: aliases (*name) are not allowed"},
    };
    static const char content[] = "name: it\ntrain:\n" MODEL;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refuses(content, strlen(content), no_environment, &cases[i].content, 1, cases[i].expected);
    }
}

static void bad_variables_are_refused_by_name(void **state)
{
    static char batch[] = "DP_TRAIN_GLOBAL_BATCH=abc", steps[] = "DP_TRAIN_STEPS=5",
                epochs[] = "DP_TRAIN_EPOCHS=5";
    static char *const wrong[] = {batch, NULL}, *const both[] = {steps, epochs, NULL};
    (void)state;

    refuses(MODEL, strlen(MODEL), wrong, NULL, 0,
            "DP_TRAIN_GLOBAL_BATCH: train.global_batch: expected an integer from 1 to 16777216, "
            "found 'abc'");
    refuses(MODEL, strlen(MODEL), both, NULL, 0,
            "DP_TRAIN_STEPS: train.steps: DP_TRAIN_EPOCHS is set too; give one of them");
}

/* ---- files ---- */

static void missing_files_are_missing_input(void **state)
{
    char *text = NULL;
    dp_status status, folder;
    (void)state;

    stderr_begin();
    status = dp_config_resolve("/nowhere/model.cfg", no_environment, NULL, 0, &text);
    folder = dp_config_resolve("/", no_environment, NULL, 0, &text);
    stderr_end();
    assert_int_equal(status, DP_ERR_NOINPUT);
    assert_int_equal(folder, DP_ERR_NOINPUT);
    assert_non_null(strstr(stderr_text, "/nowhere/model.cfg: No such file or directory"));
    assert_null(text);
    assert_int_equal(dp_mem_live(), 0);
}

/* On every rank the broadcast text names the user's file, also where it is parsed and refused. */
static void errors_in_resolved_text_name_the_users_file(void **state)
{
    static const char content[] = "train:\n  seed:   7\n" MODEL;
    struct dp_config *config = NULL;
    char *text = NULL, *seed;
    dp_status status;
    (void)state;

    assert_int_equal(dp_config_resolve_text(content, strlen(content), "model.cfg", no_environment,
                                            NULL, 0, &text),
                     DP_OK);
    seed = strstr(text, "seed: 7");
    assert_non_null(seed);
    seed[6] = 'x';
    stderr_begin();
    status = dp_config_parse(text, "elsewhere", &config);
    stderr_end();
    assert_int_equal(status, DP_ERR_CONFIG);
    assert_null(config);
    assert_string_equal(stderr_text,
                        "lockstep: error: model.cfg:2:11: train.seed: expected an integer "
                        "from 0 to 2147483647, found 'x'\n");
    dp_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_repeated_and_missing_keys_are_refused),
        cmocka_unit_test(wrong_types_and_ranges_are_refused),
        cmocka_unit_test(impossible_layers_are_refused),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(metrics_that_a_loss_does_not_have_are_refused),
        cmocka_unit_test(incompatible_modes_are_refused),
        cmocka_unit_test(yaml_that_is_not_plain_is_refused),
        cmocka_unit_test(huge_and_deep_files_are_refused),
        cmocka_unit_test(bad_sets_are_refused_by_name),
        cmocka_unit_test(bad_variables_are_refused_by_name),
        cmocka_unit_test(missing_files_are_missing_input),
        cmocka_unit_test(errors_in_resolved_text_name_the_users_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
