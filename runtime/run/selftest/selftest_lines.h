/*
 * selftest_lines.h - the lines that a selftest prints, and what its checks have in common.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_SELFTEST_LINES_H
#define DP_RUNTIME_RUN_SELFTEST_SELFTEST_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "models/pass/pass.h"
#include "runtime/run/training.h"

struct dp_selftest {
    const struct dp_run_job *job; /* configured, with data; borrowed */
    bool synthetic;               /* its data are generated */
    struct dp_pass_rows rows;     /* rank 0: some of them; borrowed */
    int checks, failures;         /* lines so far */
};

/* Prints a line on rank 0, and counts it on all. */
void dp_selftest_line(struct dp_selftest *selftest, bool good, const char *name, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));

/* The line of a check that could not be made: it counts as failed. problem: the error that was
 * reported, or empty. */
void dp_selftest_broken(struct dp_selftest *selftest, const char *name, dp_status status,
                        const char *problem);

/* |a - b| and |a|, as vectors. */
double dp_selftest_distance(const float *a, const float *b, size_t count);
double dp_selftest_length(const float *a, size_t count);

/* A number in [-1, 1) that depends on both arguments. */
float dp_selftest_noise(uint32_t what, size_t i);

/* The weights that a run begins with: [trained], owned by the caller (dp_free). Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_selftest_weights(const struct dp_run_job *job, float **out);

/* A device whose memory the host can use: the job's, or ref. */
const struct dp_device *dp_selftest_host_device(const struct dp_selftest *selftest);

#endif
