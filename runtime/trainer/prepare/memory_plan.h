/*
 * memory_plan.h - predicts how much memory a run uses for which purpose: for --check, for the host
 * and for a GPU.
 *
 * It uses the sizes with which trainer, exchange, passes and snapshot allocate; all that is written
 * at the start. Not included: memory of libraries while they compute, messages of strategies
 * between hosts, and the scratch copy for measuring one rank alone, which is left out if there is
 * no memory for it (baseline.c).
 */
#ifndef DP_RUNTIME_TRAINER_PREPARE_MEMORY_PLAN_H
#define DP_RUNTIME_TRAINER_PREPARE_MEMORY_PLAN_H

#include <stdbool.h>

#include "kernels/device.h"
#include "models/model.h"
#include "runtime/config/config.h"

/* The memory in which one of `trainers` ranks computes: the number of parallel passes, the rows of
 * each, and the number of gradients. threads: number of a rank's threads, for lanes. */
struct dp_share {
    size_t passes, rows, gradients;
};

struct dp_share dp_share_of(const struct dp_config *config, const struct dp_model *model,
                            int trainers, size_t micro_batch, int threads);

/* The run whose memory is predicted. */
struct dp_memory_plan {
    const struct dp_config *config;
    const struct dp_model *model;
    const struct dp_device *device;
    int trainers;         /* ranks that train */
    int threads;          /* of a rank; 1 or more */
    int ranks_per_device; /* number of ranks that share the device's memory; 1 or more */
    bool one_node;        /* all ranks that share gradients live on one host */
    size_t data_bytes;    /* of the data set in memory, and its training rows; 0: unknown */
    size_t train_count;
    size_t read_tests;   /* rows to test with that are read when they are needed; 0: in memory */
    size_t reader_bytes; /* in which a thread works that reads samples; 0: they are in memory */
    size_t shared_bytes; /* of the threads together, where they read training rows */
    bool cached_input, saves; /* one batch for all steps; checkpoints are written */
};

/* Ranks of one host. */
struct dp_memory_ranks {
    int trainers, servers, readers, evaluators;
    bool first; /* include what a host has once: the data set, weights that its ranks share */
    bool leads; /* include rank 0, which has the snapshot of a checkpoint */
};

/* Bytes of activations, and what goes with them, of a rank that trains. */
size_t dp_memory_plan_activations(const struct dp_memory_plan *plan, size_t micro_batch);

/* Bytes that a rank needs on a device whose memory the host cannot use, without workspace. Of
 * master weights and optimizer state it has only its part under zero1 and ps, and none where
 * separate servers have them. */
void dp_memory_plan_device(const struct dp_memory_plan *plan, size_t micro_batch,
                           size_t bytes[DP_MEM_PURPOSE_COUNT]);

/* Bytes that these ranks need together on their host: with device cpu everything, with a GPU what
 * passes through the host. "Other" is memory of libraries. Where `auto` chooses, the smallest need
 * is taken. */
void dp_memory_plan_host(const struct dp_memory_plan *plan, const struct dp_memory_ranks *ranks,
                         size_t micro_batch, size_t bytes[DP_MEM_PURPOSE_COUNT]);

/* Bytes of all state of one rank alone, without the memory in which it computes. */
size_t dp_memory_plan_state(const struct dp_memory_plan *plan);

size_t dp_memory_plan_sum(const size_t bytes[DP_MEM_PURPOSE_COUNT]);

#endif
