#include "runtime/data/remote/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool dp_place_is_remote(const char *dir)
{
    return begins(dir, "https://") || begins(dir, "http://") || begins(dir, "s3://");
}

static const char *set_variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static const char *first_of(const char *one, const char *other)
{
    const char *value = set_variable(one);

    return value != NULL ? value : set_variable(other);
}

/* Without slashes at its end, but for those of "https://". */
static dp_status copy(char *out, const char *text)
{
    const size_t scheme = (size_t)(strstr(text, "://") + 3 - text);
    size_t length = strlen(text);

    while (length > scheme && text[length - 1] == '/') {
        length--;
    }
    if (length >= DP_PLACE_BYTES) {
        return DP_FAIL(DP_ERR_CONFIG, "%.60s...: is longer than %d characters", text,
                       DP_PLACE_BYTES - 1);
    }
    (void)snprintf(out, DP_PLACE_BYTES, "%.*s", (int)length, text);
    return DP_OK;
}

/* ---- https, http ---- */

/* Whether the host is this one: "localhost", "127.0.0.1:8080", "[::1]". */
static bool is_loopback(const char *host)
{
    const size_t length = strcspn(host, "/");
    const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t name = strlen(names[i]);
        if (length >= name && begins(host, names[i]) && (length == name || host[name] == ':')) {
            return true;
        }
    }
    return false;
}

/* What `text`, which `what` holds, must be to be an address that names can be put after. */
static dp_status check_address(const char *what, const char *text)
{
    const char *host = strstr(text, "://") + 3;
    const size_t length = strcspn(host, "/");

    if (length == 0) {
        return DP_FAIL(DP_ERR_CONFIG, "%s: %s: names no host", what, text);
    }
    if (memchr(host, '@', length) != NULL) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: has a user or password in it, which config.yaml would keep: take it "
                       "out",
                       what);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (strchr(letters, *c) == NULL && strchr("%-._~:/[]!$&'()*+,;=@", *c) == NULL) {
            return DP_FAIL(DP_ERR_CONFIG, "%s: %s: write '%c' as %%%02X", what, text, *c,
                           (unsigned)(unsigned char)*c);
        }
    }
    return DP_OK;
}

static dp_status read_address(struct dp_place *p)
{
    DP_TRY(check_address("data.dir", p->shown));
    (void)snprintf(p->base, sizeof(p->base), "%s", p->shown);
    p->plain = begins(p->shown, "http://") && !is_loopback(p->shown + strlen("http://"));
    return DP_OK;
}

/* ---- s3 ---- */

/* Names of buckets, also of old ones. */
static bool is_bucket(const char *name, size_t length)
{
    return length >= 3 && length <= 63 && strspn(name, letters) > 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") >=
               length;
}

/* Appends a path, each byte that is not plain as %XX. False: it is too long. */
static bool append_path(char *out, const char *path)
{
    size_t used = strlen(out);

    for (; *path != '\0'; path++) {
        const bool plain = strchr(letters, *path) != NULL || strchr("-._~/", *path) != NULL;
        if (used + 4 > DP_PLACE_BYTES) {
            return false;
        }
        used += (size_t)snprintf(out + used, 4, plain ? "%c" : "%%%02X",
                                 (unsigned)(unsigned char)*path);
    }
    return true;
}

static dp_status read_bucket(struct dp_place *p)
{
    const char *bucket = p->shown + strlen("s3://"), *prefix;
    const size_t length = strcspn(bucket, "/");
    const char *endpoint = first_of("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    const char *region = first_of("AWS_REGION", "AWS_DEFAULT_REGION");

    prefix = bucket + length;
    if (!is_bucket(bucket, length)) {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: %s: has no name of a bucket", p->shown);
    }
    region = region != NULL ? region : "us-east-1";
    if (strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(region) ||
        strlen(region) >= sizeof(p->region)) {
        return DP_FAIL(DP_ERR_CONFIG, "AWS_REGION: %.60s: is no name of a region", region);
    }
    (void)snprintf(p->region, sizeof(p->region), "%s", region);
    if (endpoint != NULL) {
        if (!begins(endpoint, "https://") && !begins(endpoint, "http://")) {
            return DP_FAIL(DP_ERR_CONFIG, "AWS_ENDPOINT_URL: begins with neither https:// nor "
                                          "http://");
        }
        DP_TRY(check_address("AWS_ENDPOINT_URL", endpoint));
        DP_TRY(copy(p->base, endpoint));
    } else {
        (void)snprintf(p->base, sizeof(p->base), "https://s3.%s.amazonaws.com", region);
    }
    if (strlen(p->base) + length + 2 > sizeof(p->base)) {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: too long an address");
    }
    (void)snprintf(p->base + strlen(p->base), sizeof(p->base) - strlen(p->base), "/%.*s",
                   (int)length, bucket);
    if (!append_path(p->base, prefix)) {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: too long an address");
    }
    p->key = set_variable("AWS_ACCESS_KEY_ID");
    p->secret = set_variable("AWS_SECRET_ACCESS_KEY");
    p->token = set_variable("AWS_SESSION_TOKEN");
    return (p->key == NULL) == (p->secret == NULL)
               ? DP_OK
               : DP_FAIL(DP_ERR_CONFIG, "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                                        "neither for a public bucket");
}

dp_status dp_place_read(const char *dir, struct dp_place *out)
{
    *out = (struct dp_place){.key = NULL};
    DP_TRY(copy(out->shown, dir));
    return begins(dir, "s3://") ? read_bucket(out) : read_address(out);
}
