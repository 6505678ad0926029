/*
 * run_options.h - what a run is asked for, whoever asks: the command line of ddp_train (cli.h), a
 * program with a training of its own (runtime/lockstep.h), or ddp_bench.
 */
#ifndef DP_RUNTIME_RUN_RUN_OPTIONS_H
#define DP_RUNTIME_RUN_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/timeline/tracing.h"

enum { DP_RUN_SETS = 256 };

/* Texts are borrowed. */
struct dp_run_options {
    const char *config;            /* path of model.cfg; with `text` only its name in messages */
    const char *text;              /* model.cfg itself; NULL: it is read */
    const char *sets[DP_RUN_SETS]; /* "train.seed=3" */
    int set_count;
    const char *out, *init, *baseline, *plan;
    const char *average;  /* an optimizer file: its averages instead of the weights of `init`, if
                           * there are any (train.ema); NULL: no */
    const char *resume;   /* NULL: no; "auto", or a path */
    const char *evaluate; /* only for the command line: evaluate.h; a run, or a checkpoint */
    bool json;            /* what it comes to, as JSON */
    struct dp_trace_request trace;
    int64_t steps;     /* 0: as configured */
    int threads;       /* of a rank that compute, at most; 0: as OMP_NUM_THREADS says */
    double max_time_s; /* 0: none */
    bool own_folder;   /* without `out` it has runs/NAME-DATE-TIME; else it then writes nothing */
    bool reopens;      /* a run that has ended gets a trainer, too: to be evaluated */
    bool cached_input, data_only, dry_run, print_config, quiet, explain;
    bool selftest; /* only for the command line: selftest.h */
};

/* Whether it leaves files, checkpoints among them. */
static inline bool dp_run_options_write(const struct dp_run_options *options)
{
    return !options->dry_run && !options->data_only &&
           (options->out != NULL || options->own_folder);
}

#endif
