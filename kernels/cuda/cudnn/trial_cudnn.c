#include "kernels/cuda/cudnn/trial_cudnn.h"

#include <math.h>

#include "base/log.h"
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/ref/window.h"
#include "kernels/tensor.h"

enum {
    PIECE = 256, /* what arrays of a trial are rounded up to */
    PARTS = 7,   /* as many there are */
    ROUNDS = 3   /* of measuring; the fastest counts */
};

void dp_cudnn_trial_destroy(struct dp_cudnn_trial *trial)
{
    dp_cuda_clock_close(&trial->clock);
    dp_device_cuda.release(trial->workspace.memory);
    dp_device_cuda.release(trial->arrays.x);
}

/* The arrays of a trial, one after another. NULL: only how long they are. */
static size_t cut(struct dp_cudnn_trial *trial, char *memory)
{
    const struct dp_conv_case *conv = trial->chooser->conv;
    const enum dp_type type = trial->chooser->stream->type;
    const bool folds = dp_cudnn_may_fold(conv, type);
    const struct dp_conv_case folded = dp_cudnn_planned(conv, folds);
    const size_t folded_weights = dp_window_weights(&folded.window) * dp_cudnn_pieces(conv, folds);
    const struct dp_window *w = &conv->window;
    const size_t width = dp_type_bytes(type);
    const size_t sizes[PARTS] = {conv->rows * dp_window_in(w) * width,
                                 dp_window_weights(w) * sizeof(float),
                                 conv->rows * dp_window_out(w) * width,
                                 dp_window_weights(w) * sizeof(float),
                                 w->out_c * width,
                                 folds ? folded.rows * dp_window_in(&folded.window) * width : 0,
                                 folds ? folded_weights * sizeof(float) : 0};
    char *parts[PARTS];
    size_t all = 0;

    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = memory != NULL ? memory + all : NULL;
        all += dp_round_up(sizes[i], PIECE);
    }
    trial->arrays = (struct dp_cudnn_arrays){parts[0], parts[1], parts[2], parts[4], NULL};
    trial->gradient = (float *)(void *)parts[3];
    trial->images = parts[5];
    trial->weights = parts[6];
    return all;
}

dp_status dp_cudnn_trial_create(struct dp_cudnn_trial *trial)
{
    struct dp_stream *s = trial->chooser->stream;
    char *memory;

    trial->bytes = cut(trial, NULL);
    memory = dp_cuda_trial_alloc(trial->bytes);
    if (memory == NULL) {
        return DP_OK;
    }
    (void)cut(trial, memory);
    DP_TRY(dp_cuda_fill(s, memory, s->type, trial->bytes / dp_type_bytes(s->type), 1));
    return dp_cuda_clock_open(&trial->clock);
}

/* What the plan works on, but for folded images, and the pass that is done once before it. */
static dp_status begin(const struct dp_cudnn_trial *t, struct dp_cudnn_arrays *arrays)
{
    const struct dp_conv_case *conv = t->chooser->conv;
    struct dp_stream *s = t->chooser->stream;

    *arrays = t->arrays;
    if (!t->form.folded) {
        return DP_OK;
    }
    arrays->w = t->weights;
    return conv->use == DP_CONV_FORWARD
               ? dp_cuda_fold_weights(s, t->weights, t->arrays.w, &conv->window)
               : DP_OK;
}

/* Folds the images of a piece, and runs the plan. */
static dp_status run_piece(const struct dp_cudnn_trial *t, struct dp_cudnn_arrays *piece)
{
    const struct dp_cudnn_chooser *c = t->chooser;

    if (t->form.folded) {
        DP_TRY(dp_cuda_fold_images(c->stream, t->images, piece->x, &c->conv->window,
                                   c->conv->rows / dp_cudnn_pieces(c->conv, true)));
        piece->x = t->images;
    }
    const int result = dp_cudnn_plan_try(c->library, c->handle, t->plan, piece);
    if (result != 0) {
        DP_DEBUG("an engine of cuDNN does not run: %s", c->library->error_text(result));
        return DP_ERR_UNAVAILABLE;
    }
    return DP_OK;
}

