/*
 * resume_check.h - a run that is killed and resumed ends with the bits of one that is not.
 *
 * Both train the user's configuration for a few steps, on smaller global batches, in a temporary
 * folder. Where the job was started alone, a process of its own trains, saves and is killed; ranks
 * of MPI give up without a word instead.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_RESUME_CHECK_H
#define DP_RUNTIME_RUN_SELFTEST_RESUME_CHECK_H

#include "runtime/run/selftest/selftest_lines.h"

/* Before this process has threads, which another process would lack. options: the user's. rows: of
 * a global batch. Collective. Errors: in a job of several ranks those of its training. */
DP_CHECKED dp_status dp_resume_check(struct dp_selftest *selftest,
                                     const struct dp_run_options *options, size_t rows);

#endif
