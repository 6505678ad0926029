/* test_config_mistakes.c - several mistakes at once, and words of other tools. */
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

#define MODEL "model: {input: [4], layers: [dense: {units: 2}]}\n"
#define IMAGE "model:\n  input: [8, 8, 2]\n  layers:\n"

/* Resolving must fail with DP_ERR_CONFIG and only these lines, and leave nothing. */
static void refuses(const char *content, const char *const *sets, int count, const char *expected)
{
    char *const no_environment[] = {NULL};
    char lines[2000];
    char *text = NULL;
    dp_status status;

    stderr_begin();
    status = dp_config_resolve_text(content, strlen(content), "model.cfg", no_environment, sets,
                                    count, &text);
    stderr_end();
    dp_free(text);
    (void)snprintf(lines, sizeof(lines), "lockstep: error: %s\n", expected);
    assert_string_equal(stderr_text, lines);
    assert_int_equal(status, DP_ERR_CONFIG);
    assert_null(text);
    assert_int_equal(dp_mem_live(), 0);
}

/* Several mistakes, a line each; those of one layer do not make others. */
static void all_mistakes_are_reported_at_once_up_to_ten(void **state)
{
    static const char many[] = "trian: {seed: 1}\ntrain: {seed: x, seed: 1}\n"
                               "optimizer: {name: sdg, lr: -1}\n"
                               "model:\n  input: [4, 4]\n  layers:\n"
                               "    - repeat: {times: 3, layers: [dense: {unit: 4}]}\n"
                               "    - dropout: {rate: 2}\n    - dense: {units: 2}\n";
    static const char expected[] =
        "model.cfg:1:1: unknown key 'trian' (did you mean 'train'?)\n"
        "lockstep: error: model.cfg:2:15: train.seed: expected an integer from 0 to 2147483647, "
        "found 'x'\n"
        "lockstep: error: model.cfg:2:18: train: repeated key 'seed' (first in line 2)\n"
        "lockstep: error: model.cfg:3:28: optimizer.lr: expected a number from 0 to 1000000, found "
        "'-1'\n"
        "lockstep: error: model.cfg:3:19: optimizer.name: unknown optimizer 'sdg' (did you mean "
        "'sgd'?)\n"
        "lockstep: error: model.cfg:5:10: model.input: expected [features] or [height, width, "
        "channels], found 2 numbers\n"
        "lockstep: error: model.cfg:7:43: model.layers[0].repeat.layers[0].dense: unknown key "
        "'unit' (did you mean 'units'?)\n"
        "lockstep: error: model.cfg:8:23: model.layers[1].dropout.rate: expected a number from 0 "
        "to 0.999, found '2'";
    static const char *const sets[] = {"a.a=1", "b.a=1", "c.a=1", "d.a=1", "e.a=1", "f.a=1",
                                       "g.a=1", "h.a=1", "i.a=1", "j.a=1", "k.a=1", "l.a=1"};
    char ten[2000] = "--set a.a=1: unknown key 'a'";
    (void)state;

    refuses(many, NULL, 0, expected);
    for (int i = 1; i < 10; i++) {
        const size_t used = strlen(ten);
        (void)snprintf(ten + used, sizeof(ten) - used,
                       "\nlockstep: error: --set %s: unknown key '%.1s'", sets[i], sets[i]);
    }
    refuses(MODEL, sets, 12, ten);
}

static void what_is_no_configuration_is_told_once_whatever_is_set(void **state)
{
    static const char *const sets[] = {"train.seed=1", "train.steps=2"};
    (void)state;

    refuses("hello\n", sets, 2, "model.cfg:1:1: expected keys and values, found 'hello'");
}

