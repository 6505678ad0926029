/*
 * test_model.c - what is known of a model before it computes: shapes, names, memory, initial
 * weights.
 */
#include "base/log.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/config/config_load.h"
#include "tests/support/arrays.h"
#include "tests/support/models/small_model.h"
#include "tests/support/stderr_text.h"

#define MODEL_AT "model.cfg:1:"

/* ---- mistakes ---- */

struct mistake {
    const char *input, *layers;
    const char *where, *problem; /* "36: model.layers[0].dense" */
};

static const struct mistake mistakes[] = {
    {"[8, 8, 2]", "[dense: {units: 2}]", "36: model.layers[0].dense",
     "needs [features], but its input is [8, 8, 2]: put a flatten before it"},
    {"[4]", "[conv2d: {filters: 2, kernel: 3}, dense: {units: 2}]", "30: model.layers[0].conv2d",
     "needs an image [height, width, channels], but its input is [4]"},
    {"[4]", "[maxpool: {size: 2}, dense: {units: 2}]", "30: model.layers[0].maxpool",
     "needs an image [height, width, channels], but its input is [4]"},
    {"[4, 5, 1]", "[flatten: {}, avgpool: {size: 5}, dense: {units: 2}]",
     "49: model.layers[1].avgpool",
     "needs an image [height, width, channels], but its input is [20]"},
    {"[4]", "[global_avgpool: {}, dense: {units: 2}]", "30: model.layers[0].global_avgpool",
     "needs an image [height, width, channels], but its input is [4]"},
    {"[4, 5, 1]", "[conv2d: {filters: 2, kernel: 7, padding: 1}, flatten: {}, dense: {units: 2}]",
     "36: model.layers[0].conv2d", "a 7x7 window with padding 1 does not fit its input [4, 5, 1]"},
    {"[4, 5, 1]", "[avgpool: {size: 5}, flatten: {}, dense: {units: 2}]",
     "36: model.layers[0].avgpool", "a 5x5 window with padding 0 does not fit its input [4, 5, 1]"},
    {"[4, 5, 1]", "[maxpool: {size: 3, padding: 2}, flatten: {}, dense: {units: 2}]",
     "36: model.layers[0].maxpool", "padding 2 is more than half of the window's size 3"},
    {"[4, 5, 1]", "[avgpool: {size: 1, padding: 1}, flatten: {}, dense: {units: 2}]",
     "36: model.layers[0].avgpool", "padding 1 is more than half of the window's size 1"},
    {"[4, 5, 1]", "[conv2d: {filters: 2, kernel: 3}]", "36: model.layers[0].conv2d",
     "the last layer gives [2, 3, 2]; a model must end with [classes], and have weights"},
    {"[4]", "[relu: {}]", "30: model.layers[0].relu",
     "the last layer gives [4]; a model must end with [classes], and have weights"},
    {"[4]", "[residual: {body: [dense: {units: 3}], shortcut: []}, dense: {units: 2}]",
     "30: model.layers[0].residual", "the body gives [3], the shortcut [4]"},
    {"[4, 4, 2]",
     "[residual: {body: [conv2d: {filters: 2, kernel: 3}], shortcut: [conv2d: {filters: 3, kernel:"
     " 1}]}, flatten: {}, dense: {units: 2}]",
     "36: model.layers[0].residual", "the body gives [2, 2, 2], the shortcut [4, 4, 3]"},
    {"[4]",
     "[residual: {body: [dense: {units: 4}, residual: {body: [dense: {units: 5}], shortcut: []}],"
     " shortcut: []}, dense: {units: 2}]",
     "67: model.layers[0].residual.body[1].residual", "the body gives [5], the shortcut [4]"},
    {"[2, 2, 4]",
     "[residual: {body: [flatten: {}], shortcut: [flatten: {}, dense: {units: 16}]}, dense:"
     " {units: 2}]",
     "36: model.layers[0].residual",
     "body and shortcut order the features of a flattened image differently; put a dense layer "
     "after the flatten first"},
    {"[4]",
     "[repeat: {times: 2, layers: [dense: {units: 3}, relu: {}]}, conv2d: {filters: 1, kernel: 1},"
     " dense: {units: 2}]",
     "89: model.layers[1].conv2d",
     "needs an image [height, width, channels], but its input is [3]"},
    {"[4, 5, 3]", "[conv2d: {filters: 4, kernel: 1, groups: 2}]", "36: model.layers[0].conv2d",
     "3 channels of the input and 4 filters do not both divide into 2 groups"},
    {"[4, 5, 3]", "[concat: {branches: [[], [conv2d: {filters: 2, kernel: 2}]]}]",
     "36: model.layers[0].concat",
     "branch 0 gives [4, 5, 3], branch 1 [3, 4, 2]: only their last numbers may differ"},
    {"[4, 5, 3]", "[concat: {branches: [[flatten: {}], [flatten: {}, dense: {units: 2}]]}]",
     "36: model.layers[0].concat",
     "branch 0 gives the features of a flattened image, which PyTorch has in another order; put "
     "the flatten after the concat"},
};

