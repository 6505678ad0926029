#include "runtime/report/summary.h"

#include <stdio.h>
#include <string.h>

const char *dp_run_exit_text(enum dp_run_exit exit)
{
    static const char *const texts[] = {
#define X(name, text) text,
        DP_RUN_EXITS(X)
#undef X
    };

    return (unsigned)exit < DP_RUN_EXIT_COUNT ? texts[exit] : "error";
}

/* ---- the rows ---- */

enum { DP_END_NO, DP_END_END };

/* clang-format off */
static const struct dp_report_row run_rows[] = {
#define DP_RUN_ROW(kind_, member, key_, line_, end_, text_, help_)                      \
    {.kind = DP_REPORT_##kind_, .key = (key_), .line = DP_LINE_##line_, .end = DP_END_##end_, \
     .offset = offsetof(struct dp_run_summary, member), .text = (text_), .help = (help_)},
#include "runtime/report/summary.def"
};

static const struct dp_report_row rank_rows[] = {
#define DP_RANK_ROW(kind_, member, key_, width_, heading, help_)      \
    {.kind = DP_REPORT_##kind_, .key = (key_), .width = (width_),         \
     .offset = offsetof(struct dp_run_rank, member), .text = (heading), \
     .help = (help_)},
#include "runtime/report/summary.def"
};
/* clang-format on */

enum {
    RUN_ROWS = sizeof(run_rows) / sizeof(run_rows[0]),
    RANK_ROWS = sizeof(rank_rows) / sizeof(rank_rows[0])
};

const struct dp_report_row *dp_report_run_row(int i)
{
    return i < RUN_ROWS ? &run_rows[i] : NULL;
}

const struct dp_report_row *dp_report_rank_row(int i)
{
    return i < RANK_ROWS ? &rank_rows[i] : NULL;
}

/* ---- run.json ---- */

static const struct part {
    const char *key, *help;
} parts[] = {
#define X(name, key, heading, help) {key, help},
    DP_STEP_PARTS(X)
#undef X
};

static dp_status put_parts(struct dp_json *object, const char *key, const double *step_ms)
{
    struct dp_json *inner = dp_json_set_object(object, key);

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        DP_TRY(dp_json_set_real(inner, parts[i].key, step_ms[i]));
    }
    return DP_OK;
}

static dp_status put_histogram(struct dp_json *object, const char *key,
                               const struct dp_histogram *histogram)
{
    struct dp_json *array = dp_json_set_array(object, key);

    for (size_t i = 0; i < histogram->bins; i++) {
        DP_TRY(dp_json_push_int(array, (int64_t)histogram->counts[i]));
    }
    return array == NULL ? DP_ERR_NOMEM : DP_OK;
}

static dp_status put_list(struct dp_json *object, const char *key, const struct dp_text_list *list)
{
    struct dp_json *array;

    if (list->count == 0) {
        return dp_json_set_null(object, key);
    }
    array = dp_json_set_array(object, key);
    for (int i = 0; i < list->count; i++) {
        DP_TRY(dp_json_push_text(array, list->texts[i]));
    }
    return DP_OK;
}

static dp_status put_count(struct dp_json *object, const char *key, int64_t value)
{
    return value < 0 ? dp_json_set_null(object, key) : dp_json_set_int(object, key, value);
}

/* Of a record, which is a summary or a rank. */
static dp_status put(struct dp_json *object, const char *key, const struct dp_report_row *row,
                     const void *record)
{
    const void *value = (const char *)record + row->offset;

    switch (row->kind) {
    case DP_REPORT_TEXT:
        return dp_json_set_text(object, key, *(const char *const *)value);
    case DP_REPORT_NAME:
        return dp_json_set_text(object, key, value);
    case DP_REPORT_EXIT:
        return dp_json_set_text(object, key, dp_run_exit_text(*(const enum dp_run_exit *)value));
    case DP_REPORT_COUNT:
    case DP_REPORT_BYTES:
        return put_count(object, key, *(const int64_t *)value);
    case DP_REPORT_PARTS:
        return put_parts(object, key, value);
    case DP_REPORT_HISTOGRAM:
        return put_histogram(object, key, value);
    case DP_REPORT_LIST:
        return put_list(object, key, value);
    default:
        return dp_json_set_real(object, key, *(const double *)value);
    }
}

/* What comes after the dot; all of it without one. */
static const char *last_word(const char *key)
{
    const char *dot = strchr(key, '.');

    return dot == NULL ? key : dot + 1;
}

/* Rows of one inner object stand together. */
static dp_status put_rows(struct dp_json *object, const struct dp_report_row *rows, int count,
                          const void *record)
{
    struct dp_json *inner = NULL;
    char name[32] = "";

    for (int i = 0; i < count; i++) {
        const char *word = last_word(rows[i].key);
        char outer[sizeof(name)];

        if (word == rows[i].key) {
            DP_TRY(put(object, word, &rows[i], record));
            continue;
        }
        (void)snprintf(outer, sizeof(outer), "%.*s", (int)(word - rows[i].key) - 1, rows[i].key);
        if (strcmp(outer, name) != 0) {
            memcpy(name, outer, sizeof(name));
            inner = dp_json_set_object(object, name);
        }
        DP_TRY(put(inner, word, &rows[i], record));
    }
    return DP_OK;
}

static dp_status fill(struct dp_json *object, const struct dp_run_summary *summary)
{
    struct dp_json *ranks;

    DP_TRY(put_rows(object, run_rows, RUN_ROWS, summary));
    ranks = dp_json_set_array(object, "ranks");
    for (int i = 0; i < summary->rank_count; i++) {
        DP_TRY(put_rows(dp_json_push_object(ranks), rank_rows, RANK_ROWS, &summary->ranks[i]));
    }
    return ranks == NULL ? DP_ERR_NOMEM : DP_OK;
}

dp_status dp_run_summary_write(const struct dp_run_summary *summary, const char *path)
{
    struct dp_json *object = dp_json_create();
    dp_status status = fill(object, summary);

    if (status == DP_OK) {
        status = dp_json_save(object, DP_JSON_READABLE, path);
    }
    dp_json_destroy(object);
    return status;
}

dp_status dp_run_summary_put_end(const struct dp_run_summary *summary, struct dp_json *object)
{
    for (int i = 0; i < RUN_ROWS; i++) {
        if (run_rows[i].end) {
            DP_TRY(put(object, last_word(run_rows[i].key), &run_rows[i], summary));
        }
    }
    return DP_OK;
}

/* ---- what there is ---- */

static void list_row(const char *prefix, const struct dp_report_row *row)
{
    static const char *const units[] = {
#define X(kind, unit) [DP_REPORT_##kind] = (unit),
        DP_REPORT_KINDS(X)
#undef X
    };
    char key[64];

    (void)snprintf(key, sizeof(key), "%s%s", prefix, row->key);
    printf("%-32s %-10s %s\n", key, units[row->kind], row->help);
    for (int i = 0; row->kind == DP_REPORT_PARTS && i < DP_STEP_PART_COUNT; i++) {
        (void)snprintf(key, sizeof(key), "%s%s.%s", prefix, row->key, parts[i].key);
        printf("%-32s %-10s %s\n", key, units[row->kind], parts[i].help);
    }
}

void dp_run_summary_list(void)
{
    for (int i = 0; i < RUN_ROWS; i++) {
        list_row("", &run_rows[i]);
    }
    for (int i = 0; i < RANK_ROWS; i++) {
        list_row("ranks[].", &rank_rows[i]);
    }
}
