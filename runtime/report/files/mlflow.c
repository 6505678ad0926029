#define _GNU_SOURCE /* realpath */

#include "runtime/report/files/mlflow.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/disk.h"
#include "base/text.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/record/config_keys.h"

enum { LINE_BYTES = 128, TEXT_BYTES = 512, URI_BYTES = 3 * DP_PATH_BYTES, DEPTH_MOST = 2 };
enum { TAG_BYTES = 4096 };

/* What MLflow and the databases that it moves a store to take for a time in s, and for a step. */
static const double time_most = 1e11, step_most = 1e15;

/* MLflow's RunStatus. */
enum { RUNNING = 1, FINISHED = 3, FAILED = 4, KILLED = 5 };

/* The series of a run: a file each. */
enum { LOSS, LR, RATE, STEP_MS, EPOCH, TRAIN_LOSS, TEST_LOSS, TEST_ACCURACY, SERIES };

static const char *const series_names[SERIES] = {"loss",      "lr",           "samples_per_second",
                                                 "step_ms",   "epoch",        "train_loss",
                                                 "test_loss", "test_accuracy"};

static const char figures_begin[] = "run."; /* of the names of numbers of run.json */

struct store {
    char run[DP_PATH_BYTES]; /* its folder */
    char experiment_id[24], run_id[40];
    const struct dp_run_record *record;
    struct dp_file series[SERIES];
    bool open[SERIES];
    dp_status status;
};

/* ---- names ---- */

