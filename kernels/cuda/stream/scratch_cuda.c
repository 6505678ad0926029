#include "kernels/cuda/stream/scratch_cuda.h"

#include <math.h>
#include <string.h>

#include "kernels/cuda/stream/cuda_status.h"

dp_status dp_cuda_scratch_grow(struct dp_stream *s, struct dp_cuda_scratch *scratch, size_t bytes,
                               const char *what)
{
    struct dp_cuda *cuda = dp_cuda_of(s);
    const bool keeps = cuda->recorded && scratch->memory != NULL;
    struct dp_cuda_kept *kept = NULL;
    void *more = NULL;

    if (bytes <= scratch->bytes) {
        return DP_OK;
    }
    DP_TRY(s->device->synchronize(s));
    if (keeps) {
        kept = dp_zalloc(1, sizeof(*kept));
    }
    if (!keeps || kept != NULL) {
        more = s->device->alloc(DP_MEM_WORKSPACE, bytes);
    }
    if (more == NULL) {
        dp_free(kept);
        return what == NULL ? DP_ERR_NOMEM
                            : DP_FAIL(DP_ERR_NOMEM, "%s: %zu KB of workspace", what, bytes >> 10);
    }
    if (kept != NULL) {
        *kept = (struct dp_cuda_kept){cuda->kept, scratch->memory};
        cuda->kept = kept;
    } else {
        s->device->release(scratch->memory);
    }
    *scratch = (struct dp_cuda_scratch){more, bytes};
    return DP_OK;
}

void dp_cuda_release_kept(struct dp_cuda *cuda)
{
    while (cuda->kept != NULL) {
        struct dp_cuda_kept *first = cuda->kept;
        cuda->kept = first->next;
        dp_device_cuda.release(first->memory);
        dp_free(first);
    }
}

void dp_cuda_scratch_release(struct dp_cuda_scratch *scratch)
{
    dp_device_cuda.release(scratch->memory);
    *scratch = (struct dp_cuda_scratch){NULL, 0};
}

void *dp_cuda_list_room(void *list, int count, int *capacity, size_t size)
{
    void *longer;

    if (count < *capacity) {
        return list;
    }
    longer = dp_zalloc(2 * (size_t)*capacity, size);
    if (longer != NULL) {
        memcpy(longer, list, (size_t)count * size);
        dp_free(list);
        *capacity *= 2;
    }
    return longer;
}

void *dp_cuda_trial_alloc(size_t bytes)
{
    enum { PART = 4 };
    size_t left = 0, total = 0;

    dp_cuda_enter(dp_cuda_unit());
    return cudaMemGetInfo(&left, &total) == cudaSuccess && bytes <= left / PART
               ? dp_device_cuda.alloc(DP_MEM_TRIAL, bytes)
               : NULL;
}

dp_status dp_cuda_clock_open(struct dp_cuda_clock *clock)
{
    DP_TRY(DP_CUDA(cudaEventCreate(&clock->begin)));
    return DP_CUDA(cudaEventCreate(&clock->end));
}

void dp_cuda_clock_close(struct dp_cuda_clock *clock)
{
    if (clock->end != NULL) {
        (void)cudaEventDestroy(clock->end);
    }
    if (clock->begin != NULL) {
        (void)cudaEventDestroy(clock->begin);
    }
    *clock = (struct dp_cuda_clock){NULL, NULL};
}

dp_status dp_cuda_clock_time(const struct dp_cuda_clock *clock, struct dp_stream *s,
                             dp_status (*run)(void *context), void *context, int rounds,
                             float enough_ms, float *best_ms)
{
    const cudaStream_t queue = dp_cuda_of(s)->queue;

    *best_ms = INFINITY;
    for (int i = 0; i < 1 + rounds && (i < 2 || *best_ms <= 2.0f * enough_ms); i++) {
        dp_status status;
        float ms;
        DP_TRY(DP_CUDA(cudaEventRecord(clock->begin, queue)));
        status = run(context);
        if (status == DP_ERR_UNAVAILABLE) {
            *best_ms = INFINITY;
            (void)cudaGetLastError(); /* one that lasts comes again */
            return DP_CUDA(cudaStreamSynchronize(queue));
        }
        DP_TRY(status);
        DP_TRY(DP_CUDA(cudaEventRecord(clock->end, queue)));
        DP_TRY(DP_CUDA(cudaEventSynchronize(clock->end)));
        DP_TRY(DP_CUDA(cudaEventElapsedTime(&ms, clock->begin, clock->end)));
        *best_ms = i > 0 && ms < *best_ms ? ms : *best_ms;
    }
    return DP_OK;
}
