/*
 * bucket.h - the plan: how the flat gradient is cut into buckets that are shared one by one.
 *
 * Tensors are taken from the last to the first, as backward finishes them. The first bucket is
 * small, so that sharing starts early; the last bucket is the tail. Source: Li et al., "PyTorch
 * distributed", VLDB 13 (2020), section 3.2.3.
 *
 * A deferred bucket is a part of a large tensor. It may be shared after the tail, while the next
 * step computes the layers before it: so the wire is busy in forward, too. Source: Jayarajan et
 * al., "Priority-based parameter propagation for distributed DNN training", MLSys 2019, sections 3
 * and 4.1 (tensors are sliced, and sent in the order in which forward needs them).
 */
#ifndef DP_COLLECTIVES_CORE_BUCKET_H
#define DP_COLLECTIVES_CORE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/flat.h"

struct dp_bucket {
    struct dp_range range;
    const struct dp_tensor *tensors; /* tensors inside, in flat order; borrowed */
    int tensor_count;
    size_t owned_at; /* offset of this rank's part in master weights and optimizer slots */
    bool exact;      /* the tail: never compressed, whole on every rank */
    bool deferred;   /* the rest of the tensor that ends the previous bucket; has no tensors */
};

struct dp_bucket_sizes {
    size_t first_count, max_count; /* elements; see below */
    bool deferred;                 /* whether to make deferred buckets */
};

struct dp_bucket_plan {
    struct dp_bucket *buckets; /* in backward's order; the last is the tail */
    int count;
    int deferred;   /* how many of them are deferred */
    int *bucket_of; /* [tensor_count] */
    size_t largest; /* elements of the largest bucket */
    uint64_t hash;  /* equal plans have equal hashes */
};

/*
 * Cuts [0, trained) into buckets of at most max_count elements (the first: first_count). A larger
 * tensor gets a bucket of its own. A tensor of at least first_count elements and an eighth of all
 * elements ends its bucket, so that it is shared while backward computes the rest. A third of such
 * a tensor is deferred, unless it is the first tensor. [trained, total) becomes the last, exact
 * bucket.
 *
 *   tensors  borrowed; must live as long as the plan
 *   out      out  the new plan: the caller owns it. Set only on success.
 *
 * Errors: DP_ERR_ARG if there are no tensors or no tail; DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_bucket_plan_create(const struct dp_tensor *tensors, int tensor_count,
                                           size_t trained, size_t total,
                                           const struct dp_bucket_sizes *sizes,
                                           struct dp_bucket_plan **out);
void dp_bucket_plan_destroy(struct dp_bucket_plan *plan);

#endif
