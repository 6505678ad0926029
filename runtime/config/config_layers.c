/*
 * config_layers.c - model.input, model.recompute, and model.layers: residuals and branches nested,
 * repeats unrolled.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config_own.h"
#include "runtime/config/config_synonyms.h"

enum { LAYERS_MAX = 10000 /* unrolled, including those inside residuals */ };

static const double elements_max = 2147483647.0;

/* A growing list of layers. */
struct list {
    struct dp_layer_spec *specs;
    int count, capacity;
};

static dp_status list_add(struct dp_draft *draft, struct list *list, struct dp_layer_spec **spec)
{
    if (list->count == list->capacity) {
        const int capacity = list->capacity > 0 ? 2 * list->capacity : 16;
        struct dp_layer_spec *specs = dp_pool_take(draft->pool, (size_t)capacity * sizeof(*specs));
        if (specs == NULL) {
            return dp_config_no_memory();
        }
        if (list->count > 0) {
            memcpy(specs, list->specs, (size_t)list->count * sizeof(*specs));
        }
        list->specs = specs;
        list->capacity = capacity;
    }
    *spec = &list->specs[list->count++];
    return DP_OK;
}

static dp_status build_list(struct dp_draft *draft, const struct dp_yaml_node *node,
                            const char *path, struct list *list);

/* The layers of a residual's branch. */
static dp_status build_branch(struct dp_draft *draft, const struct dp_yaml_node *node,
                              const char *path, struct dp_layer_spec **specs, int *count)
{
    struct list list = {NULL, 0, 0};

    DP_TRY(build_list(draft, node, path, &list));
    *specs = list.specs;
    *count = list.count;
    return DP_OK;
}

static const char *where_text(struct dp_draft *draft, const struct dp_place *place,
                              const char *path);

/* One branch of a concat, which is a layer of its own; an empty one is the identity. */
static dp_status build_concat_branch(struct dp_draft *draft, const struct dp_yaml_node *item,
                                     const char *path, struct list *list)
{
    const struct dp_layer_type *type = &dp_layer_concat_branch;
    const char *where = where_text(draft, &item->at, path);
    void *options = dp_pool_take(draft->pool, type->plugin.state_bytes);
    struct dp_layer_spec *spec = NULL;

    DP_TRY(list_add(draft, list, &spec));
    if (spec == NULL || options == NULL || where == NULL) {
        return dp_config_no_memory();
    }
    *spec = (struct dp_layer_spec){.type = type, .options = options, .where = where};
    return item->kind == DP_YAML_LIST && item->first == NULL
               ? DP_OK
               : build_branch(draft, item, path, &spec->body, &spec->body_count);
}

/* The branches of a concat: a list of lists. */
static dp_status build_branches(struct dp_draft *draft, const struct dp_yaml_node *node,
                                const char *path, struct dp_layer_spec *concat)
{
    struct list list = {NULL, 0, 0};
    char found[128];

    if (node->kind != DP_YAML_LIST) {
        return dp_config_refuse(&node->at, path, "expected a list of branches, found %s",
                                dp_yaml_found(node, found, sizeof(found)));
    }
    for (const struct dp_yaml_node *item = node->first; item != NULL; item = item->next) {
        const char *key = dp_pool_format(draft->pool, "%s[%d]", path, list.count);
        if (key == NULL) {
            return dp_config_no_memory();
        }
        DP_TRY(build_concat_branch(draft, item, key, &list));
    }
    if (list.count < 2 || list.count > DP_CONCAT_BRANCHES) {
        return dp_config_refuse(&node->at, path, "expected 2 to %d branches, found %d",
                                DP_CONCAT_BRANCHES, list.count);
    }
    concat->body = list.specs;
    concat->body_count = list.count;
    return DP_OK;
}

/* ---- one layer ---- */

static bool is_residual(const struct dp_layer_type *type)
{
    return strcmp(type->plugin.name, "residual") == 0;
}

static bool is_concat(const struct dp_layer_type *type)
{
    return strcmp(type->plugin.name, "concat") == 0;
}

/* Whether a key of a layer has layers of its own. */
static bool has_layers(const struct dp_layer_type *type, const char *key)
{
    return is_concat(type)
               ? strcmp(key, "branches") == 0
               : is_residual(type) && (strcmp(key, "body") == 0 || strcmp(key, "shortcut") == 0);
}