static void a_layer_that_does_not_fit_is_one_line_with_place_and_shapes(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < DP_COUNT(mistakes); i++) {
        const struct mistake *m = &mistakes[i];
        struct dp_config *config;
        struct dp_model *model = NULL;
        char text[1024];
        dp_status status;

        (void)snprintf(text, sizeof(text), "model: {input: %s, layers: %s}\n", m->input, m->layers);
        config = config_from(text);
        stderr_begin();
        status = dp_model_create(config->model.layers, config->model.layer_count,
                                 &config->model.input, &model);
        stderr_end();
        (void)snprintf(text, sizeof(text), "lockstep: error: " MODEL_AT "%s: %s\n", m->where,
                       m->problem);
        assert_string_equal(stderr_text, text);
        assert_int_equal(status, DP_ERR_CONFIG);
        assert_null(model);
        dp_config_destroy(config);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void one_output_is_for_losses_that_compare_it_with_a_number(void **state)
{
    struct dp_config *config = config_from("model: {input: [4], layers: [dense: {units: 1}]}\n");
    struct dp_model *model = NULL;
    (void)state;

    OK(dp_model_create(config->model.layers, config->model.layer_count, &config->model.input,
                       &model));
    stderr_begin();
    assert_int_equal(dp_model_set_loss(model, DP_LOSS_SOFTMAX, 0), DP_ERR_CONFIG);
    stderr_end();
    assert_string_equal(stderr_text,
                        "lockstep: error: " MODEL_AT "30: model.layers[0].dense: the last layer "
                        "gives [1]; train.loss softmax_cross_entropy needs [classes], 2 or more: "
                        "give it more units, or set train.loss to binary_cross_entropy or mse\n");
    OK(dp_model_set_loss(model, DP_LOSS_SIGMOID, 0));
    assert_int_equal(model->loss, DP_LOSS_SIGMOID);
    OK(dp_model_set_loss(model, DP_LOSS_SQUARE, 0));
    assert_int_equal(model->loss, DP_LOSS_SQUARE);
    dp_model_destroy(model);
    dp_config_destroy(config);
}

/* Names of tensors would not fit any more. */
static void residuals_that_are_nested_too_deeply_are_refused(void **state)
{
    struct dp_config *config;
    struct dp_model *model = NULL;
    char text[2048];
    size_t used = (size_t)snprintf(text, sizeof(text), "model: {input: [4], layers: [");
    dp_status status;
    (void)state;

    for (int i = 0; i < 12; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "residual: {body: [");
    }
    used += (size_t)snprintf(text + used, sizeof(text) - used, "dense: {units: 4}");
    for (int i = 0; i < 12; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "], shortcut: []}");
    }
    (void)snprintf(text + used, sizeof(text) - used, ", dense: {units: 2}]}\n");
    config = config_from(text);
    stderr_begin();
    status = dp_model_create(config->model.layers, config->model.layer_count, &config->model.input,
                             &model);
    stderr_end();
    assert_int_equal(status, DP_ERR_CONFIG);
    assert_non_null(strstr(stderr_text, ".residual: residuals are nested too deeply\n"));
    dp_config_destroy(config);
}

/* ---- shipped models ---- */

/* models/<name>.cfg. */
static struct small_model shipped(const char *name)
{
    static char *const no_environment[] = {NULL};
    struct small_model small = {NULL, NULL, NULL};
    char path[512], *text = NULL;

    (void)snprintf(path, sizeof(path), DP_SOURCE_DIR "/models/%s.cfg", name);
    OK(dp_config_resolve(path, no_environment, NULL, 0, &text));
    OK(dp_config_parse(text, path, &small.config));
    dp_free(text);
    OK(dp_model_create(small.config->model.layers, small.config->model.layer_count,
                       &small.config->model.input, &small.model));
    return small;
}

