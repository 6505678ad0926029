/*
 * metrics.h - metrics.jsonl: what happens in a run, one JSON object a line, readable at any time.
 *
 * Each line is one write, so a killed run leaves whole lines, but for the last at most. Every line
 * has "type" and "time" (seconds since 1970). Numbers that are not finite are null.
 */
#ifndef DP_RUNTIME_REPORT_METRICS_H
#define DP_RUNTIME_REPORT_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

/* The open file. The path is copied. */
struct dp_metrics {
    int fd;
    bool failed; /* said once */
    char path[DP_PATH_BYTES];
};

struct dp_metrics_start {
    const char *name, *device, *precision, *strategy, *compressor;
    int world_size, global_batch;
    int64_t first_step; /* steps done before: above 0 after a resume */
    int64_t steps;      /* the last one planned, counted from the beginning of training */
};

struct dp_metrics_step {
    int64_t step; /* from 1: how many are done */
    int epoch;    /* from 1 */
    double loss;  /* mean over the global batch */
    double lr;
    double samples_per_second; /* over all ranks, since the line before */
    double step_ms;
    double loss_scale; /* of fp16; 0: there is none */
    bool skipped;      /* the gradient was not finite */
};

struct dp_metrics_eval {
    int64_t step;
    int epoch;
    double train_loss; /* mean since the evaluation before */
    double test_loss, test_accuracy;
    double seconds; /* that the evaluation took */
};

struct dp_metrics_end {
    const char *exit; /* as in run.json */
    int64_t steps;
    double samples_per_second; /* steady */
    double scaling_efficiency;
    double train_loss, test_loss, test_accuracy;
    double seconds; /* of the whole run */
};

/* Opens `path`, emptied unless `append`; a torn last line is then closed off. After success
 * dp_metrics_close() must be called. Errors: DP_ERR_WRITE. */
DP_CHECKED dp_status dp_metrics_open(struct dp_metrics *metrics, const char *path, bool append);

/* Takes out, in one step, the lines of steps behind `step` and a torn last line: a run goes on from
 * there; and what NUL bytes have made unreadable, with a warning. Without such a file it does
 * nothing. Errors: DP_ERR_WRITE, DP_ERR_DATA, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_metrics_trim(const char *path, int64_t step);

/* One line each. The step's line takes no memory. Errors: DP_ERR_WRITE, logged only the first
 * time; the others also DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_metrics_start(struct dp_metrics *metrics,
                                      const struct dp_metrics_start *start);
DP_CHECKED dp_status dp_metrics_resume(struct dp_metrics *metrics,
                                       const struct dp_metrics_start *start,
                                       const char *checkpoint);
DP_CHECKED dp_status dp_metrics_step(struct dp_metrics *metrics,
                                     const struct dp_metrics_step *step);
DP_CHECKED dp_status dp_metrics_eval(struct dp_metrics *metrics,
                                     const struct dp_metrics_eval *eval);
DP_CHECKED dp_status dp_metrics_end(struct dp_metrics *metrics, const struct dp_metrics_end *end);

void dp_metrics_close(struct dp_metrics *metrics);

#endif
