/*
 * lanes.h - forward and backward of this rank's rows lane by lane, so that the gradient's bits do
 * not depend on how many ranks there are (train.lanes).
 *
 * A batch of B rows is cut into V lanes, lane l = rows [floor(l B / V), floor((l+1) B / V)). Rank r
 * of P computes lanes [r V/P, (r+1) V/P), each alone, on one thread, with its own stream and
 * activations, and adds their gradients in the fixed tree ((0+1)+(2+3))+((4+5)+(6+7)), which an
 * ordered strategy continues over ranks. So 1, 2, 4 ... V ranks get the same sum.
 *
 * A *worker* is a thread (the first one is the caller's) that computes a block of neighbouring
 * lanes, one after the other. Its partial sums are a stack. After lane j it has as many entries as
 * j+1 has bits set, so a block of k lanes needs 1 + log2 k arrays; one of them is the gradient
 * itself. There are as many workers as the rank has threads (a power of two), or one for each lane
 * where layers are synchronised: there lanes wait for each other inside a layer, so all must have
 * begun, and a lane computes only while it has one of `threads` permits.
 *
 * A tensor's gradient is complete when the last lane of every worker has computed it: the calling
 * thread adds the workers' sums and calls hooks->ready for the tensor, while backward continues.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_LANES_H
#define DP_RUNTIME_TRAINER_COMPUTE_LANES_H

#include "runtime/trainer/compute/lane_plan.h"
#include "runtime/trainer/compute/micro_batch.h"

struct dp_lanes;

struct dp_lanes_config {
    const struct dp_model *model; /* borrowed */
    const struct dp_device *device;
    struct dp_stream *stream;             /* borrowed; lanes wait for what was queued there before a
                                           * call, and what is queued there after it waits for them;
                                           * they compute in its type */
    const struct dp_normalize *normalize; /* borrowed */
    int total;                            /* V, over all ranks; a power of two */
    int count;                            /* of this rank; a power of two */
    int threads;                          /* of this rank */
    size_t global_batch;                  /* rows over all ranks, at most */
    size_t micro_batch;                   /* 0: all rows of a lane at once */
};

/* Errors: DP_ERR_NOMEM (also: no thread). */
DP_CHECKED dp_status dp_lanes_create(const struct dp_lanes_config *config, struct dp_lanes **out);
void dp_lanes_destroy(struct dp_lanes *lanes);

/* Computes the lanes of rank `rank` of `ranks`, which have `count` each. */
struct dp_lanes_share {
    int rank, ranks;
};

/* Prepares for the lanes of a batch of `rows` rows over all ranks; training false: for evaluation
 * of `rows` test rows. */
DP_CHECKED dp_status dp_lanes_prepare(struct dp_lanes *lanes, struct dp_lanes_share share,
                                      size_t rows, bool training);

/* Discards what was prepared; prepare again afterwards. Only for a device that has `forget`. */
DP_CHECKED dp_status dp_lanes_forget(struct dp_lanes *lanes);

/* Does forward and backward of this rank's lanes, like dp_micro_batch_run(). call->hooks->sum is
 * called on the calling thread only, once for all lanes together. */
DP_CHECKED dp_status dp_lanes_run(struct dp_lanes *lanes, struct dp_lanes_share share,
                                  const struct dp_batch *batch, const struct dp_pass_call *call);

/* The pass of the first worker, the rows of the last lane that it computed in a batch of
 * `global_rows`, and the number of its lanes. Local. */
struct dp_lanes_first {
    struct dp_pass *pass; /* borrowed */
    size_t rows;
    int lanes;
};

struct dp_lanes_first dp_lanes_first(const struct dp_lanes *lanes, struct dp_lanes_share share,
                                     size_t global_rows);

/* Threads that compute lanes. */
int dp_lanes_users(const struct dp_lanes *lanes);

/* The most passes that a lane of this rank needs for its part of `rows` test rows. */
size_t dp_lanes_evaluations(const struct dp_lanes *lanes, struct dp_lanes_share share, size_t rows);

/* Does forward over this rank's lanes of all test rows, which dp_lanes_users() threads take. Adds
 * what lane l comes to, to sums[l]; of each lane's passes, only those in `passes`, like
 * dp_micro_batch_evaluate(). */
DP_CHECKED dp_status dp_lanes_evaluate(struct dp_lanes *lanes, struct dp_lanes_share share,
                                       struct dp_test_rows *test, struct dp_range passes,
                                       const struct dp_pass_call *call,
                                       double (*sums)[DP_EVALUATION_SUMS]);

#endif
