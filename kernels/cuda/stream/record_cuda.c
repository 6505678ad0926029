/*
 * record_cuda.c - a part of a step as one CUDA graph: one launch instead of some hundred.
 *
 * Other threads may use the GPU meanwhile, as the one that communicates does: so what is forbidden
 * while a stream is captured is forbidden for the thread that captures alone.
 *
 * Source: CUDA C++ programming guide 13.0, section "CUDA graphs", "stream capture".
 */
#include "kernels/cuda/stream/record_cuda.h"

#include <cuda_runtime.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/stream_cuda.h"

struct dp_recording {
    cudaGraphExec_t graph;               /* owned; NULL until something was recorded */
    uint64_t copied[DP_COPY_DIRECTIONS]; /* bytes that a replay copies */
};

/* ---- bytes that are copied ---- */

static atomic_uint_fast64_t copied[DP_COPY_DIRECTIONS]; /* of this process */

static void count(enum dp_copy_direction direction, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(&copied[direction], bytes, memory_order_relaxed);
}

void dp_cuda_count_copy(const struct dp_stream *stream, enum dp_copy_direction direction,
                        size_t bytes)
{
    struct dp_cuda *cuda = dp_cuda_of(stream);

    if (stream->records) {
        cuda->to_record[direction] += bytes;
    } else {
        count(direction, bytes);
    }
}

void dp_cuda_copied(uint64_t bytes[DP_COPY_DIRECTIONS])
{
    for (int i = 0; i < DP_COPY_DIRECTIONS; i++) {
        bytes[i] = atomic_load_explicit(&copied[i], memory_order_relaxed);
    }
}

/* ---- recordings ---- */

dp_status dp_cuda_recording_create(struct dp_recording **out)
{
    struct dp_recording *recording = dp_zalloc(1, sizeof(*recording));

    if (recording == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "recording");
    }
    *out = recording;
    return DP_OK;
}

static void forget(struct dp_recording *recording)
{
    if (recording->graph != NULL) {
        (void)cudaGraphExecDestroy(recording->graph);
    }
    recording->graph = NULL;
}

void dp_cuda_recording_destroy(struct dp_recording *recording)
{
    if (recording != NULL) {
        forget(recording);
        dp_free(recording);
    }
}

dp_status dp_cuda_record_begin(struct dp_stream *stream)
{
    struct dp_cuda *cuda = dp_cuda_of(stream);

    DP_TRY(DP_CUDA(cudaStreamBeginCapture(cuda->queue, cudaStreamCaptureModeThreadLocal)));
    stream->records = true;
    memset(cuda->to_record, 0, sizeof(cuda->to_record));
    return DP_OK;
}

/* Sent to the GPU at once, so that the first replay is as fast as the others. */
dp_status dp_cuda_record_end(struct dp_stream *stream, struct dp_recording *recording,
                             const char **why_not)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(dp_cuda_of(stream)->queue, &graph);

    stream->records = false;
    forget(recording);
    memcpy(recording->copied, dp_cuda_of(stream)->to_record, sizeof(recording->copied));
    if (error == cudaSuccess) {
        error = cudaGraphInstantiate(&recording->graph, graph, 0);
    }
    if (error == cudaSuccess) {
        error = cudaGraphUpload(recording->graph, dp_cuda_of(stream)->queue);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* or the next launch would find it */
        *why_not = cudaGetErrorString(error);
        return DP_ERR_UNAVAILABLE;
    }
    dp_cuda_of(stream)->recorded = true;
    return DP_OK;
}

dp_status dp_cuda_replay(const struct dp_recording *recording, struct dp_stream *stream)
{
    for (int i = 0; i < DP_COPY_DIRECTIONS; i++) {
        count((enum dp_copy_direction)i, recording->copied[i]);
    }
    return DP_CUDA(cudaGraphLaunch(recording->graph, dp_cuda_of(stream)->queue));
}
