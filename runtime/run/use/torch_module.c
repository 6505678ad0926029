#define _GNU_SOURCE /* realpath */
#include "runtime/run/use/torch_module.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/config_load.h"
#include "runtime/run/use/saved_run.h"

/* ---- text that grows ---- */

struct text {
    char *at; /* owned */
    size_t used, room;
    dp_status status; /* the first failure */
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (t->status != DP_OK || length < 0) {
        return;
    }
    if (t->used + (size_t)length >= t->room) {
        const size_t room = 2 * t->room + (size_t)length + 4096;
        char *larger = dp_zalloc(1, room);
        if (larger == NULL) {
            t->status = DP_FAIL(DP_ERR_NOMEM, "a module of %zu bytes", room);
            return;
        }
        if (t->used > 0) {
            memcpy(larger, t->at, t->used);
        }
        dp_free(t->at);
        t->at = larger;
        t->room = room;
    }
    va_start(args, format);
    (void)vsnprintf(t->at + t->used, t->room - t->used, format, args);
    va_end(args);
    t->used += (size_t)length;
}

/* ---- layers ---- */

enum { PATH = 128, VALUE = DP_OPTION_PRINTED };

/* What writing layers needs. */
struct walk {
    const struct dp_model *model;
    struct text *text;
    bool flat; /* values are [features] here, no images */
};

/* An option of a layer, as Python takes it. */
static const char *option(const struct dp_layer_spec *layer, const char *name, char value[VALUE])
{
    const struct dp_option *row = dp_option_find(layer->type->plugin.options, name);

    dp_option_print(row, layer->options, value, VALUE);
    if (row->kind == DP_OPTION_SWITCH) {
        value[0] = value[0] == 't' ? 'T' : 'F';
    }
    return value;
}

/* The weight of a layer, by its path; it has one. */
static const struct dp_tensor *weight_of(const struct walk *w, const char *path)
{
    char name[DP_TENSOR_NAME];

    (void)snprintf(name, sizeof(name), "%s.weight", path);
    for (int i = 0; i < w->model->tensor_count; i++) {
        if (strcmp(w->model->tensors[i].name, name) == 0) {
            return &w->model->tensors[i];
        }
    }
    return NULL;
}

static void put_dense(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    const struct dp_tensor *weight = weight_of(w, path);
    char bias[VALUE];

    put(w->text, "nn.Linear(%zu, %zu, bias=%s)", weight->shape[1], weight->shape[0],
        option(layer, "bias", bias));
    w->flat = true;
}

static void put_conv2d(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    const struct dp_tensor *weight = weight_of(w, path);
    char stride[VALUE], padding[VALUE], groups[VALUE], bias[VALUE];
    const size_t times = strtoul(option(layer, "groups", groups), NULL, 10);

    put(w->text, "nn.Conv2d(%zu, %zu, (%zu, %zu), stride=%s, padding=%s, groups=%zu, bias=%s)",
        weight->shape[1] * times, weight->shape[0], weight->shape[2], weight->shape[3],
        option(layer, "stride", stride), option(layer, "padding", padding), times,
        option(layer, "bias", bias));
}

static void put_batchnorm(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    char eps[VALUE], momentum[VALUE];

    put(w->text, "nn.BatchNorm%s(%zu, eps=%s, momentum=%s)", w->flat ? "1d" : "2d",
        weight_of(w, path)->shape[0], option(layer, "eps", eps),
        option(layer, "momentum", momentum));
}

static void put_groupnorm(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    char groups[VALUE], eps[VALUE];

    put(w->text, "nn.GroupNorm(%s, %zu, eps=%s)", option(layer, "groups", groups),
        weight_of(w, path)->shape[0], option(layer, "eps", eps));
}

static void put_layernorm(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    char eps[VALUE];

    put(w->text, "nn.LayerNorm(%zu, eps=%s)", weight_of(w, path)->shape[0],
        option(layer, "eps", eps));
}

static void put_leaky_relu(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    char slope[VALUE];

    (void)path;
    put(w->text, "nn.LeakyReLU(%s)", option(layer, "slope", slope));
}

static void put_pool(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    const bool max = strcmp(layer->type->plugin.name, "maxpool") == 0;
    char size[VALUE], stride[VALUE], padding[VALUE];

    (void)path;
    (void)option(layer, "size", size);
    (void)option(layer, "stride", stride);
    put(w->text, "nn.%sPool2d(%s, stride=%s, padding=%s)", max ? "Max" : "Avg", size,
        strcmp(stride, "0") == 0 ? size : stride, option(layer, "padding", padding));
}

