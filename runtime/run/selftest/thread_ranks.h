/*
 * thread_ranks.h - what several ranks do: those of the job, or, where it was started alone, threads
 * of this process.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_THREAD_RANKS_H
#define DP_RUNTIME_RUN_SELFTEST_THREAD_RANKS_H

#include "base/log.h"
#include "collectives/core/group.h"
#include "collectives/world/world.h"

/* What one rank does. An error of one cancels the waits of the others. */
typedef dp_status dp_rank_body(struct dp_group *group, void *context);

/* Runs it on `size` threads, each with a stream of this device for the sums of its group. Returns
 * the first error; problem: what was logged about it, which is not printed. Errors: those of the
 * body; DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_thread_ranks_run(int size, const struct dp_device *device,
                                         dp_rank_body *body, void *context,
                                         char problem[DP_LOG_CAPTURE_BYTES]);

#endif
