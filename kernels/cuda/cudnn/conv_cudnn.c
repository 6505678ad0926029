/*
 * conv_cudnn.c - convolutions by cuDNN, planned once for each shape, in NHWC.
 *
 * 2 pixels kernel_h kernel_w in_c out_c FLOPs each, where pixels = rows out_h out_w. Bias and relu
 * are part of a plan, or a separate pass over y, 2 e bytes an element of type size e. Gradients of
 * weights are float32, or rounded once to the compute type; what is kept is added after that, 12 or
 * 10 bytes a weight. choose_cudnn.h decides.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/cudnn/choose_cudnn.h"
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/scratch_cuda.h"
#include "kernels/cuda/stream/stream_cuda.h"
#include "kernels/op_path.h"
#include "kernels/ref/window.h"

enum { FIRST_CAPACITY = 32 }; /* cases; grows in prepare */

struct dp_conv {
    struct dp_conv_case key;
    struct dp_cudnn_plan plan; /* execution NULL: there is none */
    struct dp_cudnn_form form;
    bool failed; /* when it was run; kernels of the plan may still be queued, so it is kept */
};

struct dp_convs {
    const struct dp_cudnn *library;
    void *handle;
    struct dp_cuda_scratch workspace;       /* grows only in prepare, as the next one */
    struct dp_cuda_scratch gradient;        /* of weights, where it cannot be written in place */
    struct dp_cuda_scratch images, weights; /* folded */
    struct dp_conv *list;                   /* owned */
    int count, capacity;
    bool told; /* that one has failed */
};

/* ---- making and releasing ---- */

void dp_convs_forget(struct dp_convs *convs)
{
    for (int i = 0; convs != NULL && i < convs->count; i++) {
        dp_cudnn_plan_destroy(convs->library, &convs->list[i].plan);
    }
    if (convs != NULL) {
        convs->count = 0;
    }
}

void dp_convs_destroy(struct dp_convs *convs)
{
    if (convs == NULL) {
        return;
    }
    dp_convs_forget(convs);
    if (convs->handle != NULL) {
        (void)convs->library->destroy(convs->handle);
    }
    dp_cuda_scratch_release(&convs->weights);
    dp_cuda_scratch_release(&convs->images);
    dp_cuda_scratch_release(&convs->gradient);
    dp_cuda_scratch_release(&convs->workspace);
    dp_free(convs->list);
    dp_free(convs);
}

static dp_status convs_open(struct dp_convs *convs, const struct dp_cuda *cuda)
{
    const char *why_not;

    convs->library = dp_cudnn_library(&why_not);
    if (convs->library == NULL) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "convolutions by cudnn: %s", why_not);
    }
    dp_cudnn_open_compiler();
    convs->list = dp_zalloc(FIRST_CAPACITY, sizeof(*convs->list));
    convs->capacity = FIRST_CAPACITY;
    if (convs->list == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "convolutions");
    }
    DP_TRY(DP_CUDNN(convs->library->create(&convs->handle)));
    return DP_CUDNN(convs->library->set_stream(convs->handle, cuda->queue));
}

/* With the first convolution, since a handle costs device memory. */
static dp_status convs_of(struct dp_cuda *cuda, struct dp_convs **out)
{
    dp_status status;

    if (cuda->convs == NULL) {
        struct dp_convs *convs = dp_zalloc(1, sizeof(*convs));
        if (convs == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "convolutions");
        }
        status = convs_open(convs, cuda);
        if (status != DP_OK) {
            dp_convs_destroy(convs);
            return status;
        }
        cuda->convs = convs;
    }
    *out = cuda->convs;
    return DP_OK;
}

static bool works(const struct dp_conv *conv)
{
    return conv->plan.execution != NULL && !conv->failed;
}

static struct dp_conv *list_find(const struct dp_convs *convs, const struct dp_conv_case *key)
{
    for (int i = 0; i < convs->count; i++) {
        if (memcmp(&convs->list[i].key, key, sizeof(*key)) == 0) {
            return &convs->list[i];
        }
    }
    return NULL;
}

static dp_status list_make_room(struct dp_convs *convs)
{
    struct dp_conv *list =
        dp_cuda_list_room(convs->list, convs->count, &convs->capacity, sizeof(*list));

    if (list == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d convolutions", convs->count + 1);
    }
    convs->list = list;
    return DP_OK;
}

/* ---- preparing ---- */

static struct dp_conv_case key_of(const struct dp_window *w, size_t rows, unsigned uses)
{
    return (struct dp_conv_case){
        .window = *w,
        .rows = rows,
        .use = uses & (DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS),
        .bias = (uses & DP_CONV_BIAS) != 0,
        .act = (uses & DP_CONV_RELU) != 0 ? DP_ACT_RELU : DP_ACT_NONE};
}