static const char *nearest_option(const struct dp_layer_type *type, const char *key)
{
    const char *meant = dp_config_synonym(type->plugin.name, key);

    if (meant != NULL) {
        return meant;
    }
    if (is_residual(type)) {
        return dp_looks_like(key, "body")       ? "body"
               : dp_looks_like(key, "shortcut") ? "shortcut"
                                                : NULL;
    }
    if (is_concat(type)) {
        return dp_looks_like(key, "branches") ? "branches" : NULL;
    }
    return dp_option_nearest(type->plugin.options, key);
}

/* Frameworks that take "same" choose the padding that keeps the size. */
static dp_status refuse_same(const struct dp_yaml_node *entry, const char *key)
{
    return strcmp(entry->key, "padding") == 0 && entry->kind == DP_YAML_SCALAR &&
                   strcmp(entry->text, "same") == 0
               ? dp_config_refuse(&entry->at, key,
                                  "expected a number, found 'same': (kernel - 1) / 2 keeps the "
                                  "size, with an odd kernel and stride 1")
               : DP_OK;
}

/* Reads one option of a layer, or one branch of a residual. */
static dp_status build_option(struct dp_draft *draft, const struct dp_yaml_node *entry,
                              const char *path, struct dp_layer_spec *spec)
{
    const struct dp_option *row = dp_option_find(spec->type->plugin.options, entry->key);
    const char *key;

    if (row == NULL && !has_layers(spec->type, entry->key)) {
        return dp_config_unknown(entry, path, nearest_option(spec->type, entry->key));
    }
    key = dp_config_join(draft->pool, path, entry->key);
    if (key == NULL) {
        return dp_config_no_memory();
    }
    if (row != NULL) {
        DP_TRY(refuse_same(entry, key));
        return dp_config_apply(row, spec->options, entry, key);
    }
    if (is_concat(spec->type)) {
        return build_branches(draft, entry, key, spec);
    }
    if (strcmp(entry->key, "body") == 0) {
        return build_branch(draft, entry, key, &spec->body, &spec->body_count);
    }
    if (entry->kind == DP_YAML_LIST && entry->first == NULL) {
        return DP_OK; /* an empty shortcut is the identity */
    }
    return build_branch(draft, entry, key, &spec->shortcut, &spec->shortcut_count);
}

static dp_status missing(const struct dp_yaml_node *node, const char *path, const char *key)
{
    return dp_config_refuse(&node->key_at, path, "missing key '%s'", key);
}

static dp_status check_required(const struct dp_option *row, const struct dp_yaml_node *node,
                                const char *path)
{
    for (; row != NULL && row->kind != DP_OPTION_END; row++) {
        if (row->initial == NULL && dp_yaml_child(node, row->name, strlen(row->name)) == NULL) {
            return missing(node, path, row->name);
        }
    }
    return DP_OK;
}

/* "model.cfg:12:7: model.layers[3].conv2d" */
static const char *where_text(struct dp_draft *draft, const struct dp_place *place,
                              const char *path)
{
    char text[512];

    return dp_pool_format(draft->pool, "%s: %s", dp_place_text(place, text, sizeof(text)), path);
}

static dp_status build_layer(struct dp_draft *draft, struct dp_yaml_node *node, const char *path,
                             const struct dp_plugin *plugin, struct list *list)
{
    struct dp_layer_spec *spec = NULL;
    const int before = draft->mistakes;

    if (draft->layer_count++ == LAYERS_MAX) {
        return dp_config_refuse(&node->key_at, path, "more than %d layers in all", LAYERS_MAX);
    }
    DP_TRY(list_add(draft, list, &spec));
    spec->type = (const struct dp_layer_type *)(const void *)plugin; /* its first member */
    spec->options = dp_pool_take(draft->pool, plugin->state_bytes);
    spec->where = where_text(draft, &node->key_at, path);
    if (spec->options == NULL || spec->where == NULL) {
        return dp_config_no_memory();
    }
    dp_option_defaults(plugin->options, spec->options);
    for (const struct dp_yaml_node *entry = node->first; entry != NULL; entry = entry->next) {
        DP_TRY(dp_config_count(draft, dp_config_once(node, entry, path)));
        DP_TRY(dp_config_count(draft, build_option(draft, entry, path, spec)));
    }
    if (draft->mistakes > before) { /* what is missing may be there, misspelled */
        return DP_OK;
    }
    DP_TRY(check_required(plugin->options, node, path));
    if (is_residual(spec->type) && spec->body_count == 0) {
        return missing(node, path, "body");
    }
    if (is_concat(spec->type) && spec->body_count == 0) {
        return missing(node, path, "branches");
    }
    node->built = spec->options;
    return DP_OK;
}

