/*
 * room.h - how much memory a rank needs for what, and whether a device has it.
 */
#ifndef DP_RUNTIME_ROOM_H
#define DP_RUNTIME_ROOM_H

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
};

/* Bytes of a device that a rank cannot do without; workspace comes on top. Of master weights and
 * optimizer state it may have its part alone, or none where servers have them: that is what counts.
 */
void dp_need_bytes(const struct dp_need *need, size_t micro_batch,
                   size_t bytes[DP_MEM_PURPOSE_COUNT]);

/*
 * Refuses what cannot fit, before anything is allocated: one line says what needs how much, and
 * which train.micro_batch would fit (the largest that cuts the rows evenly; global_batch where
 * micro-batches are not allowed).
 *
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_need_check(const struct dp_need *need, const struct dp_device_room *room);

#endif
