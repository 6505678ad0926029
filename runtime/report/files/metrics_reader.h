/*
 * metrics_reader.h - reads metrics.jsonl line by line, also while a run writes it.
 *
 * It needs the same memory however long the file is. Lines that are not JSON objects with a "type"
 * are counted and left out; a last line without its end is left for the next call.
 */
#ifndef DP_RUNTIME_REPORT_FILES_METRICS_READER_H
#define DP_RUNTIME_REPORT_FILES_METRICS_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/status.h"

/* How far a file has been read. Zeros: not at all. */
struct dp_metrics_reader {
    size_t at;         /* bytes of whole lines */
    size_t lines;      /* readable ones */
    size_t unreadable; /* lines that are left out */
    bool torn;         /* something comes after the last whole line */
};

/* A line of a step. What it lacks is NaN. */
struct dp_metrics_sample {
    double step, epoch, time, loss, lr, samples_per_second, step_ms;
    double skipped; /* 1: the gradient was not finite */
};

/* Who takes the readable lines: one function for steps, which are most of them and are read without
 * jansson (a fifth of the time), one for all others; NULL: they are left out. */
struct dp_metrics_taker {
    void *context;
    void (*step)(void *context, const struct dp_metrics_sample *sample);
    void (*other)(void *context, const char *type, const struct dp_json *line);
};

/* Reads the lines that have been added since the last call. Errors: DP_ERR_NOINPUT (the file cannot
 * be opened), DP_ERR_DATA (it cannot be read), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_metrics_read(struct dp_metrics_reader *reader, const char *path,
                                     const struct dp_metrics_taker *taker);

/* The number `key` of a line; NaN: it has none. */
double dp_metrics_real(const struct dp_json *line, const char *key);

#endif