/* ---- repeat ---- */

static dp_status build_repeat(struct dp_draft *draft, struct dp_yaml_node *node, const char *path,
                              struct list *list)
{
    const struct dp_option *options = dp_config_repeat_options;
    struct dp_config_repeat *repeat = dp_pool_take(draft->pool, sizeof(*repeat));
    const char *times_key = dp_config_join(draft->pool, path, "times");
    const char *layers_key = dp_config_join(draft->pool, path, "layers");
    const struct dp_yaml_node *layers = NULL;
    const int before = draft->mistakes;

    if (repeat == NULL || times_key == NULL || layers_key == NULL) {
        return dp_config_no_memory();
    }
    for (const struct dp_yaml_node *entry = node->first; entry != NULL; entry = entry->next) {
        DP_TRY(dp_config_once(node, entry, path));
        if (strcmp(entry->key, "times") == 0) {
            DP_TRY(dp_config_apply(options, repeat, entry, times_key));
        } else if (strcmp(entry->key, "layers") == 0) {
            layers = entry;
        } else {
            const char *nearest = dp_option_nearest(options, entry->key);
            return dp_config_unknown(entry, path,
                                     dp_looks_like(entry->key, "layers") ? "layers" : nearest);
        }
    }
    DP_TRY(check_required(options, node, path));
    if (layers == NULL) {
        return missing(node, path, "layers");
    }
    node->built = repeat;
    for (int i = 0; i < repeat->times && draft->mistakes == before; i++) {
        DP_TRY(build_list(draft, layers, layers_key, list));
    }
    return DP_OK;
}

/* ---- lists of layers ---- */

static dp_status refuse_layer(const struct dp_yaml_node *node, const char *path)
{
    char found[128];

    return dp_config_refuse(&node->at, path, "expected a layer such as relu: {}, found %s",
                            dp_yaml_found(node, found, sizeof(found)));
}

static dp_status refuse_unknown_layer(const struct dp_yaml_node *node, const char *path)
{
    const char *nearest = dp_config_synonym("layers", node->key);
    const char *why = dp_config_no_layer(node->key);

    if (why != NULL) {
        return dp_config_refuse(&node->key_at, path, "unknown layer '%.100s': %s", node->key, why);
    }
    if (nearest == NULL) {
        nearest = dp_plugin_nearest(&dp_layers, node->key);
    }
    if (nearest == NULL && dp_looks_like(node->key, "repeat")) {
        nearest = "repeat";
    }
    if (nearest == NULL) {
        return dp_config_refuse(&node->key_at, path, "unknown layer '%.100s'", node->key);
    }
    return dp_config_refuse(&node->key_at, path, "unknown layer '%.100s' (did you mean '%s'?)",
                            node->key, nearest);
}

/* One entry of a list of layers, at `path`: "model.layers[3]". */
static dp_status build_item(struct dp_draft *draft, struct dp_yaml_node *item, const char *path,
                            struct list *list)
{
    const struct dp_plugin *plugin;
    struct dp_yaml_node *node;
    const char *key;
    char found[128];

    if (item->kind == DP_YAML_SCALAR && !dp_yaml_is_null(item)) {
        DP_TRY(dp_yaml_write_out(draft->pool, item));
    }
    if (item->kind != DP_YAML_MAP || item->first == NULL) {
        return refuse_layer(item, path);
    }
    node = item->first;
    if (node->next != NULL) {
        return dp_config_refuse(&node->next->key_at, path,
                                "expected one layer, found '%.60s' beside '%.60s'", node->next->key,
                                node->key);
    }
    plugin = dp_plugin_find(&dp_layers, node->key, strlen(node->key));
    if (plugin == NULL && strcmp(node->key, "repeat") != 0) {
        return refuse_unknown_layer(node, path);
    }
    key = dp_config_join(draft->pool, path, node->key);
    if (key == NULL) {
        return dp_config_no_memory();
    }
    dp_yaml_as_map(node);
    if (node->kind != DP_YAML_MAP) {
        return dp_config_refuse(&node->at, key, "expected options in braces, found %s",
                                dp_yaml_found(node, found, sizeof(found)));
    }
    return plugin != NULL ? build_layer(draft, node, key, plugin, list)
                          : build_repeat(draft, node, key, list);
}