static void put_dropout(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    char rate[VALUE];

    (void)path;
    put(w->text, "nn.Dropout(%s)", option(layer, "rate", rate));
}

static void put_flatten(struct walk *w, const struct dp_layer_spec *layer, const char *path)
{
    (void)layer;
    (void)path;
    put(w->text, "nn.Flatten()");
    w->flat = true;
}

/* Layers without options, or with layers of their own, which put_layers() knows, have no
 * function. */
static const struct {
    const char *name, *plain;
    void (*put)(struct walk *walk, const struct dp_layer_spec *layer, const char *path);
} kinds[] = {
    {"dense", NULL, put_dense},         {"conv2d", NULL, put_conv2d},
    {"batchnorm", NULL, put_batchnorm}, {"maxpool", NULL, put_pool},
    {"avgpool", NULL, put_pool},        {"dropout", NULL, put_dropout},
    {"flatten", NULL, put_flatten},     {"relu", "nn.ReLU()", NULL},
    {"gelu", "nn.GELU()", NULL},        {"global_avgpool", "nn.AdaptiveAvgPool2d(1)", NULL},
    {"residual", NULL, NULL},           {"concat", NULL, NULL},
    {"silu", "nn.SiLU()", NULL},        {"groupnorm", NULL, put_groupnorm},
    {"layernorm", NULL, put_layernorm}, {"leaky_relu", NULL, put_leaky_relu},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int kind_of(const struct dp_layer_spec *layer)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, layer->type->plugin.name) == 0) {
            return i;
        }
    }
    return -1;
}

static dp_status put_layers(struct walk *w, const struct dp_layer_spec *layers, int count,
                            const char *prefix, int depth);

static dp_status put_residual(struct walk *w, const struct dp_layer_spec *layer, const char *path,
                              int depth)
{
    const bool flat = w->flat;
    char inner[PATH];

    put(w->text, "Residual(\n%*snn.Sequential(\n", 4 * depth + 4, "");
    (void)snprintf(inner, sizeof(inner), "%.100s.body.", path);
    DP_TRY(put_layers(w, layer->body, layer->body_count, inner, depth + 2));
    w->flat = flat;
    put(w->text, "%*s),\n%*snn.Sequential(%s", 4 * depth + 4, "", 4 * depth + 4, "",
        layer->shortcut_count > 0 ? "\n" : "");
    (void)snprintf(inner, sizeof(inner), "%.100s.shortcut.", path);
    DP_TRY(put_layers(w, layer->shortcut, layer->shortcut_count, inner, depth + 2));
    put(w->text, "%*s),\n%*s)", layer->shortcut_count > 0 ? 4 * depth + 4 : 0, "", 4 * depth, "");
    return DP_OK;
}

static dp_status put_concat(struct walk *w, const struct dp_layer_spec *layer, const char *path,
                            int depth)
{
    const bool flat = w->flat;
    char inner[PATH];

    put(w->text, "Concat(\n");
    for (int b = 0; b < layer->body_count; b++) {
        const struct dp_layer_spec *branch = &layer->body[b];
        const bool empty = branch->body_count == 0;

        w->flat = flat;
        put(w->text, "%*snn.Sequential(%s", 4 * depth + 4, "", empty ? "" : "\n");
        (void)snprintf(inner, sizeof(inner), "%.100s.branches.%d.", path, b);
        DP_TRY(put_layers(w, branch->body, branch->body_count, inner, depth + 2));
        put(w->text, "%*s),\n", empty ? 0 : 4 * depth + 4, "");
    }
    put(w->text, "%*s)", 4 * depth, "");
    return DP_OK;
}