/* Parameters as torch counts them; 25,557,032 is also torchvision's resnet50. */
static void shipped_models_have_the_parameters_of_their_papers(void **state)
{
    static const struct {
        const char *name;
        size_t parameters, statistics, classes;
    } models[] = {
        {"mlp", 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 10240 + 10, 0, 10},
        {"lenet", 832 + 51264 + 3136 * 512 + 512 + 5130, 0, 10},
        {"resnet20", 272186, 1568, 10},
        {"resnet50", 25557032, 53120, 1000},
    };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(models); i++) {
        struct small_model small = shipped(models[i].name);
        assert_int_equal(small.model->parameters, models[i].parameters);
        assert_int_equal(small.model->statistics, models[i].statistics);
        assert_int_equal(small.model->classes, models[i].classes);
        small_model_destroy(&small);
    }
}

/* The layers of resnet20 that have parameters, as indices into nn.Sequential. */
static int resnet20_modules(char names[][40])
{
    static const char *const body[] = {"body.0", "body.1", "body.3", "body.4"};
    int count = 0;

    (void)snprintf(names[count++], 40, "0");
    (void)snprintf(names[count++], 40, "1");
    for (int block = 0; block < 9; block++) {
        const int index = 3 + 2 * block; /* a relu after each */
        for (int i = 0; i < 4; i++) {
            (void)snprintf(names[count++], 40, "%d.%s", index, body[i]);
        }
        for (int i = 0; i < 2 && (block == 3 || block == 6); i++) {
            (void)snprintf(names[count++], 40, "%d.shortcut.%d", index, i);
        }
    }
    (void)snprintf(names[count++], 40, "23"); /* after global_avgpool and flatten */
    return count;
}

static void tensors_of_resnet20_are_named_as_pytorch_does_in_order(void **state)
{
    struct small_model small = shipped("resnet20");
    const struct dp_model *m = small.model;
    char modules[64][40], expected[80];
    const int count = resnet20_modules(modules);
    int tensor = 0, buffer = 0, counter = 0;
    (void)state;

    for (int i = 0; i < count; i++) {
        const char last = modules[i][strlen(modules[i]) - 1];
        const bool norm = i + 1 < count && (last == '1' || last == '4');
        (void)snprintf(expected, sizeof(expected), "%s.weight", modules[i]);
        assert_string_equal(m->tensors[tensor++].name, expected);
        if (norm || i + 1 == count) {
            (void)snprintf(expected, sizeof(expected), "%s.bias", modules[i]);
            assert_string_equal(m->tensors[tensor++].name, expected);
        }
        if (norm) {
            (void)snprintf(expected, sizeof(expected), "%s.running_mean", modules[i]);
            assert_string_equal(m->buffers[buffer++].name, expected);
            (void)snprintf(expected, sizeof(expected), "%s.running_var", modules[i]);
            assert_string_equal(m->buffers[buffer++].name, expected);
            (void)snprintf(expected, sizeof(expected), "%s.num_batches_tracked", modules[i]);
            assert_string_equal(m->counters[counter++], expected);
        }
    }
    assert_int_equal(tensor, m->tensor_count);
    assert_int_equal(buffer, m->buffer_count);
    assert_int_equal(counter, m->counter_count);
    small_model_destroy(&small);
}

/* Against a state_dict that PyTorch wrote: every name, with its shape. */
static void shapes_are_those_of_pytorchs_state_dict(void **state)
{
    struct dp_safetensors *file = NULL;
    struct dp_config *config;
    struct dp_model *m = NULL;
    (void)state;

    OK(dp_safetensors_open(DP_SOURCE_DIR "/tests/golden/lenet-small-sgd.safetensors", &file));
    config = config_from(dp_safetensors_note(file, "config"));
    OK(dp_model_create(config->model.layers, config->model.layer_count, &config->model.input, &m));
    for (int i = 0; i < m->tensor_count; i++) {
        const struct dp_tensor *tensor = &m->tensors[i];
        const struct dp_stored *stored;
        char name[DP_TENSOR_NAME + 8];

        (void)snprintf(name, sizeof(name), "before.%s", tensor->name);
        stored = dp_safetensors_find(file, name);
        assert_non_null(stored);
        assert_int_equal(stored->dims, tensor->dims);
        assert_memory_equal(stored->shape, tensor->shape,
                            (size_t)tensor->dims * sizeof(tensor->shape[0]));
    }
    dp_model_destroy(m);
    dp_config_destroy(config);
    dp_safetensors_close(file);
}

