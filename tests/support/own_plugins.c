#include "tests/support/own_plugins.h"

struct own_faults own_faults;

const char own_config[] =
    "data: {source: stripes}\n"
    "train: {global_batch: 10, steps: 12, seed: 7}\n" /* of 64 rows: the last batch is short */
    "optimizer: {name: adamw, lr: 0.02}\n"
    "device: {name: cpu}\n"
    "model:\n"
    "  input: [4, 4, 1]\n"
    "  layers:\n"
    "    - gain: {initial: 0.5}\n"
    "    - flatten: {}\n"
    "    - dense: {units: 8}\n"
    "    - relu: {}\n"
    "    - gain: {}\n"
    "    - dense: {units: 4}\n";

/* ---- stripes ---- */

enum { SIDE = 4, PIXELS = SIDE * SIDE, TRAIN_ROWS = 64, TEST_ROWS = 16 };

static dp_status stripes_open(void *state, const struct dp_source_config *config,
                              struct dp_source_info *info)
{
    (void)state;
    if (own_faults.open != DP_OK) {
        return DP_FAIL(own_faults.open, "stripes cannot be opened");
    }
    if (config->input.count != PIXELS || config->classes != SIDE) {
        return DP_FAIL(DP_ERR_DATA,
                       "stripes: %d pixels in %d classes do not fit a model of %zu and %d", PIXELS,
                       SIDE, config->input.count, config->classes);
    }
    *info = (struct dp_source_info){
        .count = {TRAIN_ROWS, TEST_ROWS}, .shape = config->input, .classes = SIDE};
    return DP_OK;
}

/* Rows are numbered over both sets; any mixture of bits will do. */
static void make_row(unsigned row, uint8_t *image, int32_t *label)
{
    *label = (int32_t)(row * 2654435761u >> 30);
    for (unsigned i = 0; i < PIXELS; i++) {
        const unsigned noise = (row * PIXELS + i) * 2246822519u >> 25;
        image[i] = (uint8_t)(noise + (i % SIDE == (unsigned)*label ? 100 : 0));
    }
}

static dp_status stripes_load(void *state, uint8_t *const *images, int32_t *const *labels)
{
    (void)state;
    for (unsigned i = 0; i < TRAIN_ROWS; i++) {
        make_row(i, images[0] + (size_t)i * PIXELS, &labels[0][i]);
    }
    for (unsigned i = 0; i < TEST_ROWS; i++) {
        make_row(TRAIN_ROWS + i, images[1] + (size_t)i * PIXELS, &labels[1][i]);
    }
    return DP_OK;
}

static void stripes_close(void *state)
{
    (void)state;
}

const struct dp_source own_source = {
    .plugin = {.name = "stripes", .help = "a bright column on noise", .state_bytes = 1},
    .open = stripes_open,
    .load = stripes_load,
    .close = stripes_close,
};

/* ---- gain ---- */

struct gain {
    double initial;
    size_t features;
};

static dp_status gain_plan(void *state, struct dp_layer_plan *plan, char *problem,
                           size_t problem_size)
{
    struct gain *l = state;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    dp_layer_param(plan, "weight", 1, &l->features, 0)->initial = (float)l->initial;
    plan->out = plan->in;
    plan->row_local = true;
    plan->flops = (double)l->features;
    return DP_OK;
}

static dp_status gain_prepare(const void *state, struct dp_stream *stream, size_t rows,
                              bool training, bool first, enum dp_activation act)
{
    (void)state, (void)rows, (void)training, (void)first, (void)act;
    return stream->device->host_memory && stream->type == DP_TYPE_F32
               ? DP_OK
               : DP_FAIL(DP_ERR_UNAVAILABLE, "gain computes on the host, in fp32");
}

/* y = x weight. */
static dp_status gain_forward(const void *state, const struct dp_layer_call *c)
{
    const struct gain *l = state;
    const float *x = c->x, *weight = c->weights[0];
    float *y = c->y;

    if (own_faults.forward != DP_OK && own_faults.forwards-- <= 0) {
        return DP_FAIL(own_faults.forward, "gain cannot go on");
    }
    for (size_t i = 0; i < c->rows * l->features; i++) {
        y[i] = x[i] * weight[i % l->features];
    }
    return DP_OK;
}

/* dweight = keep dweight + the sum over rows of dy x; dx = dy weight. */
static dp_status gain_backward(const void *state, const struct dp_layer_call *c)
{
    const struct gain *l = state;
    const float *x = c->x, *dy = c->dy, *weight = c->weights[0];
    float *dx = c->dx, *dweight = c->grads[0];

    for (size_t f = 0; f < l->features && c->keep == 0.0f; f++) {
        dweight[f] = 0.0f;
    }
    for (size_t i = 0; i < c->rows * l->features; i++) {
        dweight[i % l->features] += dy[i] * x[i];
    }
    for (size_t i = 0; i < c->rows * l->features && dx != NULL; i++) {
        dx[i] = dy[i] * weight[i % l->features];
    }
    return DP_OK;
}

static const struct dp_option gain_options[] = {
    DP_DOUBLE(struct gain, initial, "1", -100, 100, "what all gains begin with"),
    {0},
};

const struct dp_layer_type own_layer = {
    .plugin = {.name = "gain",
               .help = "multiplies each feature by a number that is learnt",
               .options = gain_options,
               .state_bytes = sizeof(struct gain)},
    .plan = gain_plan,
    .prepare = gain_prepare,
    .forward = gain_forward,
    .backward = gain_backward,
};
