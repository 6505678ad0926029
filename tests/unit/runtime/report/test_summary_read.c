/* test_summary_read.c - objects, tables and series of a summary are written and read back. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/summary_read.h"
#include "tests/support/scratch.h"

static struct dp_json *written(const struct dp_run_summary *summary)
{
    static char text[4 << 20];
    struct dp_json *json = NULL;

    assert_int_equal(dp_run_summary_write(summary, scratch_path("run.json")), DP_OK);
    assert_true(scratch_read(scratch_path("run.json"), text, sizeof(text)) > 0);
    assert_int_equal(dp_json_parse(text, strlen(text), "run.json", &json), DP_OK);
    assert_int_equal(scratch_count("."), 1);
    return json;
}

static void assert_real(const struct dp_json *object, const char *key, double expected)
{
    double value = (double)NAN;

    if (!dp_json_real(dp_json_get(object, key), &value) || value != expected) {
        fail_msg("%s is %g, not %g", key, value, expected);
    }
}

/* There, and null. */
static void assert_null_member(const struct dp_json *object, const char *key)
{
    double value;

    assert_non_null(dp_json_get(object, key));
    assert_null(dp_json_text(dp_json_get(object, key)));
    assert_false(dp_json_real(dp_json_get(object, key), &value));
}

/* Gives each number of a record another value, and each text a name: how many there are so far. */
static int fill(const struct dp_report_row *row, void *record, int value)
{
    void *member = (char *)record + row->offset;

    switch (row->kind) {
    case DP_REPORT_TEXT:
        *(const char **)member = row->key;
        break;
    case DP_REPORT_NAME:
        (void)snprintf(member, DP_REPORT_NAME_BYTES, "\"%s\" %d", row->key, value);
        break;
    case DP_REPORT_EXIT:
        *(enum dp_run_exit *)member = DP_RUN_HUNG;
        break;
    case DP_REPORT_COUNT:
    case DP_REPORT_BYTES:
        *(int64_t *)member = ((int64_t)1 << 50) + value;
        break;
    case DP_REPORT_PARTS:
        for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
            ((double *)member)[i] = value + 0.125 * i;
        }
        break;
    case DP_REPORT_SERIES:
        assert_int_equal(dp_series_resize(member, 5), DP_OK);
        for (int i = 0; i < 5; i++) {
            ((struct dp_series *)member)->at[i] = value + 0.125 * i;
        }
        break;
    case DP_REPORT_HISTOGRAM:
    case DP_REPORT_LIST:
        break; /* not read back */
    default:
        *(double *)member = value + 0.5;
    }
    return value + 1;
}

static struct dp_run_summary filled(int objects)
{
    const struct dp_report_row *row;
    struct dp_run_summary summary;
    int value = 1;

    dp_run_summary_clear(&summary);
    for (int i = 0; (row = dp_report_run_row(i)) != NULL; i++) {
        value = fill(row, &summary, value);
    }
    for (int t = 0; t < DP_RUN_TABLES; t++) {
        const struct dp_report_table *table = dp_report_table((enum dp_run_table)t);
        assert_int_equal(dp_run_summary_resize(&summary, (enum dp_run_table)t, objects), DP_OK);
        for (int k = 0; k < objects * table->row_count; k++) {
            value = fill(&table->rows[k % table->row_count],
                         dp_report_table_at(&summary, (enum dp_run_table)t, k / table->row_count),
                         value);
        }
    }
    return summary;
}

/* Both have the same, and it is written alike. */
static void assert_same_json(const struct dp_run_summary *a, const struct dp_run_summary *b)
{
    struct dp_json *first = written(a), *second = written(b);
    char *texts[2];

    assert_int_equal(dp_json_dump(first, 0, DP_JSON_EXACT, &texts[0]), DP_OK);
    assert_int_equal(dp_json_dump(second, 0, DP_JSON_EXACT, &texts[1]), DP_OK);
    assert_string_equal(texts[0], texts[1]);
    dp_free(texts[0]);
    dp_free(texts[1]);
    dp_json_destroy(first);
    dp_json_destroy(second);
}

