#include "runtime/optim/param_groups.h"

#include <string.h>

/* Scales and shifts of normalisations begin as constants; all else is drawn. */
static bool is_left_out(const struct dp_tensor *tensor, unsigned no_decay)
{
    static const char bias[] = "bias";
    const char *dot = strrchr(tensor->name, '.');
    const char *name = dot == NULL ? tensor->name : dot + 1;

    if (tensor->fan_in == 0) {
        return (no_decay & DP_NO_DECAY_NORM) != 0;
    }
    return (no_decay & DP_NO_DECAY_BIAS) != 0 && strcmp(name, bias) == 0;
}

static size_t blocks_of(const struct dp_tensor *tensor)
{
    return dp_round_up(tensor->count, DP_BLOCK) / DP_BLOCK;
}

/* Makes a device array of `bytes`, with what is at `from`. */
static dp_status place(struct dp_stream *s, const void *from, size_t bytes, void **to)
{
    *to = s->device->alloc(DP_MEM_OPTIMIZER, bytes);
    if (*to == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "factors of parameters need %zu kB", bytes >> 10);
    }
    DP_TRY(s->device->upload(s, *to, from, bytes));
    return s->device->synchronize(s);
}

static dp_status place_decays(struct dp_param_groups *g, const struct dp_flat *flat, unsigned left)
{
    float *decays = dp_zalloc(g->blocks, sizeof(*decays));
    void *there = NULL;
    dp_status status;

    if (decays == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "factors of parameters");
    }
    for (int i = 0; i < flat->tensor_count; i++) {
        const struct dp_tensor *tensor = &flat->tensors[i];
        for (size_t b = 0; b < blocks_of(tensor); b++) {
            decays[tensor->begin / DP_BLOCK + b] = is_left_out(tensor, left) ? 0.0f : 1.0f;
        }
    }
    status = place(g->stream, decays, g->blocks * sizeof(*decays), &there);
    g->decays = there;
    dp_free(decays);
    return status;
}

static dp_status place_tensors(struct dp_param_groups *g, const struct dp_flat *flat, unsigned left)
{
    struct dp_tensor_blocks *tensors = dp_zalloc((size_t)flat->tensor_count, sizeof(*tensors));
    void *there = NULL;
    dp_status status;

    if (tensors == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "factors of parameters");
    }
    for (int i = 0; i < flat->tensor_count; i++) {
        const struct dp_tensor *tensor = &flat->tensors[i];
        tensors[i].begin = (uint32_t)(tensor->begin / DP_BLOCK);
        tensors[i].count = (uint32_t)blocks_of(tensor);
        tensors[i].fixed = is_left_out(tensor, left);
    }
    status = place(g->stream, tensors, (size_t)flat->tensor_count * sizeof(*tensors), &there);
    g->tensors = there;
    dp_free(tensors);
    return status;
}

static dp_status place_rates(struct dp_param_groups *g, const struct dp_flat *flat, unsigned left)
{
    const struct dp_device *device = g->stream->device;
    const size_t bytes = g->blocks * sizeof(float);

    g->rates = device->alloc(DP_MEM_OPTIMIZER, bytes);
    g->squares = device->alloc(DP_MEM_OPTIMIZER, 2 * bytes);
    if (g->rates == NULL || g->squares == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "layer-wise rates need %zu kB", 3 * bytes >> 10);
    }
    DP_TRY(g->stream->ops->zero(g->stream, g->rates, bytes)); /* also of blocks of no tensor */
    return place_tensors(g, flat, left);
}

dp_status dp_param_groups_create(const struct dp_flat *flat, const struct dp_optimizer *optimizer,
                                 const void *options, struct dp_stream *stream,
                                 struct dp_param_groups **out)
{
    const unsigned left = dp_optimizer_no_decay(optimizer, options);
    struct dp_param_groups *g;
    dp_status status;

    if (left == 0 && optimizer->measure == NULL) {
        return DP_OK;
    }
    g = dp_zalloc(1, sizeof(*g));
    if (g == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "factors of parameters");
    }
    g->optimizer = optimizer;
    g->options = options;
    g->stream = stream;
    g->blocks = flat->trained / DP_BLOCK;
    g->tensor_count = flat->tensor_count;
    status = left != 0 ? place_decays(g, flat, left) : DP_OK;
    if (status == DP_OK && optimizer->measure != NULL) {
        status = place_rates(g, flat, left);
    }
    if (status != DP_OK) {
        dp_param_groups_destroy(g);
        return status;
    }
    *out = g;
    return DP_OK;
}

void dp_param_groups_destroy(struct dp_param_groups *g)
{
    if (g != NULL) {
        const struct dp_device *device = g->stream->device;
        device->release(g->tensors);
        device->release(g->squares);
        device->release(g->rates);
        device->release(g->decays);
        dp_free(g);
    }
}

size_t dp_param_groups_bytes(const struct dp_optimizer *optimizer, const void *options,
                             size_t trained, int tensor_count)
{
    const size_t blocks = trained / DP_BLOCK * sizeof(float);
    const size_t decays = dp_optimizer_no_decay(optimizer, options) != 0 ? blocks : 0;

    return optimizer->measure == NULL
               ? decays
               : decays + 3 * blocks + (size_t)tensor_count * sizeof(struct dp_tensor_blocks);
}

void dp_param_groups_apply(const struct dp_param_groups *g, size_t begin, struct dp_update *u)
{
    if (g != NULL) {
        u->decays = g->decays == NULL ? NULL : g->decays + begin / DP_BLOCK;
        u->rates = g->rates == NULL ? NULL : g->rates + begin / DP_BLOCK;
    }
}

dp_status dp_param_groups_reset(struct dp_param_groups *g)
{
    return g->stream->ops->zero(g->stream, g->squares, 2 * g->blocks * sizeof(float));
}

dp_status dp_param_groups_measure(struct dp_param_groups *g, size_t begin,
                                  const struct dp_update *u)
{
    float *squares = g->squares + begin / DP_BLOCK;

    DP_TRY(g->stream->ops->block_squares(g->stream, squares, u->master, u->count));
    return g->optimizer->measure(g->options, g->stream, squares + g->blocks, u);
}

dp_status dp_param_groups_find_rates(struct dp_param_groups *g,
                                     const struct dp_step_params *step_params)
{
    const struct dp_trust how = g->optimizer->trust(g->options);

    return g->stream->ops->trust_ratios(g->stream, g->rates, g->squares, g->blocks, g->tensors,
                                        g->tensor_count, &how, step_params);
}
