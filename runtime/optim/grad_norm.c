#include "runtime/optim/grad_norm.h"

#include <math.h>

dp_status dp_grad_norm_create(const struct dp_flat *flat, double clip_norm, bool checks,
                              struct dp_stream *stream, struct dp_grad_norm **out)
{
    const struct dp_device *device = stream->device;
    struct dp_grad_norm *grad_norm = dp_zalloc(1, sizeof(*grad_norm));

    if (grad_norm == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gate");
    }
    grad_norm->flat = flat;
    grad_norm->clip_norm = clip_norm;
    grad_norm->checks = checks;
    grad_norm->blocks = flat->trained / DP_BLOCK;
    grad_norm->stream = stream;
    grad_norm->squares = device->alloc(DP_MEM_OPTIMIZER, grad_norm->blocks * sizeof(float));
    grad_norm->seen = device->host_memory
                          ? grad_norm->squares
                          : device->alloc_host(DP_MEM_OPTIMIZER, grad_norm->blocks * sizeof(float));
    if (grad_norm->squares == NULL || grad_norm->seen == NULL) {
        dp_grad_norm_destroy(grad_norm);
        return DP_FAIL(DP_ERR_NOMEM, "gate: %zu blocks", flat->trained / DP_BLOCK);
    }
    *out = grad_norm;
    return DP_OK;
}

void dp_grad_norm_destroy(struct dp_grad_norm *grad_norm)
{
    if (grad_norm != NULL) {
        const struct dp_device *device = grad_norm->stream->device;
        if (grad_norm->seen != grad_norm->squares) {
            device->release_host(grad_norm->seen);
        }
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

dp_status dp_grad_norm_fetch(struct dp_grad_norm *grad_norm)
{
    return dp_device_read(grad_norm->stream, grad_norm->seen, grad_norm->squares,
                          grad_norm->blocks * sizeof(*grad_norm->seen));
}

dp_status dp_grad_norm_decide(struct dp_grad_norm *grad_norm, struct dp_step_params *step_params)
{
    double sum = 0.0;

    if (step_params->skip != 0) {
        return DP_OK;
    }
    DP_TRY(dp_grad_norm_fetch(grad_norm));
    for (size_t i = 0; i < grad_norm->blocks; i++) {
        sum += (double)grad_norm->seen[i];
    }
    grad_norm->norm = sqrt(sum) * (double)step_params->factor;
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

    for (int i = flat->tensor_count - 1; i >= 0; i--) {
        while (block > flat->tensors[i].begin / DP_BLOCK) {
            if (!isfinite(grad_norm->seen[--block])) {
                return &flat->tensors[i];
            }
        }
    }
    return NULL;
}