/* Scratch memory for a plan and the passes before and after it. */
static dp_status grow(struct dp_stream *s, struct dp_convs *convs, const struct dp_conv *conv)
{
    const struct dp_conv_case planned = dp_cudnn_planned(&conv->key, conv->form.folded);
    const size_t weights = dp_window_weights(&planned.window), width = dp_type_bytes(s->type);
    const size_t pieces = dp_cudnn_pieces(&conv->key, conv->form.folded);

    DP_TRY(dp_cuda_scratch_grow(s, &convs->workspace, conv->plan.workspace_bytes, NULL));
    if (conv->key.use == DP_CONV_BACKWARD_WEIGHTS) {
        DP_TRY(dp_cuda_scratch_grow(s, &convs->gradient,
                                    pieces * weights * dp_type_bytes(conv->form.weights), NULL));
    }
    if (!conv->form.folded) {
        return DP_OK;
    }
    DP_TRY(dp_cuda_scratch_grow(s, &convs->images,
                                planned.rows * dp_window_in(&planned.window) * width, NULL));
    return dp_cuda_scratch_grow(s, &convs->weights, weights * width, NULL);
}

/* Without memory there is no plan, and no error: cublas takes less. */
static dp_status make_room(struct dp_stream *s, struct dp_conv *conv)
{
    struct dp_convs *convs = dp_cuda_of(s)->convs;
    dp_status status;

    if (conv->plan.execution == NULL) {
        return DP_OK;
    }
    status = grow(s, convs, conv);
    if (status == DP_ERR_NOMEM) {
        dp_cudnn_plan_destroy(convs->library, &conv->plan);
        return DP_OK;
    }
    return status;
}

static dp_status conv_make(struct dp_stream *s, struct dp_conv *conv)
{
    const struct dp_convs *convs = dp_cuda_of(s)->convs;

    DP_TRY(dp_cudnn_choose(s, convs->library, convs->handle, &conv->key, &conv->form, &conv->plan));
    return make_room(s, conv);
}

dp_status dp_cudnn_conv_prepare(struct dp_stream *s, const struct dp_window *w, size_t rows,
                                unsigned uses, bool *found)
{
    struct dp_conv conv = {.key = key_of(w, rows, uses)};
    const struct dp_conv *known;
    struct dp_convs *convs;
    dp_status status;

    DP_TRY(convs_of(dp_cuda_of(s), &convs));
    known = list_find(convs, &conv.key);
    if (known == NULL) {
        DP_TRY(list_make_room(convs));
        status = conv_make(s, &conv);
        if (status != DP_OK) {
            dp_cudnn_plan_destroy(convs->library, &conv.plan);
            return status;
        }
        known = &convs->list[convs->count++];
        convs->list[convs->count - 1] = conv;
    }
    *found = works(known);
    return DP_OK;
}

const struct dp_conv *dp_cudnn_conv_find(const struct dp_stream *s, const struct dp_window *w,
                                         size_t rows, unsigned uses)
{
    const struct dp_conv_case key = key_of(w, rows, uses);
    const struct dp_convs *convs = dp_cuda_of(s)->convs;
    const struct dp_conv *conv = convs == NULL ? NULL : list_find(convs, &key);

    return conv != NULL && works(conv) ? conv : NULL;
}

/* ---- running ---- */

/* What cuDNN does not run. While a stream records, that may be due to the recording, which ends
 * then, and the step is queued. */
static dp_status run_failed(const struct dp_stream *s, const struct dp_conv *conv, int result)
{
    struct dp_convs *convs = dp_cuda_of(s)->convs;
    const char *why = convs->library->error_text(result);
    char text[DP_CONV_TEXT];

    (void)cudaGetLastError(); /* or the next launch would find it */
    dp_cuda_conv_text(text, &conv->key.window, conv->key.rows);
    if (s->records) {
        return DP_FAIL(DP_ERR_CUDA, "cuDNN fails at a convolution %s: %s", text, why);
    }
    list_find(convs, &conv->key)->failed = true;
    if (s->conv == DP_CONV_CUDNN) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "device.conv: cudnn fails at a convolution %s: %s; auto takes cublas for it",
                       text, why);
    }
    dp_log(convs->told ? DP_LOG_DEBUG : DP_LOG_WARN, __FILE__, __LINE__,
           "cuDNN fails at a convolution %s: %s; it is computed by cublas from here on", text, why);
    convs->told = true;
    return DP_ERR_UNAVAILABLE;
}

