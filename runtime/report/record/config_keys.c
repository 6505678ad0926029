#include "runtime/report/record/config_keys.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { DEPTH_MOST = 32 };

/* Where a line stands: the keys that it is under. */
struct level {
    int indent;                     /* of the lines of this level */
    char path[DP_CONFIG_KEY_BYTES]; /* in front of their keys; with a dot at its end, or empty */
    int items;                      /* of a list, so far */
};

struct parser {
    struct level levels[DEPTH_MOST];
    int depth;
    struct dp_config_keys *out;
};

/* As snprintf(); what does not fit ends with "...". */
static void put(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(char *to, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    dp_text_format(to, size, format, args);
    va_end(args);
}

static void add_entry(struct parser *p, const char *key, const char *value, size_t bytes)
{
    struct dp_config_entry *entry = &p->out->entries[p->out->count];

    if (p->out->count == DP_CONFIG_KEYS_MOST) {
        p->out->cut = true;
        return;
    }
    put(entry->key, sizeof(entry->key), "%s", key);
    put(entry->value, sizeof(entry->value), "%.*s", (int)bytes, value);
    p->out->count++;
}

/* The end of a value in braces: a comma outside of inner braces and quotes, or `end`. */
static const char *end_of_value(const char *at, const char *end)
{
    int depth = 0;
    bool quoted = false;

    for (; at < end; at++) {
        if (*at == '"') {
            quoted = !quoted;
        } else if (!quoted && (*at == '{' || *at == '[')) {
            depth++;
        } else if (!quoted && (*at == '}' || *at == ']')) {
            depth--;
        } else if (!quoted && *at == ',' && depth == 0) {
            return at;
        }
    }
    return end;
}

/* The colon after a key, or NULL. */
static const char *colon_of(const char *at, const char *end)
{
    const char *colon = at < end ? memchr(at, ':', (size_t)(end - at)) : NULL;

    return colon == NULL || (colon + 1 < end && colon[1] != ' ') ? NULL : colon;
}

/* A value: one in braces is made of the values of its keys. */
/* NOLINTNEXTLINE(misc-no-recursion): no deeper than DEPTH_MOST */
static void add_value(struct parser *p, const char *key, const char *at, const char *end, int depth)
{
    char path[DP_CONFIG_KEY_BYTES];

    if (end - at < 3 || *at != '{' || end[-1] != '}' || depth == DEPTH_MOST) {
        add_entry(p, key, at, (size_t)(end - at));
        return;
    }
    end--;
    at++;
    while (at < end) {
        const char *stop = end_of_value(at, end), *colon = colon_of(at, stop), *value;

        if (colon != NULL) {
            put(path, sizeof(path), "%s.%.*s", key, (int)(colon - at), at);
            value = colon + 1 + (colon + 1 < stop && colon[1] == ' ');
            add_value(p, path, value, stop, depth + 1);
        }
        at = stop + (stop < end);
        at += at < end && *at == ' ';
    }
}

/* Leaves the levels that a line with this indent is not in. */
static void leave_levels(struct parser *p, int indent)
{
    while (p->depth > 1 && p->levels[p->depth - 1].indent > indent) {
        p->depth--;
    }
}

static void enter_level(struct parser *p, const char *path, int indent)
{
    if (p->depth < DEPTH_MOST) {
        struct level *level = &p->levels[p->depth++];
        level->indent = indent;
        level->items = 0;
        put(level->path, sizeof(level->path), "%s", path);
    }
}

/* An item of a list begins a level of its own, after "- ". */
static void enter_item(struct parser *p, int indent)
{
    struct level *list;
    char path[DP_CONFIG_KEY_BYTES];
    size_t length;

    if (p->levels[p->depth - 1].indent < indent) { /* the first of an indented list */
        enter_level(p, p->levels[p->depth - 1].path, indent);
    }
    list = &p->levels[p->depth - 1];
    length = strlen(list->path);
    length -= length > 0 && list->path[length - 1] == '.';
    put(path, sizeof(path), "%.*s[%d].", (int)length, list->path, list->items++);
    enter_level(p, path, indent + 2);
}

static void parse_line(struct parser *p, const char *line, const char *end)
{
    int indent = (int)strspn(line, " ");
    const char *at = line + indent, *colon;
    char key[DP_CONFIG_KEY_BYTES], path[DP_CONFIG_KEY_BYTES];

    if (at >= end || *at == '#') {
        return;
    }
    leave_levels(p, indent);
    while (at + 2 < end && at[0] == '-' && at[1] == ' ') {
        enter_item(p, indent);
        indent += 2;
        at += 2;
    }
    if (p->levels[p->depth - 1].indent < indent) { /* a map below a key */
        enter_level(p, p->levels[p->depth - 1].path, indent);
    }
    colon = colon_of(at, end);
    if (colon == NULL) {
        add_entry(p, p->levels[p->depth - 1].path, at, (size_t)(end - at));
        return;
    }
    put(key, sizeof(key), "%s%.*s", p->levels[p->depth - 1].path, (int)(colon - at), at);
    if (colon + 1 == end) {
        put(path, sizeof(path), "%s.", key);
        enter_level(p, path, indent + 1);
    } else {
        add_value(p, key, colon + 2, end, 0);
    }
}

dp_status dp_config_keys_parse(const char *text, struct dp_config_keys *out)
{
    struct parser p = {.depth = 1, .out = out};

    memset(out, 0, sizeof(*out));
    out->entries = dp_zalloc(DP_CONFIG_KEYS_MOST, sizeof(*out->entries));
    if (out->entries == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "keys of a configuration");
    }
    while (text != NULL && *text != '\0' && !out->cut) {
        const size_t length = strcspn(text, "\n");
        parse_line(&p, text, text + length);
        text += length + (text[length] == '\n');
    }
    return DP_OK;
}

void dp_config_keys_release(struct dp_config_keys *keys)
{
    dp_free(keys->entries);
    memset(keys, 0, sizeof(*keys));
}

const char *dp_config_keys_find(const struct dp_config_keys *keys, const char *key)
{
    for (int i = 0; i < keys->count; i++) {
        if (strcmp(keys->entries[i].key, key) == 0) {
            return keys->entries[i].value;
        }
    }
    return NULL;
}
