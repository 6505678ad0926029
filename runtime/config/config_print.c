/*
 * config_print.c - the configuration as text: for all ranks, for people, and for --help.
 */
#include "runtime/config/config_print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "runtime/config/config_own.h"
#include "runtime/config/config_rules.h"

/* The tail: lines "#@ key<tab>where" after all others. */
static const char tail_mark[] = "#@ ";

/* ---- a growing text ---- */

struct text {
    char *data; /* owned; a string */
    size_t length, capacity;
    bool failed; /* out of memory: later additions do nothing */
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool reserve(struct text *text, size_t more)
{
    size_t capacity = text->capacity > 0 ? text->capacity : 4096;
    char *data;

    while (capacity < text->length + more + 1) {
        capacity *= 2;
    }
    if (capacity == text->capacity) {
        return true;
    }
    data = dp_zalloc(1, capacity);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    if (text->data != NULL) {
        memcpy(data, text->data, text->length);
    }
    dp_free(text->data);
    text->data = data;
    text->capacity = capacity;
    return true;
}

static void add(struct text *text, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (text->failed || length < 0 || !reserve(text, (size_t)length)) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

/* ---- sections ---- */

/* "{a: 1, b: 2}" of every option whose value can be read again. */
static void add_flow(struct text *text, const struct dp_option *row, const void *base)
{
    char value[DP_OPTION_PRINTED];
    const char *comma = "";

    add(text, "{");
    for (; row != NULL && row->kind != DP_OPTION_END; row++) {
        if (dp_option_holds(row, base)) {
            dp_option_print(row, base, value, sizeof(value));
            add(text, "%s%s: %s", comma, row->name, value);
            comma = ", ";
        }
    }
    add(text, "}\n");
}

/* The texts before, between and after the keys of a section. */
struct form {
    const char *before, *between, *after;
};

static void add_section(struct text *text, const struct dp_config *config,
                        const struct dp_config_section *section, const struct form *form)
{
    const char *between = form->before;
    char value[DP_OPTION_PRINTED];
    const struct dp_option *row;
    const void *base;

    for (int i = 0; (row = dp_config_key_at(section, i, NULL)) != NULL; i++) {
        if (dp_config_key_value(section, config, row->name, &row, &base) &&
            dp_option_holds(row, base)) {
            if ((row->flags & DP_KEY_PLUGINS) != 0) {
                const char *list = *(const char *const *)((const char *)base + row->offset);
                dp_config_write_plugins(list, value, sizeof(value));
            } else {
                dp_option_print(row, base, value, sizeof(value));
            }
            add(text, "%s%s: %s", between, row->name, value);
            between = form->between;
        }
    }
    add(text, "%s", form->after);
}

static void add_sections(struct text *text, const struct dp_config *config)
{
    static const struct form top = {"", "\n", "\n"}, flow = {"{", ", ", "}\n"},
                             block = {"  ", "\n  ", "\n"};
    const struct dp_config_section *section;

    for (int i = 0; (section = dp_config_section_at(i)) != NULL; i++) {
        const char *dot = strrchr(section->path, '.');
        if (dot != NULL) {
            add(text, "  %s: ", dot + 1);
        } else if (section->path[0] != '\0') {
            add(text, "%s:\n", section->path);
        }
        add_section(text, config, section,
                    dot != NULL                ? &flow
                    : section->path[0] == '\0' ? &top
                                               : &block);
    }
}

/* ---- layers ---- */

static void add_list(struct text *text, const struct dp_yaml_node *list, int indent);

static void add_branch(struct text *text, const struct dp_yaml_node *node, const char *name,
                       int indent)
{
    const struct dp_yaml_node *list = dp_yaml_child(node, name, strlen(name));

    if (list == NULL || list->first == NULL) {
        add(text, "%*s%s: []\n", indent, "", name);
        return;
    }
    add(text, "%*s%s:\n", indent, "", name);
    add_list(text, list, indent + 2);
}

/* Lists in a list. */
static void add_branches(struct text *text, const struct dp_yaml_node *concat, int indent)
{
    static const char name[] = "branches";
    const struct dp_yaml_node *item = dp_yaml_child(concat, name, strlen(name))->first;

    for (; item != NULL; item = item->next) {
        add(text, item->first == NULL ? "%*s- []\n" : "%*s-\n", indent, "");
        add_list(text, item, indent + 2);
    }
}

static void add_layer(struct text *text, const struct dp_yaml_node *node, int indent)
{
    const struct dp_plugin *plugin = dp_plugin_find(&dp_layers, node->key, strlen(node->key));

    add(text, "%*s- %s:", indent, "", node->key);
    if (plugin == NULL) { /* repeat */
        add(text, "\n%*stimes: %d\n", indent + 4, "",
            ((const struct dp_config_repeat *)node->built)->times);
        add_branch(text, node, "layers", indent + 4);
    } else if (strcmp(node->key, "residual") == 0) {
        add(text, "\n");
        add_branch(text, node, "body", indent + 4);
        add_branch(text, node, "shortcut", indent + 4);
    } else if (strcmp(node->key, "concat") == 0) {
        add(text, "\n%*sbranches:\n", indent + 4, "");
        add_branches(text, node, indent + 6);
    } else {
        add(text, " ");
        add_flow(text, plugin->options, node->built);
    }
}

static void add_list(struct text *text, const struct dp_yaml_node *list, int indent)
{
    for (const struct dp_yaml_node *item = list->first; item != NULL; item = item->next) {
        add_layer(text, item->first, indent);
    }
}

static void add_model(struct text *text, const struct dp_draft *draft)
{
    const struct dp_model_config *model = &draft->config->model;
    char shape[96];

    add(text, "model:\n  input: %s\n", dp_shape_text(&model->input, shape, sizeof(shape)));
    if (model->recompute > 0) {
        add(text, "  recompute: %d\n", model->recompute);
    } else {
        add(text, "  recompute: %s\n", model->recompute == DP_RECOMPUTE_OFF ? "off" : "auto");
    }
    add(text, "  layers:\n");
    add_list(text, dp_yaml_find(draft->root, "model.layers"), 4);
}

/* ---- the tail ---- */

static dp_status add_places(struct text *text, const struct dp_draft *draft,
                            const struct dp_yaml_node *parent, const char *path)
{
    int index = 0;

    for (const struct dp_yaml_node *node = parent->first; node != NULL; node = node->next) {
        const bool keyed = parent->kind == DP_YAML_MAP;
        const char *key = keyed ? dp_config_join(draft->pool, path, node->key)
                                : dp_pool_format(draft->pool, "%s[%d]", path, index++);
        char where[512], line[sizeof(where)];
        if (key == NULL) {
            return dp_config_no_memory();
        }
        /* The place of a layer or section is its key's, that of a value is the value's: errors name
         * these. */
        (void)dp_place_text(keyed && node->kind == DP_YAML_MAP ? &node->key_at : &node->at, where,
                            sizeof(where));
        (void)dp_text_clean(where, line, sizeof(line)); /* names of files may contain line ends */
        add(text, "%s%s\t%s\n", tail_mark, key, line);
        DP_TRY(add_places(text, draft, node, key));
    }
    return DP_OK;
}

size_t dp_config_text_length(const char *text)
{
    const char *at = strstr(text, "\n#@ ");

    return at != NULL ? (size_t)(at + 1 - text) : strlen(text);
}

/* Lines of the resolved text are not places in the user's file; what the tail does not name is a
 * default. */
static void forget_places(struct dp_yaml_node *node)
{
    for (; node != NULL; node = node->next) {
        node->at = node->key_at = (struct dp_place){NULL, 0, 0};
        forget_places(node->first);
    }
}

dp_status dp_config_read_tail(struct dp_pool *pool, const char *text, struct dp_yaml_node *root)
{
    const char *line = text + dp_config_text_length(text);

    if (*line != '\0') {
        forget_places(root);
    }
    while (strncmp(line, tail_mark, strlen(tail_mark)) == 0) {
        const char *key = line + strlen(tail_mark);
        const size_t length = strcspn(key, "\n"), key_length = strcspn(key, "\t\n");
        struct dp_yaml_node *node;
        char *copy = dp_pool_copy(pool, key, length);
        if (copy == NULL) {
            return dp_config_no_memory();
        }
        line = key + length + (key[length] == '\n' ? 1 : 0);
        if (key_length == length) {
            continue;
        }
        copy[key_length] = '\0';
        node = dp_yaml_find(root, copy);
        if (node != NULL) {
            node->at = node->key_at = (struct dp_place){copy + key_length + 1, 0, 0};
        }
    }
    return DP_OK;
}

dp_status dp_config_print(const struct dp_draft *draft, char **out)
{
    struct text text = {NULL, 0, 0, false};
    dp_status status;

    add_sections(&text, draft->config);
    add_model(&text, draft);
    status = add_places(&text, draft, draft->root, "");
    if (status == DP_OK && text.failed) {
        status = dp_config_no_memory();
    }
    if (status != DP_OK) {
        dp_free(text.data);
        return status;
    }
    *out = text.data;
    return DP_OK;
}

/* ---- --help ---- */

/* "one of sgd, adamw" */
static void describe_names(const struct dp_plugin_family *family, char *text, size_t size)
{
    const struct dp_plugin *plugin;
    size_t used = (size_t)snprintf(text, size, "one of");

    for (int i = 0; used < size && (plugin = dp_plugin_at(family, i)) != NULL; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s %s", i > 0 ? "," : "", plugin->name);
    }
}

enum { TEXT_MOST = 60 /* columns of what is expected, and of a default beside it */ };

/* `family`: the family whose plug-ins the key `name` names; NULL: none. */
static void help_rows(const struct dp_option *row, const char *path,
                      const struct dp_plugin_family *family)
{
    char expected[256], key[96];

    for (; row != NULL && row->kind != DP_OPTION_END; row++) {
        (void)snprintf(key, sizeof(key), "%s%s%s", path, path[0] != '\0' ? "." : "", row->name);
        if (family != NULL && strcmp(row->name, "name") == 0) {
            describe_names(family, expected, sizeof(expected));
        } else {
            dp_option_describe(row, expected, sizeof(expected));
        }
        printf("    %-30s %s\n", key, row->help);
        if (row->initial == NULL) {
            printf("    %-30s   %s; required\n", "", expected);
        } else if (row->initial[0] == '\0' ||
                   (row->kind == DP_OPTION_INT && strtod(row->initial, NULL) < row->low)) {
            printf("    %-30s   %s\n", "", expected); /* default: not given */
        } else {
            printf("    %-30s   %s;", "", expected);
            if (strlen(expected) + strlen(row->initial) > TEXT_MOST) {
                printf("\n    %-30s  ", "");
            }
            printf(" default %s\n", row->initial);
        }
    }
}

/* The keys of a section that are options of plug-ins: "optimizer adamw: ...". */
static void help_plugins(const struct dp_config_section *section)
{
    const struct dp_plugin *plugin;

    for (int i = 0; section->family != NULL && (plugin = dp_plugin_at(section->family, i)) != NULL;
         i++) {
        printf("\n  %s %s: %s\n", section->family->noun, plugin->name, plugin->help);
        help_rows(plugin->options, section->path, NULL);
    }
}

void dp_config_help(void)
{
    const struct dp_config_section *section;
    const struct dp_plugin *plugin;

    printf("keys of model.cfg, of --set KEY=VALUE, and of the environment, where train.seed is "
           "DP_TRAIN_SEED\n(or, as an alias, DDP_TRAIN_SEED):\n");
    for (int i = 0; (section = dp_config_section_at(i)) != NULL; i++) {
        if (section->path[0] != '\0') {
            printf("\n  %s: %s\n", section->path, section->help);
        }
        help_rows(section->options, section->path, section->family);
        help_plugins(section);
    }
    printf("\n  model: what is trained\n");
    help_rows(dp_config_model_options, "model", NULL);
    printf("    %-30s a list of layers; required\n", "model.layers");
    for (int i = 0; (plugin = dp_plugin_at(&dp_layers, i)) != NULL; i++) {
        printf("\n  layer %s: %s\n", plugin->name, plugin->help);
        help_rows(plugin->options, "", NULL);
    }
    printf("\n  layer repeat: its layers, repeated: {times: 3, layers: [...]}\n");
    help_rows(dp_config_repeat_options, "", NULL);
}