/* "cuDNN engine 38", for whoever asks. */
static void note_path(const struct dp_stream *s, const struct dp_cudnn_plan *plan)
{
    char text[32];

    if (s->path != NULL) {
        (void)snprintf(text, sizeof(text), "engine %d", (int)plan->pick.engine);
        dp_op_path_note(s, "cuDNN", text);
    }
}

static dp_status run_plan(const struct dp_stream *s, const struct dp_conv *conv,
                          const struct dp_cudnn_arrays *arrays)
{
    const struct dp_convs *convs = dp_cuda_of(s)->convs;
    const struct dp_conv_case planned = dp_cudnn_planned(&conv->key, conv->form.folded);
    const void *const given[] = {arrays->x, arrays->w, arrays->y, arrays->bias};
    const size_t multiples[] = {
        dp_cudnn_alignment(s->type, dp_window_in(&planned.window)), DP_CUDNN_ALIGNMENT,
        dp_cudnn_alignment(s->type, dp_window_out(&planned.window)), DP_CUDNN_ALIGNMENT};

    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)given[i] % multiples[i] != 0) {
            return DP_FAIL(DP_ERR_ARG, "a convolution on an array at %p: not a multiple of %zu",
                           given[i], multiples[i]);
        }
    }
    note_path(s, &conv->plan);
    const int result = dp_cudnn_plan_try(convs->library, convs->handle, &conv->plan, arrays);
    return result == 0 ? DP_OK : run_failed(s, conv, result);
}

static dp_status run(struct dp_stream *s, const struct dp_conv *conv, const void *x, const void *w,
                     const void *y, const void *bias)
{
    const struct dp_convs *convs = dp_cuda_of(s)->convs;
    const struct dp_conv_case *key = &conv->key;
    const size_t pieces = dp_cudnn_pieces(key, conv->form.folded);
    const void *const given[] = {x, w, y, bias, convs->workspace.memory};
    struct dp_cudnn_arrays arrays, piece;

    /* cuDNN takes what it only reads without const, too. */
    memcpy(&arrays, given, sizeof(arrays));
    for (size_t i = 0; i < pieces; i++) {
        piece = dp_cudnn_piece(key, &conv->form, s->type, &arrays, i);
        if (conv->form.folded) {
            DP_TRY(dp_cuda_fold_images(s, convs->images.memory, piece.x, &key->window,
                                       key->rows / pieces));
            piece.x = convs->images.memory;
        }
        DP_TRY(run_plan(s, conv, &piece));
    }
    return DP_OK;
}

dp_status dp_cudnn_conv_forward(struct dp_stream *s, const struct dp_conv *conv, void *y,
                                const void *x, const void *weights, const void *bias)
{
    const struct dp_window *w = &conv->key.window;
    void *folded = dp_cuda_of(s)->convs->weights.memory;

    if (conv->form.folded) {
        DP_TRY(dp_cuda_fold_weights(s, folded, weights, w));
    }
    DP_TRY(run(s, conv, x, conv->form.folded ? folded : weights, y, bias));
    if (conv->form.fused || (bias == NULL && conv->key.act == DP_ACT_NONE)) {
        return DP_OK;
    }
    return dp_cuda_bias_act(s, y, bias, dp_cudnn_pixels(&conv->key), w->out_c,
                            (enum dp_activation)conv->key.act);
}

dp_status dp_cudnn_conv_backward_data(struct dp_stream *s, const struct dp_conv *conv, void *dx,
                                      const void *dy, const void *weights)
{
    return run(s, conv, dx, weights, dy, NULL);
}

dp_status dp_cudnn_conv_backward_weights(struct dp_stream *s, const struct dp_conv *conv, float *dw,
                                         const void *dy, const void *x, float keep)
{
    const struct dp_window *w = &conv->key.window;
    const bool in_place = !conv->form.folded && conv->form.weights == DP_TYPE_F32 && keep == 0.0f &&
                          (uintptr_t)dw % DP_CUDNN_ALIGNMENT == 0;
    void *gradient = in_place ? dw : dp_cuda_of(s)->convs->gradient.memory;

    /* Changes dw after the last piece, or cublas could not take over. */
    DP_TRY(run(s, conv, x, gradient, dy, NULL));
    if (conv->form.folded) {
        return dp_cuda_unfold_grad(s, dw, gradient, conv->form.weights,
                                   dp_cudnn_pieces(&conv->key, true), w, keep);
    }
    return in_place
               ? DP_OK
               : dp_cuda_keep_grad(s, dw, gradient, conv->form.weights, dp_window_weights(w), keep);
}
