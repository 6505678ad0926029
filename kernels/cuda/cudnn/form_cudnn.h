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
#include "kernels/ref/window.h"

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

/* What a form's plan works on: the convolution, or a piece of the folded one. */
static inline struct dp_conv_case dp_cudnn_planned(const struct dp_conv_case *conv, bool folded)
{
    struct dp_conv_case planned = *conv;

    if (folded) {
        planned.window = dp_cuda_folded(&conv->window);
        planned.rows = dp_cuda_fold_rows(&conv->window, conv->rows);
    }
    return planned;
}

/* How often the plan runs. */
static inline size_t dp_cudnn_pieces(const struct dp_conv_case *conv, bool folded)
{
    return folded ? conv->rows / dp_cuda_fold_rows(&conv->window, conv->rows) : 1;
}

/* The arrays of piece `i`: x, not yet folded, and y from its first row on, and its gradient of
 * weights. */
static inline struct dp_cudnn_arrays dp_cudnn_piece(const struct dp_conv_case *conv,
                                                    const struct dp_cudnn_form *form,
                                                    enum dp_type type,
                                                    const struct dp_cudnn_arrays *all, size_t i)
{
    const struct dp_conv_case planned = dp_cudnn_planned(conv, form->folded);
    const size_t begin = i * planned.rows, width = dp_type_bytes(type);
    const size_t gradient = dp_window_weights(&planned.window) * dp_type_bytes(form->weights);
    struct dp_cudnn_arrays piece = *all;

    piece.x = (char *)all->x + begin * dp_window_in(&conv->window) * width;
    piece.y = (char *)all->y + begin * dp_window_out(&conv->window) * width;
    if (conv->use == DP_CONV_BACKWARD_WEIGHTS) {
        piece.w = (char *)all->w + i * gradient;
    }
    return piece;
}

#endif
