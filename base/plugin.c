#include "base/plugin.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const struct dp_plugin *dp_plugin_at(const struct dp_plugin_family *family, int i)
{
    if (i < 0 || i >= family->count + family->added_count) {
        return NULL;
    }
    return i < family->count ? family->rows[i] : family->added[i - family->count];
}

const struct dp_plugin *dp_plugin_find(const struct dp_plugin_family *family, const char *name,
                                       size_t length)
{
    const struct dp_plugin *plugin;

    for (int i = 0; (plugin = dp_plugin_at(family, i)) != NULL; i++) {
        if (strlen(plugin->name) == length && memcmp(plugin->name, name, length) == 0) {
            return plugin;
        }
    }
    return NULL;
}

static const char *name_at(const struct dp_plugin_names *names, int i)
{
    const struct dp_plugin_family *family = names->family;
    const struct dp_plugin *plugin;

    if (names->word != NULL && i-- == 0) {
        return names->word;
    }
    plugin = dp_plugin_at(family, i);
    if (plugin == NULL && names->more != NULL) {
        plugin = dp_plugin_at(names->more, i - family->count - family->added_count);
    }
    return plugin != NULL ? plugin->name : NULL;
}

static const char *nearest_of(const struct dp_plugin_names *names, const char *word)
{
    const char *name, *nearest = NULL;
    int best = INT_MAX;

    for (int i = 0; (name = name_at(names, i)) != NULL; i++) {
        const int distance = dp_edit_distance(word, name);
        if (distance < best && dp_looks_like(word, name)) {
            best = distance;
            nearest = name;
        }
    }
    return nearest;
}

const char *dp_plugin_nearest(const struct dp_plugin_family *family, const char *name)
{
    return nearest_of(&(struct dp_plugin_names){.family = family}, name);
}

void dp_plugin_say_unknown(const struct dp_plugin_names *names, const char *name, size_t length,
                           char *problem, size_t size)
{
    const char *const noun = names->family->noun;
    const char *nearest, *known;
    char word[64];

    (void)snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), name);
    nearest = nearest_of(names, word);
    if (nearest != NULL) {
        (void)snprintf(problem, size, "unknown %s '%s' (did you mean '%s'?)", noun, word, nearest);
        return;
    }
    (void)snprintf(problem, size, "unknown %s '%s'; known are:", noun, word);
    for (int i = 0; (known = name_at(names, i)) != NULL; i++) {
        const size_t used = strlen(problem);
        (void)snprintf(problem + used, size - used, "%s %s", i == 0 ? "" : ",", known);
    }
}

void dp_plugin_describe(const struct dp_plugin *plugin, char *text, size_t size)
{
    void *state = dp_zalloc(1, plugin->state_bytes + 1);
    char value[DP_OPTION_PRINTED];
    size_t used = (size_t)snprintf(text, size, "%s", plugin->help);

    if (state == NULL) {
        return;
    }
    dp_option_defaults(plugin->options, state);
    for (const struct dp_option *row = plugin->options;
         row != NULL && row->kind != DP_OPTION_END && used < size; row++) {
        const bool known = row->initial != NULL && dp_option_holds(row, state);
        value[0] = '\0';
        if (known) {
            dp_option_print(row, state, value, sizeof(value));
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s",
                                 row == plugin->options ? "; " : ", ", row->name, known ? "=" : "",
                                 value);
    }
    dp_free(state);
}

/* Writes "ring: unknown option 'segments'; known are: segment_kb". */
static void say_unknown_option(const struct dp_plugin *plugin, const char *name, char *problem,
                               size_t size)
{
    const struct dp_option *row = plugin->options;
    const char *before = "; known are: ";

    (void)snprintf(problem, size, "%s: unknown option '%s'", plugin->name, name);
    for (; row != NULL && row->kind != DP_OPTION_END; row++, before = ", ") {
        const size_t used = strlen(problem);
        (void)snprintf(problem + used, size - used, "%s%s", before, row->name);
    }
    if (plugin->options == NULL || plugin->options->kind == DP_OPTION_END) {
        const size_t used = strlen(problem);
        (void)snprintf(problem + used, size - used, ", it has none");
    }
}

