/*
 * rows.h - what ddp_bench prints: rows of one table of columns, as text for people, CSV or JSON.
 */
#ifndef DP_LAUNCH_BENCH_ROWS_H
#define DP_LAUNCH_BENCH_ROWS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "launch/bench/options.h"
#include "launch/bench/stats.h"

/* Numbers that were not measured are NaN: null in JSON, empty in CSV, - in the table. */
struct dp_bench_row {
    const char *strategy, *compressor; /* borrowed */
    const char *type;
    char bucket[16]; /* --buckets: its number, "tail", or "sum" */
    double size, count, ranks;
    double min_us, median_us, p99_us, algbw, busbw;
    double wrong;      /* elements of all ranks, at most ranks x count; the most of all rounds */
    double wire_bytes; /* of the busiest rank; an estimate where MPI or NCCL sends */
    double sent;       /* by this rank; no column, and not equal on all ranks */
    double max_ulp, rel_l2, predicted_us;
    double ratio;                                      /* measured / predicted */
    double bound_us;                                   /* --bound; always known between nodes */
    const char *bound;                                 /* its name: "copy bound", "wire" */
    double step_us;                                    /* --buckets: time of such a step */
    double exposed_us;                                 /* --buckets: what sharing adds to a step */
    struct dp_stats_range median_range, exposed_range; /* no columns; NaN: unknown */
    double loss, accuracy;                             /* --train; accuracy from 0 to 1 */
};

/* All numbers NaN. */
void dp_bench_row_init(struct dp_bench_row *row);

struct dp_bench_rows {
    const struct dp_bench_options *options; /* borrowed: format and columns */
    FILE *file;                             /* borrowed; NULL: rows are stored, not printed */
    bool headed;                            /* whether the heading is printed */
    struct dp_bench_row *row;               /* [count]; owned */
    size_t count, capacity;
};

void dp_bench_rows_begin(struct dp_bench_rows *rows, const struct dp_bench_options *options,
                         FILE *file);

/* Prints a row at once, and stores it. JSON is printed by dp_bench_rows_end(), so that it is whole
 * or absent, however the program ends. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_rows_add(struct dp_bench_rows *rows, const struct dp_bench_row *row);

/* Prints what has not been printed yet. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_rows_end(struct dp_bench_rows *rows);

/* Prints a line that is not a row: in the table after "# ", with CSV and JSON on stderr. */
void dp_bench_rows_note(const struct dp_bench_rows *rows, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void dp_bench_rows_destroy(struct dp_bench_rows *rows);

#endif