/* The hash of a text, FNV-1a; `seed` makes others. */
static uint64_t hash(const char *text, uint64_t seed)
{
    uint64_t value = UINT64_C(14695981039346656037) ^ seed;

    for (; *text != '\0'; text++) {
        value = (value ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return value;
}

/* "model.layers[3].dense.units" as "model.layers.3.dense.units"; MLflow takes letters, digits and
 * some signs, but reads no run where a name begins with "..". */
static void key_of(char out[LINE_BYTES], const char *before, const char *key)
{
    size_t used = (size_t)snprintf(out, LINE_BYTES, "%s", before);

    for (; *key != '\0' && used + 1 < LINE_BYTES; key++) {
        const bool plain = isalnum((unsigned char)*key) || strchr("_-.", *key) != NULL;
        if (*key != ']') {
            out[used++] = (char)(plain ? *key : '.');
        }
    }
    out[used] = '\0';
    memset(out, '_', strspn(out, "."));
}

/* Between single quotes of YAML. */
static void quote(char out[TEXT_BYTES], const char *text)
{
    char clean[TEXT_BYTES / 2 - 2];
    size_t used = 0;

    (void)dp_text_clean(text, clean, sizeof(clean));
    for (const char *c = clean; *c != '\0'; c++) {
        out[used++] = *c;
        if (*c == '\'') {
            out[used++] = '\'';
        }
    }
    out[used] = '\0';
}

/* "file:///runs/a%20b". */
static void uri_of(char out[URI_BYTES], const char *path)
{
    size_t used = (size_t)snprintf(out, URI_BYTES, "file://");

    for (; *path != '\0' && used + 4 < URI_BYTES; path++) {
        const bool plain = isalnum((unsigned char)*path) || strchr("/_-.~", *path) != NULL;
        used += (size_t)snprintf(out + used, URI_BYTES - used, plain ? "%c" : "%%%02X",
                                 (unsigned char)*path);
    }
}

static const char *absolute(const struct dp_run_record *r, char out[DP_PATH_BYTES])
{
    if (realpath(r->path, out) == NULL) {
        (void)snprintf(out, DP_PATH_BYTES, "%s", r->path);
    }
    return out;
}

/* In milliseconds; 0: it is not known. */
static long long ms_of(double time)
{
    return fabs(time) < time_most ? llround(1e3 * time) : 0;
}

/* ---- folders and small files ---- */

static dp_status make_folder(const char *path)
{
    return dp_disk_mkdir(path) == 0 || errno == EEXIST ? DP_OK : dp_file_fail(path, errno);
}

/* inner: a folder in it; empty: none. */
static dp_status write_small(const char *folder, const char *inner, const char *name,
                             const char *text)
{
    char place[DP_PATH_BYTES], path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(place, folder, inner[0] != '\0' ? inner : "."));
    DP_TRY(dp_file_join(path, place, name));
    return dp_file_replace(path, text, strlen(text));
}

/* A file that MLflow reads as UTF-8. */
static dp_status write_text(const struct store *s, const char *inner, const char *name,
                            const char *text)
{
    char clean[TAG_BYTES];

    (void)dp_text_clean(text, clean, sizeof(clean));
    return write_small(s->run, inner, name, clean);
}

/* ---- what MLflow knows of an experiment and a run ---- */

static dp_status write_experiment(const struct store *s, const char *folder, const char *name)
{
    char text[URI_BYTES + 2 * TEXT_BYTES], uri[URI_BYTES], quoted[TEXT_BYTES], path[DP_PATH_BYTES];
    char whole[DP_PATH_BYTES];
    const long long begin_ms = ms_of(s->record->history.begin_time);

    DP_TRY(dp_file_join(path, folder, s->experiment_id));
    DP_TRY(make_folder(path));
    quote(quoted, name);
    uri_of(uri, realpath(path, whole) != NULL ? whole : path);
    (void)snprintf(text, sizeof(text),
                   "artifact_location: '%s'\ncreation_time: %lld\nexperiment_id: '%s'\n"
                   "last_update_time: %lld\nlifecycle_stage: active\nname: '%s'\n",
                   uri, begin_ms, s->experiment_id, begin_ms, quoted);
    return write_small(path, "", "meta.yaml", text);
}

static int status_of(const struct dp_run_record *r)
{
    if (r->state == DP_RUN_STATE_GOING) {
        return RUNNING;
    }
    if (!r->has_summary) {
        return KILLED;
    }
    switch (r->summary.exit) {
    case DP_RUN_FINISHED:
    case DP_RUN_EARLY_STOPPED:
        return FINISHED;
    case DP_RUN_STOPPED:
        return KILLED;
    default:
        return FAILED;
    }
}

static dp_status write_meta(const struct store *s, const char *run_name)
{
    const struct dp_run_record *r = s->record;
    char text[URI_BYTES + 2 * TEXT_BYTES], uri[URI_BYTES], quoted[TEXT_BYTES];
    char path[DP_PATH_BYTES], end[24] = "null";

    uri_of(uri, absolute(r, path));
    quote(quoted, run_name);
    if (status_of(r) != RUNNING && isfinite(r->history.last_time)) {
        (void)snprintf(end, sizeof(end), "%lld", ms_of(r->history.last_time));
    }
    (void)snprintf(text, sizeof(text),
                   "artifact_uri: '%s'\nend_time: %s\nentry_point_name: ''\nexperiment_id: '%s'\n"
                   "lifecycle_stage: active\nrun_id: %s\nrun_name: '%s'\nsource_name: ''\n"
                   "source_type: 4\nsource_version: ''\nstart_time: %lld\nstatus: %d\ntags: []\n"
                   "user_id: lockstep\n",
                   uri, end, s->experiment_id, s->run_id, quoted, ms_of(r->history.begin_time),
                   status_of(r));
    return write_small(s->run, "", "meta.yaml", text);
}

static dp_status write_tags(const struct store *s, const char *run_name)
{
    const struct dp_run_summary *summary = &s->record->summary;

    DP_TRY(write_text(s, "tags", "mlflow.runName", run_name));
    if (summary->verdict != NULL) {
        DP_TRY(write_text(s, "tags", "mlflow.note.content", summary->verdict));
    }
    return summary->version == NULL ? DP_OK
                                    : write_text(s, "tags", "lockstep.version", summary->version);
}

static dp_status write_params(const struct store *s)
{
    struct dp_config_keys keys;
    dp_status status = DP_OK;
    char name[LINE_BYTES];

    DP_TRY(dp_config_keys_parse(s->record->config, &keys));
    for (int i = 0; i < keys.count && status == DP_OK; i++) {
        key_of(name, "", keys.entries[i].key);
        if (name[0] != '\0') { /* else no key of a configuration, nor of a file */
            status = write_text(s, "params", name, keys.entries[i].value);
        }
    }
    dp_config_keys_release(&keys);
    return status;
}

/* ---- metrics ---- */

/* A line of a metric: milliseconds since 1970, value, step. */
static void add_value(struct store *s, int series, double time, double value, double step)
{
    char line[LINE_BYTES], path[DP_PATH_BYTES], inner[64];

    if (s->status != DP_OK || !(fabs(step) < step_most) || (isnan(value) && series != LOSS)) {
        return;
    }
    if (!s->open[series]) {
        (void)snprintf(inner, sizeof(inner), "metrics/%s", series_names[series]);
        s->status = dp_file_join(path, s->run, inner);
        s->status = s->status == DP_OK ? dp_file_create(&s->series[series], path) : s->status;
        s->open[series] = s->status == DP_OK;
    }
    (void)snprintf(line, sizeof(line), "%lld %.9g %.0f\n", ms_of(time), value, step);
    if (s->open[series]) {
        s->status = dp_file_append(&s->series[series], line, strlen(line));
    }
}

static void add_step(void *context, const struct dp_metrics_sample *m)
{
    struct store *s = context;

    add_value(s, LOSS, m->time, m->loss, m->step);
    add_value(s, LR, m->time, m->lr, m->step);
    add_value(s, RATE, m->time, m->samples_per_second, m->step);
    add_value(s, STEP_MS, m->time, m->step_ms, m->step);
    add_value(s, EPOCH, m->time, m->epoch, m->step);
}

static void add_other(void *context, const char *type, const struct dp_json *line)
{
    struct store *s = context;
    const double time = dp_metrics_real(line, "time"), step = dp_metrics_real(line, "step");

    if (strcmp(type, "eval") == 0) {
        add_value(s, TRAIN_LOSS, time, dp_metrics_real(line, "train_loss"), step);
        add_value(s, TEST_LOSS, time, dp_metrics_real(line, "test_loss"), step);
        add_value(s, TEST_ACCURACY, time, dp_metrics_real(line, "test_accuracy"), step);
    }
}

/* Closes all series; the first error is the result. */
static dp_status close_series(struct store *s)
{
    for (int i = 0; i < SERIES; i++) {
        if (s->open[i] && s->status != DP_OK) {
            dp_file_discard(&s->series[i]);
        } else if (s->open[i]) {
            s->status = dp_file_finish(&s->series[i], NULL);
        }
    }
    return s->status;
}

static dp_status write_series(struct store *s)
{
    const struct dp_metrics_taker taker = {s, add_step, add_other};
    struct dp_metrics_reader reader = {0};
    char from[DP_PATH_BYTES];
    dp_status status;

    if (!s->record->has_metrics) {
        return DP_OK;
    }
    DP_TRY(dp_file_join(from, s->record->path, "metrics.jsonl"));
    status = dp_metrics_read(&reader, from, &taker);
    s->status = s->status == DP_OK ? status : s->status;
    return close_series(s);
}

/* The numbers of an object, and of those in it; not of lists. */
/* NOLINTNEXTLINE(misc-no-recursion): no deeper than DEPTH_MOST */
static dp_status write_figures(const struct store *s, const struct dp_json *object,
                               const char *before, int depth)
{
    const struct dp_run_record *r = s->record;
    struct dp_json_member member = {0};
    char name[LINE_BYTES], inner[LINE_BYTES], line[LINE_BYTES];
    double value;

    while (dp_json_next(object, &member)) {
        key_of(name, before, member.key);
        if (dp_json_is_object(member.value) && depth < DEPTH_MOST) {
            (void)snprintf(inner, sizeof(inner), "%.120s.", name);
            DP_TRY(write_figures(s, member.value, inner, depth + 1));
        } else if (dp_json_real(member.value, &value)) {
            (void)snprintf(line, sizeof(line), "%lld %.9g %" PRId64 "\n",
                           ms_of(r->history.last_time), value, r->summary.steps);
            DP_TRY(write_small(s->run, "metrics", name, line));
        }
    }
    return DP_OK;
}

/* ---- all of it ---- */

/* Whether a metric is one that this file writes: others are of whoever logged them. */
static bool is_ours(const char *metric)
{
    for (int i = 0; i < SERIES; i++) {
        if (strcmp(metric, series_names[i]) == 0) {
            return true;
        }
    }
    return strncmp(metric, figures_begin, strlen(figures_begin)) == 0;
}

/* What was known when the run was added before, and may not be any more: of a run that went on
 * since there is no run.json until it ends. */
static dp_status forget(const struct store *s)
{
    char path[DP_PATH_BYTES];
    const struct dirent *entry;
    DIR *metrics;

    DP_TRY(dp_file_join(path, s->run, "tags/mlflow.note.content"));
    (void)dp_disk_unlink(path);
    DP_TRY(dp_file_join(path, s->run, "metrics"));
    metrics = opendir(path);
    while (metrics != NULL && (entry = readdir(metrics)) != NULL) {
        if (is_ours(entry->d_name)) {
            (void)dp_disk_unlink_at(dirfd(metrics), entry->d_name);
        }
    }
    if (metrics != NULL) {
        (void)closedir(metrics);
    }
    return DP_OK;
}

static dp_status make_folders(const struct store *s)
{
    static const char *const inner[] = {"metrics", "params", "tags", "artifacts"};
    char path[DP_PATH_BYTES];

    DP_TRY(make_folder(s->run));
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++) {
        DP_TRY(dp_file_join(path, s->run, inner[i]));
        DP_TRY(make_folder(path));
    }
    return DP_OK;
}