static dp_status build_list(struct dp_draft *draft, const struct dp_yaml_node *node,
                            const char *path, struct list *list)
{
    char found[128];
    int index = 0;

    if (node->kind != DP_YAML_LIST || node->first == NULL) {
        return dp_config_refuse(&node->at, path, "expected a list of layers, found %s",
                                node->kind == DP_YAML_LIST
                                    ? "an empty list"
                                    : dp_yaml_found(node, found, sizeof(found)));
    }
    for (struct dp_yaml_node *item = node->first; item != NULL; item = item->next) {
        const char *key = dp_pool_format(draft->pool, "%s[%d]", path, index++);
        if (key == NULL) {
            return dp_config_no_memory();
        }
        DP_TRY(dp_config_count(draft, build_item(draft, item, key, list)));
    }
    return DP_OK;
}

/* ---- model ---- */

static dp_status build_input(struct dp_shape *shape, const struct dp_yaml_node *node)
{
    static const char key[] = "model.input";
    struct dp_config_model read = {.recompute = NULL};
    double elements = 1.0;

    DP_TRY(dp_config_apply(&dp_config_model_options[DP_CONFIG_MODEL_INPUT], &read, node, key));
    shape->dims = read.input.count;
    if (shape->dims != 1 && shape->dims != 3) {
        return dp_config_refuse(
            &node->at, key, "expected [features] or [height, width, channels], found %d numbers",
            shape->dims);
    }
    for (int i = 0; i < shape->dims; i++) {
        shape->dim[i] = (size_t)read.input.value[i];
        if ((double)shape->dim[i] != read.input.value[i]) {
            return dp_config_refuse(&node->at, key, "expected integers, found %.10g",
                                    read.input.value[i]);
        }
        elements *= read.input.value[i];
    }
    return elements <= elements_max
               ? DP_OK
               : dp_config_refuse(&node->at, key, "a sample of %.0f numbers is too large",
                                  elements);
}

static dp_status build_recompute(int *parts, const struct dp_yaml_node *node)
{
    static const char key[] = "model.recompute";
    struct dp_config_model read = {.recompute = NULL};
    char *end;
    long count;

    DP_TRY(dp_config_apply(&dp_config_model_options[DP_CONFIG_MODEL_RECOMPUTE], &read, node, key));
    if (strcmp(read.recompute, "off") == 0 || strcmp(read.recompute, "auto") == 0) {
        *parts = read.recompute[0] == 'o' ? DP_RECOMPUTE_OFF : DP_RECOMPUTE_AUTO;
        return DP_OK;
    }
    count = strtol(read.recompute, &end, 10);
    if (read.recompute[0] < '1' || read.recompute[0] > '9' || *end != '\0' || count < 2 ||
        count > DP_RECOMPUTE_MOST) {
        return dp_config_refuse(&node->at, key,
                                "expected off, auto, or a number of parts from 2 to %d",
                                DP_RECOMPUTE_MOST);
    }
    *parts = (int)count;
    return DP_OK;
}

dp_status dp_config_build_model(struct dp_draft *draft, struct dp_yaml_node *model)
{
    struct dp_model_config *config = &draft->config->model;
    const struct dp_yaml_node *input = NULL, *layers = NULL;
    const int before = draft->mistakes;
    char found[128];

    dp_yaml_as_map(model);
    if (model->kind != DP_YAML_MAP) {
        return dp_config_refuse(&model->at, "model", "expected a section, found %s",
                                dp_yaml_found(model, found, sizeof(found)));
    }
    for (const struct dp_yaml_node *entry = model->first; entry != NULL; entry = entry->next) {
        DP_TRY(dp_config_count(draft, dp_config_once(model, entry, "model")));
        if (strcmp(entry->key, "input") == 0) {
            input = entry;
        } else if (strcmp(entry->key, "layers") == 0) {
            layers = entry;
        } else if (strcmp(entry->key, "recompute") == 0) {
            DP_TRY(dp_config_count(draft, build_recompute(&config->recompute, entry)));
        } else {
            DP_TRY(dp_config_count(
                draft, dp_config_unknown(entry, "model",
                                         dp_looks_like(entry->key, "input")       ? "input"
                                         : dp_looks_like(entry->key, "layers")    ? "layers"
                                         : dp_looks_like(entry->key, "recompute") ? "recompute"
                                                                                  : NULL)));
        }
    }
    if (input == NULL || layers == NULL) {
        return draft->mistakes > before
                   ? DP_OK
                   : missing(model, "model", input == NULL ? "input" : "layers");
    }
    DP_TRY(dp_config_count(draft, build_input(&config->input, input)));
    return build_branch(draft, layers, "model.layers", &config->layers, &config->layer_count);
}
