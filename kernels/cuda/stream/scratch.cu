/*
 * scratch.cu - numbers for what is timed: see scratch_cuda.h.
 *
 * Writes e bytes an element of type size e, of which four take 20 32-bit products.
 */
#include "base/random.h"
#include "kernels/cuda/stream/launch.h"

template <typename T> static __global__ void fill_kernel(T *x, size_t count, uint32_t seed)
{
    for (size_t i = dp_thread(); i * 4 < count; i += dp_threads()) {
        uint32_t random[4];
        dp_random_block(seed, DP_RANDOM_TEST, 0, i, random);
        for (size_t p = 0; p < 4 && i * 4 + p < count; p++) {
            dp_narrow(&x[i * 4 + p], 2.0f * dp_random_unit(random[p]) - 1.0f);
        }
    }
}

extern "C" dp_status dp_cuda_fill(struct dp_stream *s, void *x, enum dp_type type, size_t count,
                                  uint32_t seed)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_BY_TYPE(type, T, {
        DP_LAUNCH(fill_kernel<T>, dp_blocks(s, (count + 3) / 4), DP_THREADS, 0, s, (T *)x, count,
                  seed);
    });
    return DP_CUDA(cudaGetLastError());
}
