#include "runtime/gate.h"

#include <math.h>
#include <string.h>

dp_status dp_gate_create(const struct dp_flat *flat, double clip_norm, bool checks,
                         struct dp_gate **out)
{
    struct dp_gate *gate = dp_zalloc(1, sizeof(*gate));

    if (gate == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "gate");
    }
    gate->flat = flat;
    gate->clip_norm = clip_norm;
    gate->checks = checks;
    gate->blocks = flat->trained / DP_BLOCK;
    gate->squares = dp_mem_arena(DP_MEM_OPTIMIZER, flat->trained / DP_BLOCK * sizeof(float));
    if (gate->squares == NULL) {
        dp_gate_destroy(gate);
        return DP_FAIL(DP_ERR_NOMEM, "gate: %zu blocks", flat->trained / DP_BLOCK);
    }
    *out = gate;
    return DP_OK;
}

void dp_gate_destroy(struct dp_gate *gate)
{
    if (gate != NULL) {
        dp_free(gate->squares);
        dp_free(gate);
    }
}

void dp_gate_begin(struct dp_gate *gate)
{
    memset(gate->squares, 0, gate->blocks * sizeof(*gate->squares));
}

dp_status dp_gate_look(struct dp_gate *gate, struct dp_stream *stream, struct dp_range range)
{
    return stream->ops->block_squares(stream, gate->squares + range.begin / DP_BLOCK,
                                      gate->flat->grad + range.begin, range.count);
}

void dp_gate_decide(struct dp_gate *gate, struct dp_knobs *knobs)
{
    double sum = 0.0;

    if (knobs->skip != 0) {
        return;
    }
    for (size_t i = 0; i < gate->blocks; i++) {
        sum += (double)gate->squares[i];
    }
    gate->norm = sqrt(sum) * (double)knobs->factor;
    if (gate->checks && !isfinite(gate->norm)) {
        knobs->skip = 1;
        return;
    }
    const double factor = gate->clip_norm > 0.0 ? gate->clip_norm / (gate->norm + 1e-6) : 1.0;
    knobs->factor *= factor < 1.0 ? (float)factor : 1.0f;
}

const struct dp_tensor *dp_gate_overflowed(const struct dp_gate *gate)
{
    const struct dp_flat *flat = gate->flat;
    size_t block = gate->blocks;

    for (int i = flat->tensor_count - 1; i >= 0; i--) {
        while (block > flat->tensors[i].begin / DP_BLOCK) {
            if (!isfinite(gate->squares[--block])) {
                return &flat->tensors[i];
            }
        }
    }
    return NULL;
}
