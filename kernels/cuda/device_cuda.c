/*
 * device_cuda.c - the device `cuda`: memory, streams, events, copies.
 *
 * Every stream is a CUDA stream that does not wait for the default one. Memory is counted by
 * purpose in a list on the host, since the host cannot write in front of what it gives.
 */
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/cublas/matmul_cublas.h"
#include "kernels/cuda/cudnn/cudnn_api.h"
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/cuda/ops_cuda.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/nvtx_cuda.h"
#include "kernels/cuda/stream/record_cuda.h"
#include "kernels/cuda/stream/scratch_cuda.h"
#include "kernels/cuda/stream/stream_cuda.h"

enum { BLOCKS_PER_PROCESSOR = 8 }; /* of DP_THREADS: the 2048 threads that one can hold */

/* ---- memory ---- */

struct block {
    struct block *next;
    void *memory;
    size_t bytes;
    enum dp_purpose purpose;
    bool on_host;
};

static pthread_mutex_t blocks_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;                                   /* owned; all that is allocated */
static size_t used[DP_MEM_PURPOSE_COUNT], used_now, used_most; /* bytes of GPU memory among them */

/* With blocks_mutex held. What a trial takes is gone before anything is computed, and no part of
 * the peak. */
static void account(const struct block *block, bool more)
{
    if (block->on_host) {
        return;
    }
    used[block->purpose] += more ? block->bytes : -block->bytes;
    if (block->purpose != DP_MEM_TRIAL) {
        used_now += more ? block->bytes : -block->bytes;
        used_most = used_now > used_most ? used_now : used_most;
    }
}

static void cuda_room(struct dp_device_room *room)
{
    int gpu = dp_cuda_unit(), processors = 0;

    dp_cuda_enter(gpu);
    memset(room, 0, sizeof(*room));
    dp_cuda_units.label(room->name);
    (void)cudaMemGetInfo(&room->left, &room->total);
    (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
    room->workspace =
        dp_cuda_partials(processors) * sizeof(double) + DP_CUDA_COLUMNS + DP_CUDA_WORKSPACE;
    (void)pthread_mutex_lock(&blocks_mutex);
    room->peak = used_most;
    memcpy(room->used, used, sizeof(room->used));
    (void)pthread_mutex_unlock(&blocks_mutex);
}

/* The caller says what it is for and what to do; here is what there was. */
static void tell_left(enum dp_purpose purpose, size_t bytes)
{
    struct dp_device_room room;
    char list[256] = "";
    size_t length = 0;

    cuda_room(&room);
    for (int i = 0; i < DP_MEM_PURPOSE_COUNT && length < sizeof(list); i++) {
        if (room.used[i] >> 20 > 0) {
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s %zu",
                                       length > 0 ? ", " : "; MiB here: ",
                                       dp_purpose_text((enum dp_purpose)i), room.used[i] >> 20);
        }
    }
    DP_WARN("%s: %zu MiB for %s, but %zu of %zu MiB are free%s", room.name, bytes >> 20,
            dp_purpose_text(purpose), room.left >> 20, room.total >> 20, list);
}

/* A size of 0 gives a valid pointer, too. */
static cudaError_t take(struct block *block)
{
    const size_t bytes = block->bytes > 0 ? block->bytes : 1;
    cudaError_t error = block->on_host ? cudaHostAlloc(&block->memory, bytes, cudaHostAllocPortable)
                                       : cudaMalloc(&block->memory, bytes);

    if (error == cudaSuccess && block->on_host) {
        memset(block->memory, 0, bytes);
    } else if (error == cudaSuccess) {
        error = cudaMemset(block->memory, 0, bytes);
        error = error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
        if (error != cudaSuccess) {
            (void)cudaFree(block->memory);
        }
    }
    return error;
}