/* Each on a line of its own, indented by four times `depth`. */
static dp_status put_layers(struct walk *w, const struct dp_layer_spec *layers, int count,
                            const char *prefix, int depth)
{
    for (int i = 0; i < count; i++) {
        const int kind = kind_of(&layers[i]);
        char path[PATH];

        if (kind < 0) {
            return DP_FAIL(DP_ERR_CONFIG,
                           "%s: layer '%s' is not PyTorch's: it cannot be exported; the weights "
                           "themselves are in model.safetensors",
                           layers[i].where, layers[i].type->plugin.name);
        }
        (void)snprintf(path, sizeof(path), "%.100s%d", prefix, i);
        put(w->text, "%*s", 4 * depth, "");
        if (kinds[kind].plain != NULL) {
            put(w->text, "%s", kinds[kind].plain);
        } else if (kinds[kind].put != NULL) {
            kinds[kind].put(w, &layers[i], path);
        } else {
            DP_TRY(strcmp(kinds[kind].name, "concat") == 0
                       ? put_concat(w, &layers[i], path, depth)
                       : put_residual(w, &layers[i], path, depth));
        }
        put(w->text, ",  # %s\n", path);
    }
    return DP_OK;
}

/* Whether there is such a layer, also inside of others. */
static bool has_kind(const struct dp_layer_spec *layers, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        const struct dp_layer_spec *l = &layers[i];
        if (strcmp(l->type->plugin.name, name) == 0 || has_kind(l->body, l->body_count, name) ||
            has_kind(l->shortcut, l->shortcut_count, name)) {
            return true;
        }
    }
    return false;
}

/* ---- the module ---- */

static void put_numbers(struct text *t, const char *name, const struct dp_numbers *numbers,
                        const char *otherwise)
{
    put(t, "%s = [", name);
    for (int i = 0; i < numbers->count; i++) {
        char number[DP_NUMBER_TEXT];
        dp_option_print_number(numbers->value[i], number, sizeof(number));
        put(t, "%s%s", i == 0 ? "" : ", ", number);
    }
    put(t, "%s]\n", numbers->count == 0 ? otherwise : "");
}

/* JSON's texts are Python's, too. */
static dp_status put_json(struct text *t, const char *name, const struct dp_json *value)
{
    char *text = NULL;

    DP_TRY(dp_json_dump(value, 0, DP_JSON_EXACT, &text));
    put(t, "%s = %s\n", name, text);
    dp_free(text);
    return DP_OK;
}

static dp_status put_text(struct text *t, const char *name, const char *value)
{
    struct dp_json *array = dp_json_create(), *list = dp_json_set_array(array, "text");
    dp_status status = dp_json_push_text(list, value);

    status = status == DP_OK ? put_json(t, name, dp_json_at(list, 0)) : status;
    dp_json_destroy(array);
    return status;
}

static dp_status put_constants(struct text *t, const struct dp_saved_run *saved,
                               const struct dp_config *c)
{
    static const char *const losses[] = {[DP_LOSS_SOFTMAX] = "softmax_cross_entropy",
                                         [DP_LOSS_SIGMOID] = "binary_cross_entropy",
                                         [DP_LOSS_SQUARE] = "mse"};
    const struct dp_json *classes = dp_json_get(saved->state, "classes");
    const struct dp_shape *input = &c->model.input;
    char path[DP_PATH_BYTES], whole[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, saved->checkpoint, "model.safetensors"));
    DP_TRY(put_text(t, "CHECKPOINT", realpath(path, whole) != NULL ? whole : path));
    if (c->train.ema > 0.0) {
        DP_TRY(dp_file_join(path, saved->checkpoint, "optimizer.safetensors"));
        DP_TRY(put_text(t, "AVERAGE", realpath(path, whole) != NULL ? whole : path));
    } else {
        put(t, "AVERAGE = None  # of the weights: there is none\n");
    }
    put(t, "STEP = %" PRIu64 "\n", saved->step);
    put(t, "INPUT = [");
    for (int i = 0; i < input->dims; i++) {
        put(t, "%s%zu", i == 0 ? "" : ", ", input->dim[i]);
    }
    put(t, "]  # %s\n", input->dims == 3 ? "height, width, channels" : "features");
    put_numbers(t, "MEAN", &c->data.normalize.mean, "0.0");
    put_numbers(t, "STD", &c->data.normalize.std, "1.0");
    put(t, "LOSS = \"%s\"\n", losses[c->train.loss]);
    if (classes == NULL) {
        put(t, "CLASSES = None  # they have no names\n");
        return DP_OK;
    }
    return put_json(t, "CLASSES", classes);
}

static const char head[] =
    "\"\"\"A model that Lockstep trained, for PyTorch. Written by ddp_export.\n"
    "\n"
    "    net = load()                        # strictly, ready to predict\n"
    "    outputs = net(preprocess(samples))  # of LOSS softmax_cross_entropy: softmax(1) of these\n"
    "\"\"\"\n"
    "import torch\n"
    "from torch import nn\n"
    "\n";

