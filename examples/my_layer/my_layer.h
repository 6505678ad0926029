/* my_layer.h - the kernels of prelu on GPUs; my_layer.cu. */
#ifndef MY_LAYER_H
#define MY_LAYER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] = x[i] where that is above 0, else slope[0] x[i]; all [count], on the GPU. Queued on
 * `stream`, a cudaStream_t. Returns 0, or a cudaError_t. */
int my_prelu_forward(void *stream, size_t count, const float *x, const float *slope, float *y);

/* dslope[0] = keep dslope[0] + the sum of dy[i] x[i] where x[i] is not above 0, in the same order
 * every time; dx[i] = dy[i], or slope[0] dy[i] there; dx NULL: it is not wanted. */
int my_prelu_backward(void *stream, size_t count, const float *x, const float *slope,
                      const float *dy, float keep, float *dslope, float *dx);

#ifdef __cplusplus
}
#endif

#endif
