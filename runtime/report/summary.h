/*
 * summary.h - what a run came to: run.json, and the table printed at its end.
 *
 * The structs hold results only, filled in by whoever measured them. A number that is not known is
 * NaN: null in run.json, "-" in the table. Efficiencies and accuracies are fractions of 1.
 */
#ifndef DP_RUNTIME_REPORT_SUMMARY_H
#define DP_RUNTIME_REPORT_SUMMARY_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define DP_SUMMARY_SCHEMA "lockstep.run/1"

/* How a run ended: name in run.json. */
#define DP_RUN_EXITS(X)               \
    X(FINISHED, "finished")           \
    X(EARLY_STOPPED, "early_stopped") \
    X(STOPPED, "stopped")             \
    X(DIVERGED, "diverged")           \
    X(HUNG, "hung")                   \
    X(ERROR, "error")

enum dp_run_exit {
#define X(name, text) DP_RUN_##name,
    DP_RUN_EXITS(X)
#undef X
        DP_RUN_EXIT_COUNT
};

const char *dp_run_exit_text(enum dp_run_exit exit);

/* The parts of a step, in milliseconds: key in run.json, heading of the table. */
#define DP_STEP_PARTS(X)                  \
    X(INPUT, "input", "input")            \
    X(COPY, "copy", "copy")               \
    X(FORWARD, "forward", "forward")      \
    X(BACKWARD, "backward", "backward")   \
    X(EXPOSED, "exposed_comm", "exposed") \
    X(OPTIMIZER, "optimizer", "optim")    \
    X(CHECKPOINT, "checkpoint", "ckpt")   \
    X(OTHER, "other", "other")

enum dp_step_part {
#define X(name, key, heading) DP_PART_##name,
    DP_STEP_PARTS(X)
#undef X
        DP_STEP_PART_COUNT
};

/* One rank. Plain bytes, so that ranks of one build may send it to each other. */
struct dp_run_rank {
    int rank, threads;
    char host[64];
    char cpus[128]; /* "0-3,8" */
    double samples_per_second, scaling_efficiency, compute_efficiency;
    double step_ms[DP_STEP_PART_COUNT]; /* means over the steady steps; they sum to its mean */
    double hidden_comm_ms;
    int64_t peak_rss_bytes; /* below 0: unknown */
    int64_t
        peak_device_bytes; /* that were allocated on the device; below 0: it has no memory of its
                                  own */
};

struct dp_run_summary {
    const char *name, *version, *started; /* "2024-05-01T12:00:00Z" */
    enum dp_run_exit exit;
    const char *reason; /* why it ended so, one line; NULL: finished */
    int world_size;     /* training ranks */
    const char *device, *precision, *strategy, *compressor;
    const char *plan; /* of the communication, for people; NULL: none */
    int global_batch;
    int64_t steps;        /* from the beginning of training */
    int64_t resumed_from; /* the step that this run went on from; below 0: from the beginning */
    double epochs;        /* may end within one */
    double samples_per_second;
    double single_rank_samples_per_second;
    struct {
        const char *source; /* "measured", "this run" of one rank, or the file it was taken from */
        double before, after; /* samples/s after the first steps, and after the last */
        double spread;        /* (largest - smallest) / mean of all its measurements */
    } baseline;
    double scaling_efficiency;
    double samples_per_dollar;   /* NaN without a price */
    int64_t wire_bytes_per_step; /* of the busiest rank; below 0: unknown */
    int64_t skipped_steps;
    int64_t restored; /* how often a rank's state was replaced by that of the majority */
    double time_to_first_step_s, seconds; /* from the start of the process */
    struct {
        double train_loss, test_loss, test_accuracy;
    } final;
    const uint64_t
        *staleness;         /* [staleness_count]: gradients, by how many of other ranks were applied
                                  between their weights and themselves */
    size_t staleness_count; /* 0: synchronous */
    const char *verdict;    /* one line; NULL: none */
    const struct dp_run_rank *ranks;
    int rank_count;
};

/* Replaces the file `path` by the summary as JSON; a reader never sees a part of it. On error an
 * older one stays. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_summary_write(const struct dp_run_summary *summary, const char *path);

/* Prints the summary for people: a few lines and a table of ranks. */
void dp_run_summary_print(const struct dp_run_summary *summary, FILE *out);

#endif
