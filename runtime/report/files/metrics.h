/*
 * metrics.h - metrics.jsonl: what happens in a run, one JSON object a line, readable at any time.
 *
 * Lines are written whole, so a killed run leaves whole lines, but for the last at most. Every line
 * has "type" and "time" (seconds since 1970). Numbers that are not finite are null.
 *
 * A write takes tens of microseconds after a step that has used the caches, so lines about steps
 * wait for DP_METRICS_LATE_NS at most, where more steps end meanwhile: those that a killed process
 * had not written are lost.
 *
 * On a full disk lines wait in memory, and are written once there is room: none is lost. After
 * DP_METRICS_PATIENCE_NS, or when that memory is full, the file is given up, so that the run can
 * save and stop, instead of losing what it measures.
 */
#ifndef DP_RUNTIME_REPORT_FILES_METRICS_H
#define DP_RUNTIME_REPORT_FILES_METRICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/files/file.h"
#include "base/status.h"
#include "runtime/report/summary.h"

enum { DP_METRICS_ROOM = 64 * 1024 }; /* some 300 lines */
enum { DP_METRICS_STEPS = 64 };       /* that wait to be written together */
#define DP_METRICS_LATE_NS 100000000u
#define DP_METRICS_PATIENCE_NS 30000000000u
#define DP_METRICS_RETRY_NS 1000000000u
#define DP_METRICS_WARN_NS 60000000000u /* from one warning to the next, at least */

/* The open file. The path is copied. Times are dp_now_ns(); 0: never. */
struct dp_metrics {
    pthread_mutex_t mutex; /* protects all but the path */
    int fd;
    bool given_up;
    bool at_once;                 /* set by the owner: lines about steps do not wait */
    struct dp_metrics_late *late; /* owned, [DP_METRICS_STEPS]: steps that have no line yet */
    int late_count;
    uint64_t late_ns; /* when such lines were last written */
    char *waiting;    /* owned, [DP_METRICS_ROOM]: what could not be written yet */
    size_t waiting_bytes;
    uint64_t failing_ns; /* since when; 0: nothing waits */
    uint64_t tried_ns, warned_ns;
    char path[DP_PATH_BYTES];
};

struct dp_metrics_start {
    const char *name, *device, *precision, *strategy, *compressor;
    int world_size, global_batch;
    int64_t first_step; /* steps done before: above 0 after a resume */
    int64_t steps;      /* the last one planned, counted from the beginning of training */
    const struct dp_run_lost_rank *lost; /* [lost_count]: ranks without which it goes on */
    int lost_count;
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
    double test_loss;
    double test_accuracy, test_top5, test_error; /* NaN: not of this loss */
    double seconds;                              /* that the evaluation took */
};

/* Opens `path`, and empties it unless `append`; a torn last line then gets its line end. After
 * success dp_metrics_close() must be called. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_metrics_open(struct dp_metrics *metrics, const char *path, bool append);

/* For a run that goes on after `step`: removes the lines of later steps, those about evaluations of
 * steps after `evaluated`, which are made again, a torn last line and, with a warning, what NUL
 * bytes have made unreadable. The file is replaced at once. Without such a file it does nothing.
 * Errors: DP_ERR_WRITE, DP_ERR_DATA, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_metrics_trim(const char *path, int64_t step, int64_t evaluated);

/* One line each. The step's line takes no memory. Errors: DP_ERR_NOMEM, except for a step;
 * DP_ERR_WRITE: the first two and the last, which do not wait, report it; a step and an evaluation
 * return it once the file is given up, after a warning. */
DP_CHECKED dp_status dp_metrics_start(struct dp_metrics *metrics,
                                      const struct dp_metrics_start *start);
DP_CHECKED dp_status dp_metrics_resume(struct dp_metrics *metrics,
                                       const struct dp_metrics_start *start,
                                       const char *checkpoint);
DP_CHECKED dp_status dp_metrics_step(struct dp_metrics *metrics,
                                     const struct dp_metrics_step *step);
/* Writes the lines of steps that wait. From another thread, where the one that adds them may be in
 * the middle of a write that never returns: does nothing then. Errors: as of a step. */
DP_CHECKED dp_status dp_metrics_flush(struct dp_metrics *metrics);
/* Adds a step whose line may be there already, or may not: whoever wrote there may have
 * died. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_metrics_step_once(struct dp_metrics *metrics,
                                          const struct dp_metrics_step *step);
DP_CHECKED dp_status dp_metrics_eval(struct dp_metrics *metrics,
                                     const struct dp_metrics_eval *eval);
DP_CHECKED dp_status dp_metrics_end(struct dp_metrics *metrics,
                                    const struct dp_run_summary *summary);

void dp_metrics_close(struct dp_metrics *metrics);

#endif