static void *allocate(enum dp_purpose purpose, size_t bytes, bool on_host)
{
    struct block *block = dp_zalloc(1, sizeof(*block));

    if (block == NULL) {
        return NULL;
    }
    *block = (struct block){.bytes = bytes, .purpose = purpose, .on_host = on_host};
    dp_cuda_enter(dp_cuda_unit());
    if (take(block) != cudaSuccess) {
        (void)cudaGetLastError(); /* or the next launch would find it */
        tell_left(purpose, bytes);
        dp_free(block);
        return NULL;
    }
    dp_mem_count(purpose, (long long)bytes);
    (void)pthread_mutex_lock(&blocks_mutex);
    block->next = blocks;
    blocks = block;
    account(block, true);
    (void)pthread_mutex_unlock(&blocks_mutex);
    return block->memory;
}

static void *cuda_alloc(enum dp_purpose purpose, size_t bytes)
{
    return allocate(purpose, bytes, false);
}

static void *cuda_alloc_host(enum dp_purpose purpose, size_t bytes)
{
    return allocate(purpose, bytes, true);
}

static struct block *forget(const void *memory)
{
    struct block **link = &blocks, *block;

    (void)pthread_mutex_lock(&blocks_mutex);
    while (*link != NULL && (*link)->memory != memory) {
        link = &(*link)->next;
    }
    block = *link;
    if (block != NULL) {
        *link = block->next;
        account(block, false);
    }
    (void)pthread_mutex_unlock(&blocks_mutex);
    return block;
}

static void cuda_release(void *memory)
{
    struct block *block = memory != NULL ? forget(memory) : NULL;
    cudaError_t error;

    if (block == NULL) {
        return;
    }
    error = block->on_host ? cudaFreeHost(memory) : cudaFree(memory);
    if (error != cudaSuccess) {
        DP_WARN("releasing GPU memory: %s", cudaGetErrorString(error));
    }
    dp_mem_count(block->purpose, -(long long)block->bytes);
    dp_free(block);
}

/* Memory that cannot be pinned is copied more slowly, and that is all. */
static void cuda_pin(void *memory, size_t bytes)
{
    const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        DP_DEBUG("%zu bytes of the host are not pinned: %s", bytes, cudaGetErrorString(error));
    }
}

static void cuda_unpin(void *memory)
{
    if (cudaHostUnregister(memory) != cudaSuccess) {
        (void)cudaGetLastError();
    }
}

/* ---- whether there is a GPU ---- */

/* Of the architectures that kernels are compiled for: cuda.cmake. */
#ifdef DP_LEAST_CAPABILITY
enum { LEAST_CAPABILITY = DP_LEAST_CAPABILITY };
#else
enum { LEAST_CAPABILITY = 80 };
#endif

/* Whether any GPU is of a generation that kernels are not compiled for. */
static bool is_too_old(int count, char *text, size_t size)
{
    for (int gpu = 0; gpu < count; gpu++) {
        int major = 0, minor = 0;
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess &&
            cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) == cudaSuccess &&
            10 * major + minor < LEAST_CAPABILITY) {
            (void)snprintf(text, size,
                           "GPU %d has compute capability %d.%d, this program needs %d.%d: a newer "
                           "one, or leave it out of CUDA_VISIBLE_DEVICES",
                           gpu, major, minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
            return true;
        }
    }
    (void)cudaGetLastError();
    return false;
}

static bool cuda_available(const char **why_not)
{
    static _Thread_local char text[160];
    int count = 0, driver = 0, runtime = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaSuccess && count > 0) {
        *why_not = text;
        return !is_too_old(count, text, sizeof(text));
    }
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    if (driver == 0) {
        (void)snprintf(text, sizeof(text), "no NVIDIA driver is installed here");
    } else if (driver < runtime) {
        (void)snprintf(text, sizeof(text),
                       "the NVIDIA driver is too old: it serves CUDA %d.%d, this program needs "
                       "%d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    } else {
        (void)snprintf(text, sizeof(text), "no GPU is visible (%s; is CUDA_VISIBLE_DEVICES set?)",
                       error == cudaSuccess ? "none found" : cudaGetErrorString(error));
    }
    *why_not = text;
    return false;
}

/* ---- streams ---- */

