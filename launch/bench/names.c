#include "launch/bench/names.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

void dp_bench_names_destroy(struct dp_bench_names *names)
{
    dp_free(names->at);
    dp_free(names->text);
    *names = (struct dp_bench_names){NULL, NULL, 0};
}

/* Whether the piece is an option of the plug-in before it: "outer=ring", but not
 * "zero1:over=ring". */
static bool is_option(const char *piece)
{
    return piece[strcspn(piece, ":=,")] == '=';
}

static dp_status split(struct dp_bench_names *names)
{
    char *piece = names->text;

    for (char *next = piece; next != NULL; piece = next) {
        next = strchr(piece, ',');
        if (*piece == '\0' || *piece == ',') {
            return DP_FAIL(DP_ERR_USAGE, "an empty name in a list of strategies or compressors");
        }
        if (is_option(piece) && names->count > 0) {
            piece[-1] = ',';
        } else {
            names->at[names->count++] = piece;
        }
        if (next != NULL) {
            *next++ = '\0';
        }
    }
    return DP_OK;
}

static void take_all(const struct dp_plugin_family *family, struct dp_bench_names *names)
{
    for (; dp_plugin_at(family, names->count) != NULL; names->count++) {
        names->at[names->count] = dp_plugin_at(family, names->count)->name;
    }
}

dp_status dp_bench_names_create(const char *list, const struct dp_plugin_family *family,
                                struct dp_bench_names *names)
{
    const bool all = strcmp(list, "all") == 0;
    struct dp_bench_names fresh = {dp_strdup(list), NULL, 0};
    int most = 2;
    dp_status status = DP_OK;

    for (const char *c = list; *c != '\0'; c++) {
        most += *c == ',';
    }
    for (int i = 0; all && dp_plugin_at(family, i) != NULL; i++) {
        most++;
    }
    fresh.at = dp_zalloc((size_t)most, sizeof(*fresh.at)); /* NOLINT: pointers */
    if (fresh.text == NULL || fresh.at == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "a list of %d names", most);
    } else if (all) {
        take_all(family, &fresh);
    } else {
        status = split(&fresh);
    }
    if (status != DP_OK) {
        dp_bench_names_destroy(&fresh);
        return status;
    }
    *names = fresh;
    return DP_OK;
}
