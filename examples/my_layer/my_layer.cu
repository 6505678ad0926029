/* my_layer.cu - prelu on GPUs. */
#include "my_layer.h"

enum { BLOCK = 256 };

static unsigned blocks_for(size_t count)
{
    return (unsigned)((count + BLOCK - 1) / BLOCK);
}

static __global__ void forward(size_t count, const float *x, const float *slope, float *y)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

    if (i < count) {
        y[i] = x[i] > 0.0f ? x[i] : slope[0] * x[i];
    }
}

static __global__ void backward_data(size_t count, const float *x, const float *slope,
                                     const float *dy, float *dx)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

    if (i < count) {
        dx[i] = x[i] > 0.0f ? dy[i] : slope[0] * dy[i];
    }
}

/* One block, so that the order of additions depends on `count` alone: the same bits every time. */
static __global__ void backward_slope(size_t count, const float *x, const float *dy, float keep,
                                      float *dslope)
{
    __shared__ float sums[BLOCK];
    float sum = 0.0f;

    for (size_t i = threadIdx.x; i < count; i += BLOCK) {
        sum += x[i] > 0.0f ? 0.0f : dy[i] * x[i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        dslope[0] = (keep == 0.0f ? 0.0f : keep * dslope[0]) + sums[0];
    }
}

int my_prelu_forward(void *stream, size_t count, const float *x, const float *slope, float *y)
{
    if (count > 0) {
        forward<<<blocks_for(count), BLOCK, 0, (cudaStream_t)stream>>>(count, x, slope, y);
    }
    return (int)cudaGetLastError();
}

int my_prelu_backward(void *stream, size_t count, const float *x, const float *slope,
                      const float *dy, float keep, float *dslope, float *dx)
{
    const cudaStream_t queue = (cudaStream_t)stream;

    backward_slope<<<1, BLOCK, 0, queue>>>(count, x, dy, keep, dslope);
    if (dx != NULL && count > 0) {
        backward_data<<<blocks_for(count), BLOCK, 0, queue>>>(count, x, slope, dy, dx);
    }
    return (int)cudaGetLastError();
}
