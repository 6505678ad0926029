#include "models/layers/layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DP_LAYER(name) extern const struct dp_layer_type dp_layer_##name;
#include "models/layers/layers.def"
#undef DP_LAYER

static const struct dp_plugin *const registry[] = {
#define DP_LAYER(name) &dp_layer_##name.plugin,
#include "models/layers/layers.def"
#undef DP_LAYER
};

struct dp_plugin_family dp_layers = {
    .noun = "layer", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

dp_status dp_layer_refuse(char *problem, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(problem, size, format, args);
    va_end(args);
    return DP_ERR_CONFIG;
}

const char *dp_shape_text(const struct dp_shape *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (int i = 0; i < shape->dims && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%zu", i == 0 ? "" : ", ", shape->dim[i]);
    }
    if (used < size) {
        (void)snprintf(text + used, size - used, "]");
    }
    return text;
}

dp_status dp_layer_hand_on(const struct dp_layer_call *c, size_t features)
{
    return c->dx == c->dy || c->dx == NULL
               ? DP_OK
               : c->stream->ops->copy(c->stream, c->dx, c->dy,
                                      c->rows * features * dp_type_bytes(c->stream->type));
}

dp_status dp_layer_wants_image(const struct dp_layer_plan *plan, char *problem, size_t size)
{
    char text[96];

    if (plan->in.dims == 3) {
        return DP_OK;
    }
    return dp_layer_refuse(problem, size,
                           "needs an image [height, width, channels], but its input is %s",
                           dp_shape_text(&plan->in, text, sizeof(text)));
}

dp_status dp_layer_window(const struct dp_layer_plan *plan, size_t kernel, size_t stride,
                          size_t padding, size_t out_c, struct dp_window *window, char *problem,
                          size_t problem_size)
{
    char text[96];

    DP_TRY(dp_layer_wants_image(plan, problem, problem_size));
    memset(window, 0, sizeof(*window));
    window->in_h = plan->in.dim[0];
    window->in_w = plan->in.dim[1];
    window->in_c = plan->in.dim[2];
    if (kernel > window->in_h + 2 * padding || kernel > window->in_w + 2 * padding) {
        return dp_layer_refuse(
            problem, problem_size, "a %zux%zu window with padding %zu does not fit its input %s",
            kernel, kernel, padding, dp_shape_text(&plan->in, text, sizeof(text)));
    }
    window->kernel_h = window->kernel_w = kernel;
    window->stride = stride;
    window->padding = padding;
    window->out_h = (window->in_h + 2 * padding - kernel) / stride + 1;
    window->out_w = (window->in_w + 2 * padding - kernel) / stride + 1;
    window->out_c = out_c == 0 ? window->in_c : out_c;
    return DP_OK;
}

struct dp_tensor *dp_layer_param(struct dp_layer_plan *plan, const char *name, int dims,
                                 const size_t *shape, size_t fan_in)
{
    struct dp_tensor *tensor = &plan->params[plan->param_count++];

    memset(tensor, 0, sizeof(*tensor));
    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->dims = dims;
    tensor->count = 1;
    for (int i = 0; i < dims; i++) {
        tensor->shape[i] = shape[i];
        tensor->count *= shape[i];
    }
    tensor->spatial = 1;
    tensor->channels = tensor->count;
    tensor->fan_in = fan_in;
    return tensor;
}
