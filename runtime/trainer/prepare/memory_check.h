/*
 * memory_check.h - whether a host, or a GPU, has the memory that a run is going to use. Checked
 * before anything is allocated, since the kernel of a host without memory kills a rank, which then
 * reports nothing.
 *
 * What cannot fit is refused in one line: what is available, what needs how much, and what would
 * fit. What fits only with swap, or leaves nothing for libraries, is a warning.
 */
#ifndef DP_RUNTIME_TRAINER_PREPARE_MEMORY_CHECK_H
#define DP_RUNTIME_TRAINER_PREPARE_MEMORY_CHECK_H

#include "base/system/memory_limit.h"
#include "collectives/core/group.h"
#include "runtime/trainer/prepare/memory_plan.h"

/*
 * Refuses what cannot fit with the workspace. The advice is the train.micro_batch that would fit
 * (the largest that cuts the rows evenly; global_batch where micro-batches are not allowed).
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_memory_check_device(const struct dp_memory_plan *plan,
                                            const struct dp_device_room *room);

/*
 * The same for all ranks of a group on a device that has room(): finds plan->ranks_per_device. If
 * one rank's memory cannot fit, all are refused, so that they leave together. `wants`: this rank
 * computes. Collective, before any rank allocates.
 *
 * Errors: DP_ERR_UNAVAILABLE (it does not fit), those of dp_gpu_peers_create.
 */
DP_CHECKED dp_status dp_memory_check_gpus(const struct dp_memory_plan *plan, struct dp_group *group,
                                          const struct dp_device *device, bool wants);

/* Whether a rank fits, one of plan->ranks_per_device on a GPU with this room. */
bool dp_memory_fits_device(const struct dp_memory_plan *plan, const struct dp_device_room *room);

enum dp_memory_fit {
    DP_MEMORY_FITS,
    DP_MEMORY_TIGHT, /* the system may swap, or kill a rank */
    DP_MEMORY_LACKS  /* by more than the prediction can be wrong */
};

/* Whether these bytes, of which "other" may be loaded already, fit into what a limit leaves. */
enum dp_memory_fit dp_memory_fit(const size_t bytes[DP_MEM_PURPOSE_COUNT],
                                 const struct dp_memory_limit *limit);

/* Compares for those ranks of a host that share a limit; refuses, or warns. The advice is a
 * train.micro_batch, or fewer of these ranks. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_memory_check_host(const struct dp_memory_plan *plan,
                                          const struct dp_memory_ranks *ranks,
                                          const struct dp_memory_limit *limit);

/*
 * The same for all ranks of a group and the limits of each: the first of the ranks that share a
 * limit compares. Servers follow the ranks that train; then come those that read for others, and
 * the evaluator. `root` as for dp_memory_limits_read(). All ranks leave together, and the first
 * that lacks memory reports it.
 *
 * Collective, before any rank allocates. Errors: DP_ERR_UNAVAILABLE; those of the group.
 */
DP_CHECKED dp_status dp_memory_check_hosts(const struct dp_memory_plan *plan,
                                           struct dp_group *group, const char *root);

/* Whether it fits easily into all limits of this host, as if all of its ranks shared each of them.
 * Local. */
bool dp_memory_fits_host(const struct dp_memory_plan *plan, const struct dp_group *group,
                         const char *root);

#endif
