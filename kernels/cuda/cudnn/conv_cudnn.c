/*
 * conv_cudnn.c - convolutions by cuDNN, planned once for each shape, in NHWC.
 *
 * 2 pixels kernel_h kernel_w in_c out_c FLOPs each, where pixels = rows out_h out_w. Bias and
 * rectifier are part of a plan where cuDNN has one for all of it; else they are a pass of their own
 * over y, 2 e bytes an element of type size e. Gradients of weights come in float32 where cuDNN has
 * a plan for that, else rounded once to the compute type; what is kept is added behind, 12 or 10
 * bytes a weight.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/algo_choices.h"
#include "kernels/cuda/conv_cuda.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cudnn/plan_cudnn.h"
#include "kernels/cuda/scratch_cuda.h"
#include "kernels/cuda/stream_cuda.h"
#include "kernels/ref/window.h"

enum {
    FIRST_CAPACITY = 32,      /* cases; grows in prepare */
    WORKSPACE_MOST = 1 << 30, /* bytes of a plan */
    WORKSPACE_PART = 4,       /* nor may it have more than one of so many parts of what is free */
    PIECE = 256,              /* what arrays of a trial are rounded up to */
    ROUNDS = 3                /* of measuring; the fastest counts */
};

struct dp_conv {
    struct dp_conv_case key;
    struct dp_cudnn_plan plan; /* execution NULL: there is none */
    enum dp_type weights;      /* of their gradient */
    bool fused;
    bool failed; /* when it was run; kernels of the plan may still be queued, so it is kept */
};