static const char residual[] =
    "\n\n"
    "class Residual(nn.Module):\n"
    "    \"\"\"body(x) + shortcut(x); an empty shortcut is the identity.\"\"\"\n"
    "\n"
    "    def __init__(self, body, shortcut):\n"
    "        super().__init__()\n"
    "        self.body = body\n"
    "        self.shortcut = shortcut\n"
    "\n"
    "    def forward(self, x):\n"
    "        return self.body(x) + self.shortcut(x)\n";

static const char concat[] =
    "\n\n"
    "class Concat(nn.Module):\n"
    "    \"\"\"The channels of all branches, one after the other; an empty one is the "
    "identity.\"\"\"\n"
    "\n"
    "    def __init__(self, *branches):\n"
    "        super().__init__()\n"
    "        self.branches = nn.ModuleList(branches)\n"
    "\n"
    "    def forward(self, x):\n"
    "        return torch.cat([branch(x) for branch in self.branches], 1)\n";

static const char tail[] =
    "\n\n"
    "def preprocess(samples):\n"
    "    \"\"\"[rows, *INPUT], bytes (uint8) or numbers, as what model() takes.\"\"\"\n"
    "    x = torch.as_tensor(samples)\n"
    "    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()\n"
    "    x = (x.reshape(-1, *INPUT) - torch.tensor(MEAN)) / torch.tensor(STD)\n"
    "    return x.permute(0, 3, 1, 2).contiguous() if len(INPUT) == 3 else x\n"
    "\n\n"
    "def load(path=CHECKPOINT, average=AVERAGE):\n"
    "    \"\"\"model() with the weights of a checkpoint's model.safetensors, or the average of "
    "the\n"
    "    weights that training evaluated (train.ema), which is in optimizer.safetensors; "
    "average=None\n"
    "    takes the weights.\"\"\"\n"
    "    from safetensors.torch import load_file\n"
    "\n"
    "    net, state = model(), load_file(path)\n"
    "    for name, value in load_file(average).items() if average else ():\n"
    "        if name.endswith(\".ema\"):\n"
    "            state[name[:-4]] = value\n"
    "    net.load_state_dict(state, strict=True)\n"
    "    return net.eval()\n";

static dp_status put_module(struct text *t, const struct dp_saved_run *saved,
                            const struct dp_config *c, const struct dp_model *m)
{
    const struct dp_model_config *model = &c->model;
    struct walk walk = {.model = m, .text = t, .flat = model->input.dims == 1};

    put(t, "%s", head);
    DP_TRY(put_constants(t, saved, c));
    if (has_kind(model->layers, model->layer_count, "residual")) {
        put(t, "%s", residual);
    }
    if (has_kind(model->layers, model->layer_count, "concat")) {
        put(t, "%s", concat);
    }
    put(t, "\n\ndef model():\n    return nn.Sequential(\n");
    DP_TRY(put_layers(&walk, model->layers, model->layer_count, "", 2));
    put(t, "    )\n%s", tail);
    return t->status;
}

/* Whether the weights are those of the model. */
static dp_status check_weights(const struct dp_saved_run *saved, const struct dp_model *m)
{
    const struct dp_weights weights = {.params = m->tensors,
                                       .param_count = m->tensor_count,
                                       .buffers = m->buffers,
                                       .buffer_count = m->buffer_count,
                                       .counters = m->counters,
                                       .counter_count = m->counter_count};
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, saved->checkpoint, "model.safetensors"));
    return dp_weights_check(path, &weights);
}

dp_status dp_torch_module_write(const char *run, const char *path)
{
    struct dp_saved_run saved = {.state = NULL};
    struct dp_config *config = NULL;
    struct dp_model *model = NULL;
    struct text text = {.at = NULL, .status = DP_OK};
    dp_status status;

    DP_TRY(dp_saved_run_find(run, NULL, &saved));
    status = dp_saved_run_model(&saved, NULL, &config, &model);
    status = status == DP_OK ? check_weights(&saved, model) : status;
    status = status == DP_OK ? put_module(&text, &saved, config, model) : status;
    status = status == DP_OK ? dp_file_replace(path, text.at, text.used) : status;
    dp_free(text.at);
    dp_model_destroy(model);
    dp_config_destroy(config);
    dp_saved_run_release(&saved);
    return status;
}
