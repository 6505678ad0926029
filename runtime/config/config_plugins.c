/*
 * config_plugins.c - a list of plug-ins with options, such as data.augment, as one text and back:
 * [flip: {}, cutout: {size: 8}] is "flip;cutout:size=8".
 */
#include <stdio.h>
#include <string.h>

#include "runtime/config/config_own.h"

static dp_status refuse(const struct dp_yaml_node *node, const char *key)
{
    char found[128];

    return dp_config_refuse(&node->at, key,
                            "expected a list such as [flip: {}, cutout: {size: 8}], found %s",
                            dp_yaml_found(node, found, sizeof(found)));
}

/* Whether a text can be part of the whole one. */
static bool is_word(const char *text)
{
    return text[0] != '\0' && text[strcspn(text, ":;=,{}[]\"\n")] == '\0';
}

/* The text so far with that of one plug-in. */
static dp_status add_item(struct dp_pool *pool, const struct dp_yaml_node *item, const char *key,
                          const char **text)
{
    const struct dp_yaml_node *node = item->first;
    const char *before = ":";

    if (item->kind != DP_YAML_MAP || node == NULL || node->next != NULL || !is_word(node->key) ||
        (node->kind != DP_YAML_MAP && !dp_yaml_is_null(node))) {
        return refuse(item, key);
    }
    *text = dp_pool_format(pool, "%s%s%s", *text, (*text)[0] != '\0' ? ";" : "", node->key);
    for (const struct dp_yaml_node *option = node->first; *text != NULL && option != NULL;
         option = option->next) {
        if (option->kind != DP_YAML_SCALAR || !is_word(option->key) || !is_word(option->text)) {
            return refuse(item, key);
        }
        *text = dp_pool_format(pool, "%s%s%s=%s", *text, before, option->key, option->text);
        before = ",";
    }
    return *text == NULL ? dp_config_no_memory() : DP_OK;
}

dp_status dp_config_read_plugins(struct dp_pool *pool, struct dp_yaml_node *node, const char *key)
{
    const char *text = "";

    if (node->kind == DP_YAML_SCALAR) {
        return DP_OK; /* the text itself, as from the environment */
    }
    if (node->kind != DP_YAML_LIST) {
        return refuse(node, key);
    }
    for (struct dp_yaml_node *item = node->first; item != NULL; item = item->next) {
        if (item->kind == DP_YAML_SCALAR && !dp_yaml_is_null(item)) {
            DP_TRY(dp_yaml_write_out(pool, item));
        }
        DP_TRY(add_item(pool, item, key, &text));
    }
    node->kind = DP_YAML_SCALAR;
    node->text = text;
    node->plain = false;
    node->first = NULL;
    return DP_OK;
}

/* What stands in a list for a character of the text; NULL: itself. options: of this plug-in. */
static const char *written_as(char character, bool options)
{
    switch (character) {
    case ':':
        return ": {";
    case '=':
        return ": ";
    case ',':
        return ", ";
    case ';':
        return options ? "}, " : ": {}, ";
    default:
        return NULL;
    }
}

void dp_config_write_plugins(const char *text, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    bool options = false;

    for (const char *at = text; *at != '\0' && used < size; at++) {
        const char *written = written_as(*at, options);

        options = *at == ':' || (options && *at != ';');
        used += written != NULL ? (size_t)snprintf(out + used, size - used, "%s", written)
                                : (size_t)snprintf(out + used, size - used, "%c", *at);
    }
    if (used < size) {
        used += (size_t)snprintf(out + used, size - used, "%s", options ? "}" : ": {}");
    }
    if (used < size) {
        (void)snprintf(out + used, size - used, "]");
    }
}
