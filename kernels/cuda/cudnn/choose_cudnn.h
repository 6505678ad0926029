/*
 * choose_cudnn.h - chooses the form of a convolution and the engine of cuDNN: a known choice, the
 * fastest, or the first one.
 *
 * Engines of heuristic mode INSTANT are tried first, for all forms (form_cudnn.h), then those of
 * mode FALLBACK. A form is timed with its passes. In float32 whose factors may not be rounded,
 * where few engines are allowed, the convolution by cublas is timed, too.
 */
#ifndef DP_KERNELS_CUDA_CUDNN_CHOOSE_CUDNN_H
#define DP_KERNELS_CUDA_CUDNN_CHOOSE_CUDNN_H

#include "kernels/cuda/cudnn/form_cudnn.h"
#include "kernels/device.h"

/*
 * Uses the stream's choice, if cuDNN still proposes that engine and it runs. Else, if choices are
 * open, measures all forms on arrays of this size and notes the fastest. Else uses the first one.
 * The caller must pass `plan` to dp_cudnn_plan_destroy(); its execution is NULL if there is none,
 * or if cublas is faster. Errors: DP_ERR_NOMEM (choices), DP_ERR_CUDA.
 */
DP_CHECKED dp_status dp_cudnn_choose(struct dp_stream *s, const struct dp_cudnn *library,
                                     void *handle, const struct dp_conv_case *conv,
                                     struct dp_cudnn_form *form, struct dp_cudnn_plan *plan);

#endif
