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

/* The value at a key that may have a dot. */
static const struct dp_json *value_at(const struct dp_json *json, const char *key)
{
    const char *dot = strchr(key, '.');
    char outer[64];

    if (dot == NULL) {
        return dp_json_get(json, key);
    }
    (void)snprintf(outer, sizeof(outer), "%.*s", (int)(dot - key), key);
    return dp_json_get(dp_json_get(json, outer), dot + 1);
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
        break; /* zeros: there is none */
    default:
        *(double *)member = real_of(json);
    }
}

static void read_rank(const struct dp_json *json, struct dp_run_rank *rank)
{
    const struct dp_report_row *row;

    for (int i = 0; (row = dp_report_rank_row(i)) != NULL; i++) {
        read_value(row, value_at(json, row->key), rank);
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

void dp_run_summary_clear(struct dp_run_summary *summary)
{
    read_run(NULL, summary);
}

dp_status dp_run_summary_read(const struct dp_json *json, struct dp_run_summary *summary,
                              struct dp_run_rank **ranks)
{
    const struct dp_json *list = dp_json_get(json, "ranks");
    const size_t length = dp_json_is_array(list) ? dp_json_length(list) : 0;
    const size_t count = length < DP_SUMMARY_RANKS_MOST ? length : DP_SUMMARY_RANKS_MOST;

    read_run(json, summary);
    *ranks = NULL;
    if (count == 0) {
        return DP_OK;
    }
    *ranks = dp_zalloc(count, sizeof(**ranks));
    if (*ranks == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu ranks", count);
    }
    for (size_t i = 0; i < count; i++) {
        read_rank(dp_json_at(list, i), &(*ranks)[i]);
    }
    summary->ranks = *ranks;
    summary->rank_count = (int)count;
    return DP_OK;
}
