#include "runtime/optim/grad_norm.h"

#include <math.h>

/* Allocates the host's copies, or uses the device's arrays if the host can read them. */
static bool make_copies(struct dp_grad_norm *g)
{
    const struct dp_device *device = g->stream->device;

    if (device->host_memory) {
        g->read = g->sum;
        g->seen = g->squares;
        return true;
    }
    g->read = device->alloc_host(DP_MEM_OPTIMIZER, sizeof(*g->read));
    g->seen = g->checks ? device->alloc_host(DP_MEM_OPTIMIZER, g->blocks * sizeof(*g->seen)) : NULL;
    return g->read != NULL && (g->seen != NULL || !g->checks);
}

dp_status dp_grad_norm_create(const struct dp_flat *flat, double clip_norm, bool checks,
                              struct dp_stream *stream, struct dp_grad_norm **out)
{
    const struct dp_device *device = stream->device;
    struct dp_grad_norm *grad_norm = dp_zalloc(1, sizeof(*grad_norm));

    if (grad_norm == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gradient norm");
    }
    grad_norm->flat = flat;
    grad_norm->clip_norm = clip_norm;
    grad_norm->checks = checks;
    grad_norm->blocks = flat->trained / DP_BLOCK;
    grad_norm->stream = stream;
    grad_norm->squares = device->alloc(DP_MEM_OPTIMIZER, grad_norm->blocks * sizeof(float));
    grad_norm->sum = device->alloc(DP_MEM_OPTIMIZER, sizeof(*grad_norm->sum));
    if (grad_norm->squares == NULL || grad_norm->sum == NULL || !make_copies(grad_norm)) {
        dp_grad_norm_destroy(grad_norm);
        return DP_FAIL(DP_ERR_NOMEM, "gradient norm of %zu blocks", flat->trained / DP_BLOCK);
    }
    *out = grad_norm;
    return DP_OK;
}

void dp_grad_norm_destroy(struct dp_grad_norm *grad_norm)
{
    if (grad_norm != NULL) {
        const struct dp_device *device = grad_norm->stream->device;
        if (!device->host_memory) {
            device->release_host(grad_norm->seen);
            device->release_host(grad_norm->read);
        }
        device->release(grad_norm->sum);
        device->release(grad_norm->squares);
        dp_free(grad_norm);
    }
}

dp_status dp_grad_norm_reset(struct dp_grad_norm *grad_norm)
{
    return grad_norm->stream->ops->zero(grad_norm->stream, grad_norm->squares,
                                        grad_norm->blocks * sizeof(*grad_norm->squares));
}

dp_status dp_grad_norm_add(struct dp_grad_norm *grad_norm, struct dp_range range)
{
    struct dp_stream *stream = grad_norm->stream;

    return stream->ops->block_squares(stream, grad_norm->squares + range.begin / DP_BLOCK,
                                      grad_norm->flat->grad + range.begin, range.count);
}

dp_status dp_grad_norm_read(struct dp_grad_norm *g)
{
    struct dp_stream *stream = g->stream;

    DP_TRY(stream->ops->sum_all(stream, g->sum, g->squares, g->blocks));
    DP_TRY(dp_device_read(stream, g->read, g->sum, sizeof(*g->read)));
    g->finite = isfinite(*g->read) != 0;
    return g->finite || !g->checks
               ? DP_OK
               : dp_device_read(stream, g->seen, g->squares, g->blocks * sizeof(*g->seen));
}

dp_status dp_grad_norm_decide(struct dp_grad_norm *grad_norm, struct dp_step_params *step_params)
{
    if (step_params->skip != 0) {
        return DP_OK;
    }
    DP_TRY(dp_grad_norm_read(grad_norm));
    grad_norm->norm = sqrt(*grad_norm->read) * (double)step_params->factor;
    if (grad_norm->checks && !isfinite(grad_norm->norm)) {
        step_params->skip = 1;
        return DP_OK;
    }
    const double factor =
        grad_norm->clip_norm > 0.0 ? grad_norm->clip_norm / (grad_norm->norm + 1e-6) : 1.0;
    step_params->factor *= factor < 1.0 ? (float)factor : 1.0f;
    return DP_OK;
}

const struct dp_tensor *dp_grad_norm_overflowed(const struct dp_grad_norm *grad_norm)
{
    const struct dp_flat *flat = grad_norm->flat;
    size_t block = grad_norm->blocks;

    for (int i = flat->tensor_count - 1; !grad_norm->finite && i >= 0; i--) {
        while (block > flat->tensors[i].begin / DP_BLOCK) {
            if (!isfinite(grad_norm->seen[--block])) {
                return &flat->tensors[i];
            }
        }
    }
    return NULL;
}
