#include "runtime/run/dataset/class_names.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* All names together, in bytes: less than a checkpoint's state.json may have, however JSON spells
 * them. */
enum { TEXT_MOST = 2 << 20 };

enum { NAME_BYTES = 256 };

dp_status dp_class_names_copy(struct dp_class_names *names, const char *const *from, int count)
{
    const size_t pointers = (size_t)count * sizeof(char *);
    size_t bytes = 0;
    char *text;

    *names = (struct dp_class_names){NULL, 0};
    if (from == NULL || count == 0) {
        return DP_OK;
    }
    for (int i = 0; i < count; i++) {
        bytes += strlen(from[i]) + 1;
    }
    if (bytes > TEXT_MOST) {
        return DP_FAIL(DP_ERR_DATA,
                       "the names of %d classes have %zu bytes, at most %d are kept: give them "
                       "shorter ones",
                       count, bytes, TEXT_MOST);
    }
    names->at = dp_zalloc(1, pointers + bytes);
    if (names->at == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "names of %d classes", count);
    }
    text = (char *)names->at + pointers;
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(from[i]) + 1;
        memcpy(text, from[i], length);
        names->at[i] = text;
        text += length;
    }
    names->count = count;
    return DP_OK;
}

void dp_class_names_release(struct dp_class_names *names)
{
    dp_free(names->at);
    *names = (struct dp_class_names){NULL, 0};
}

dp_status dp_class_names_write(const struct dp_class_names *names, struct dp_json *state)
{
    struct dp_json *array;

    if (names->count == 0) {
        return DP_OK;
    }
    array = dp_json_set_array(state, "classes");
    for (int i = 0; i < names->count; i++) {
        DP_TRY(dp_json_push_text(array, names->at[i]));
    }
    return DP_OK;
}

/* "'cat'", or "none". */
static const char *quoted(const char *name, char text[NAME_BYTES])
{
    if (name == NULL) {
        return "none";
    }
    (void)snprintf(text, NAME_BYTES, "'%.250s'", name);
    return text;
}

dp_status dp_class_names_check(const struct dp_class_names *names, const struct dp_json *state,
                               const char *source)
{
    const struct dp_json *array = dp_json_get(state, "classes");
    const int then = (int)dp_json_length(array), most = names->count > then ? names->count : then;
    char now_text[NAME_BYTES], then_text[NAME_BYTES];

    if (names->count == 0 || then == 0) {
        return DP_OK;
    }
    for (int i = 0; i < most; i++) {
        const char *was = dp_json_text(dp_json_at(array, (size_t)i));
        const char *is = i < names->count ? names->at[i] : NULL;
        if (was == NULL || is == NULL || strcmp(was, is) != 0) {
            return DP_FAIL(DP_ERR_CONFIG,
                           "%s is of %d classes, and the data set has %d: class %d (counted from "
                           "0) was %s, and is %s now; train on the same classes, or begin a new "
                           "run in another --out",
                           source, then, names->count, i, quoted(was, then_text),
                           quoted(is, now_text));
        }
    }
    return DP_OK;
}
