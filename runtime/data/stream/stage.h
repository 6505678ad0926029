/*
 * stage.h - the stages of a sample on its way from a file to a batch, and the time of each.
 */
#ifndef DP_RUNTIME_DATA_STREAM_STAGE_H
#define DP_RUNTIME_DATA_STREAM_STAGE_H

#include <stddef.h>
#include <stdint.h>

/* name, text */
#define DP_STAGES(X)                                                   \
    X(READ, "read")       /* a file, or a block of records, checked */ \
    X(EXPAND, "expand")   /* decompresses a block */                   \
    X(DECODE, "decode")   /* pictures to pixels of model.input */      \
    X(AUGMENT, "augment") /* and the copy into the batch */

enum dp_stage {
#define X(name, text) DP_STAGE_##name,
    DP_STAGES(X)
#undef X
        DP_STAGE_COUNT
};

/* Sums over threads. */
struct dp_stage_times {
    uint64_t ns[DP_STAGE_COUNT];
    uint64_t bytes[DP_STAGE_COUNT]; /* that came out of it */
    uint64_t rows;
};

static inline void dp_stage_times_add(struct dp_stage_times *sum, const struct dp_stage_times *more)
{
    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        sum->ns[i] += more->ns[i];
        sum->bytes[i] += more->bytes[i];
    }
    sum->rows += more->rows;
}

#endif
