#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/files/file.h"
#include "base/mem.h"

/* A struct dp_json is jansson's json_t under our name. Reading functions of jansson do not change a
 * value but mostly lack the const. */
static json_t *inner(const struct dp_json *json)
{
    union {
        const struct dp_json *outer;
        json_t *value;
    } same = {.outer = json};

    return same.value;
}

static struct dp_json *outer(json_t *value)
{
    return (struct dp_json *)value;
}

struct dp_json *dp_json_create(void)
{
    return outer(json_object());
}

void dp_json_destroy(struct dp_json *json)
{
    json_decref(inner(json));
}

/* jansson refuses text that is not UTF-8; a host name in Latin-1 must not make the report fail. */
static json_t *text_value(const char *text)
{
    json_t *value = text == NULL ? json_null() : json_string(text);
    char *ascii;

    if (value != NULL) {
        return value;
    }
    ascii = dp_strdup(text);
    if (ascii == NULL) {
        return NULL;
    }
    for (char *c = ascii; *c != '\0'; c++) {
        if ((unsigned char)*c >= 0x80) {
            *c = '?';
        }
    }
    value = json_string(ascii);
    dp_free(ascii);
    return value;
}

/* json_real() of a NaN is NULL, which would be taken for "no memory". */
static json_t *real_value(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Both take ownership of `value`, also on failure; jansson refuses NULL for either. */
static dp_status set(struct dp_json *object, const char *key, json_t *value)
{
    if (json_object_set_new(inner(object), key, value) != 0) {
        return DP_FAIL(DP_ERR_NOMEM, "json: member '%s'", key);
    }
    return DP_OK;
}

static dp_status push(struct dp_json *array, json_t *value)
{
    if (json_array_append_new(inner(array), value) != 0) {
        return DP_FAIL(DP_ERR_NOMEM, "json: element %zu", json_array_size(inner(array)));
    }
    return DP_OK;
}

dp_status dp_json_set_text(struct dp_json *object, const char *key, const char *value)
{
    return set(object, key, text_value(value));
}

dp_status dp_json_set_int(struct dp_json *object, const char *key, int64_t value)
{
    return set(object, key, json_integer(value));
}

dp_status dp_json_set_real(struct dp_json *object, const char *key, double value)
{
    return set(object, key, real_value(value));
}

dp_status dp_json_set_bool(struct dp_json *object, const char *key, bool value)
{
    return set(object, key, json_boolean(value));
}

dp_status dp_json_set_null(struct dp_json *object, const char *key)
{
    return set(object, key, json_null());
}

dp_status dp_json_set_copy(struct dp_json *object, const char *key, const struct dp_json *value)
{
    return set(object, key, value == NULL ? json_null() : json_deep_copy(inner(value)));
}

struct dp_json *dp_json_set_object(struct dp_json *object, const char *key)
{
    json_t *child = json_object();

    return set(object, key, child) == DP_OK ? outer(child) : NULL;
}

struct dp_json *dp_json_set_array(struct dp_json *object, const char *key)
{
    json_t *child = json_array();

    return set(object, key, child) == DP_OK ? outer(child) : NULL;
}

struct dp_json *dp_json_member(struct dp_json *object, const char *key)
{
    return outer(json_object_get(inner(object), key));
}

dp_status dp_json_push_text(struct dp_json *array, const char *value)
{
    return push(array, text_value(value));
}

dp_status dp_json_push_int(struct dp_json *array, int64_t value)
{
    return push(array, json_integer(value));
}

dp_status dp_json_push_real(struct dp_json *array, double value)
{
    return push(array, real_value(value));
}

struct dp_json *dp_json_push_object(struct dp_json *array)
{
    json_t *child = json_object();

    return push(array, child) == DP_OK ? outer(child) : NULL;
}

dp_status dp_json_dump(const struct dp_json *json, int indent, int digits, char **text)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_INDENT((size_t)indent) |
                         JSON_REAL_PRECISION((size_t)digits) |
                         (indent == 0 ? (size_t)JSON_COMPACT : 0);
    const size_t bytes = json_dumpb(inner(json), NULL, 0, flags);
    char *written = bytes == 0 ? NULL : dp_zalloc(1, bytes + 1);

    if (written == NULL || json_dumpb(inner(json), written, bytes, flags) != bytes) {
        dp_free(written);
        return DP_FAIL(DP_ERR_NOMEM, "json: text of %zu bytes", bytes);
    }
    *text = written;
    return DP_OK;
}

dp_status dp_json_save(const struct dp_json *json, int digits, const char *path)
{
    char *text = NULL;
    size_t bytes;
    dp_status status;

    DP_TRY(dp_json_dump(json, 2, digits, &text));
    bytes = strlen(text);
    text[bytes] = '\n'; /* replaces the NUL, which a file does not need */
    status = dp_file_replace(path, text, bytes + 1);
    dp_free(text);
    return status;
}

dp_status dp_json_parse(const char *text, size_t bytes, const char *source, struct dp_json **out)
{
    json_error_t error = {0};
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);

    if (value == NULL &&
        (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory)) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: reading %zu bytes of JSON", source, bytes);
    }
    if (value == NULL) {
        return DP_FAIL(DP_ERR_DATA, "%s: line %d: %s", source, error.line, error.text);
    }
    *out = outer(value);
    return DP_OK;
}

const struct dp_json *dp_json_get(const struct dp_json *object, const char *key)
{
    return outer(json_object_get(inner(object), key));
}

const struct dp_json *dp_json_at(const struct dp_json *array, size_t i)
{
    return outer(json_array_get(inner(array), i));
}

size_t dp_json_length(const struct dp_json *json)
{
    return json_is_array(inner(json)) ? json_array_size(inner(json))
                                      : json_object_size(inner(json));
}

bool dp_json_is_object(const struct dp_json *json)
{
    return json_is_object(inner(json));
}

bool dp_json_is_array(const struct dp_json *json)
{
    return json_is_array(inner(json));
}

const char *dp_json_text(const struct dp_json *json)
{
    return json_string_value(inner(json));
}

bool dp_json_int(const struct dp_json *json, int64_t *value)
{
    if (!json_is_integer(inner(json))) {
        return false;
    }
    *value = json_integer_value(inner(json));
    return true;
}

bool dp_json_real(const struct dp_json *json, double *value)
{
    if (!json_is_number(inner(json))) {
        return false;
    }
    *value = json_number_value(inner(json));
    return true;
}

bool dp_json_switch(const struct dp_json *json, bool *value)
{
    if (!json_is_boolean(inner(json))) {
        return false;
    }
    *value = json_is_true(inner(json));
    return true;
}

bool dp_json_next(const struct dp_json *object, struct dp_json_member *member)
{
    json_t *value = inner(object);

    member->place = member->place == NULL ? json_object_iter(value)
                                          : json_object_iter_next(value, member->place);
    if (member->place == NULL) {
        return false;
    }
    member->key = json_object_iter_key(member->place);
    member->value = outer(json_object_iter_value(member->place));
    return true;
}
