/*
 * my_layer.c - a training with a layer of its own: prelu, a relu whose slope below 0 is learnt (He
 * et al., "Delving Deep into Rectifiers", 2015, section 2.1; PyTorch's nn.PReLU).
 *
 *     mpirun -np 2 ./my_layer model.cfg [KEY=VALUE...]
 *
 * In model.cfg the layer is `- prelu: {initial: 0.25}`.
 */
#include <stdio.h>

#include <lockstep.h>

#if MY_LAYER_CUDA
#include "my_layer.h"
#endif

struct prelu {
    double initial;
    size_t features; /* of a sample */
};

/* The layer's shapes, its parameter, and what its work costs. */
static dp_status prelu_plan(void *state, struct dp_layer_plan *plan, char *problem,
                            size_t problem_size)
{
    struct prelu *l = state;
    const size_t one = 1;

    (void)problem;
    (void)problem_size;
    l->features = dp_shape_count(&plan->in);
    dp_layer_param(plan, "weight", 1, &one, 0)->initial = (float)l->initial;
    plan->out = plan->in;
    plan->row_local = true;
    plan->keeps_order = true;
    plan->flops = (double)l->features;
    return DP_OK;
}

static bool on_gpu(const struct dp_stream *stream)
{
    return !stream->device->host_memory;
}

#if MY_LAYER_CUDA
static dp_status of_cuda(int error)
{
    return error == 0 ? DP_OK : DP_FAIL(DP_ERR_CUDA, "prelu: CUDA error %d", error);
}
#endif

/* Before the first step: refuses what the layer cannot do. */
static dp_status prelu_prepare(const void *state, struct dp_stream *stream, size_t rows,
                               bool training, bool first, enum dp_activation act)
{
    (void)state, (void)rows, (void)training, (void)first, (void)act;
    if (stream->type != DP_TYPE_F32) {
        return DP_FAIL(DP_ERR_CONFIG, "prelu computes in fp32: --set train.precision=fp32");
    }
#if !MY_LAYER_CUDA
    if (on_gpu(stream)) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "prelu was built without its kernel for GPUs");
    }
#endif
    return DP_OK;
}

/* y = x where that is above 0, else slope x. */
static dp_status prelu_forward(const void *state, const struct dp_layer_call *c)
{
    const struct prelu *l = state;
    const size_t count = c->rows * l->features;
    const float *x = c->x, *slope = c->weights[0];
    float *y = c->y;

#if MY_LAYER_CUDA
    if (on_gpu(c->stream)) {
        return of_cuda(my_prelu_forward(c->stream->device->native(c->stream), count, x, slope, y));
    }
#endif
    for (size_t i = 0; i < count; i++) {
        y[i] = x[i] > 0.0f ? x[i] : slope[0] * x[i];
    }
    return DP_OK;
}

/* dslope = keep dslope + the sum of dy x where x is not above 0; dx likewise, for the first layer of
 * a model NULL. */
static dp_status prelu_backward(const void *state, const struct dp_layer_call *c)
{
    const struct prelu *l = state;
    const size_t count = c->rows * l->features;
    const float *x = c->x, *dy = c->dy, *slope = c->weights[0];
    float *dx = c->dx;
    double sum = 0.0;

#if MY_LAYER_CUDA
    if (on_gpu(c->stream)) {
        return of_cuda(my_prelu_backward(c->stream->device->native(c->stream), count, x, slope, dy,
                                         c->keep, c->grads[0], dx));
    }
#endif
    for (size_t i = 0; i < count; i++) {
        sum += x[i] > 0.0f ? 0.0 : (double)dy[i] * x[i];
    }
    c->grads[0][0] = (c->keep == 0.0f ? 0.0f : c->keep * c->grads[0][0]) + (float)sum;
    for (size_t i = 0; i < count && dx != NULL; i++) {
        dx[i] = x[i] > 0.0f ? dy[i] : slope[0] * dy[i];
    }
    return DP_OK;
}

static const struct dp_option prelu_options[] = {
    DP_DOUBLE(struct prelu, initial, "0.25", -1, 1, "the slope that training begins with"),
    {0},
};

static const struct dp_layer_type prelu = {
    .plugin = {.name = "prelu",
               .help = "a relu whose slope below 0 is learnt",
               .options = prelu_options,
               .state_bytes = sizeof(struct prelu)},
    .plan = prelu_plan,
    .prepare = prelu_prepare,
    .forward = prelu_forward,
    .backward = prelu_backward,
};

/* ---- training ---- */

static dp_status train(struct dp_world *world, struct dp_lockstep *training)
{
    struct dp_lockstep_step step = {.step = 0};
    double loss, accuracy;

    while (!dp_lockstep_done(training)) {
        DP_TRY(dp_lockstep_step(training, &step));
    }
    DP_TRY(dp_lockstep_evaluate(training, &loss, &accuracy));
    if (dp_lockstep_rank(world) == 0) {
        printf("%d steps on %d ranks: loss %.4f, test accuracy %.1f %%\n", (int)step.step,
               dp_lockstep_ranks(world), step.loss, 100.0 * accuracy);
    }
    return DP_OK;
}

int main(int argc, char **argv)
{
    struct dp_lockstep_options options = {.config = argc > 1 ? argv[1] : NULL};
    struct dp_lockstep *training = NULL;
    struct dp_world *world = NULL;
    dp_status status;

    dp_openmp_spin_briefly(argv);
    if (argc < 2) {
        (void)fprintf(stderr, "usage: my_layer model.cfg [KEY=VALUE...]\n");
        return dp_status_exit(DP_ERR_USAGE);
    }
    options.sets = (const char *const *)&argv[2];
    options.set_count = argc - 2;
    status = dp_lockstep_join(&world);
    status = status == DP_OK ? dp_lockstep_add_layer(&prelu) : status;
    status = status == DP_OK ? dp_lockstep_create(world, &options, &training) : status;
    status = status == DP_OK ? train(world, training) : status;
    dp_lockstep_destroy(training);
    return dp_lockstep_leave(world, status);
}
