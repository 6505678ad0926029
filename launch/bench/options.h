/*
 * options.h - ddp_bench's command line: one table of flags, which is also its help.
 *
 * Flags of sizes and iterations are those of nccl-tests, with the same meaning.
 */
#ifndef DP_LAUNCH_BENCH_OPTIONS_H
#define DP_LAUNCH_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum dp_bench_format { DP_BENCH_TABLE, DP_BENCH_CSV, DP_BENCH_JSON };

enum { DP_BENCH_SETS = 64 };

struct dp_bench_options {
    size_t min_bytes, max_bytes;
    int factor;                           /* from one size to the next */
    int iterations, warmups, checks;      /* checks 0: none */
    const char *strategies, *compressors; /* lists, or "all" */
    const char *buckets;                  /* path of a model.cfg, or NULL */
    const char *costs;                    /* path for costs.h, or NULL */
    const char *sets[DP_BENCH_SETS];      /* over what the file says */
    int set_count;
    int train_steps;
    int format; /* enum dp_bench_format */
    bool bound, list, version, help;
    const char *sized; /* the first flag that is about sizes; NULL: none was given */
};

/* Reads a size as nccl-tests does: "65536", "64K", "1.5M", "2G" (powers of 1024), at least one
 * float and at most 1T. False: it is not a size. */
bool dp_bench_size(const char *text, size_t *bytes);

/* Reads argv. Logs nothing when `silent`, since another rank does. Errors: DP_ERR_USAGE. */
DP_CHECKED dp_status dp_bench_parse(int argc, char **argv, bool silent,
                                    struct dp_bench_options *options);

/* --help, --version and --list, on stdout. */
void dp_bench_help(void);
void dp_bench_version(void);
void dp_bench_list(void);

#endif
