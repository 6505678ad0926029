/*
 * trial_cudnn.h - measures forms of a convolution on arrays of its size, and checks that engines of
 * float32 lose no digits.
 */
#ifndef DP_KERNELS_CUDA_CUDNN_TRIAL_CUDNN_H
#define DP_KERNELS_CUDA_CUDNN_TRIAL_CUDNN_H

#include "kernels/cuda/cudnn/form_cudnn.h"
#include "kernels/cuda/stream/scratch_cuda.h"

/* The convolution, and where it runs. */
struct dp_cudnn_chooser {
    struct dp_stream *stream;
    const struct dp_cudnn *library;
    void *handle;
    const struct dp_conv_case *conv;
};

/* Arrays to measure on, in one block of memory. */
struct dp_cudnn_trial {
    const struct dp_cudnn_chooser *chooser;
    struct dp_cudnn_form form;        /* that is measured now */
    const struct dp_cudnn_plan *plan; /* likewise */
    struct dp_cuda_scratch workspace;
    struct dp_cudnn_arrays arrays;
    void *images, *weights; /* folded, where a form may be */
    float *gradient;        /* of weights, converted to float32 */
    size_t bytes;           /* of the block */
    bool times;             /* or only checks */
    bool exact;             /* factors may not be rounded */
    struct dp_cuda_clock clock;
};

/* Allocates and fills the arrays. If there is no memory, arrays.x stays NULL: no error. Errors:
 * DP_ERR_CUDA. The caller destroys it in any case; a trial that was not created may be, too. */
DP_CHECKED dp_status dp_cudnn_trial_create(struct dp_cudnn_trial *trial);
void dp_cudnn_trial_destroy(struct dp_cudnn_trial *trial);

/* Of struct dp_cudnn_clock: times a plan of the trial's form with the passes before and after it,
 * and checks its factors. `context`: a trial. */
DP_CHECKED dp_status dp_cudnn_trial_measure(void *context, const struct dp_cudnn_plan *plan,
                                            float best, float *ms);

/* How long the same takes by cublas, which is prepared for it. Errors: DP_ERR_NOMEM,
 * DP_ERR_CUDA. */
DP_CHECKED dp_status dp_cudnn_trial_cublas(struct dp_cudnn_trial *trial, float best, float *ms);

#endif
