#include "runtime/gate.h"

#include <math.h>

dp_status dp_gate_create(const struct dp_flat *flat, double clip_norm, bool checks,
                         struct dp_stream *stream, struct dp_gate **out)
{
    const struct dp_device *device = stream->device;
    struct dp_gate *gate = dp_zalloc(1, sizeof(*gate));

    if (gate == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gate");
    }
    gate->flat = flat;
    gate->clip_norm = clip_norm;
    gate->checks = checks;
    gate->blocks = flat->trained / DP_BLOCK;
    gate->stream = stream;
    gate->squares = device->alloc(DP_MEM_OPTIMIZER, gate->blocks * sizeof(float));
    gate->seen = device->host_memory
                     ? gate->squares
                     : device->alloc_host(DP_MEM_OPTIMIZER, gate->blocks * sizeof(float));
    if (gate->squares == NULL || gate->seen == NULL) {
        dp_gate_destroy(gate);
        return DP_FAIL(DP_ERR_NOMEM, "gate: %zu blocks", flat->trained / DP_BLOCK);
    }
    *out = gate;
    return DP_OK;
}

void dp_gate_destroy(struct dp_gate *gate)
{
    if (gate != NULL) {
        const struct dp_device *device = gate->stream->device;
        if (gate->seen != gate->squares) {
            device->release_host(gate->seen);
        }
        device->release(gate->squares);
        dp_free(gate);
    }
}

dp_status dp_gate_begin(struct dp_gate *gate)
{
    return gate->stream->ops->zero(gate->stream, gate->squares,
                                   gate->blocks * sizeof(*gate->squares));
}

dp_status dp_gate_look(struct dp_gate *gate, struct dp_range range)
{
    struct dp_stream *stream = gate->stream;

    return stream->ops->block_squares(stream, gate->squares + range.begin / DP_BLOCK,
                                      gate->flat->grad + range.begin, range.count);
}

dp_status dp_gate_read(struct dp_gate *gate)
{
    return dp_device_read(gate->stream, gate->seen, gate->squares,
                          gate->blocks * sizeof(*gate->seen));
}

dp_status dp_gate_decide(struct dp_gate *gate, struct dp_knobs *knobs)
{
    double sum = 0.0;

    if (knobs->skip != 0) {
        return DP_OK;
    }
    DP_TRY(dp_gate_read(gate));
    for (size_t i = 0; i < gate->blocks; i++) {
        sum += (double)gate->seen[i];
    }
    gate->norm = sqrt(sum) * (double)knobs->factor;
    if (gate->checks && !isfinite(gate->norm)) {
        knobs->skip = 1;
        return DP_OK;
    }
    const double factor = gate->clip_norm > 0.0 ? gate->clip_norm / (gate->norm + 1e-6) : 1.0;
    knobs->factor *= factor < 1.0 ? (float)factor : 1.0f;
    return DP_OK;
}

const struct dp_tensor *dp_gate_overflowed(const struct dp_gate *gate)
{
    const struct dp_flat *flat = gate->flat;
    size_t block = gate->blocks;

    for (int i = flat->tensor_count - 1; i >= 0; i--) {
        while (block > flat->tensors[i].begin / DP_BLOCK) {
            if (!isfinite(gate->seen[--block])) {
                return &flat->tensors[i];
            }
        }
    }
    return NULL;
}