struct dp_convs {
    const struct dp_cudnn *library;
    void *handle;
    struct dp_cuda_scratch workspace; /* grows only in prepare, as the next one */
    struct dp_cuda_scratch gradient;  /* of weights, where it cannot be written in place */
    struct dp_conv *list;             /* owned */
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

/* ---- measuring ---- */

/* Scratch to measure on; all arrays are one piece. */
struct trial {
    struct dp_stream *stream;
    const struct dp_cudnn_plan *plan; /* that is measured now */
    struct dp_cuda_scratch workspace;
    struct dp_cudnn_arrays arrays;
    struct dp_cuda_clock clock;
};

static void trial_destroy(struct trial *trial)
{
    dp_cuda_clock_close(&trial->clock);
    dp_device_cuda.release(trial->workspace.memory);
    dp_device_cuda.release(trial->arrays.x);
}

static size_t weights_of(const struct dp_window *w)
{
    return w->out_c * w->kernel_h * w->kernel_w * w->in_c;
}

/* Without memory there is no trial, and no error. */
static dp_status trial_create(struct trial *trial, struct dp_stream *s,
                              const struct dp_conv_case *key)
{
    const size_t element = dp_type_bytes(s->type);
    const size_t x = dp_round_up(key->rows * dp_window_in(&key->window) * element, PIECE);
    const size_t y = dp_round_up(key->rows * dp_window_out(&key->window) * element, PIECE);
    const size_t w = dp_round_up(weights_of(&key->window) * sizeof(float), PIECE);
    const size_t all = x + y + w + dp_round_up(key->window.out_c * element, PIECE);
    char *memory = dp_cuda_trial_alloc(all);

    *trial = (struct trial){.stream = s};
    if (memory == NULL) {
        return DP_OK;
    }
    trial->arrays =
        (struct dp_cudnn_arrays){memory, memory + x, memory + x + w, memory + x + w + y, NULL};
    DP_TRY(dp_cuda_fill(s, memory, s->type, all / element, 1));
    return dp_cuda_clock_open(&trial->clock);
}

static dp_status trial_run(void *context)
{
    const struct trial *t = context;
    const struct dp_convs *convs = dp_cuda_of(t->stream)->convs;
    const int result = dp_cudnn_plan_try(convs->library, convs->handle, t->plan, &t->arrays);

    if (result != 0) {
        DP_DEBUG("an engine of cuDNN does not run: %s", convs->library->error_text(result));
        return DP_ERR_UNAVAILABLE;
    }
    return DP_OK;
}

/* Workspace of its own, which ends with the trial: the stream's is that of plans that are taken. */
static dp_status trial_measure(void *context, const struct dp_cudnn_plan *plan, float *best_ms)
{
    struct trial *trial = context;
    const struct dp_device *device = trial->stream->device;
    const size_t bytes = plan->workspace_bytes;

    *best_ms = INFINITY;
    if (bytes > trial->workspace.bytes) {
        device->release(trial->workspace.memory);
        trial->workspace.memory = dp_cuda_trial_alloc(bytes);
        trial->workspace.bytes = trial->workspace.memory != NULL ? bytes : 0;
    }
    if (bytes > trial->workspace.bytes) {
        return DP_OK;
    }
    trial->arrays.workspace = trial->workspace.memory;
    trial->plan = plan;
    return dp_cuda_clock_time(&trial->clock, trial->stream, trial_run, trial, ROUNDS, best_ms);
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

/* Bytes that a plan may want: no more than a part of what is free. */
static size_t workspace_most(void)
{
    size_t left = 0, total = 0;

    (void)cudaMemGetInfo(&left, &total);
    return left / WORKSPACE_PART < WORKSPACE_MOST ? left / WORKSPACE_PART : WORKSPACE_MOST;
}

static dp_status try_plan(struct dp_stream *s, struct dp_conv *conv,
                          const struct dp_cudnn_pick *pick, const struct dp_cudnn_clock *clock)
{
    const struct dp_convs *convs = dp_cuda_of(s)->convs;
    const struct dp_cudnn_wish request = {.type = s->type,
                                          .weights = conv->weights,
                                          .tf32 = s->tf32,
                                          .fuses = conv->fused,
                                          .workspace_bytes = workspace_most()};
    dp_status status = DP_OK;

    if (conv->plan.execution == NULL) {
        dp_cudnn_plan_destroy(convs->library, &conv->plan);
        status = dp_cudnn_plan_create(convs->library, convs->handle, &conv->key, &request, pick,
                                      clock, &conv->plan);
    }
    return status;
}

/* The best form that cuDNN has. */
static dp_status plan(struct dp_stream *s, struct dp_conv *conv, const struct dp_cudnn_clock *clock)
{
    const bool weights = conv->key.use == DP_CONV_BACKWARD_WEIGHTS;

    conv->fused = conv->key.bias != 0 || conv->key.act != DP_ACT_NONE;
    conv->weights = weights ? DP_TYPE_F32 : s->type;
    DP_TRY(try_plan(s, conv, NULL, clock));
    if (conv->plan.execution == NULL && conv->fused) {
        conv->fused = false;
        DP_TRY(try_plan(s, conv, NULL, clock));
    }
    if (conv->plan.execution == NULL && conv->weights != s->type) {
        conv->weights = s->type;
        DP_TRY(try_plan(s, conv, NULL, clock));
    }
    return DP_OK;
}

/* What the plan needs. Without memory there is no plan, and no error: cublas takes less. */
static dp_status make_room(struct dp_stream *s, struct dp_conv *conv)
{
    struct dp_convs *convs = dp_cuda_of(s)->convs;
    const bool weights = conv->key.use == DP_CONV_BACKWARD_WEIGHTS;
    const size_t gradient = weights_of(&conv->key.window) * dp_type_bytes(conv->weights);
    dp_status status;

    if (conv->plan.execution == NULL) {
        return DP_OK;
    }
    status = dp_cuda_scratch_grow(s, &convs->workspace, conv->plan.workspace_bytes, NULL);
    if (status == DP_OK && weights) {
        status = dp_cuda_scratch_grow(s, &convs->gradient, gradient, NULL);
    }
    if (status == DP_ERR_NOMEM) {
        dp_cudnn_plan_destroy(convs->library, &conv->plan);
        return DP_OK;
    }
    return status;
}

/* All that engines are proposed for. */
static void choice_key(const struct dp_stream *s, const struct dp_conv *conv,
                       char key[DP_ALGO_CHOICE_KEY])
{
    const struct dp_conv_case *c = &conv->key;
    const struct dp_window *w = &c->window;
    char text[DP_CONV_TEXT];

    dp_cuda_conv_text(text, w, c->rows);
    (void)snprintf(key, DP_ALGO_CHOICE_KEY, "%s %.96s stride %zu padding %zu %s%s%s",
                   c->use == DP_CONV_FORWARD         ? "convolution"
                   : c->use == DP_CONV_BACKWARD_DATA ? "convolution back to data"
                                                     : "convolution back to weights",
                   text, w->stride, w->padding,
                   dp_device_arithmetic(s->device, s->type, s->tf32 && s->type == DP_TYPE_F32),
                   c->bias != 0 ? " bias" : "", c->act == DP_ACT_RELU ? " relu" : "");
}

static dp_status note(struct dp_stream *s, const struct dp_conv *conv, const char *key)
{
    const struct dp_cudnn_pick *pick = &conv->plan.pick;
    char value[DP_ALGO_CHOICE_VALUE];

    (void)snprintf(value, sizeof(value), "%d %d %d %d %" PRId64, conv->fused ? 1 : 0,
                   (int)conv->weights, pick->mode, pick->place, pick->engine);
    return dp_algo_choices_note(s->algo_choices, key, value);
}

/* Takes what is known, if it is still proposed and runs; else there is no plan. */
static dp_status recall(struct dp_stream *s, struct dp_conv *conv, const char *value,
                        const struct dp_cudnn_clock *clock)
{
    long long number[5] = {0};
    char *end;

    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++, value = end) {
        number[i] = strtoll(value, &end, 10);
        if (end == value) {
            return DP_OK;
        }
    }
    const struct dp_cudnn_pick pick = {(int)number[2], (int)number[3], number[4]};

    conv->fused = number[0] != 0;
    conv->weights = number[1] == DP_TYPE_F32 ? DP_TYPE_F32 : s->type;
    return try_plan(s, conv, &pick, clock);
}

/* What was chosen before, or else the best one that there is. */
static dp_status choose(struct dp_stream *s, struct dp_conv *conv, struct trial *trial)
{
    const struct dp_cudnn_clock runs = {trial, trial_measure}, *clock = NULL;
    char key[DP_ALGO_CHOICE_KEY];
    const char *value;

    choice_key(s, conv, key);
    DP_TRY(dp_algo_choices_ask(s->algo_choices, key, &value));
    if (value != NULL || dp_algo_choices_open(s->algo_choices)) {
        DP_TRY(trial_create(trial, s, &conv->key));
        clock = trial->arrays.x != NULL ? &runs : NULL;
    }
    if (value != NULL) {
        DP_TRY(recall(s, conv, value, clock));
        if (conv->plan.execution != NULL) {
            return DP_OK;
        }
        DP_DEBUG("%s: what was chosen before does not run here", key);
    }
    clock = dp_algo_choices_open(s->algo_choices) ? clock : NULL;
    DP_TRY(plan(s, conv, clock));
    return clock != NULL && conv->plan.execution != NULL ? note(s, conv, key) : DP_OK;
}

static dp_status conv_make(struct dp_stream *s, struct dp_conv *conv)
{
    struct trial trial = {.stream = s};
    const dp_status status = choose(s, conv, &trial);

    trial_destroy(&trial);
    DP_TRY(status);
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
    if (dp_cuda_of(s)->records) {
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

static dp_status run(const struct dp_stream *s, const struct dp_conv *conv, const void *x,
                     const void *w, const void *y, const void *bias)
{
    const struct dp_convs *convs = dp_cuda_of(s)->convs;
    const struct dp_window *window = &conv->key.window;
    const void *const given[] = {x, w, y, bias, convs->workspace.memory};
    const size_t multiples[] = {
        dp_cudnn_alignment(s->type, dp_window_in(window)), DP_CUDNN_ALIGNMENT,
        dp_cudnn_alignment(s->type, dp_window_out(window)), DP_CUDNN_ALIGNMENT};
    struct dp_cudnn_arrays arrays;

    /* cuDNN takes what it only reads without const, too. */
    memcpy(&arrays, given, sizeof(arrays));
    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)given[i] % multiples[i] != 0) {
            return DP_FAIL(DP_ERR_ARG, "a convolution on an array at %p: not a multiple of %zu",
                           given[i], multiples[i]);
        }
    }
    const int result = dp_cudnn_plan_try(convs->library, convs->handle, &conv->plan, &arrays);
    return result == 0 ? DP_OK : run_failed(s, conv, result);
}

dp_status dp_cudnn_conv_forward(struct dp_stream *s, const struct dp_conv *conv, void *y,
                                const void *x, const void *weights, const void *bias)
{
    const struct dp_window *w = &conv->key.window;

    DP_TRY(run(s, conv, x, weights, y, bias));
    if (conv->fused || (bias == NULL && conv->key.act == DP_ACT_NONE)) {
        return DP_OK;
    }
    return dp_cuda_bias_act(s, y, bias, conv->key.rows * w->out_h * w->out_w, w->out_c,
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
    const bool in_place =
        conv->weights == DP_TYPE_F32 && keep == 0.0f && (uintptr_t)dw % DP_CUDNN_ALIGNMENT == 0;
    void *gradient = in_place ? dw : dp_cuda_of(s)->convs->gradient.memory;

    DP_TRY(run(s, conv, x, gradient, dy, NULL));
    return in_place ? DP_OK
                    : dp_cuda_keep_grad(s, dw, gradient, conv->weights,
                                        weights_of(&conv->key.window), keep);
}
