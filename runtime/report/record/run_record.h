/*
 * run_record.h - what the folder of a run says of it: run.json, metrics.jsonl, config.yaml.
 *
 * The run may have ended, go on, or have been killed, and files may be missing, torn or damaged:
 * the record has what can be read, and a line for each thing that is missing.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_RUN_RECORD_H
#define DP_RUNTIME_REPORT_RECORD_RUN_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/files/file.h"
#include "base/json.h"
#include "runtime/report/files/metrics_reader.h"
#include "runtime/report/record/history.h"
#include "runtime/report/summary.h"

/* What becomes of the run: name, and what people are told. */
#define DP_RUN_STATES(X)              \
    X(ENDED, "ended", "has ended")    \
    X(GOING, "running", "is running") \
    X(BROKEN, "broken off", "was killed, or runs on another host")

enum dp_run_state {
#define X(name, key, text) DP_RUN_STATE_##name,
    DP_RUN_STATES(X)
#undef X
};

const char *dp_run_state_key(enum dp_run_state state);
const char *dp_run_state_text(enum dp_run_state state);

enum { DP_RECORD_NOTES = 8, DP_RECORD_NOTE_BYTES = 256 };

struct dp_run_record {
    char path[DP_PATH_BYTES];
    enum dp_run_state state;
    bool has_summary;     /* run.json is there and can be read */
    struct dp_json *json; /* owned: run.json; NULL: none */
    /* Of run.json; without it what metrics.jsonl lets one know. It owns its tables. */
    struct dp_run_summary summary;
    char *config; /* owned: config.yaml, else the one in run.json; NULL: none */
    bool has_metrics;
    struct dp_metrics_reader reader;
    struct dp_history history;
    char notes[DP_RECORD_NOTES][DP_RECORD_NOTE_BYTES]; /* what is missing; not cleaned (text.h) */
    int note_count;
};

/*
 * Reads a folder.
 *
 *   out  out  owned by the caller (dp_run_record_close)
 *
 * Errors: DP_ERR_NOINPUT (there is no such folder, or no run in it), DP_ERR_DATA (nothing of it can
 * be read), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_record_open(const char *path, struct dp_run_record **out);

/*
 * For a program that shows its own run again and again: a record of which nothing is read yet, and
 * its reading, which takes only the lines of metrics.jsonl that are new. Nothing is logged.
 *
 *   going  whether the run goes on; false: as its files and its lock say
 *
 * Errors: DP_ERR_NOMEM; DP_ERR_DATA, DP_ERR_NOINPUT as above.
 */
DP_CHECKED dp_status dp_run_record_create(const char *path, struct dp_run_record **out);
DP_CHECKED dp_status dp_run_record_update(struct dp_run_record *record, bool going);

/* By how much samples/s varied: between the windows of run.json or, without it, between blocks of
 * steps; of 1, NaN: not known. */
double dp_run_record_varies(const struct dp_run_record *record);

/* NULL is allowed. */
void dp_run_record_close(struct dp_run_record *record);

#endif
