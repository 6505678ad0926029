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

/* The tail: lines "#@ key<tab>where" behind all others. */
static const char tail_mark[] = "#@ ";

/* ---- a text that grows ---- */

struct text {
    char *data; /* owned; a string */
    size_t length, room;
    bool failed; /* out of memory: later additions do nothing */
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool reserve(struct text *text, size_t more)
{
    size_t room = text->room > 0 ? text->room : 4096;
    char *data;

    while (room < text->length + more + 1) {
        room *= 2;
    }
    if (room == text->room) {
        return true;
    }
    data = dp_zalloc(1, room);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    if (text->data != NULL) {
        memcpy(data, text->data, text->length);
    }
    dp_free(text->data);
    text->data = data;
    text->room = room;
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

/* "{a: 1, b: 2}" of every option whose value may be given again. */
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

static void add_rows(struct text *text, const struct dp_option *row, const void *base,
                     const char *indent)
{
    char value[DP_OPTION_PRINTED];

    for (; row->kind != DP_OPTION_END; row++) {
        if (dp_option_holds(row, base)) {
            dp_option_print(row, base, value, sizeof(value));
            add(text, "%s%s: %s\n", indent, row->name, value);
        }
    }
}

static void add_sections(struct text *text, const struct dp_config *config)
{
    const struct dp_config_section *section;

    for (int i = 0; (section = dp_config_section_at(i)) != NULL; i++) {
        const char *base = (const char *)config + section->offset;
        if (strchr(section->path, '.') != NULL) {
            add(text, "  %s: ", strrchr(section->path, '.') + 1);
            add_flow(text, section->options, base);
        } else if (section->path[0] == '\0') {
            add_rows(text, section->options, base, "");
        } else {
            add(text, "%s:\n", section->path);
            add_rows(text, section->options, base, "  ");
        }
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
    const struct dp_shape *input = &draft->config->model.input;
    char shape[96];

    add(text, "model:\n  input: %s\n  layers:\n", dp_shape_text(input, shape, sizeof(shape)));
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
        /* Of layers and sections the key counts, of values the value: what errors point at. */
        (void)dp_place_text(keyed && node->kind == DP_YAML_MAP ? &node->key_at : &node->at, where,
                            sizeof(where));
        (void)dp_text_clean(where, line, sizeof(line)); /* names of files may hold line ends */
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

/* Lines of the resolved text are nobody's; what the tail does not name is a default. */
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

static void help_rows(const struct dp_option *row, const char *path)
{
    char expected[256], key[96];

    for (; row != NULL && row->kind != DP_OPTION_END; row++) {
        (void)snprintf(key, sizeof(key), "%s%s%s", path, path[0] != '\0' ? "." : "", row->name);
        if (dp_config_rule_hides(key)) {
            continue;
        }
        dp_option_describe(row, expected, sizeof(expected));
        printf("    %-30s %s\n", key, row->help);
        if (row->initial == NULL) {
            printf("    %-30s   %s; required\n", "", expected);
        } else if (row->initial[0] == '\0' ||
                   (row->kind == DP_OPTION_INT && strtod(row->initial, NULL) < row->low)) {
            printf("    %-30s   %s\n", "", expected); /* default: not given */
        } else {
            printf("    %-30s   %s; default %s\n", "", expected, row->initial);
        }
    }
}

void dp_config_help(void)
{
    const struct dp_config_section *section;
    const struct dp_plugin *plugin;

    printf("keys of model.cfg, of --set KEY=VALUE, and (DP_TRAIN_SEED for train.seed) of the "
           "environment:\n");
    for (int i = 0; (section = dp_config_section_at(i)) != NULL; i++) {
        if (section->path[0] != '\0') {
            printf("\n  %s: %s\n", section->path, section->help);
        }
        help_rows(section->options, section->path);
    }
    printf("\n  model: what is trained\n");
    help_rows(dp_config_input_options, "model");
    printf("    %-30s a list of layers; required\n", "model.layers");
    for (int i = 0; (plugin = dp_plugin_at(&dp_layers, i)) != NULL; i++) {
        printf("\n  layer %s: %s\n", plugin->name, plugin->help);
        help_rows(plugin->options, "");
    }
    printf("\n  layer repeat: the same layers again and again: {times: 3, layers: [...]}\n");
    help_rows(dp_config_repeat_options, "");
}
