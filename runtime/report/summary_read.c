#include "runtime/report/summary_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const char *const part_keys[] = {
#define X(name, key, heading, help) key,
    DP_STEP_PARTS(X)
#undef X
};

/* ---- reading ---- */

/* The value at a key that may have dots. */
static const struct dp_json *value_at(const struct dp_json *json, const char *key)
{
    const char *dot;
    char outer[64];

    while ((dot = strchr(key, '.')) != NULL) {
        (void)snprintf(outer, sizeof(outer), "%.*s", (int)(dot - key), key);
        json = dp_json_get(json, outer);
        key = dot + 1;
    }
    return dp_json_get(json, key);
}

static double real_of(const struct dp_json *json)
{
    double value;

    return dp_json_real(json, &value) ? value : (double)NAN;
}

static enum dp_run_exit exit_of(const struct dp_json *json)
{
    const char *text = dp_json_text(json);

    for (int i = 0; text != NULL && i < DP_RUN_EXIT_COUNT; i++) {
        if (strcmp(text, dp_run_exit_text((enum dp_run_exit)i)) == 0) {
            return (enum dp_run_exit)i;
        }
    }
    return DP_RUN_ERROR;
}

/* `json` NULL: the value is not known. */
static void read_value(const struct dp_report_row *row, const struct dp_json *json, void *record)
{
    void *member = (char *)record + row->offset;
    const char *text = dp_json_text(json);
    int64_t count;

    switch (row->kind) {
    case DP_REPORT_TEXT:
        *(const char **)member = text;
        break;
    case DP_REPORT_NAME:
        (void)snprintf(member, DP_REPORT_NAME_BYTES, "%s", text == NULL ? "" : text);
        break;
    case DP_REPORT_EXIT:
        *(enum dp_run_exit *)member = exit_of(json);
        break;
    case DP_REPORT_COUNT:
    case DP_REPORT_BYTES:
        *(int64_t *)member = dp_json_int(json, &count) ? count : -1;
        break;
    case DP_REPORT_PARTS:
        for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
            ((double *)member)[i] = real_of(dp_json_get(json, part_keys[i]));
        }
        break;
    case DP_REPORT_HISTOGRAM:
    case DP_REPORT_LIST:
    case DP_REPORT_SERIES: /* read_series() */
        break;             /* zeros: there is none */
    default:
        *(double *)member = real_of(json);
    }
}

static void read_object(const struct dp_report_table *table, const struct dp_json *json,
                        void *object)
{
    for (int i = 0; i < table->row_count; i++) {
        read_value(&table->rows[i], value_at(json, table->rows[i].key), object);
    }
}

static void read_run(const struct dp_json *json, struct dp_run_summary *summary)
{
    const struct dp_report_row *row;

    memset(summary, 0, sizeof(*summary));
    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++) {
        read_value(row, value_at(json, row->key), summary);
    }
}

/* ---- memory ---- */

void dp_run_summary_clear(struct dp_run_summary *summary)
{
    read_run(NULL, summary);
}

static void **objects_of(struct dp_run_summary *summary, enum dp_run_table table)
{
    return (void **)((char *)summary + dp_report_table(table)->objects_offset);
}

static void set_count(struct dp_run_summary *summary, enum dp_run_table table, int count)
{
    *(int *)((char *)summary + dp_report_table(table)->count_offset) = count;
}

dp_status dp_run_summary_resize(struct dp_run_summary *summary, enum dp_run_table t, int count)
{
    const struct dp_report_table *table = dp_report_table(t);
    void **objects = objects_of(summary, t);

    dp_free(*objects);
    *objects = NULL;
    set_count(summary, t, 0);
    if (count == 0) {
        return DP_OK;
    }
    *objects = dp_zalloc((size_t)count, table->size);
    if (*objects == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d %s of a report", count, table->key);
    }
    for (int i = 0; i < count; i++) {
        read_object(table, NULL, (char *)*objects + (size_t)i * table->size);
    }
    set_count(summary, t, count);
    return DP_OK;
}

dp_status dp_series_resize(struct dp_series *series, int count)
{
    dp_free(series->at);
    *series = (struct dp_series){NULL, 0};
    if (count > 0) {
        series->at = dp_zalloc((size_t)count, sizeof(*series->at));
        if (series->at == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "%d numbers of a report", count);
        }
        series->count = count;
    }
    return DP_OK;
}

static struct dp_series *series_of(struct dp_run_summary *summary, const struct dp_report_row *row)
{
    return (struct dp_series *)((char *)summary + row->offset);
}

void dp_run_summary_release(struct dp_run_summary *summary)
{
    const struct dp_report_row *row;

    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++) {
        if (row->kind == DP_REPORT_SERIES) {
            dp_free(series_of(summary, row)->at);
            *series_of(summary, row) = (struct dp_series){NULL, 0};
        }
    }
    for (int t = 0; t < DP_RUN_TABLES; t++) {
        dp_free(*objects_of(summary, (enum dp_run_table)t));
        *objects_of(summary, (enum dp_run_table)t) = NULL;
        set_count(summary, (enum dp_run_table)t, 0);
    }
}

/* ---- a whole file ---- */

static int bounded_length(const struct dp_json *array)
{
    const size_t length = dp_json_is_array(array) ? dp_json_length(array) : 0;

    return length < DP_SUMMARY_OBJECTS_MOST ? (int)length : DP_SUMMARY_OBJECTS_MOST;
}

static dp_status read_series(const struct dp_json *array, struct dp_series *series)
{
    DP_TRY(dp_series_resize(series, bounded_length(array)));
    for (int i = 0; i < series->count; i++) {
        series->at[i] = real_of(dp_json_at(array, (size_t)i));
    }
    return DP_OK;
}

static dp_status read_table(const struct dp_json *array, struct dp_run_summary *summary,
                            enum dp_run_table t)
{
    const struct dp_report_table *table = dp_report_table(t);
    const int count = bounded_length(array);

    DP_TRY(dp_run_summary_resize(summary, t, count));
    for (int i = 0; i < count; i++) {
        read_object(table, dp_json_at(array, (size_t)i),
                    (char *)*objects_of(summary, t) + (size_t)i * table->size);
    }
    return DP_OK;
}

dp_status dp_run_summary_read(const struct dp_json *json, struct dp_run_summary *summary)
{
    const struct dp_report_row *row;

    read_run(json, summary);
    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++) {
        if (row->kind == DP_REPORT_SERIES) {
            DP_TRY(read_series(value_at(json, row->key), series_of(summary, row)));
        }
    }
    for (int t = 0; t < DP_RUN_TABLES; t++) {
        DP_TRY(read_table(dp_json_get(json, dp_report_table((enum dp_run_table)t)->key), summary,
                          (enum dp_run_table)t));
    }
    return DP_OK;
}
