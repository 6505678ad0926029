/*
 * compressor.h - ways to make a gradient smaller before it is shared.
 *
 * A compressor replaces this rank's gradient of a bucket by an approximation of its sum over ranks.
 * The result is equal on all ranks to the bit, and fewer bytes are sent than by the strategy alone.
 * What it keeps from step to step (error feedback: what was not sent) is in arrays of the exchange,
 * which are counted and can be saved. It sees plain gradients: neither scaled nor clipped.
 *
 * To add one: write compressor_<name>.c defining `const struct dp_compressor dp_compressor_<name>`,
 * and add one line to compressors.def. The conformance test then covers it.
 */
#ifndef DP_COLLECTIVES_COMPRESSORS_COMPRESSOR_H
#define DP_COLLECTIVES_COMPRESSORS_COMPRESSOR_H

#include "base/plugin.h"
#include "base/trace.h"
#include "collectives/core/bucket.h"
#include "collectives/strategies/comm.h"
#include "collectives/strategies/cost.h"

/* What coding of a bucket took on this rank. encode: what it does once, whatever it receives;
 * decode: what it does for each contribution. */
struct dp_coding_times {
    uint64_t encode_ns, decode_ns;
};

/* One bucket to be summed: all arrays belong to the exchange. */
struct dp_compressed_bucket {
    const struct dp_bucket *bucket;
    struct dp_slice grad;                     /* in: this rank's; out: the sum */
    float *residual[2];                       /* error feedback, as long as grad; this rank's own */
    float *warm;                              /* as many elements as warm() returns; equal on all
                                               * ranks */
    const struct dp_step_params *step_params; /* the step number is a key of random numbers */
    struct dp_step_params kept; /* step_params points here for a deferred bucket, which outlasts its
                                 * step */
    uint64_t seed;              /* another key of random numbers */
    struct dp_coding_times *coding; /* out: added to it; NULL: nobody asks */
};

struct dp_coding_timer {
    uint64_t *sum_ns; /* NULL: nobody asks */
    uint64_t begin_ns;
};

static inline void dp_coding_stop(struct dp_coding_timer *timer)
{
    if (timer->sum_ns != NULL) {
        *timer->sum_ns += dp_now_ns() - timer->begin_ns;
    }
}

/* Adds the time of the rest of the enclosing block to encode_ns or decode_ns of a compressed
 * bucket. Where a device codes, it only queues there: that says nothing. */
#define DP_CODING(compressed, what)                                                          \
    __attribute__((cleanup(dp_coding_stop), unused)) struct dp_coding_timer coding_timer = { \
        (compressed)->coding == NULL ? NULL : &(compressed)->coding->what,                   \
        (compressed)->coding == NULL ? 0 : dp_now_ns()}

/* How often a rank of so many encodes all of a bucket, and decodes as much as that. */
struct dp_coding_work {
    double encodes, decodes;
};

struct dp_compressor {
    struct dp_plugin plugin;

    /* The result for an element depends only on that element of all ranks, so that buckets may be
     * cut anywhere. */
    bool elementwise;

    /* How many of dp_compressed_bucket.residual it uses: 0, 1 or 2. NULL: none. Local. */
    int (*residuals)(const void *state);

    /* Whether residual[1] is what the owner of a sum left out of it, and not what a rank left out
     * of its own gradient. It then depends on the number of ranks. */
    bool owners;

    /* Elements of dp_compressed_bucket.warm. NULL: none. Local. */
    size_t (*warm)(const void *state, const struct dp_bucket *bucket);

    /* Bytes of device memory, where that is not the host's, that open() allocates for what `ranks`
     * ranks send. NULL: none. Local. */
    size_t (*codes)(const void *state, const struct dp_bucket_plan *plan, int ranks);

    /* Prepares for the buckets of `plan`, with at least two ranks. Collective. On error everything
     * is released and close() must not be called. */
    dp_status (*open)(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan);

    /* Bytes that this rank sends (or reads from its peers) for the bucket, without barriers, in a
     * step after any warm-up. Local. */
    uint64_t (*wire)(const void *state, const struct dp_bucket *bucket, enum dp_keep keep);

    /* Predicts the seconds that the messages of a bucket's sum take with DP_KEEP_ALL, where the
     * strategy is that of the text, in a step after any warm-up. What coding takes comes on top.
     * Only options of `state` are read, so it need not be open, and of the group only its ranks and
     * nodes. NULL where sum is. Local. NaN: no prediction. */
    double (*cost)(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                   const char *strategy, const struct dp_bucket *bucket);

    /* What coding is proportional to, by the number of ranks. NULL: it does not depend on it. */
    struct dp_coding_work (*work)(const void *state, int ranks);

    /* Replaces the gradient by its sum. Collective. Allocates nothing. NULL: the strategy sums
     * exactly. */
    dp_status (*sum)(void *state, const struct dp_compressed_bucket *compressed, enum dp_keep keep);

    /* Releases all that open() allocated. */
    void (*close)(void *state);
};

extern struct dp_plugin_family dp_compressors;

/* Whether the compressor in `text` ("topk:ratio=0.1") is elementwise; so is "none", and NULL.
 * Local. */
bool dp_compressor_is_elementwise(const char *text);

/* Estimates the bytes that this rank sends (or reads from its peers) when the strategy alone sums
 * `count` elements; exact for `shm` and `ring`. Local. */
uint64_t dp_compressor_plain_wire(const struct dp_comm *comm, size_t count, enum dp_keep keep);

/* Zeroes the gaps between tensors in x [bucket->range.count], for codes that leave values there. */
DP_CHECKED dp_status dp_compressor_clear_gaps(struct dp_stream *stream,
                                              const struct dp_bucket *bucket, float *x);

#endif