static void whatever_is_written_is_read_back(void **state)
{
    static const int counts[] = {0, 1, 2, 256, 1000};
    (void)state;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct dp_run_summary summary = filled(counts[i]), again;
        struct dp_json *json = written(&summary);

        assert_int_equal(dp_run_summary_read(json, &again), DP_OK);
        for (int t = 0; t < DP_RUN_TABLES; t++) {
            const char *key = dp_report_table((enum dp_run_table)t)->key;
            assert_int_equal(dp_json_length(dp_json_get(json, key)), counts[i]);
            assert_int_equal(dp_report_table_count(&again, (enum dp_run_table)t), counts[i]);
        }
        assert_int_equal(again.window_rates.count, 5);
        assert_true(again.window_rates.at[4] == summary.window_rates.at[4]);
        assert_same_json(&summary, &again);
        dp_run_summary_release(&again);
        dp_run_summary_release(&summary);
        dp_json_destroy(json);
        assert_int_equal(dp_mem_live(), 0);
    }
}

static void assert_has(const struct dp_json *object, const char *where, const char *key)
{
    if (dp_json_get(object, key) == NULL) {
        fail_msg("%s has no %s", where, key);
    }
}

static void objects_and_tables_have_the_documented_keys(void **state)
{
    static const char *const keys[][12] = {
        {"limits", "gemm_gflops", "conv_gflops", "copy_gbs", "allreduce_gbs",
         "input_samples_per_second", "bound_samples_per_second"},
        {"verdict_detail", "bound", "share", "evidence", "action", "predicted_samples_per_second"},
        {"stability", "window_s", "samples_per_second", "cv", "drift"},
        {"cost", "price_per_hour", "dollars", "samples_per_dollar", "dollars_to_target",
         "seconds_to_target"},
        {"memory", "weights", "gradients", "optimizer", "activations", "communication", "input",
         "library", "other", "predicted", "peak", "peak_step"},
        {"utilisation", "cpu", "gpu", "net_mb_s", "disk_mb_s", "joules_per_sample"},
        {"buckets", "bytes", "ready_ms", "sent_ms", "done_ms", "exposed_ms", "encode_ms",
         "decode_ms", "gbs", "first_rank", "last_rank", "spread_ms"},
        {"stragglers", "rank", "host", "last_at", "late_ms"},
        {"layers", "name", "kind", "forward_ms", "backward_ms", "gflops", "gbs", "share", "limit",
         "implementation"},
    };
    struct dp_run_summary summary = filled(2);
    struct dp_json *json = written(&summary);
    (void)state;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const struct dp_json *at = dp_json_get(json, keys[i][0]);
        const struct dp_json *object = dp_json_is_array(at) ? dp_json_at(at, 1) : at;
        for (int k = 1; k < 12 && keys[i][k] != NULL; k++) {
            assert_has(object, keys[i][0], keys[i][k]);
        }
    }
    assert_real(json, "mfu", summary.mfu);
    dp_run_summary_release(&summary);
    dp_json_destroy(json);
}

static void objects_of_which_nothing_is_known_are_null(void **state)
{
    struct dp_run_summary summary;
    struct dp_json *json;
    (void)state;

    dp_run_summary_clear(&summary);
    assert_int_equal(dp_run_summary_resize(&summary, DP_TABLE_BUCKETS, 1), DP_OK);
    json = written(&summary);
    assert_null_member(dp_json_get(json, "limits"), "gemm_gflops");
    assert_null_member(dp_json_get(json, "verdict_detail"), "action");
    assert_null_member(dp_json_get(json, "memory"), "weights");
    assert_null_member(dp_json_at(dp_json_get(json, "buckets"), 0), "gbs");
    assert_null_member(dp_json_at(dp_json_get(json, "buckets"), 0), "last_rank");
    assert_int_equal(dp_json_length(dp_json_get(json, "stragglers")), 0);
    dp_run_summary_release(&summary);
    dp_json_destroy(json);
}

static void a_failed_allocation_leaves_empty_tables(void **state)
{
    struct dp_run_summary summary = filled(3), again;
    struct dp_json *json = written(&summary);
    bool failed = true;
    (void)state;

    dp_run_summary_release(&summary);
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; failed; nth++) {
        assert_in_range(nth, 1, 100);
        dp_mem_fail_nth(nth);
        failed = dp_run_summary_read(json, &again) != DP_OK;
        dp_mem_fail_nth(0);
        dp_run_summary_release(&again);
        assert_int_equal(again.bucket_count, 0);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_json_destroy(json);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(whatever_is_written_is_read_back),
        WITH_FOLDER(objects_and_tables_have_the_documented_keys),
        WITH_FOLDER(objects_of_which_nothing_is_known_are_null),
        WITH_FOLDER(a_failed_allocation_leaves_empty_tables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
