/*
 * memory_plan.h - how much memory a run takes for what, before it takes any: the one prediction
 * for --check, for the host and for a GPU.
 *
 * It is made of the sizes that trainer, exchange, passes and snapshot take themselves, all of which
 * are touched at once. Not in it: what libraries keep for themselves while they compute, messages
 * that strategies between hosts hold, and the scratch copy that one rank alone is measured with,
 * which is left out where there is no memory for it (baseline.c).
 */
#ifndef DP_RUNTIME_TRAINER_MEMORY_PLAN_H
#define DP_RUNTIME_TRAINER_MEMORY_PLAN_H

#include <stdbool.h>

#include "kernels/device.h"
#include "models/model.h"
#include "runtime/config/config.h"

/* What one of `trainers` ranks computes in: so many passes side by side of so many rows, and so
 * many gradients. threads: that a rank has for lanes. */
struct dp_share {
    size_t passes, rows, gradients;
};

struct dp_share dp_share_of(const struct dp_config *config, const struct dp_model *model,
                            int trainers, size_t micro_batch, int threads);

/* Whose need it is. */
struct dp_memory_plan {
    const struct dp_config *config;
    const struct dp_model *model;
    const struct dp_device *device;
    int trainers, slots; /* ranks that train; arrays of optimizer state */
    int threads;         /* of a rank; 1 or more */
    int sharding;        /* ranks that share the device's memory; 1 or more */
    bool one_node;       /* all ranks, servers included, live on one host */
    size_t data_bytes;   /* the data set in memory, and its training rows; 0: not known */
    size_t train_count;
    bool cached_input, saves; /* one batch for all steps; checkpoints are written */
};

/* Ranks of one host. */
struct dp_memory_ranks {
    int trainers, servers;
    bool first; /* with what a host has once: the data set, weights that its ranks share */
    bool leads; /* with rank 0, which keeps the snapshot of a checkpoint */
};

/* Arrays of state of an optimizer, whose name has been checked. */
int dp_memory_plan_slots(const char *optimizer);

/* Bytes of a device, whose memory the host cannot use, that a rank cannot do without; workspace
 * comes on top. Of master weights and optimizer state it has its part alone
 * under zero1 and ps, and none where there are servers of their own. */
void dp_memory_plan_device(const struct dp_memory_plan *plan, size_t micro_batch,
                           size_t bytes[DP_MEM_PURPOSE_COUNT]);

/* Bytes of the host that some of its ranks cannot do without, together: with device cpu everything,
 * with a GPU what crosses over the host. "Other" is a little of libraries. Where `auto` chooses,
 * what takes least. */
void dp_memory_plan_host(const struct dp_memory_plan *plan, const struct dp_memory_ranks *ranks,
                         size_t micro_batch, size_t bytes[DP_MEM_PURPOSE_COUNT]);

/* Of one rank alone, with all state but what it computes in. */
size_t dp_memory_plan_state(const struct dp_memory_plan *plan);

size_t dp_memory_plan_sum(const size_t bytes[DP_MEM_PURPOSE_COUNT]);

#endif
