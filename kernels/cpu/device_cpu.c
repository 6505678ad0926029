#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/prepared.h"
#include "kernels/host_memory.h"

static bool cpu_available(const char **why_not)
{
    (void)why_not;
    return true;
}

static void cpu_stream_destroy(struct dp_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    if (stream->state != NULL) {
        struct dp_prepared *prepared = stream->state;
        prepared->destroy(prepared);
    }
    dp_free(stream);
}

static dp_status cpu_stream_create(const struct dp_device *device, int threads,
                                   struct dp_stream **out)
{
    struct dp_stream *stream;

    if (threads < 1) {
        return DP_FAIL(DP_ERR_ARG, "a stream with %d threads", threads);
    }
    stream = dp_zalloc(1, sizeof(*stream));
    if (stream == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "stream of device cpu");
    }
    *stream = (struct dp_stream){.device = device, .ops = &dp_cpu_ops, .threads = threads};
    *out = stream;
    return DP_OK;
}

const struct dp_device dp_device_cpu = {
    .plugin = {.name = "cpu", .help = "this machine's processors"},
    DP_HOST_MEMORY,
    .tile_bytes = 524288, /* half of a second-level cache: models/{lenet,resnet20}.cfg, 2 ranks */
    .available = cpu_available,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
};
