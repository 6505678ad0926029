#include "runtime/report/record/run_record.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/summary_read.h"

enum { SMALL_FILE = 64 * 1024 * 1024 }; /* run.json and config.yaml are refused beyond */

static const struct {
    const char *key, *text;
} states[] = {
#define X(name, key, text) {key, text},
    DP_RUN_STATES(X)
#undef X
};

const char *dp_run_state_key(enum dp_run_state state)
{
    return states[state].key;
}

const char *dp_run_state_text(enum dp_run_state state)
{
    return states[state].text;
}

static void note(struct dp_run_record *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct dp_run_record *r, const char *format, ...)
{
    va_list args;

    if (r->note_count == DP_RECORD_NOTES) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(r->notes[r->note_count++], DP_RECORD_NOTE_BYTES, format, args);
    va_end(args);
}

/* ---- files ---- */

/* Reads a small file of the folder; *text stays NULL where that does not work, and a note says why.
 * Errors: DP_ERR_NOMEM. */
static dp_status read_small(struct dp_run_record *r, const char *name, const char *without,
                            char **text, size_t *bytes)
{
    char path[DP_PATH_BYTES];
    struct stat info;
    dp_status status;

    *text = NULL;
    DP_TRY(dp_file_join(path, r->path, name));
    if (stat(path, &info) != 0) {
        note(r, "%s is missing%s: no %s", name,
             strcmp(name, "run.json") == 0 ? " (a run writes it when it ends)" : "", without);
        return DP_OK;
    }
    status = dp_file_read(path, SMALL_FILE, text, bytes);
    if (status == DP_ERR_NOMEM || (status == DP_OK && **text != '\0')) {
        return status;
    }
    note(r, status == DP_OK ? "%s is empty: no %s" : "%s cannot be read: no %s", name, without);
    if (status == DP_OK) {
        dp_free(*text);
    }
    *text = NULL;
    return DP_OK;
}

static dp_status parse_summary(struct dp_run_record *r, const char *text, size_t bytes)
{
    dp_status status = dp_json_parse(text, bytes, "run.json", &r->json);

    if (status == DP_ERR_NOMEM) {
        return status;
    }
    if (status != DP_OK || !dp_json_is_object(r->json)) {
        dp_json_destroy(status == DP_OK ? r->json : NULL);
        r->json = NULL;
        note(r, "run.json is torn or damaged: no efficiency, verdict and parts of the step");
        return DP_OK;
    }
    DP_TRY(dp_run_summary_read(r->json, &r->summary));
    r->has_summary = true;
    return DP_OK;
}

static dp_status read_summary(struct dp_run_record *r)
{
    char *text;
    size_t bytes;
    dp_status status;

    DP_TRY(read_small(r, "run.json", "efficiency, verdict and parts of the step", &text, &bytes));
    status = text == NULL ? DP_OK : parse_summary(r, text, bytes);
    dp_free(text);
    return status;
}

static dp_status read_metrics(struct dp_run_record *r)
{
    const struct dp_metrics_taker taker = dp_history_taker(&r->history);
    char path[DP_PATH_BYTES];
    dp_status status;

    DP_TRY(dp_file_join(path, r->path, "metrics.jsonl"));
    status = dp_metrics_read(&r->reader, path, &taker);
    if (status == DP_ERR_NOINPUT) {
        note(r, "metrics.jsonl is missing: no course of loss and samples/s");
    } else if (status == DP_ERR_DATA) {
        note(r, "metrics.jsonl cannot be read: no course of loss and samples/s");
    } else if (status != DP_OK) {
        return status;
    }
    r->has_metrics = r->reader.lines > 0;
    if (r->reader.unreadable > 0) {
        note(r, "metrics.jsonl: %zu line%s cannot be read", r->reader.unreadable,
             dp_plural(r->reader.unreadable));
    }
    return DP_OK;
}

/* ---- what they say together ---- */

/* Without run.json. */
static void summarize_history(struct dp_run_record *r)
{
    const struct dp_history *h = &r->history;
    const struct dp_history_start *start = &h->start;
    struct dp_run_summary *s = &r->summary;

    dp_run_summary_clear(s);
    s->name = start->name;
    s->device = start->device;
    s->precision = start->precision;
    s->strategy = start->strategy;
    s->compressor = start->compressor;
    s->world_size = start->world_size;
    s->global_batch = start->global_batch;
    s->steps = h->last_step;
    s->samples_per_second = dp_history_pace(h).rate;
    s->seconds = h->last_time - h->begin_time;
    if (h->eval_count > 0) {
        const struct dp_history_eval *last = &h->evals[h->eval_count - 1];
        s->final_train_loss = last->train_loss;
        s->final_test_loss = last->test_loss;
        s->final_test_accuracy = last->test_accuracy;
        s->final_test_top5 = last->test_top5;
        s->final_test_error = last->test_error;
    }
}

