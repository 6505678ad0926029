/*
 * graph.cpp - capture and graphs of cuda_runtime.h: closures that are kept, and queued again.
 * Memory that they name must be there when they are.
 *
 *   DP_CUDA_GRAPHS=off       there is no memory for any
 *   DP_CUDA_GRAPHS=busy      no stream can be captured
 */
#include "streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static thread_local cudaStream_t capturing; /* by this thread */

static bool graphs_are(const char *state)
{
    const char *text = getenv("DP_CUDA_GRAPHS");

    return text != nullptr && strcmp(text, state) == 0;
}

bool cuda_host_spoils(cudaStream_t stream)
{
    if (stream == nullptr || stream->capture == nullptr) {
        return false;
    }
    stream->capture->spoilt = true;
    return true;
}

bool cuda_host_spoils_own()
{
    return cuda_host_spoils(capturing);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    std::lock_guard<std::recursive_mutex> lock(cuda_on_host_mutex);

    (void)mode;
    if (cuda_host_spoils(stream) || capturing != nullptr || graphs_are("busy")) {
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    stream->capture = new cuda_host_graph{};
    capturing = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    std::lock_guard<std::recursive_mutex> lock(cuda_on_host_mutex);
    const cudaGraph_t captured = stream->capture;

    *graph = nullptr;
    if (captured == nullptr || capturing != stream) {
        return cuda_host_fail(cudaErrorInvalidValue);
    }
    stream->capture = nullptr;
    capturing = nullptr;
    if (captured->spoilt) {
        delete captured;
        return cuda_host_fail(cudaErrorStreamCaptureInvalidated);
    }
    *graph = captured;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    if (graphs_are("off")) {
        *exec = nullptr;
        return cuda_host_fail(cudaErrorMemoryAllocation);
    }
    *exec = new cuda_host_graph{*graph};
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec;
    (void)stream;
    return cudaSuccess;
}

/* A graph names memory by its address: what was freed since is somebody else's, or nobody's. */
static void check_given(const captured_work &captured)
{
    for (const given_memory &given : captured.given) {
        if (!cuda_host_is_there(given)) {
            fprintf(stderr,
                    "a graph is launched after memory at %#llx was freed, which it gives to %s\n",
                    static_cast<unsigned long long>(given.address), captured.work.name);
            abort();
        }
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> lock(cuda_on_host_mutex);

    if (cuda_host_spoils(stream)) {
        return cuda_host_fail(cudaErrorStreamCaptureUnsupported);
    }
    cuda_host_count_call();
    for (const captured_work &captured : exec->work) {
        check_given(captured);
        cuda_host_count_work(captured.work);
        cuda_host_queue_captured(stream, captured.work.run);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
