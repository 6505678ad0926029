/*
 * form_cudnn.h - the form of a convolution: a plan and the passes before and after it.
 *
 * Bias and relu are part of the plan or a separate pass; the gradient of weights is computed in
 * float32, or in the compute type and then converted; images of few channels are folded before
 * (fold.h).
 */
#ifndef DP_KERNELS_CUDA_CUDNN_FORM_CUDNN_H
#define DP_KERNELS_CUDA_CUDNN_FORM_CUDNN_H

#include "kernels/cuda/cudnn/fold.h"
#include "kernels/cuda/cudnn/plan_cudnn.h"

struct dp_cudnn_form {
    bool fused;           /* bias and relu are part of the plan */
    bool folded;          /* x and weights, or their gradient, are those of dp_cuda_folded() */
    bool loses_nan;       /* relu may replace NaN by 0; only if no fused engine propagates NaN */
    enum dp_type weights; /* of the gradient of weights; else of weights */
};

/* Elements of y. */
static inline size_t dp_cudnn_pixels(const struct dp_conv_case *conv)
{
    return conv->rows * conv->window.out_h * conv->window.out_w;
}

/* Whether a convolution in this type may be folded. */
static inline bool dp_cudnn_may_fold(const struct dp_conv_case *conv, enum dp_type type)
{
    return conv->use != DP_CONV_BACKWARD_DATA && dp_cuda_folds(&conv->window, type);
}

/* The case of a folded one. */
static inline struct dp_conv_case dp_cudnn_folded(const struct dp_conv_case *conv)
{
    struct dp_conv_case folded = *conv;

    folded.window = dp_cuda_folded(&conv->window);
    return folded;
}

#endif