static void words_of_other_tools_are_understood(void **state)
{
    static const struct {
        const char *content, *expected;
    } cases[] = {
        {"batch_size: 8\n" MODEL, "1:1: unknown key 'batch_size' (did you mean "
                                  "'train.global_batch'?)"},
        {"train: {batch_size: 8}\n" MODEL,
         "1:9: train: unknown key 'batch_size' (did you mean 'global_batch'?)"},
        {"train: {lr: 8}\n" MODEL, "1:9: train: unknown key 'lr' (did you mean 'optimizer.lr'?)"},
        {"epochs: 8\n" MODEL, "1:1: unknown key 'epochs' (did you mean 'train.epochs'?)"},
        {"optimizer: {learning-rate: 1}\n" MODEL,
         "1:13: optimizer: unknown key 'learning-rate' (did you mean 'lr'?)"},
        {IMAGE "    - Linear: {units: 2}\n",
         "4:7: model.layers[0]: unknown layer 'Linear' (did you mean 'dense'?)"},
        {IMAGE "    - conv2d: {units: 2, kernel: 3}\n",
         "4:16: model.layers[0].conv2d: unknown key 'units' (did you mean 'filters'?)"},
        {IMAGE "    - dropout: {p: 0.5}\n",
         "4:17: model.layers[0].dropout: unknown key 'p' (did you mean 'rate'?)"},
        {IMAGE "    - softmax: {}\n",
         "4:7: model.layers[0]: unknown layer 'softmax': train.loss softmax_cross_entropy has it "
         "built in, so outputs need none: leave it out"},
        {IMAGE "    - DepthwiseConv2d: {filters: 2, kernel: 3}\n",
         "4:7: model.layers[0]: unknown layer 'DepthwiseConv2d' (did you mean 'conv2d'?)"},
        {IMAGE
         "    - flatten: {}\n    - dense: {units: 2}\ntrain: {loss: mse, label_smoothing: 0.1}\n",
         "6:37: train.label_smoothing: needs train.loss softmax_cross_entropy"},
        {IMAGE "    - concat: {branches: [[relu: {}]]}\n",
         "4:26: model.layers[0].concat.branches: expected 2 to 64 branches, found 1"},
        {IMAGE "    - concat: {branches: [relu: {}, []]}\n",
         "4:27: model.layers[0].concat.branches[0]: expected a list of layers, found a section"},
        {IMAGE "    - concat: {branches: [[], [rleu: {}]]}\n",
         "4:32: model.layers[0].concat.branches[1][0]: unknown layer 'rleu' (did you mean "
         "'relu'?)"},
        {IMAGE "    - concat: {branch: []}\n",
         "4:16: model.layers[0].concat: unknown key 'branch' (did you mean 'branches'?)"},
        {IMAGE "    - conv2d: {filters: 2, kernel: 3, padding: same}\n",
         "4:48: model.layers[0].conv2d.padding: expected a number, found 'same': (kernel - 1) / 2 "
         "keeps the size, with an odd kernel and stride 1"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[1000];
        (void)snprintf(line, sizeof(line), "model.cfg:%s", cases[i].expected);
        refuses(cases[i].content, NULL, 0, line);
    }
}

static void a_model_is_recomputed_in_two_parts_or_more(void **state)
{
    static const char *const values[] = {
        "on", "0", "1", "-3", "2.5", "1001", "99999999999999999999"};
    (void)state;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char set[64], line[200];
        const char *const sets[] = {set};
        (void)snprintf(set, sizeof(set), "model.recompute=%s", values[i]);
        (void)snprintf(
            line, sizeof(line),
            "--set %s: model.recompute: expected off, auto, or a number of parts from 2 to 1000",
            set);
        refuses(MODEL, sets, 1, line);
    }
}

