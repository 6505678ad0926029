/*
 * step_params.h - values that change from step to step.
 *
 * One struct in the memory of the device, written before a step. Operations read it there, so that
 * a step recorded once (a CUDA graph) can be replayed with new values.
 */
#ifndef DP_KERNELS_STEP_PARAMS_H
#define DP_KERNELS_STEP_PARAMS_H

#include <stdint.h>

struct dp_step_params {
    float lr;          /* host */
    float per_sample;  /* host; 1 / rows of the global batch */
    uint32_t step;     /* host; key of this step's random numbers */
    float loss_scale;  /* host; 1 unless fp16 */
    float loss_factor; /* host; per_sample * loss_scale: factor of the loss, and so of all
                        * gradients */
    float factor;      /* dp_grad_norm; factor of gradients: 1 / loss_scale, clipping */
    uint32_t skip;     /* dp_grad_norm; not 0: this step changes nothing */
    uint32_t applied;  /* updates made so far, without this one: AdamW's t - 1 */
};

#endif