static void cuda_stream_destroy(struct dp_stream *stream)
{
    struct dp_cuda *cuda;

    if (stream == NULL) {
        return;
    }
    cuda = stream->state;
    if (cuda->queue != NULL) {
        (void)cudaStreamSynchronize(cuda->queue);
    }
    dp_convs_destroy(cuda->convs);
    dp_matmuls_destroy(cuda->matmuls);
    dp_cuda_scratch_release(&cuda->columns);
    dp_cuda_release_kept(cuda);
    cuda_release(cuda->partials);
    if (cuda->mark != NULL) {
        (void)cudaEventDestroy(cuda->mark);
    }
    if (cuda->queue != NULL) {
        (void)cudaStreamDestroy(cuda->queue);
    }
    dp_free(cuda);
    dp_free(stream);
}

static dp_status stream_open(struct dp_cuda *cuda)
{
    cuda->unit = dp_cuda_unit();
    dp_cuda_enter(cuda->unit);
    DP_TRY(DP_CUDA(
        cudaDeviceGetAttribute(&cuda->processors, cudaDevAttrMultiProcessorCount, cuda->unit)));
    cuda->blocks = cuda->processors * BLOCKS_PER_PROCESSOR;
    DP_TRY(DP_CUDA(cudaStreamCreateWithFlags(&cuda->queue, cudaStreamNonBlocking)));
    DP_TRY(DP_CUDA(cudaEventCreateWithFlags(&cuda->mark, cudaEventDisableTiming)));
    cuda->partials =
        cuda_alloc(DP_MEM_WORKSPACE, dp_cuda_partials(cuda->processors) * sizeof(double));
    if (cuda->partials == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "stream of device cuda");
    }
    (void)dp_cuda_show_spans();
    return dp_matmuls_create(&cuda->matmuls);
}

static dp_status cuda_stream_create(const struct dp_device *device, int threads,
                                    struct dp_stream **out)
{
    struct dp_stream *stream;
    dp_status status;

    if (threads < 1) {
        return DP_FAIL(DP_ERR_ARG, "a stream with %d threads", threads);
    }
    stream = dp_zalloc(1, sizeof(*stream));
    if (stream != NULL) {
        *stream = (struct dp_stream){.device = device, .ops = &dp_cuda_ops, .threads = threads};
        stream->state = dp_zalloc(1, sizeof(struct dp_cuda));
    }
    if (stream == NULL || stream->state == NULL) {
        dp_free(stream);
        return DP_FAIL(DP_ERR_NOMEM, "stream of device cuda");
    }
    status = stream_open(stream->state);
    if (status != DP_OK) {
        cuda_stream_destroy(stream);
        return status;
    }
    *out = stream;
    return DP_OK;
}

static dp_status cuda_forget(struct dp_stream *stream)
{
    struct dp_cuda *cuda = dp_cuda_of(stream);

    DP_TRY(DP_CUDA(cudaStreamSynchronize(cuda->queue)));
    dp_matmuls_forget(cuda->matmuls);
    dp_convs_forget(cuda->convs);
    return DP_OK;
}

/* What proposes algorithms, and what runs them. */
static void cuda_machine(char *text, size_t size)
{
    struct cudaDeviceProp properties = {.name = ""};
    const int gpu = dp_cuda_unit();
    int driver = 0, runtime = 0;
    const char *why_not;
    const struct dp_cudnn *cudnn = dp_cudnn_library(&why_not);

    dp_cuda_enter(gpu);
    (void)cudaGetDeviceProperties(&properties, gpu);
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)snprintf(text, size, "%.64s %d.%d, driver %d, CUDA %d, cuBLASLt %zu, cuDNN %zu",
                   properties.name, properties.major, properties.minor, driver, runtime,
                   cublasLtGetVersion(), cudnn != NULL ? cudnn->version() : 0);
}

static dp_status cuda_synchronize(struct dp_stream *stream)
{
    return DP_CUDA(cudaStreamSynchronize(dp_cuda_of(stream)->queue));
}

