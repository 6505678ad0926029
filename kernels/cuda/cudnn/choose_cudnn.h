/*
 * choose_cudnn.h - chooses the form of a convolution and the engine of cuDNN: a known choice, the
 * fastest, or the first one.
 *
 * A form is a plan and the passes after it: bias and relu are part of the plan or a separate pass;
 * the gradient of weights is computed in float32, or in the compute type and then converted; images
 * of few channels are folded before (fold.h). In float32 whose factors may not be rounded, where
 * few engines are allowed, the convolution by cublas is a form, too.
 * Engines of heuristic mode INSTANT are tried first, for all forms, then those of mode FALLBACK. A
 * form is timed with its passes.
 */
#ifndef DP_KERNELS_CUDA_CUDNN_CHOOSE_CUDNN_H
#define DP_KERNELS_CUDA_CUDNN_CHOOSE_CUDNN_H

#include "kernels/cuda/cudnn/plan_cudnn.h"
#include "kernels/device.h"

struct dp_cudnn_form {
    bool fused;           /* bias and relu are part of the plan */
    bool folded;          /* x and weights, or their gradient, are those of dp_cuda_folded() */
    bool loses_nan;       /* relu may replace NaN by 0; only if no fused engine propagates NaN */
    enum dp_type weights; /* of the gradient of weights; else of weights */
};

/*
 * Uses the stream's choice, if cuDNN still proposes that engine and it runs. Else, if choices are
 * open, measures all forms on arrays of this size and notes the fastest. Else uses the first one.
 * The caller must pass `plan` to dp_cudnn_plan_destroy(); its execution is NULL if there is none, or
 * cublas is faster.
 * Errors: DP_ERR_NOMEM (choices), DP_ERR_CUDA.
 */
DP_CHECKED dp_status dp_cudnn_choose(struct dp_stream *s, const struct dp_cudnn *library,
                                     void *handle, const struct dp_conv_case *conv,
                                     struct dp_cudnn_form *form, struct dp_cudnn_plan *plan);

/* Elements of y. */
static inline size_t dp_cudnn_pixels(const struct dp_conv_case *conv)
{
    return conv->rows * conv->window.out_h * conv->window.out_w;
}

#endif
