#include "kernels/host_memory.h"
#include "kernels/ref/ops_ref.h"

static bool ref_available(const char **why_not)
{
    (void)why_not;
    return true;
}

static void ref_stream_destroy(struct dp_stream *stream)
{
    dp_free(stream);
}

/* The reference computes on one thread, for any `threads`. */
static dp_status ref_stream_create(const struct dp_device *device, int threads,
                                   struct dp_stream **out)
{
    struct dp_stream *stream;

    if (threads < 1) {
        return DP_FAIL(DP_ERR_ARG, "a stream with %d threads", threads);
    }
    stream = dp_zalloc(1, sizeof(*stream));
    if (stream == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "stream of device ref");
    }
    *stream = (struct dp_stream){.device = device, .ops = &dp_ref_ops, .threads = threads};
    *out = stream;
    return DP_OK;
}

static const char *ref_arithmetic(enum dp_type type)
{
    return type == DP_TYPE_BF16 ? "bf16 storage, float32 arithmetic"
                                : "fp16 storage, float32 arithmetic";
}

const struct dp_device dp_device_ref = {
    .plugin = {.name = "ref", .help = "plain C, slow, for comparison"},
    DP_HOST_MEMORY,
    .available = ref_available,
    .stream_create = ref_stream_create,
    .stream_destroy = ref_stream_destroy,
    .arithmetic = ref_arithmetic,
};
