#include "runtime/measure/rates_cache.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/cache.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

enum { BYTES_MOST = 1 << 20 }; /* a larger file begins anew */

static const char schema[] = "lockstep.limits/1";

/* The file's object, owned by the caller; NULL: there is none of this build. */
static struct dp_json *read_file(const char *path)
{
    struct dp_log_capture capture;
    struct dp_json *json = NULL;
    struct stat info;
    char *text = NULL;
    size_t bytes = 0;
    bool good = false;

    if (stat(path, &info) != 0) {
        return NULL;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (dp_file_read(path, BYTES_MOST, &text, &bytes) == DP_OK &&
        dp_json_parse(text, bytes, path, &json) == DP_OK) {
        const char *found = dp_json_text(dp_json_get(json, "schema"));
        const char *build = dp_json_text(dp_json_get(json, "build"));
        good = found != NULL && strcmp(found, schema) == 0 && build != NULL &&
               strcmp(build, DP_VERSION) == 0;
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_free(text);
    if (!good) {
        dp_json_destroy(json);
        return NULL;
    }
    return json;
}

bool dp_rates_cache_get(const char *key, const char *const *names, double *values, int count)
{
    char path[DP_PATH_BYTES];
    struct dp_json *json = dp_cache_path(path, "limits.json") ? read_file(path) : NULL;
    const struct dp_json *known = dp_json_get(dp_json_get(json, "rates"), key);
    const bool found = dp_json_is_object(known);

    for (int i = 0; found && i < count; i++) {
        values[i] = (double)NAN;
        (void)dp_json_real(dp_json_get(known, names[i]), &values[i]);
    }
    dp_json_destroy(json);
    return found;
}

/* Sets `key` to the rates, and `out` to all that other keys have. */
static dp_status fill(struct dp_json *out, const struct dp_json *old, const char *key,
                      const char *const *names, const double *values, int count)
{
    struct dp_json_member member = {0};
    struct dp_json *rates, *mine;

    DP_TRY(dp_json_set_text(out, "schema", schema));
    DP_TRY(dp_json_set_text(out, "build", DP_VERSION));
    rates = dp_json_set_object(out, "rates");
    while (dp_json_next(dp_json_get(old, "rates"), &member)) {
        DP_TRY(dp_json_set_copy(rates, member.key, member.value));
    }
    mine = dp_json_set_object(rates, key);
    for (int i = 0; i < count; i++) {
        DP_TRY(dp_json_set_real(mine, names[i], values[i]));
    }
    return DP_OK;
}

void dp_rates_cache_put(const char *key, const char *const *names, const double *values, int count)
{
    struct dp_json *out = dp_json_create(), *old;
    char path[DP_PATH_BYTES], *text = NULL;

    if (dp_cache_path(path, "limits.json")) {
        old = read_file(path);
        if (fill(out, old, key, names, values, count) == DP_OK &&
            dp_json_dump(out, 1, DP_JSON_READABLE, &text) == DP_OK) {
            dp_cache_keep(path, text);
        }
        dp_json_destroy(old);
    }
    dp_free(text);
    dp_json_destroy(out);
}
