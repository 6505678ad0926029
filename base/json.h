/*
 * json.h - building, writing and reading JSON; the only header that wraps jansson.
 *
 * A setter given a NULL object or array returns DP_ERR_NOMEM. So the failure to make a child is
 * noticed by the first setter on it, and code needs DP_TRY around setters only.
 */
#ifndef DP_BASE_JSON_H
#define DP_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dp_json; /* any JSON value */

/* An empty object, or NULL when there is no memory. Owned by the caller (dp_json_destroy). */
struct dp_json *dp_json_create(void);

/* Releases a value from dp_json_create() or dp_json_parse(), with all inside. NULL is allowed.
 * Values inside another one belong to it. */
void dp_json_destroy(struct dp_json *json);

/* Sets a member, replacing one of that name. In a text bytes that are not UTF-8 become '?'. A NULL
 * text and a real that is not finite become null. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_json_set_text(struct dp_json *object, const char *key, const char *value);
DP_CHECKED dp_status dp_json_set_int(struct dp_json *object, const char *key, int64_t value);
DP_CHECKED dp_status dp_json_set_real(struct dp_json *object, const char *key, double value);
DP_CHECKED dp_status dp_json_set_bool(struct dp_json *object, const char *key, bool value);
DP_CHECKED dp_status dp_json_set_null(struct dp_json *object, const char *key);

/* Sets a member to an empty object or array, and returns it, borrowed from `object`. NULL when
 * there is no memory. */
struct dp_json *dp_json_set_object(struct dp_json *object, const char *key);
struct dp_json *dp_json_set_array(struct dp_json *object, const char *key);

/* A member that is there, for more to be set in it; borrowed from `object`. NULL: there is none. */
struct dp_json *dp_json_member(struct dp_json *object, const char *key);

/* Sets a member to a copy of a value, with all inside; NULL becomes null. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_json_set_copy(struct dp_json *object, const char *key,
                                      const struct dp_json *value);

/* Appends to an array. */
DP_CHECKED dp_status dp_json_push_text(struct dp_json *array, const char *value);
DP_CHECKED dp_status dp_json_push_int(struct dp_json *array, int64_t value);
DP_CHECKED dp_status dp_json_push_real(struct dp_json *array, double value);
struct dp_json *dp_json_push_object(struct dp_json *array);

enum {
    DP_JSON_EXACT = 17,   /* digits of a real that reads back to the same double */
    DP_JSON_READABLE = 10 /* digits for people */
};

/*
 * Writes a value as text.
 *
 *   indent  columns a level; 0: all in one line
 *   digits  significant digits of reals
 *   text    out  owned by the caller (dp_free)
 *
 * Members keep the order in which they were set. Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_json_dump(const struct dp_json *json, int indent, int digits, char **text);

/* Replaces the file `path` by the value, indented by 2, with a line end after it. Errors:
 * DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_json_save(const struct dp_json *json, int digits, const char *path);

/*
 * Parses one object or array from text[0..bytes), which needs no NUL. A repeated member is an
 * error.
 *
 *   source  begins error messages: a file name
 *   out     owned by the caller (dp_json_destroy)
 *
 * Errors: DP_ERR_DATA ("FILE: line 3: ..."), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_json_parse(const char *text, size_t bytes, const char *source,
                                   struct dp_json **out);

/* Reading. Results are borrowed. `json` may be NULL or of another kind: then the result is NULL,
 * false or 0, so that a chain of look-ups needs one check at its end. */
const struct dp_json *dp_json_get(const struct dp_json *object, const char *key);
const struct dp_json *dp_json_at(const struct dp_json *array, size_t i);
size_t dp_json_length(const struct dp_json *json); /* members or elements */
bool dp_json_is_object(const struct dp_json *json);
bool dp_json_is_array(const struct dp_json *json);
const char *dp_json_text(const struct dp_json *json);         /* of a string */
bool dp_json_int(const struct dp_json *json, int64_t *value); /* of an integer */
bool dp_json_real(const struct dp_json *json, double *value); /* of any number */
bool dp_json_switch(const struct dp_json *json, bool *value); /* of true or false */

/* Iterates over the members of an object. Start with zeros: struct dp_json_member member = {0};
 * while (dp_json_next(object, &member)) { ... } */
struct dp_json_member {
    const char *key;
    const struct dp_json *value;
    void *place;
};

bool dp_json_next(const struct dp_json *object, struct dp_json_member *member);

#endif
