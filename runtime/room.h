/*
 * room.h - how much memory a rank needs for what, and whether a device has it.
 */
#ifndef DP_RUNTIME_ROOM_H
#define DP_RUNTIME_ROOM_H

#include "collectives/group.h"
#include "kernels/device.h"
#include "models/model.h"
#include "runtime/config.h"

/* What one of `trainers` ranks computes in: so many passes side by side of so many rows, and so
 * many gradients. */
struct dp_share {
    size_t passes, rows, gradients;
};

struct dp_share dp_share_of(const struct dp_config *config, const struct dp_model *model,
                            int trainers, size_t micro_batch);

/* Whose need it is. */
struct dp_need {
    const struct dp_config *config;
    const struct dp_model *model;
    int trainers, slots; /* ranks; arrays of optimizer state */
    int sharing;         /* ranks that share the device's memory; 1 or more */
};

/* Bytes of a device, whose memory the host cannot use, that a rank cannot do without; workspace
 * comes on top. Of master weights and optimizer state it has its part alone
 * under zero1 and ps, and none where there are servers of their own. */
void dp_need_bytes(const struct dp_need *need, size_t micro_batch,
                   size_t bytes[DP_MEM_PURPOSE_COUNT]);

/*
 * Refuses what cannot fit with the workspace, before anything is allocated: one line says what
 * needs how much, and which train.micro_batch would fit (the largest that cuts the rows evenly;
 * global_batch where micro-batches are not allowed).
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_need_check(const struct dp_need *need, const struct dp_device_room *room);

/*
 * The same for all ranks of a group on a device that has a room(): finds need->sharing, and where
 * one rank's need cannot fit all are refused, so that they leave together. `wants`: this rank
 * computes. Collective, before any rank takes memory.
 *
 * Errors: DP_ERR_UNAVAILABLE (it cannot), those of dp_gpus_create.
 */
DP_CHECKED dp_status dp_need_check_ranks(const struct dp_need *need, struct dp_group *group,
                                         const struct dp_device *device, bool wants);

#endif