static void only_shards_have_copies(void **state)
{
    static const char *const content = "data: {source: csv}\n" MODEL;
    static const char limits[] = "needs data.source records, with data.local_cache or an address "
                                 "in data.dir";
    static const struct {
        const char *sets[4], *reason;
        int count;
    } cases[] = {
        {{"data.local_cache=copies"},
         "needs data.source records, whose shards it copies: pack the data set with ddp_data",
         1},
        {{"data.local_cache_mb=5"}, limits, 1},
        {{"data.local_cache=~/copies", "data.source=records"},
         "the shell does not replace ~ there: write the whole path; in a shell also $HOME",
         2},
        {{"data.dir=~/tables"},
         "the shell does not replace ~ there: write the whole path; in a shell also $HOME",
         1},
        {{"data.local_cache_mb=5", "data.source=records", "data.dir=here"}, limits, 3},
        {{"data.local_cache_mb=5", "data.source=records", "data.dir=s3://there"}, NULL, 3},
        {{"data.local_cache=copies", "data.source=records", "data.dir=here"}, NULL, 3},
        {{"data.local_cache=copies", "data.source=synthetic", "data.dir=s3://there"}, NULL, 3},
    };
    char *const no_environment[] = {NULL};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const *sets = cases[i].sets;
        char *text = NULL, line[200];
        if (cases[i].reason != NULL) {
            (void)snprintf(line, sizeof(line), "--set %s: %.*s: %s", sets[0],
                           (int)strcspn(sets[0], "="), sets[0], cases[i].reason);
            refuses(content, sets, cases[i].count, line);
            continue;
        }
        assert_int_equal(dp_config_resolve_text(content, strlen(content), "model.cfg",
                                                no_environment, sets, cases[i].count, &text),
                         DP_OK);
        dp_free(text);
    }
}

static void a_gpu_is_device_cuda(void **state)
{
    char *const no_environment[] = {NULL};
    const char *const sets[] = {"device.name=gpu"};
    char *text = NULL;
    (void)state;

    assert_int_equal(
        dp_config_resolve_text(MODEL, strlen(MODEL), "model.cfg", no_environment, sets, 1, &text),
        DP_OK);
    assert_non_null(strstr(text, "name: cuda"));
    dp_free(text);
}

/* What would be lost with a rank, or changes before all of a step's messages have come. */
static void going_on_without_a_rank_needs_all_state_on_all_ranks(void **state)
{
    static const char *const cases[][2] = {
        {"zero1", "shrink cannot go with comm.strategy zero1, ps or none, nor with servers: a part "
                  "of the state would be lost with a rank"},
        {"none", "shrink cannot go with comm.strategy zero1, ps or none, nor with servers: a part "
                 "of the state would be lost with a rank"},
        {"auto}\ndata: {source: synthetic, input_ranks: 1",
         "shrink cannot go with train.eval_rank or data.input_ranks"},
        {"ring, compressor: onebit", "shrink goes with comm.compressor none, fp16 and bf16 alone: "
                                     "the residuals of others would be lost with a rank"},
    };
    static const char *const sets[] = {"train.verify_sums=5"};
    char content[400], line[400];
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(content, sizeof(content),
                       "train: {on_rank_failure: shrink}\ncomm: {strategy: %s}\n" MODEL,
                       cases[i][0]);
        (void)snprintf(line, sizeof(line), "model.cfg:1:26: train.on_rank_failure: %s",
                       cases[i][1]);
        refuses(content, NULL, 0, line);
    }
    refuses("train: {on_rank_failure: shrink}\n" MODEL, sets, 1,
            "model.cfg:1:26: train.on_rank_failure: shrink cannot go with train.local_steps, mode "
            "async, train.verify_sums or precision fp16: ranks are not at the same place when one "
            "dies");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_mistakes_are_reported_at_once_up_to_ten),
        cmocka_unit_test(what_is_no_configuration_is_told_once_whatever_is_set),
        cmocka_unit_test(words_of_other_tools_are_understood),
        cmocka_unit_test(a_model_is_recomputed_in_two_parts_or_more),
        cmocka_unit_test(only_shards_have_copies),
        cmocka_unit_test(a_gpu_is_device_cuda),
        cmocka_unit_test(going_on_without_a_rank_needs_all_state_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
