/*
 * gpu_timing.h - how bench_gpu times: many operations are queued at a time, so that the GPU is
 * timed and not the launches; compared ones are measured in turns.
 */
#ifndef DP_BENCHMARKS_GPU_TIMING_H
#define DP_BENCHMARKS_GPU_TIMING_H

#include "base/statistics.h"
#include "base/trace.h"
#include "benchmarks/gpu_passes.h"

enum {
    ROUNDS = 7,         /* the median counts */
    ROUND_NS = 5000000, /* at least, so that launching and waiting do not matter */
    MOST_CALLS = 1000
};

static dp_status time_round(struct bench *b, measured *run, const void *what, int calls, double *us)
{
    const uint64_t begin = dp_now_ns();

    for (int i = 0; i < calls; i++) {
        DP_TRY(run(b, what));
    }
    DP_TRY(b->s->device->synchronize(b->s));
    *us = (double)(dp_now_ns() - begin) / 1e3 / calls;
    return DP_OK;
}

/* Finds the number of calls that make a round long enough; this warms up, too. */
static dp_status count_calls(struct bench *b, measured *run, const void *what, int *calls)
{
    double us = 0.0;

    DP_TRY(time_round(b, run, what, 1, &us));
    for (*calls = 1; *calls < MOST_CALLS && us * *calls < ROUND_NS / 1e3; *calls *= 2) {
        DP_TRY(time_round(b, run, what, *calls, &us));
    }
    return DP_OK;
}

/* Medians of one thing or, in turns, of two. */
static dp_status compare(struct bench *b, measured *const runs[2], const void *const whats[2],
                         double us[2])
{
    double rounds[2][ROUNDS];
    int calls[2] = {0, 0};
    const int n = runs[1] != NULL ? 2 : 1;

    for (int i = 0; i < n; i++) {
        DP_TRY(count_calls(b, runs[i], whats[i], &calls[i]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            DP_TRY(time_round(b, runs[i], whats[i], calls[i], &rounds[i][round]));
        }
    }
    for (int i = 0; i < n; i++) {
        dp_sort(rounds[i], ROUNDS);
        us[i] = rounds[i][ROUNDS / 2];
    }
    return DP_OK;
}

#endif
