/*
 * layer_run.h - for tests: one layer forward and backward on all rows, as a pass does it for tiles.
 */
#ifndef DP_TESTS_SUPPORT_MODELS_LAYER_RUN_H
#define DP_TESTS_SUPPORT_MODELS_LAYER_RUN_H

#include "models/layers/layer.h"

/* Finishes a layer after the last tile. */
typedef dp_status layer_end(const void *state, const struct dp_layer_call *call);

static inline dp_status layer_finish(layer_end *end, const void *state,
                                     const struct dp_layer_call *call)
{
    struct dp_layer_call all = *call;

    all.x = all.x2 = all.dy = NULL;
    all.y = all.dx = NULL;
    return end == NULL ? DP_OK : end(state, &all);
}

/* Writes y; if the plan says alias, y is x and nothing is written. */
static inline dp_status layer_forward(const struct dp_layer_type *type, const void *state,
                                      const struct dp_layer_call *call)
{
    if (type->before != NULL) {
        DP_TRY(type->before->forward(state, call));
        DP_TRY(layer_finish(type->before->forward_end, state, call));
    }
    DP_TRY(type->forward(state, call));
    return layer_finish(type->forward_end, state, call);
}

/* Writes dx; if no layer precedes and the plan says passes_dy, dx is dy. */
static inline dp_status layer_backward(const struct dp_layer_type *type, const void *state,
                                       const struct dp_layer_call *call)
{
    DP_TRY(type->backward(state, call));
    if (type->backward_data != NULL && call->dx != NULL) {
        DP_TRY(type->backward_data(state, call));
    }
    DP_TRY(layer_finish(type->backward_end, state, call));
    if (type->before == NULL) {
        return DP_OK;
    }
    DP_TRY(type->before->backward(state, call));
    return layer_finish(type->before->backward_end, state, call);
}

#endif
