/*
 * history.h - the course of a run, from the lines of metrics.jsonl, in memory that does not grow.
 *
 * Steps are put together into at most DP_HISTORY_POINTS points of equally many steps. When all are
 * in use, neighbours are joined, and each point has twice as many from then on.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_HISTORY_H
#define DP_RUNTIME_REPORT_RECORD_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/report/files/metrics_reader.h"

enum { DP_HISTORY_POINTS = 512, DP_HISTORY_EVALS = 256, DP_HISTORY_NAME = 160 };

struct dp_history_point {
    int64_t first, last;      /* steps */
    int64_t steps;            /* how many */
    double time;              /* of the last: seconds since 1970 */
    double lr;                /* of the last */
    double loss_sum;          /* of the steps whose loss is a number */
    int64_t losses;           /* how many these are */
    double samples, ms;       /* of all of them */
    double least_ms, most_ms; /* the fastest and the slowest step */
};

struct dp_history_eval {
    int64_t step;
    double time, train_loss, test_loss;
    double test_accuracy, test_top5, test_error; /* NaN: not of this loss */
};

/* What the line "start" says. */
struct dp_history_start {
    char name[DP_HISTORY_NAME], device[DP_HISTORY_NAME], precision[DP_HISTORY_NAME];
    char strategy[DP_HISTORY_NAME], compressor[DP_HISTORY_NAME];
    int64_t world_size, global_batch, steps; /* below 0: not known */
};

struct dp_history {
    bool started, ended; /* there is such a line; none of a run that went on comes after the end */
    int resumes;
    struct dp_history_start start;
    double begin_time;        /* of the first line of steps or of a start; NaN: there is none */
    double last_time;         /* of the last line; NaN: there is none */
    int64_t steps, last_step; /* lines of steps; the number of the last one */
    int64_t skipped;          /* steps whose gradient was not finite */
    int64_t per_point;        /* steps of a point */
    int count, eval_count;    /* of the arrays below */
    struct dp_history_point points[DP_HISTORY_POINTS];
    struct dp_history_eval evals[DP_HISTORY_EVALS];
};

void dp_history_init(struct dp_history *history);

/* What takes the lines of a file into a history (dp_metrics_read). */
struct dp_metrics_taker dp_history_taker(struct dp_history *history);

double dp_history_loss(const struct dp_history_point *point); /* NaN: none is a number */
double dp_history_rate(const struct dp_history_point *point); /* samples/s; NaN: not known */

/*
 * Samples/s of the steady steps (ledger.h), as the mean, and how sure it is: the standard error of
 * the mean of up to 16 blocks of consecutive steps. Blocks, since neighbouring steps are alike; see
 * Flyvbjerg and Petersen, "Error estimates on averages of correlated data", 1989. A rate is samples
 * over time, and its relative error that of the time: rates of blocks are no measure of it, since a
 * short quick one would count as much as all the others.
 */
struct dp_history_pace {
    int64_t steps;           /* steady ones */
    int blocks;              /* below 4 the error is not known */
    double rate, rate_error; /* samples/s; NaN: not known */
    double ms, ms_error;     /* of a step */
    double cv;               /* standard deviation of the blocks' mean steps, over their mean */
};

struct dp_history_pace dp_history_pace(const struct dp_history *history);

/* The last tenth of the points, of which a run has one at least, as one; steps 0: there is none. */
struct dp_history_point dp_history_recent(const struct dp_history *history);

#endif
