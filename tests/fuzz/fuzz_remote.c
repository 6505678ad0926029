/*
 * fuzz_remote.c - libFuzzer: whatever a server's Content-Range, a data.dir or an endpoint hold,
 * they are refused, or taken for what can be, inside their memory.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_remote.c runtime/data/remote/{content_range,place}.c
 *     base/{mem,log,status,text}.c -o fuzz_remote
 */
#define _XOPEN_SOURCE 700 /* putenv */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/data/remote/content_range.h"
#include "runtime/data/remote/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_range(const char *text, size_t bytes)
{
    struct dp_content_range range;

    if (dp_content_range_parse(text, bytes, &range) && range.end > 0 &&
        (range.begin >= range.end || (range.total > 0 && range.end > range.total))) {
        abort(); /* bytes that the file does not have */
    }
}

/* What follows must be one line without anything that ends an address. The setting is written in
 * place, since the C library keeps each value that setenv() was ever given: 2 GB of them after 30
 * million inputs. */
static void try_place(const char *dir, const char *endpoint)
{
    static char setting[4000];
    struct dp_place place;

    (void)snprintf(setting, sizeof(setting), "AWS_ENDPOINT_URL=%s", endpoint);
    (void)putenv(setting);
    if (!dp_place_is_remote(dir) || dp_place_read(dir, &place) != DP_OK) {
        return;
    }
    if (strncmp(place.base, "http", 4) != 0 || strpbrk(place.base, " \r\n\t?#\"\\") != NULL ||
        strlen(place.base) >= sizeof(place.base)) {
        abort();
    }
}

/* The first byte says what the rest is. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const begins[] = {"s3://", "https://", "http://", ""};
    char dir[3000], endpoint[3000];
    size_t half;

    dp_log_set_level(DP_LOG_NONE);
    if (size < 2) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        try_range((const char *)data + 1, size - 1);
        return 0;
    }
    half = size / 2 < 2900 ? size / 2 : 2900;
    (void)snprintf(dir, sizeof(dir), "%s%.*s", begins[data[0] / 2 % 4], (int)half - 1, data + 1);
    (void)snprintf(endpoint, sizeof(endpoint), "%s%.*s", data[0] & 8 ? "https://" : "", (int)half,
                   data + half);
    try_place(dir, endpoint);
    return 0;
}
