/*
 * config_keys.c - the keys of a section: rows of its table, and the options of its plug-ins.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config_own.h"
#include "runtime/config/config_print.h"

/* Whether a plug-in from number `first` on has an option of that name. */
static bool comes_again(const struct dp_plugin_family *family, int first, const char *name)
{
    const struct dp_plugin *plugin;

    for (; (plugin = dp_plugin_at(family, first)) != NULL; first++) {
        if (dp_option_find(plugin->options, name) != NULL) {
            return true;
        }
    }
    return false;
}

/* Option *i of a family, each name once. If there is none, NULL, and *i is reduced by their
 * number. */
static const struct dp_option *option_at(const struct dp_plugin_family *family, int *i)
{
    const struct dp_plugin *plugin;

    for (int k = 0; family != NULL && (plugin = dp_plugin_at(family, k)) != NULL; k++) {
        const struct dp_option *row = plugin->options;
        for (; row != NULL && row->kind != DP_OPTION_END; row++) {
            if (!comes_again(family, k + 1, row->name) && (*i)-- == 0) {
                return row;
            }
        }
    }
    return NULL;
}

const struct dp_option *dp_config_key_at(const struct dp_config_section *section, int i,
                                         bool *plugins)
{
    const struct dp_option *row;

    if (plugins != NULL) {
        *plugins = false;
    }
    if (section->family != NULL && i >= section->before) {
        i -= section->before;
        row = option_at(section->family, &i);
        if (row != NULL) {
            if (plugins != NULL) {
                *plugins = true;
            }
            return row;
        }
        i += section->before;
    }
    for (row = section->options; row->kind != DP_OPTION_END; row++) {
        if (i-- == 0) {
            return row;
        }
    }
    return NULL;
}

const struct dp_option *dp_config_key_find(const struct dp_config_section *section,
                                           const char *name, bool *plugins)
{
    const struct dp_option *row;

    for (int i = 0; (row = dp_config_key_at(section, i, plugins)) != NULL; i++) {
        if (strcmp(row->name, name) == 0) {
            return row;
        }
    }
    return NULL;
}

const char *dp_config_key_nearest(const struct dp_config_section *section, const char *name)
{
    const struct dp_option *row;
    const char *nearest = NULL;
    int best = INT_MAX;

    for (int i = 0; (row = dp_config_key_at(section, i, NULL)) != NULL; i++) {
        const int distance = dp_edit_distance(name, row->name);
        if (distance < best && dp_looks_like(name, row->name)) {
            best = distance;
            nearest = row->name;
        }
    }
    return nearest;
}

/* ---- values ---- */

/* The value for the chosen plug-in if it has the option; else the value that all others agree
 * on. */
static bool option_value(const struct dp_plugin_family *family,
                         const struct dp_plugin_choice *choice, const char *name,
                         const struct dp_option **row, const void **base)
{
    char first[DP_OPTION_PRINTED], other[DP_OPTION_PRINTED];
    const struct dp_plugin *plugin;

    *row = dp_option_find(choice->plugin->options, name);
    *base = choice->state;
    if (*row != NULL) {
        return true;
    }
    for (int i = 0; (plugin = dp_plugin_at(family, i)) != NULL; i++) {
        const struct dp_option *its = dp_option_find(plugin->options, name);
        if (its == NULL) {
            continue;
        }
        dp_option_print(its, choice->states[i], other, sizeof(other));
        if (*row != NULL && strcmp(first, other) != 0) {
            return false;
        }
        memcpy(first, other, sizeof(first));
        *row = its;
        *base = choice->states[i];
    }
    return *row != NULL;
}

bool dp_config_key_value(const struct dp_config_section *section, const struct dp_config *config,
                         const char *name, const struct dp_option **row, const void **base)
{
    *base = (const char *)config + section->offset;
    *row = dp_option_find(section->options, name);
    if (*row != NULL || section->family == NULL) {
        return *row != NULL;
    }
    return option_value(
        section->family,
        (const struct dp_plugin_choice *)(const void *)((const char *)config + section->choice),
        name, row, base);
}

/* As above, of a key with its section's path: "data.window". */
static bool value_of_key(const struct dp_config *config, const char *key,
                         const struct dp_option **row, const void **base)
{
    const struct dp_config_section *section;

    for (int i = 0; (section = dp_config_section_at(i)) != NULL; i++) {
        const size_t length = strlen(section->path);
        if (length > 0 && strncmp(key, section->path, length) == 0 && key[length] == '.' &&
            dp_config_key_value(section, config, key + length + 1, row, base)) {
            return true;
        }
    }
    return false;
}

void dp_config_value(const struct dp_config *config, const char *key, char *text, size_t size)
{
    const struct dp_option *row;
    const void *base;

    text[0] = '\0';
    if (value_of_key(config, key, &row, &base)) {
        dp_option_print(row, base, text, size);
    }
}

/* "60" is what 60.0 is printed as. */
static bool is_same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    const double x = strtod(a, &end_a), y = strtod(b, &end_b);

    return strcmp(a, b) == 0 ||
           (end_a != a && *end_a == '\0' && end_b != b && *end_b == '\0' && x == y);
}

bool dp_config_is_default(const struct dp_config *config, const char *key)
{
    char text[DP_OPTION_PRINTED];
    const struct dp_option *row;
    const void *base;

    if (!value_of_key(config, key, &row, &base) || row->initial == NULL) {
        return false;
    }
    dp_option_print(row, base, text, sizeof(text));
    return is_same_value(text, row->initial);
}

/* All options of a plug-in count, since its result depends on all of them. */
bool dp_config_flagged(int i, char key[DP_CONFIG_KEY], unsigned *flags)
{
    const struct dp_config_section *section;
    const struct dp_option *row;
    bool plugins;

    for (int s = 0; (section = dp_config_section_at(s)) != NULL; s++) {
        for (int k = 0; (row = dp_config_key_at(section, k, &plugins)) != NULL; k++) {
            *flags = row->flags | (plugins ? DP_KEY_BITS : 0);
            if (*flags != 0 && i-- == 0) {
                (void)snprintf(key, DP_CONFIG_KEY, "%s%s%s", section->path,
                               section->path[0] == '\0' ? "" : ".", row->name);
                return true;
            }
        }
    }
    return false;
}
