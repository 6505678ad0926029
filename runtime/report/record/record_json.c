#include "runtime/report/record/record_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- JSON ---- */

static dp_status put_start(const struct dp_history *h, struct dp_json *object)
{
    const struct dp_history_start *s = &h->start;

    DP_TRY(dp_json_set_text(object, "name", s->name));
    DP_TRY(dp_json_set_int(object, "world_size", s->world_size));
    DP_TRY(dp_json_set_int(object, "global_batch", s->global_batch));
    DP_TRY(dp_json_set_text(object, "device", s->device));
    DP_TRY(dp_json_set_text(object, "precision", s->precision));
    DP_TRY(dp_json_set_text(object, "strategy", s->strategy));
    DP_TRY(dp_json_set_text(object, "compressor", s->compressor));
    DP_TRY(dp_json_set_int(object, "resumes", h->resumes));
    return dp_json_set_int(object, "steps", s->steps);
}

static dp_status put_steps(const struct dp_history *h, struct dp_json *object)
{
    const struct dp_history_pace pace = dp_history_pace(h);
    const struct dp_history_point *last = h->count > 0 ? &h->points[h->count - 1] : NULL;

    DP_TRY(dp_json_set_int(object, "count", h->steps));
    DP_TRY(dp_json_set_int(object, "last", h->last_step));
    DP_TRY(dp_json_set_int(object, "steady", pace.steps));
    DP_TRY(dp_json_set_int(object, "skipped", h->skipped));
    DP_TRY(dp_json_set_real(object, "samples_per_second", pace.rate));
    DP_TRY(dp_json_set_real(object, "samples_per_second_error", pace.rate_error));
    DP_TRY(dp_json_set_real(object, "cv", pace.cv));
    DP_TRY(dp_json_set_real(object, "step_ms", pace.ms));
    DP_TRY(dp_json_set_real(object, "step_ms_error", pace.ms_error));
    DP_TRY(dp_json_set_real(object, "seconds", h->last_time - h->begin_time));
    return dp_json_set_real(object, "loss", last != NULL ? dp_history_loss(last) : (double)NAN);
}

static dp_status put_evaluations(const struct dp_history *h, struct dp_json *array)
{
    for (int i = 0; i < h->eval_count; i++) {
        const struct dp_history_eval *e = &h->evals[i];
        struct dp_json *object = dp_json_push_object(array);
        DP_TRY(dp_json_set_int(object, "step", e->step));
        DP_TRY(dp_json_set_real(object, "time", e->time));
        DP_TRY(dp_json_set_real(object, "train_loss", e->train_loss));
        DP_TRY(dp_json_set_real(object, "test_loss", e->test_loss));
        DP_TRY(dp_json_set_real(object, "test_accuracy", e->test_accuracy));
        DP_TRY(dp_json_set_real(object, "test_top5_accuracy", e->test_top5));
        DP_TRY(dp_json_set_real(object, "test_mean_absolute_error", e->test_error));
    }
    return array == NULL ? DP_ERR_NOMEM : DP_OK;
}

dp_status dp_record_put(const struct dp_run_record *record, struct dp_json *object)
{
    struct dp_json *missing;

    DP_TRY(dp_json_set_text(object, "run", record->path));
    DP_TRY(dp_json_set_text(object, "state", dp_run_state_key(record->state)));
    missing = dp_json_set_array(object, "missing");
    for (int i = 0; i < record->note_count; i++) {
        DP_TRY(dp_json_push_text(missing, record->notes[i]));
    }
    DP_TRY(dp_json_set_copy(object, "summary", record->json));
    if (record->history.started) {
        DP_TRY(put_start(&record->history, dp_json_set_object(object, "start")));
    } else {
        DP_TRY(dp_json_set_null(object, "start"));
    }
    DP_TRY(put_steps(&record->history, dp_json_set_object(object, "steps")));
    return put_evaluations(&record->history, dp_json_set_array(object, "evaluations"));
}

/* ---- CSV ---- */

static const char headings[] = "step,epoch,time,loss,lr,samples_per_second,step_ms\n";
enum { LINE_BYTES = 512 };

struct csv {
    struct dp_file file;
    bool printed;     /* to standard output, not to a file */
    dp_status status; /* of the first write that failed */
};

static void append(struct csv *csv, const char *line)
{
    if (csv->printed) {
        (void)fputs(line, stdout); /* dp_stdio_finish() tells of failures */
    } else if (csv->status == DP_OK) {
        csv->status = dp_file_append(&csv->file, line, strlen(line));
    }
}

/* Adds a number to a line, and a comma before it unless it is the first. */
static void add_number(char line[LINE_BYTES], int digits, double value)
{
    const size_t used = strlen(line);
    const char *comma = used > 0 ? "," : "";

    (void)(isfinite(value)
               ? snprintf(line + used, LINE_BYTES - used, "%s%.*g", comma, digits, value)
               : snprintf(line + used, LINE_BYTES - used, "%s", comma));
}

static void append_step(void *csv, const struct dp_metrics_sample *s)
{
    char line[LINE_BYTES] = "";

    add_number(line, 15, s->step);
    add_number(line, 9, s->epoch);
    add_number(line, 13, s->time); /* to the millisecond */
    add_number(line, 9, s->loss);
    add_number(line, 9, s->lr);
    add_number(line, 7, s->samples_per_second);
    add_number(line, 6, s->step_ms);
    append(csv, line);
    append(csv, "\n");
}

static dp_status fill_csv(const struct dp_run_record *record, struct csv *csv)
{
    const struct dp_metrics_taker taker = {csv, append_step, NULL};
    struct dp_metrics_reader reader = {0};
    char from[DP_PATH_BYTES];

    append(csv, headings);
    DP_TRY(dp_file_join(from, record->path, "metrics.jsonl"));
    DP_TRY(dp_metrics_read(&reader, from, &taker));
    return csv->status;
}

dp_status dp_record_write_csv(const struct dp_run_record *record, const char *path)
{
    struct csv csv = {.printed = strcmp(path, "-") == 0, .status = DP_OK};
    char from[DP_PATH_BYTES];
    dp_status status;

    DP_TRY(dp_file_join(from, record->path, "metrics.jsonl"));
    if (access(from, R_OK) != 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s is missing: there are no steps to write", from);
    }
    if (csv.printed) {
        return fill_csv(record, &csv);
    }
    DP_TRY(dp_file_create(&csv.file, path));
    status = fill_csv(record, &csv);
    if (status != DP_OK) {
        dp_file_discard(&csv.file);
        return status;
    }
    return dp_file_finish(&csv.file, NULL);
}