/* The passes after all pieces. */
static dp_status finish(const struct dp_cudnn_trial *t)
{
    const struct dp_conv_case *conv = t->chooser->conv;
    struct dp_stream *s = t->chooser->stream;
    const void *bias = conv->bias != 0 ? t->arrays.bias : NULL;

    if (conv->use == DP_CONV_BACKWARD_WEIGHTS && t->form.folded) {
        return dp_cuda_unfold_grad(s, t->gradient, t->weights, t->form.weights,
                                   dp_cudnn_pieces(conv, true), &conv->window, 0.0f);
    }
    if (conv->use == DP_CONV_BACKWARD_WEIGHTS && t->form.weights != DP_TYPE_F32) {
        return dp_cuda_keep_grad(s, t->gradient, t->arrays.w, t->form.weights,
                                 dp_window_weights(&conv->window), 0.0f);
    }
    return t->form.fused || (bias == NULL && conv->act == DP_ACT_NONE)
               ? DP_OK
               : dp_cuda_bias_act(s, t->arrays.y, bias, dp_cudnn_pixels(conv), conv->window.out_c,
                                  (enum dp_activation)conv->act);
}

static dp_status trial_run(void *context)
{
    const struct dp_cudnn_trial *t = context;
    const struct dp_cudnn_chooser *c = t->chooser;
    const size_t pieces = dp_cudnn_pieces(c->conv, t->form.folded);
    struct dp_cudnn_arrays arrays, piece;

    DP_TRY(begin(t, &arrays));
    for (size_t i = 0; i < pieces; i++) {
        piece = dp_cudnn_piece(c->conv, &t->form, c->stream->type, &arrays, i);
        DP_TRY(run_piece(t, &piece));
    }
    return finish(t);
}

static dp_status cublas_run(void *context)
{
    const struct dp_cudnn_trial *t = context;
    const struct dp_conv_case *conv = t->chooser->conv;
    const struct dp_cudnn_arrays *a = &t->arrays;
    const struct dp_window *w = &conv->window;
    struct dp_stream *s = t->chooser->stream;

    switch (conv->use) {
    case DP_CONV_FORWARD:
        return dp_cublas_conv_forward(s, a->y, a->x, a->w, conv->bias != 0 ? a->bias : NULL, w,
                                      conv->rows, (enum dp_activation)conv->act);
    case DP_CONV_BACKWARD_DATA:
        return dp_cublas_conv_backward_data(s, a->x, a->y, a->w, w, conv->rows);
    default:
        return dp_cublas_conv_backward_weights(s, t->gradient, NULL, a->y, a->x, w, conv->rows,
                                               0.0f);
    }
}

dp_status dp_cudnn_trial_cublas(struct dp_cudnn_trial *trial, float best, float *ms)
{
    const struct dp_conv_case *conv = trial->chooser->conv;
    const unsigned uses = conv->use | (conv->bias != 0 ? (unsigned)DP_CONV_BIAS : 0u) |
                          (conv->act == DP_ACT_RELU ? (unsigned)DP_CONV_RELU : 0u);

    DP_TRY(dp_cublas_conv_prepare(trial->chooser->stream, &conv->window, conv->rows, uses));
    return dp_cuda_clock_time(&trial->clock, trial->chooser->stream, cublas_run, trial, ROUNDS,
                              best, ms);
}

/* Where a single 1 in an array of float32, all else of which is 0, leaves the numbers of another in
 * the product. Indices are elements. */
struct probe {
    void *ones, *factors, *product;
    size_t bytes; /* of ones */
    size_t one, factor, step, found, count;
};

/* Pixel `after` of the images after the window and pixel `before` of those before it meet in the
 * window's first weights. */
static struct probe probe_of(const struct dp_cudnn_trial *t, size_t before, size_t after)
{
    const struct dp_conv_case *conv = t->chooser->conv;
    const struct dp_window *w = &conv->window;
    const struct dp_cudnn_arrays *a = &t->arrays;
    const size_t x = conv->rows * dp_window_in(w) * sizeof(float);
    const size_t y = conv->rows * dp_window_out(w) * sizeof(float);
    const size_t fan = dp_window_fan(w), kernel = w->kernel_h * w->kernel_w;
    const size_t in = (before * w->in_w + before) * w->in_c;
    const size_t out = (after * w->out_w + after) * w->out_c;

    switch (conv->use) {
    case DP_CONV_FORWARD:
        return (struct probe){
            a->x, a->w, a->y, x, in, 0, kernel * fan, out, w->out_c * fan / w->in_c};
    case DP_CONV_BACKWARD_DATA:
        return (struct probe){a->y, a->w, a->x, y, out, 0, 1, in, fan};
    default:
        return (struct probe){a->y, a->x, a->w, y, out, in, 1, 0, fan};
    }
}