/* A multiply and an addition count two. */
static void forward_costs_two_operations_for_each_weight_of_a_dense_layer(void **state)
{
    struct small_model small = shipped("mlp");
    (void)state;

    assert_true(small.model->flops == 2.0 * (784 * 1024 + 1024 * 1024 + 10240));
    small_model_destroy(&small);
}

/* ---- places ---- */

static void tensors_follow_each_other_at_multiples_of_a_block(void **state)
{
    static const char *const names[] = {"mlp", "lenet", "resnet20"};
    (void)state;

    for (size_t k = 0; k < DP_COUNT(names); k++) {
        struct small_model small = shipped(names[k]);
        size_t end = 0, running = 0;

        for (int i = 0; i < small.model->tensor_count; i++) {
            const struct dp_tensor *t = &small.model->tensors[i];
            size_t count = 1;
            for (int d = 0; d < t->dims; d++) {
                count *= t->shape[d];
            }
            assert_int_equal(t->count, count);
            assert_int_equal(t->begin, end);
            end = (t->begin + t->count + DP_BLOCK - 1) / DP_BLOCK * DP_BLOCK;
        }
        assert_int_equal(small.model->trained, end);
        for (int i = 0; i < small.model->buffer_count; i++) {
            assert_int_equal(small.model->buffers[i].begin, running);
            running += small.model->buffers[i].count;
        }
        assert_int_equal(small.model->statistics, running);
        small_model_destroy(&small);
    }
}

/* Slots are given back as soon as a gradient was read, whatever the depth: four of all rows are in
 * use at most, around the join of a residual, and one of a tile, which is as long as the others
 * here. */
static void gradients_of_a_deep_model_share_a_few_memories(void **state)
{
    struct small_model small = shipped("resnet50");
    const struct dp_model *m = small.model;
    size_t largest = 0, memory = 0;
    (void)state;

    for (int i = 0; i < m->value_count; i++) {
        largest = m->values[i].count > largest ? m->values[i].count : largest;
    }
    for (int i = 0; i < m->slot_memory_count; i++) {
        memory += dp_storage_elements(&m->slot_memory[i], 1, (struct dp_tiles){0, 1});
    }
    assert_in_range(memory, 2 * largest, 5 * largest);
    small_model_destroy(&small);
}

/* ---- initial weights ---- */

static void initial_weights_are_pytorchs_bounds_and_the_generators_numbers(void **state)
{
    struct small_model small = shipped("lenet");
    const struct dp_model *m = small.model;
    float *weights = zeros(m->trained), *again = zeros(m->trained), *other = zeros(m->trained);
    size_t differ = 0;
    (void)state;

    dp_model_init(m, 7, weights, NULL);
    dp_model_init(m, 7, again, NULL);
    dp_model_init(m, 8, other, NULL);
    assert_same_bits(weights, again, m->trained);
    for (int i = 0; i < m->tensor_count; i++) {
        const struct dp_tensor *t = &m->tensors[i];
        const struct dp_tensor *weight = &m->tensors[i - i % 2]; /* of the same layer */
        const float bound = (float)(1 / sqrt((double)weight->count / (double)weight->shape[0]));
        double squares = 0;

        for (size_t k = 0; k < t->count; k++) {
            const uint32_t bits = dp_random_u32(7, DP_RANDOM_WEIGHTS + (uint32_t)i, 0, k);
            const float value = weights[t->begin + dp_tensor_index(t, k)];
            assert_true(value == (2.0f * dp_random_unit(bits) - 1.0f) * bound);
            differ += value != other[t->begin + dp_tensor_index(t, k)];
            squares += (double)value * (double)value / (double)t->count;
        }
        /* The variance of uniform numbers is a third; 0.3 of it is three deviations for n = 80. */
        assert_true(t->count < 80 || fabs(3 * squares / ((double)bound * (double)bound) - 1) < 0.3);
        for (size_t k = t->begin + t->count; k % DP_BLOCK != 0; k++) {
            assert_true(weights[k] == 0); /* the gaps */
        }
    }
    assert_true(differ > m->parameters - 10);
    dp_free(weights);
    dp_free(again);
    dp_free(other);
    small_model_destroy(&small);
}

