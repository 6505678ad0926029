#include "kernels/cpu/mixed.h"
#if DP_HAVE_ONEDNN
#include "kernels/cpu/onednn/choose_onednn.h"
#endif
#include "kernels/cpu/op_table_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prepared.h"
#include "kernels/cpu/stream_cpu.h"
#include "kernels/host_memory.h"

static bool cpu_available(const char **why_not)
{
    (void)why_not;
    return true;
}

static dp_status cpu_forget(struct dp_stream *stream)
{
    struct dp_prepared *prepared = stream->state;

    for (struct dp_stream **one = stream->singles; one != NULL && *one != NULL; one++) {
        DP_TRY(cpu_forget(*one));
    }
    if (prepared != NULL) {
        stream->state = NULL;
        prepared->destroy(prepared);
    }
    return DP_OK;
}

static void cpu_stream_destroy(struct dp_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    for (struct dp_stream **one = stream->singles; one != NULL && *one != NULL; one++) {
        cpu_stream_destroy(*one);
    }
    dp_free(stream->singles);
    stream->singles = NULL;
    (void)cpu_forget(stream);
    dp_free(dp_cpu_stream_of(stream)->scratch);
    dp_free(stream);
}

static struct dp_stream *stream_of(const struct dp_device *device, int threads)
{
    struct dp_cpu_stream *own = dp_zalloc(1, sizeof(*own));

    if (own == NULL) {
        return NULL;
    }
    own->stream = (struct dp_stream){.device = device, .ops = &dp_cpu_ops, .threads = threads};
    return &own->stream;
}

/* Makes the streams of a stream's threads, if it has several. NULL ends them, since a stream may
 * use fewer threads later. */
static bool add_singles(struct dp_stream *stream)
{
    if (stream->threads == 1) {
        return true;
    }
    stream->singles = dp_zalloc((size_t)stream->threads + 1, sizeof(struct dp_stream *));
    for (int i = 0; stream->singles != NULL && i < stream->threads; i++) {
        stream->singles[i] = stream_of(stream->device, 1);
        if (stream->singles[i] == NULL) {
            return false;
        }
    }
    return stream->singles != NULL;
}

static dp_status cpu_stream_create(const struct dp_device *device, int threads,
                                   struct dp_stream **out)
{
    struct dp_stream *stream;

    if (threads < 1) {
        return DP_FAIL(DP_ERR_ARG, "a stream with %d threads", threads);
    }
    stream = stream_of(device, threads);
    if (stream == NULL || !add_singles(stream)) {
        cpu_stream_destroy(stream);
        return DP_FAIL(DP_ERR_NOMEM, "stream of device cpu");
    }
    *out = stream;
    return DP_OK;
}

static void cpu_set_type(struct dp_stream *stream)
{
    struct dp_cpu_stream *own = dp_cpu_stream_of(stream);

    own->ops = dp_cpu_ops;
    if (stream->type != DP_TYPE_F32) {
        dp_mixed_ops(&own->ops, stream->type, dp_cpu_prefers_bf16());
    }
    stream->ops = &own->ops;
}

static dp_status cpu_reserve(struct dp_stream *stream, size_t count)
{
    struct dp_cpu_stream *own = dp_cpu_stream_of(stream);
    float *scratch;

    if (count <= own->scratch_count) {
        return DP_OK;
    }
    scratch = dp_mem_arena(DP_MEM_WORKSPACE, count * sizeof(*scratch));
    if (scratch == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu MB of scratch for narrow types",
                       count * sizeof(*scratch) >> 20);
    }
    dp_free(own->scratch);
    own->scratch = scratch;
    own->scratch_count = count;
    return DP_OK;
}

static const char *cpu_arithmetic(enum dp_type type)
{
    if (type == DP_TYPE_F16) {
        return "fp16 storage, float32 arithmetic";
    }
    return dp_cpu_prefers_bf16() ? "bf16 arithmetic" : "bf16 storage, float32 arithmetic";
}

const struct dp_device dp_device_cpu = {
    .plugin = {.name = "cpu", .help = "this machine's processors"},
    DP_HOST_MEMORY,
    .tile_bytes = 524288, /* half of a second-level cache: models/{lenet,resnet20}.cfg, 2 ranks */
    .available = cpu_available,
    .parallel = dp_parallel_parts,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .forget = cpu_forget,
#if DP_HAVE_ONEDNN
    .machine = dp_onednn_machine,
#endif
    .set_type = cpu_set_type,
    .reserve = cpu_reserve,
    .arithmetic = cpu_arithmetic,
};
