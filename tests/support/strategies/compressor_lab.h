/*
 * compressor_lab.h - for tests: a compressor over a group, with gradients of its own.
 *
 * The flat gradient has tensors of two and of one dimension in three buckets, the smallest of which
 * has fewer blocks than there are ranks. It is in host memory, which the tested device must be able
 * to use.
 */
#ifndef DP_TESTS_SUPPORT_STRATEGIES_COMPRESSOR_LAB_H
#define DP_TESTS_SUPPORT_STRATEGIES_COMPRESSOR_LAB_H

#include "collectives/compressors/compression.h"

enum { LAB_TENSORS = 5, LAB_TRAINED = 3904, LAB_TOTAL = LAB_TRAINED + DP_BLOCK };

extern const struct dp_tensor lab_tensors[LAB_TENSORS];

struct lab_setup {
    const char *compressor, *strategy; /* texts with options */
    enum dp_keep keep;
    bool messages; /* ranks do not reach each other's memory */
};

/* One rank's. */
struct lab {
    const struct lab_setup *setup;
    struct dp_group *group; /* borrowed */
    struct dp_comm *comm;
    struct dp_stream *codes; /* owned; of the device that is tested */
    struct dp_bucket_plan *plan;
    struct dp_compression *compression; /* NULL on one rank */
    struct dp_step_params step_params;
    float *grad; /* [LAB_TOTAL] */
};

/* All arrays are zero. On error nothing is left. */
DP_CHECKED dp_status lab_open(struct lab *lab, struct dp_group *group,
                              const struct lab_setup *setup);
void lab_close(struct lab *lab);

/* Element i of rank `rank`'s gradient of a step: smooth, of many sizes; 0 between tensors. */
float lab_value(int rank, uint32_t step, size_t i);

/* Fills the gradient in. */
void lab_fill(struct lab *lab);

/* Sums all buckets, gathers chunks where they were all that was kept, and goes to the next step. */
DP_CHECKED dp_status lab_step(struct lab *lab);

/* Whether the sum is the same on all ranks, to the bit. 0 or 1, for counting. */
size_t lab_split(const struct lab *lab);

#endif