static void batch_norm_starts_as_the_identity(void **state)
{
    struct small_model small =
        small_model_create("[2, 2, 3]", "[batchnorm: {}, flatten: {}, dense: {units: 2}]");
    const struct dp_model *m = small.model;
    float *weights = unknown(m->trained), running[6];
    (void)state;

    dp_model_init(m, 1, weights, running);
    for (size_t i = 0; i < 3; i++) {
        assert_true(weights[i] == 1 && weights[m->tensors[1].begin + i] == 0);
        assert_true(running[i] == 0 && running[3 + i] == 1);
    }
    dp_free(weights);
    small_model_destroy(&small);
}

/* ---- fusing ---- */

/* Joins that scale and shift for a batch norm. */
static int joined_count(const struct dp_model *m)
{
    int count = 0;

    for (int i = 0; i < m->node_count; i++) {
        const struct dp_node *node = &m->nodes[i];
        if (node->owner < i) {
            assert_true(node->x2 >= 0 && m->values[node->x].writer == node->owner);
            assert_int_equal(m->values[node->x].readers, 1);
            assert_int_not_equal(m->values[node->y].storage, m->values[node->x].storage);
            count++;
        }
    }
    return count;
}

static void a_join_is_fused_only_with_the_batch_norm_at_the_end_of_its_body(void **state)
{
    static const struct {
        const char *body, *shortcut;
        int joined;
    } cases[] = {
        {"batchnorm: {}", "", 1},
        {"batchnorm: {}", "batchnorm: {}", 1},
        {"relu: {}", "batchnorm: {}", 0},
        {"batchnorm: {}, relu: {}", "", 0},
        {"batchnorm: {}, dropout: {}", "", 0},
        {"residual: {body: [batchnorm: {}], shortcut: []}", "", 1}, /* the inner one */
        {"residual: {body: [relu: {}], shortcut: []}, batchnorm: {}", "", 1},
    };
    struct small_model resnet = shipped("resnet20");
    (void)state;

    assert_int_equal(joined_count(resnet.model), 9); /* all of them */
    small_model_destroy(&resnet);
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct small_model small;
        char layers[256];
        (void)snprintf(
            layers, sizeof(layers),
            "[dense: {units: 3}, residual: {body: [%s], shortcut: [%s]}, relu: {}, dense:"
            " {units: 2}]",
            cases[i].body, cases[i].shortcut);
        small = small_model_create("[4]", layers);
        assert_int_equal(joined_count(small.model), cases[i].joined);
        small_model_destroy(&small);
    }
}

/* ---- creation ---- */

static void creation_survives_every_failed_allocation(void **state)
{
    struct small_model small = shipped("resnet20");
    const struct dp_model_config *c = &small.config->model;
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    int failed = 0;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_model *model = NULL;
        dp_mem_fail_nth(nth);
        status = dp_model_create(c->layers, c->layer_count, &c->input, &model);
        dp_mem_fail_nth(0);
        failed += status != DP_OK;
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((model != NULL) == (status == DP_OK));
        dp_model_destroy(model);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_true(failed >= 8); /* the model and its tables */
    small_model_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_that_does_not_fit_is_one_line_with_place_and_shapes),
        cmocka_unit_test(one_output_is_for_losses_that_compare_it_with_a_number),
        cmocka_unit_test(residuals_that_are_nested_too_deeply_are_refused),
        cmocka_unit_test(shipped_models_have_the_parameters_of_their_papers),
        cmocka_unit_test(tensors_of_resnet20_are_named_as_pytorch_does_in_order),
        cmocka_unit_test(shapes_are_those_of_pytorchs_state_dict),
        cmocka_unit_test(forward_costs_two_operations_for_each_weight_of_a_dense_layer),
        cmocka_unit_test(tensors_follow_each_other_at_multiples_of_a_block),
        cmocka_unit_test(gradients_of_a_deep_model_share_a_few_memories),
        cmocka_unit_test(initial_weights_are_pytorchs_bounds_and_the_generators_numbers),
        cmocka_unit_test(batch_norm_starts_as_the_identity),
        cmocka_unit_test(a_join_is_fused_only_with_the_batch_norm_at_the_end_of_its_body),
        cmocka_unit_test(creation_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, streams_open, streams_close);
}