static void drop_summary(struct dp_run_record *r)
{
    dp_json_destroy(r->json);
    dp_run_summary_release(&r->summary);
    r->json = NULL;
    r->has_summary = false;
}

/* Whether some process holds the folder. */
static bool is_held(const struct dp_run_record *r)
{
    char path[DP_PATH_BYTES];

    return dp_file_join(path, r->path, ".lockstep.lock") == DP_OK && dp_lock_held(path);
}

/* A run deletes the run.json of its earlier part when it goes on. That of one that hung is written
 * when metrics.jsonl has no end. */
static void find_state(struct dp_run_record *r, bool going)
{
    r->state = going                                ? DP_RUN_STATE_GOING
               : r->has_summary || r->history.ended ? DP_RUN_STATE_ENDED
               : is_held(r)                         ? DP_RUN_STATE_GOING
                                                    : DP_RUN_STATE_BROKEN;
    if (r->reader.torn && r->state != DP_RUN_STATE_GOING) {
        note(r, "metrics.jsonl: the last line is torn");
    }
    if (!r->has_summary) {
        summarize_history(r);
    }
}

/* Where config.yaml is gone run.json has most of it. */
static dp_status read_config(struct dp_run_record *r)
{
    struct stat info;
    char path[DP_PATH_BYTES];
    size_t bytes;

    DP_TRY(dp_file_join(path, r->path, "config.yaml"));
    if (!r->has_summary || r->summary.configuration == NULL || stat(path, &info) == 0) {
        return read_small(r, "config.yaml", "configuration", &r->config, &bytes);
    }
    r->config = dp_strdup(r->summary.configuration);
    return r->config != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "configuration of a run");
}

static dp_status read_folder(struct dp_run_record *r, bool going)
{
    drop_summary(r);
    dp_free(r->config);
    r->config = NULL;
    r->note_count = 0;
    DP_TRY(read_summary(r));
    DP_TRY(read_metrics(r));
    DP_TRY(read_config(r));
    find_state(r, going);
    return DP_OK;
}

dp_status dp_run_record_create(const char *path, struct dp_run_record **out)
{
    struct dp_run_record *r = dp_zalloc(1, sizeof(*r));

    if (r == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "record of a run");
    }
    if (snprintf(r->path, sizeof(r->path), "%s", path) >= (int)sizeof(r->path)) {
        dp_free(r);
        return DP_FAIL(DP_ERR_NOINPUT, "%.80s...: the path is too long", path);
    }
    dp_history_init(&r->history);
    *out = r;
    return DP_OK;
}

dp_status dp_run_record_update(struct dp_run_record *record, bool going)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR); /* what is missing is in the notes */
    status = read_folder(record, going);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return status;
}

/* Errors: as of dp_run_record_open(). */
static dp_status check_folder(const char *path)
{
    static const char *const names[] = {"run.json", "metrics.jsonl", "config.yaml"};
    struct stat info;
    char inside[DP_PATH_BYTES];

    if (stat(path, &info) != 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s is not the folder of a run, as --out names it", path);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        DP_TRY(dp_file_join(inside, path, names[i]));
        if (stat(inside, &info) == 0) {
            return DP_OK;
        }
    }
    return DP_FAIL(DP_ERR_NOINPUT,
                   "%s holds no run: neither run.json, metrics.jsonl nor config.yaml", path);
}

dp_status dp_run_record_open(const char *path, struct dp_run_record **out)
{
    struct dp_run_record *r = NULL;
    dp_status status;

    DP_TRY(check_folder(path));
    DP_TRY(dp_run_record_create(path, &r));
    status = dp_run_record_update(r, false);
    if (status == DP_OK && !r->has_summary && !r->has_metrics && r->config == NULL) {
        status = DP_FAIL(DP_ERR_DATA, "nothing of the run in %s can be read", path);
    } else if (status != DP_OK) {
        status = DP_FAIL(status, "cannot read the run in %s", path);
    }
    if (status != DP_OK) {
        dp_run_record_close(r);
        return status;
    }
    *out = r;
    return DP_OK;
}

double dp_run_record_varies(const struct dp_run_record *record)
{
    return isfinite(record->summary.rate_cv) ? record->summary.rate_cv
                                             : dp_history_pace(&record->history).cv;
}

void dp_run_record_close(struct dp_run_record *record)
{
    if (record != NULL) {
        drop_summary(record);
        dp_free(record->config);
        dp_free(record);
    }
}