/* Reads one "key=value" into `state`. */
static dp_status apply_pair(const struct dp_plugin *plugin, void *state, char *pair, char *problem,
                            size_t size)
{
    char *equals = strchr(pair, '=');
    const struct dp_option *row;
    const char *value;
    char detail[256];

    if (equals == NULL) {
        (void)snprintf(problem, size, "%s: expected key=value, found '%s'", plugin->name, pair);
        return DP_ERR_CONFIG;
    }
    *equals = '\0';
    value = equals + 1;
    row = dp_option_find(plugin->options, pair);
    if (row == NULL) {
        say_unknown_option(plugin, pair, problem, size);
        return DP_ERR_CONFIG;
    }
    if (dp_option_apply(row, state, &value, 1, detail, sizeof(detail)) != DP_OK) {
        (void)snprintf(problem, size, "%s: %s: %s", plugin->name, pair, detail);
        return DP_ERR_CONFIG;
    }
    return DP_OK;
}

/* A value with options of its own ("over=hier:inner=shm,outer=ring") includes all that follows. */
static char *pair_end(char *pair)
{
    const size_t length = strcspn(pair, ",");

    return pair + (memchr(pair, ':', length) != NULL ? strlen(pair) : length);
}

/* What options mean together. */
static dp_status check_together(const struct dp_plugin *plugin, const void *state, char *problem,
                                size_t size)
{
    const char *key = "", *reason = plugin->refuse != NULL ? plugin->refuse(state, &key) : NULL;

    if (reason == NULL) {
        return DP_OK;
    }
    (void)snprintf(problem, size, "%s%s%s: %s", plugin->name, key[0] != '\0' ? ": " : "", key,
                   reason);
    return DP_ERR_CONFIG;
}

dp_status dp_plugin_create(const struct dp_plugin_family *family, const char *text,
                           const struct dp_plugin **plugin, void **state, char *problem,
                           size_t problem_size)
{
    const size_t length = strcspn(text, ":");
    const struct dp_plugin *found = dp_plugin_find(family, text, length);
    char *fresh, *pairs, *next;
    dp_status status = DP_OK;

    if (found == NULL) {
        dp_plugin_say_unknown(&(struct dp_plugin_names){.family = family}, text, length, problem,
                              problem_size);
        return DP_ERR_CONFIG;
    }
    /* The text is stored after the state: string options point into it. */
    fresh = dp_zalloc(1, found->state_bytes + strlen(text) + 1);
    if (fresh == NULL) {
        (void)snprintf(problem, problem_size, "%s: out of memory", found->name);
        return DP_ERR_NOMEM;
    }
    if (found->options != NULL) {
        dp_option_defaults(found->options, fresh);
    }
    pairs = fresh + found->state_bytes;
    memcpy(pairs, text, strlen(text) + 1);
    pairs += text[length] == ':' ? length + 1 : length;
    for (; status == DP_OK && *pairs != '\0'; pairs = next) {
        next = pair_end(pairs);
        if (*next != '\0') {
            *next++ = '\0';
        }
        status = apply_pair(found, fresh, pairs, problem, problem_size);
    }
    if (status == DP_OK) {
        status = check_together(found, fresh, problem, problem_size);
    }
    if (status != DP_OK) {
        dp_free(fresh);
        return status;
    }
    *plugin = found;
    *state = fresh;
    return DP_OK;
}

void dp_plugin_spell(const struct dp_plugin_family *family, const char *text, char *spelt,
                     size_t size)
{
    const struct dp_plugin *plugin;
    char ignored[256], value[DP_OPTION_PRINTED];
    size_t used;
    void *state;

    if (dp_plugin_create(family, text, &plugin, &state, ignored, sizeof(ignored)) != DP_OK) {
        (void)snprintf(spelt, size, "%s", text);
        return;
    }
    (void)snprintf(spelt, size, "%s", plugin->name);
    for (const struct dp_option *row = plugin->options;
         row != NULL && row->kind != DP_OPTION_END && (used = strlen(spelt)) < size; row++) {
        dp_option_print(row, state, value, sizeof(value));
        (void)snprintf(spelt + used, size - used, "%c%s=%s", row == plugin->options ? ':' : ',',
                       row->name, value);
    }
    dp_free(state);
}

dp_status dp_plugin_add(struct dp_plugin_family *family, const struct dp_plugin *plugin)
{
    if (dp_plugin_find(family, plugin->name, strlen(plugin->name)) != NULL) {
        return DP_FAIL(DP_ERR_ARG, "%s '%s' exists already", family->noun, plugin->name);
    }
    if (family->added_count == DP_PLUGIN_ADDED_MAX) {
        return DP_FAIL(DP_ERR_ARG, "more than %d added plug-ins", DP_PLUGIN_ADDED_MAX);
    }
    family->added[family->added_count++] = plugin;
    return DP_OK;
}