static bool are_equal(const float *found, const float *wanted, size_t count, bool rectified)
{
    float most = 0.0f, error = 0.0f;

    for (size_t i = 0; i < count; i++) {
        const float value = rectified && wanted[i] < 0.0f ? 0.0f : wanted[i];
        const float off = fabsf(found[i] - value);
        most = fabsf(value) > most ? fabsf(value) : most;
        error = off <= error ? error : off; /* or a NaN */
    }
    return error <= 1e-5f * most;
}

/* Whether a plan computes with the factors that it is given, and loses no digits. cuDNN has notes
 * for that, but not of all engines: number 17 of version 9.19 makes gradients of weights of 5x5
 * that are off by 5e-4 of their size, and has no note. */
static dp_status check_factors(const struct dp_cudnn_trial *t, const struct dp_cudnn_plan *plan,
                               bool *good)
{
    enum { MOST = 32 };
    static const float one = 1.0f;
    const struct dp_cudnn_chooser *c = t->chooser;
    struct dp_stream *s = c->stream;
    const struct dp_window *w = &c->conv->window;
    const size_t after = (w->padding + w->stride - 1) / w->stride;
    const size_t before = after * w->stride - w->padding;
    const struct probe p = probe_of(t, before, after);
    const size_t count = dp_smaller(p.count, MOST);
    const cudaStream_t queue = dp_cuda_of(s)->queue;
    float found[MOST], wanted[MOST];

    *good = true;
    if (after >= w->out_h || after >= w->out_w || before >= w->in_h || before >= w->in_w) {
        return DP_OK; /* there are no such pixels */
    }
    DP_TRY(DP_CUDA(cudaMemsetAsync(t->arrays.bias, 0, w->out_c * sizeof(float), queue)));
    DP_TRY(DP_CUDA(cudaMemsetAsync(p.ones, 0, p.bytes, queue)));
    DP_TRY(s->device->upload(s, (float *)p.ones + p.one, &one, sizeof(one)));
    *good = dp_cudnn_plan_try(c->library, c->handle, plan, &t->arrays) == 0;
    (void)cudaGetLastError(); /* one that lasts comes again */
    DP_TRY(
        s->device->download(s, found, (const float *)p.product + p.found, count * sizeof(float)));
    for (size_t i = 0; i < count; i++) {
        DP_TRY(s->device->download(s, &wanted[i], (const float *)p.factors + p.factor + i * p.step,
                                   sizeof(float)));
    }
    DP_TRY(s->device->synchronize(s));
    *good = *good && are_equal(found, wanted, count, t->form.fused && c->conv->act == DP_ACT_RELU);
    if (!*good) {
        DP_DEBUG("an engine of cuDNN is left out: products are not those of float32");
    }
    return dp_cuda_fill(s, t->arrays.x, DP_TYPE_F32, t->bytes / sizeof(float), 1);
}

/* Uses a workspace of its own: the stream's has the size of the chosen plans. */
dp_status dp_cudnn_trial_measure(void *context, const struct dp_cudnn_plan *plan, float best,
                                 float *ms)
{
    struct dp_cudnn_trial *trial = context;
    struct dp_stream *s = trial->chooser->stream;
    const size_t bytes = plan->workspace_bytes;
    bool good = true;

    *ms = INFINITY;
    if (bytes > trial->workspace.bytes) {
        s->device->release(trial->workspace.memory);
        trial->workspace.memory = dp_cuda_trial_alloc(bytes);
        trial->workspace.bytes = trial->workspace.memory != NULL ? bytes : 0;
    }
    if (bytes > trial->workspace.bytes) {
        return DP_OK;
    }
    trial->arrays.workspace = trial->workspace.memory;
    trial->plan = plan;
    *ms = 0.0f;
    if (trial->times || !trial->exact) {
        DP_TRY(dp_cuda_clock_time(&trial->clock, s, trial_run, trial, ROUNDS, best, ms));
    }
    if (trial->exact && *ms < best) { /* others are not chosen */
        DP_TRY(check_factors(trial, plan, &good));
        *ms = good ? *ms : INFINITY;
    }
    return DP_OK;
}