/* Where the run lies in the store; the same each time that it is added. */
static dp_status name_run(struct store *s, const char *folder, const char *experiment)
{
    char path[DP_PATH_BYTES], text[DP_PATH_BYTES + 32];

    (void)snprintf(text, sizeof(text), "%s %.0f", absolute(s->record, path),
                   s->record->history.begin_time);
    (void)snprintf(s->experiment_id, sizeof(s->experiment_id), "%" PRIu64,
                   hash(experiment, 0) % UINT64_C(900000000000000000) +
                       UINT64_C(100000000000000000));
    (void)snprintf(s->run_id, sizeof(s->run_id), "%016" PRIx64 "%016" PRIx64, hash(text, 0),
                   hash(text, 1));
    DP_TRY(dp_file_join(path, folder, s->experiment_id));
    return dp_file_join(s->run, path, s->run_id);
}

static dp_status write_all(struct store *s, const char *folder)
{
    const char *experiment = dp_figure_or_dash(s->record->summary.name);
    char path[DP_PATH_BYTES];
    const char *slash = strrchr(absolute(s->record, path), '/');
    const char *run_name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;

    DP_TRY(make_folder(folder));
    DP_TRY(name_run(s, folder, experiment));
    DP_TRY(write_experiment(s, folder, experiment));
    DP_TRY(make_folders(s));
    DP_TRY(forget(s));
    DP_TRY(write_tags(s, run_name));
    DP_TRY(write_params(s));
    DP_TRY(write_series(s));
    DP_TRY(s->record->json == NULL ? DP_OK : write_figures(s, s->record->json, figures_begin, 0));
    return write_meta(s, run_name); /* last: without it MLflow sees no run */
}

dp_status dp_mlflow_write(const struct dp_run_record *record, const char *folder)
{
    struct store *s = dp_zalloc(1, sizeof(*s));
    dp_status status;

    if (s == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a run for MLflow");
    }
    s->record = record;
    status = write_all(s, folder);
    dp_free(s);
    return status;
}
