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
enum { KEY_BYTES = 64 };

/* clang-format off */
static const struct dp_report_row run_rows[] = {
#define DP_RUN_ROW(kind_, member, key_, line_, end_, text_, help_)                      \
    {.kind = DP_REPORT_##kind_, .key = (key_), .line = DP_LINE_##line_, .end = DP_END_##end_, \
     .offset = offsetof(struct dp_run_summary, member), .text = (text_), .help = (help_)},
#include "runtime/report/summary.def"
};

#define DP_TABLE(NAME, one, many) static const struct dp_report_row one##_rows[] = {
#define DP_TABLE_ROW(one, kind_, member, key_, width_, heading, help_) \
    {.kind = DP_REPORT_##kind_, .key = (key_), .width = (width_),      \
     .offset = offsetof(struct dp_run_##one, member), .text = (heading), .help = (help_)},
#define DP_TABLE_END(one) };
#include "runtime/report/summary.def"

static const struct dp_report_table tables[] = {
#define DP_TABLE(NAME, one, many)                                                             \
    [DP_TABLE_##NAME] = {.key = #many, .rows = one##_rows,                                    \
                         .row_count = sizeof(one##_rows) / sizeof(one##_rows[0]),             \
                         .size = sizeof(struct dp_run_##one),                                 \
                         .objects_offset = offsetof(struct dp_run_summary, many),             \
                         .count_offset = offsetof(struct dp_run_summary, one##_count)},
#include "runtime/report/summary.def"
};
/* clang-format on */

enum { RUN_ROWS = sizeof(run_rows) / sizeof(run_rows[0]) };

const struct dp_report_row *dp_report_run_row(int i)
{
    return i < RUN_ROWS ? &run_rows[i] : NULL;
}

const struct dp_report_row *dp_report_rank_row(int i)
{
    return i < tables[DP_TABLE_RANKS].row_count ? &rank_rows[i] : NULL;
}

const struct dp_report_table *dp_report_table(enum dp_run_table table)
{
    return &tables[table];
}

int dp_report_table_count(const struct dp_run_summary *summary, enum dp_run_table table)
{
    return *(const int *)((const char *)summary + tables[table].count_offset);
}

void *dp_report_table_at(const struct dp_run_summary *summary, enum dp_run_table table, int i)
{
    char *const *objects = (char *const *)((const char *)summary + tables[table].objects_offset);

    return *objects + (size_t)i * tables[table].size;
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

static dp_status put_series(struct dp_json *object, const char *key, const struct dp_series *series)
{
    struct dp_json *array = dp_json_set_array(object, key);

    for (int i = 0; i < series->count; i++) {
        DP_TRY(dp_json_push_real(array, series->at[i]));
    }
    return array == NULL ? DP_ERR_NOMEM : DP_OK;
}

static dp_status put_count(struct dp_json *object, const char *key, int64_t value)
{
    return value < 0 ? dp_json_set_null(object, key) : dp_json_set_int(object, key, value);
}

/* Of a record, which is a summary or an object of a table. */
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
    case DP_REPORT_SERIES:
        return put_series(object, key, value);
    case DP_REPORT_LIST:
        return put_list(object, key, value);
    default:
        return dp_json_set_real(object, key, *(const double *)value);
    }
}

/* What comes after the last dot; all of it without one. */
static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot == NULL ? key : dot + 1;
}

/* The object that a key lies in: of "a.b.c" the member b of the member a. Made where the row before
 * did not lie in it, too. */
static struct dp_json *outer_of(struct dp_json *object, const char *key, const char *key_before)
{
    struct dp_json *inner = object;
    bool is_new = false;

    for (const char *dot = strchr(key, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const size_t length = (size_t)(dot - key) + 1;
        char name[KEY_BYTES];

        is_new = is_new || strncmp(key, key_before, length) != 0;
        (void)snprintf(name, sizeof(name), "%.*s", (int)length - 1, key);
        inner = is_new ? dp_json_set_object(inner, last_word(name))
                       : dp_json_member(inner, last_word(name));
    }
    return inner;
}

static dp_status put_rows(struct dp_json *object, const struct dp_report_row *rows, int count,
                          const void *record)
{
    const char *before = "";

    for (int i = 0; i < count; i++) {
        struct dp_json *outer = outer_of(object, rows[i].key, before);
        DP_TRY(put(outer, last_word(rows[i].key), &rows[i], record));
        before = rows[i].key;
    }
    return DP_OK;
}

static dp_status put_table(struct dp_json *object, const struct dp_run_summary *summary,
                           enum dp_run_table t)
{
    const struct dp_report_table *table = &tables[t];
    struct dp_json *array = dp_json_set_array(object, table->key);
    const int count = dp_report_table_count(summary, t);

    for (int i = 0; i < count; i++) {
        DP_TRY(put_rows(dp_json_push_object(array), table->rows, table->row_count,
                        dp_report_table_at(summary, t, i)));
    }
    return array == NULL ? DP_ERR_NOMEM : DP_OK;
}

static dp_status fill(struct dp_json *object, const struct dp_run_summary *summary)
{
    DP_TRY(put_rows(object, run_rows, RUN_ROWS, summary));
    for (int t = 0; t < DP_RUN_TABLES; t++) {
        DP_TRY(put_table(object, summary, (enum dp_run_table)t));
    }
    return DP_OK;
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

static void list_row(const char *table, const char *between, const struct dp_report_row *row)
{
    static const char *const units[] = {
#define X(kind, unit) [DP_REPORT_##kind] = (unit),
        DP_REPORT_KINDS(X)
#undef X
    };
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof(key), "%s%s%s", table, between, row->key);
    printf("%-44s %-10s %s\n", key, units[row->kind], row->help);
    for (int i = 0; row->kind == DP_REPORT_PARTS && i < DP_STEP_PART_COUNT; i++) {
        (void)snprintf(key, sizeof(key), "%s%s%s.%s", table, between, row->key, parts[i].key);
        printf("%-44s %-10s %s\n", key, units[row->kind], parts[i].help);
    }
}

void dp_run_summary_list(void)
{
    for (int i = 0; i < RUN_ROWS; i++) {
        list_row("", "", &run_rows[i]);
    }
    for (int t = 0; t < DP_RUN_TABLES; t++) {
        for (int i = 0; i < tables[t].row_count; i++) {
            list_row(tables[t].key, "[].", &tables[t].rows[i]);
        }
    }
}
