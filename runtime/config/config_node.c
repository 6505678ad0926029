/*
 * config_node.c - finds nodes in the tree of a configuration, and reports what is wrong there.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/config/config_yaml.h"

enum { ORIGIN_SHOWN = 400, FOUND_SHOWN = 60 };

/* Writes at most `shown` bytes of a text, never half of a UTF-8 character. */
static void show(char *text, size_t size, const char *value, size_t shown, const char *quote)
{
    size_t length = strlen(value);
    const bool cut = length > shown;

    if (cut) {
        length = shown;
        while (length > 0 && ((unsigned char)value[length] & 0xc0) == 0x80) {
            length--;
        }
    }
    (void)snprintf(text, size, "%s%.*s%s%s", quote, (int)length, value, cut ? "..." : "", quote);
}

/* Names and values come from users; messages are one line. */
static void keep_one_line(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
}

const char *dp_place_text(const struct dp_place *place, char *text, size_t size)
{
    show(text, size, place->origin != NULL ? place->origin : "default", ORIGIN_SHOWN, "");
    if (place->line > 0) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, size - used, ":%d:%d", place->line, place->column);
    }
    keep_one_line(text);
    return text;
}

dp_status dp_config_refuse(const struct dp_place *place, const char *key, const char *format, ...)
{
    char text[1300];
    size_t used = 0;
    va_list args;

    text[0] = '\0';
    if (place != NULL && place->origin != NULL) {
        (void)dp_place_text(place, text, sizeof(text));
        used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, ": ");
    }
    if (key != NULL) {
        used = strlen(text);
        show(text + used, sizeof(text) - used, key, ORIGIN_SHOWN, "");
        used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, ": ");
    }
    used = strlen(text);
    va_start(args, format);
    (void)vsnprintf(text + used, sizeof(text) - used, format, args);
    va_end(args);
    keep_one_line(text);
    /* Not DP_FAIL, which would append text: editors and scripts parse this line. */
    dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", text);
    return DP_ERR_CONFIG;
}

dp_status dp_config_no_memory(void)
{
    return DP_FAIL(DP_ERR_NOMEM, "configuration");
}

struct dp_yaml_node *dp_yaml_child(const struct dp_yaml_node *map, const char *key, size_t length)
{
    for (struct dp_yaml_node *node = map->first; map->kind == DP_YAML_MAP && node != NULL;
         node = node->next) {
        if (strlen(node->key) == length && memcmp(node->key, key, length) == 0) {
            return node;
        }
    }
    return NULL;
}

struct dp_yaml_node *dp_yaml_item(const struct dp_yaml_node *list, size_t index)
{
    struct dp_yaml_node *node = list->kind == DP_YAML_LIST ? list->first : NULL;

    while (node != NULL && index-- > 0) {
        node = node->next;
    }
    return node;
}

bool dp_yaml_is_null(const struct dp_yaml_node *node)
{
    return node->kind == DP_YAML_SCALAR && node->plain &&
           (node->text[0] == '\0' || strcmp(node->text, "null") == 0 ||
            strcmp(node->text, "~") == 0);
}

const char *dp_yaml_found(const struct dp_yaml_node *node, char *text, size_t size)
{
    if (node->kind == DP_YAML_LIST) {
        return "a list";
    }
    if (node->kind == DP_YAML_MAP && node->first != NULL && node->first->next == NULL &&
        dp_yaml_is_null(node->first)) { /* probably a text with a colon too many */
        (void)snprintf(text, size, "'%.*s:', a section with nothing in it", FOUND_SHOWN,
                       node->first->key);
        return text;
    }
    if (node->kind == DP_YAML_MAP) {
        return "a section";
    }
    if (dp_yaml_is_null(node)) {
        return "nothing";
    }
    show(text, size, node->text, FOUND_SHOWN, node->plain ? "'" : "\"");
    return text;
}

void dp_yaml_as_map(struct dp_yaml_node *node)
{
    if (dp_yaml_is_null(node)) {
        node->kind = DP_YAML_MAP;
    }
}

dp_status dp_yaml_write_out(struct dp_pool *pool, struct dp_yaml_node *node)
{
    struct dp_yaml_node *entry = dp_pool_take(pool, sizeof(*entry));

    if (entry == NULL) {
        return dp_config_no_memory();
    }
    entry->kind = DP_YAML_MAP;
    entry->key = node->text;
    entry->at = entry->key_at = node->at;
    node->kind = DP_YAML_MAP;
    node->first = entry;
    return DP_OK;
}

const char *dp_path_next(const char *path, struct dp_path_step *step)
{
    size_t digits;

    if (*path == '[') {
        digits = strspn(path + 1, "0123456789");
        if (digits == 0 || digits > 6 || path[digits + 1] != ']') {
            return NULL;
        }
        step->name = NULL;
        step->index = 0;
        for (size_t i = 1; i <= digits; i++) {
            step->index = step->index * 10 + (size_t)(path[i] - '0');
        }
        path += digits + 2;
    } else {
        step->name = path;
        step->length = strcspn(path, ".[");
        path += step->length;
        if (step->length == 0) {
            return NULL;
        }
    }
    if (*path == '.' && path[1] != '\0') {
        return path[1] != '[' ? path + 1 : NULL;
    }
    return *path == '[' || *path == '\0' ? path : NULL;
}

struct dp_yaml_node *dp_yaml_find(struct dp_yaml_node *root, const char *path)
{
    struct dp_path_step step;

    while (root != NULL && *path != '\0') {
        path = dp_path_next(path, &step);
        if (path == NULL) {
            return NULL;
        }
        root = step.name != NULL ? dp_yaml_child(root, step.name, step.length)
                                 : dp_yaml_item(root, step.index);
    }
    return root;
}
