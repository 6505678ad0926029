/*
 * pairs.cuh - targets that are a class, or a pair of classes, as output_loss in kernels/ops.h has
 * them: for softmax.cu and output_loss.cu.
 */
#ifndef DP_KERNELS_CUDA_PAIRS_CUH
#define DP_KERNELS_CUDA_PAIRS_CUH

#include "kernels/cuda/stream/launch.h"

/* `first` has `share` as its target, `other` the rest of 1. A class alone has no other (-1). */
struct dp_pair {
    int first, other;
    float share;
};

/* That of a row: a class, or with `pairs` DP_PAIR_WORDS. */
static __device__ inline dp_pair dp_pair_at(const void *targets, size_t row, bool pairs)
{
    const int32_t *labels = static_cast<const int32_t *>(targets);

    if (!pairs) {
        return dp_pair{labels[row], -1, 1.0f};
    }
    labels += row * DP_PAIR_WORDS;
    return dp_pair{labels[0], labels[1], reinterpret_cast<const float *>(labels)[2]};
}

static __device__ inline float dp_pair_target(dp_pair pair, int c)
{
    return (c == pair.first ? pair.share : 0.0f) + (c == pair.other ? 1.0f - pair.share : 0.0f);
}

/* output_loss of classes or pairs with DP_LOSS_SOFTMAX, in softmax.cu. */
extern "C" dp_status dp_cuda_softmax_pairs(struct dp_stream *s, const struct dp_output_loss *how,
                                           void *dx, float *loss, float *score, const void *x,
                                           const void *labels, const float *scale, float keep);

#endif