static void *cuda_native(struct dp_stream *stream)
{
    return dp_cuda_of(stream)->queue;
}

static dp_status cuda_order(struct dp_stream *later, struct dp_stream *earlier)
{
    if (later == earlier) {
        return DP_OK;
    }
    DP_TRY(DP_CUDA(cudaEventRecord(dp_cuda_of(earlier)->mark, dp_cuda_of(earlier)->queue)));
    return DP_CUDA(cudaStreamWaitEvent(dp_cuda_of(later)->queue, dp_cuda_of(earlier)->mark, 0));
}

static dp_status cuda_upload(struct dp_stream *stream, void *device, const void *host, size_t bytes)
{
    dp_cuda_count_copy(stream, DP_COPY_TO_DEVICE, bytes);
    return bytes == 0 ? DP_OK
                      : DP_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                                                dp_cuda_of(stream)->queue));
}

static dp_status cuda_download(struct dp_stream *stream, void *host, const void *device,
                               size_t bytes)
{
    dp_cuda_count_copy(stream, DP_COPY_FROM_DEVICE, bytes);
    return bytes == 0 ? DP_OK
                      : DP_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                                                dp_cuda_of(stream)->queue));
}

/* ---- events ---- */

struct dp_event {
    cudaEvent_t event;
};

static dp_status make_event(unsigned flags, struct dp_event **out)
{
    struct dp_event *event = dp_zalloc(1, sizeof(*event));
    dp_status status;

    if (event == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "event");
    }
    dp_cuda_enter(dp_cuda_unit());
    status = DP_CUDA(cudaEventCreateWithFlags(&event->event, flags));
    if (status != DP_OK) {
        dp_free(event);
        return status;
    }
    *out = event;
    return DP_OK;
}

static dp_status cuda_event_create(struct dp_event **out)
{
    return make_event(cudaEventDisableTiming, out);
}

static dp_status cuda_timed_event_create(struct dp_event **out)
{
    return make_event(cudaEventDefault, out);
}

static dp_status cuda_event_ms(const struct dp_event *from, const struct dp_event *to, double *ms)
{
    float elapsed;

    DP_TRY(DP_CUDA(cudaEventElapsedTime(&elapsed, from->event, to->event)));
    *ms = (double)elapsed;
    return DP_OK;
}

static void cuda_event_destroy(struct dp_event *event)
{
    if (event != NULL) {
        (void)cudaEventDestroy(event->event);
        dp_free(event);
    }
}

static dp_status cuda_event_record(struct dp_event *event, struct dp_stream *stream)
{
    return DP_CUDA(cudaEventRecord(event->event, dp_cuda_of(stream)->queue));
}

static dp_status cuda_event_query(const struct dp_event *event, bool *done)
{
    const cudaError_t error = cudaEventQuery(event->event);

    *done = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* or the next launch would find it */
        return DP_OK;
    }
    return DP_CUDA(error);
}

static dp_status cuda_event_wait(struct dp_stream *stream, const struct dp_event *event)
{
    return DP_CUDA(cudaStreamWaitEvent(dp_cuda_of(stream)->queue, event->event, 0));
}

const struct dp_device dp_device_cuda = {
    .plugin = {.name = "cuda", .help = "an NVIDIA GPU"},
    .host_memory = false,
    .has_tf32 = true,
    .available = cuda_available,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .room = cuda_room,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .upload = cuda_upload,
    .download = cuda_download,
    .copied = dp_cuda_copied,
    .find_conv = dp_cuda_find_conv,
    .machine = cuda_machine,
    .forget = cuda_forget,
    .order = cuda_order,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .timed_event_create = cuda_timed_event_create,
    .event_ms = cuda_event_ms,
    .recording_create = dp_cuda_recording_create,
    .recording_destroy = dp_cuda_recording_destroy,
    .record_begin = dp_cuda_record_begin,
    .record_end = dp_cuda_record_end,
    .replay = dp_cuda_replay,
    .synchronize = cuda_synchronize,
    .native = cuda_native,
    .units = &dp_cuda_units,
};
