#include "kernels/cuda/cudnn/choose_cudnn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/algo_choices.h"
#include "kernels/cuda/conv_cuda.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/scratch_cuda.h"
#include "kernels/ref/window.h"

enum {
    WORKSPACE_MOST = 1 << 30,  /* bytes of a plan */
    WORKSPACE_PART = 4,        /* nor may it have more than one of so many parts of what is free */
    WORKSPACE_TIMES = 4,       /* nor than so many times its images */
    WORKSPACE_FREE = 64 << 20, /* but as much it always may */
    PIECE = 256,               /* what arrays of a trial are rounded up to */
    ROUNDS = 3,                /* of measuring; the fastest counts */
    FORMS = 3
};

/* The convolution, and where it runs. */
struct chooser {
    struct dp_stream *stream;
    const struct dp_cudnn *library;
    void *handle;
    const struct dp_conv_case *conv;
};

/* ---- measuring ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Arrays to measure on, in one block of memory. */
struct trial {
    const struct chooser *chooser;
    struct dp_cudnn_form form;        /* that is measured now */
    const struct dp_cudnn_plan *plan; /* likewise */
    struct dp_cuda_scratch workspace;
    struct dp_cudnn_arrays arrays;
    float *gradient; /* of weights, converted to float32 */
    size_t bytes;    /* of the block */
    bool times;      /* or only checks */
    bool exact;      /* factors may not be rounded */
    struct dp_cuda_clock clock;
};

static void trial_destroy(struct trial *trial)
{
    dp_cuda_clock_close(&trial->clock);
    dp_device_cuda.release(trial->workspace.memory);
    dp_device_cuda.release(trial->arrays.x);
}

/* If there is no memory, arrays.x stays NULL: no error. */
static dp_status trial_create(struct trial *trial)
{
    const struct dp_conv_case *conv = trial->chooser->conv;
    struct dp_stream *s = trial->chooser->stream;
    const size_t element = dp_type_bytes(s->type);
    const size_t x = dp_round_up(conv->rows * dp_window_in(&conv->window) * element, PIECE);
    const size_t y = dp_round_up(conv->rows * dp_window_out(&conv->window) * element, PIECE);
    const size_t w = dp_round_up(dp_window_weights(&conv->window) * sizeof(float), PIECE);
    const size_t all = x + y + 2 * w + dp_round_up(conv->window.out_c * element, PIECE);
    char *memory = dp_cuda_trial_alloc(all);

    if (memory == NULL) {
        return DP_OK;
    }
    trial->arrays =
        (struct dp_cudnn_arrays){memory, memory + x, memory + x + w, memory + x + w + y + w, NULL};
    trial->gradient = (float *)(void *)(memory + x + w + y);
    trial->bytes = all;
    DP_TRY(dp_cuda_fill(s, memory, s->type, all / element, 1));
    return dp_cuda_clock_open(&trial->clock);
}

/* The passes after the plan. */
static dp_status finish(const struct trial *t)
{
    const struct dp_conv_case *conv = t->chooser->conv;
    struct dp_stream *s = t->chooser->stream;
    const void *bias = conv->bias != 0 ? t->arrays.bias : NULL;

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
    const struct trial *t = context;
    const struct chooser *c = t->chooser;
    const int result = dp_cudnn_plan_try(c->library, c->handle, t->plan, &t->arrays);

    if (result != 0) {
        DP_DEBUG("an engine of cuDNN does not run: %s", c->library->error_text(result));
        return DP_ERR_UNAVAILABLE;
    }
    return finish(t);
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
static struct probe probe_of(const struct trial *t, size_t before, size_t after)
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
static dp_status check_factors(const struct trial *t, const struct dp_cudnn_plan *plan, bool *good)
{
    enum { MOST = 32 };
    static const float one = 1.0f;
    const struct chooser *c = t->chooser;
    struct dp_stream *s = c->stream;
    const struct dp_window *w = &c->conv->window;
    const size_t after = (w->padding + w->stride - 1) / w->stride;
    const size_t before = after * w->stride - w->padding;
    const struct probe p = probe_of(t, before, after);
    const size_t count = least(p.count, MOST);
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
static dp_status trial_measure(void *context, const struct dp_cudnn_plan *plan, float best,
                               float *ms)
{
    struct trial *trial = context;
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

/* ---- forms ---- */

/* The forms of a convolution, preferred ones first. */
static int forms_of(const struct chooser *c, struct dp_cudnn_form forms[FORMS])
{
    const struct dp_conv_case *conv = c->conv;
    const enum dp_type type = c->stream->type;
    int count = 0;

    if (conv->use == DP_CONV_BACKWARD_WEIGHTS && type != DP_TYPE_F32) {
        forms[count++] = (struct dp_cudnn_form){.weights = DP_TYPE_F32};
    }
    if (conv->bias != 0 || conv->act != DP_ACT_NONE) {
        forms[count++] = (struct dp_cudnn_form){.fused = true, .weights = type};
    }
    if (conv->act == DP_ACT_RELU) {
        forms[count++] = (struct dp_cudnn_form){.fused = true, .loses_nan = true, .weights = type};
    }
    forms[count++] = (struct dp_cudnn_form){.weights = type};
    return count;
}

/* Bytes that a plan may want: no more than a part of what is free, and little for small images:
 * lenet would take 2 GiB for what it computes in 0.1 ms. */
static size_t workspace_most(const struct chooser *c)
{
    const struct dp_window *w = &c->conv->window;
    const size_t images = c->conv->rows * (dp_window_in(w) + dp_window_out(w)) *
                          dp_type_bytes(c->stream->type) * WORKSPACE_TIMES;
    size_t left = 0, total = 0;

    (void)cudaMemGetInfo(&left, &total);
    return least(left / WORKSPACE_PART,
                 least(WORKSPACE_MOST, images > WORKSPACE_FREE ? images : WORKSPACE_FREE));
}

static dp_status try_form(const struct chooser *c, const struct dp_cudnn_form *form,
                          const struct dp_cudnn_search *search, struct dp_cudnn_plan *plan)
{
    const struct dp_stream *s = c->stream;
    const struct dp_cudnn_wish request = {.type = s->type,
                                          .weights = form->weights,
                                          .tf32 = s->tf32,
                                          .fuses = form->fused,
                                          .loses_nan = form->loses_nan,
                                          .workspace_bytes = workspace_most(c)};

    return dp_cudnn_plan_create(c->library, c->handle, c->conv, &request, search, plan);
}

/* The best so far. */
struct best {
    struct dp_cudnn_form form;
    struct dp_cudnn_plan plan;
};

/* Tries the engines of one form; *found: one of them runs. */
static dp_status consider(const struct chooser *c, const struct dp_cudnn_form *form,
                          const struct dp_cudnn_search *search, struct trial *trial,
                          struct best *best, bool *found)
{
    struct dp_cudnn_plan plan, *worse = &plan;
    dp_status status;

    if (trial != NULL) {
        trial->form = *form;
    }
    status = try_form(c, form, search, &plan);
    *found = plan.execution != NULL;
    if (status == DP_OK && *found && (best->plan.execution == NULL || plan.ms < best->plan.ms)) {
        const struct dp_cudnn_plan before = best->plan;
        best->form = *form;
        best->plan = plan;
        plan = before;
    }
    dp_cudnn_plan_destroy(c->library, worse);
    return status;
}

/* Where the trial times nothing, the first engine that it accepts; trial NULL: the first one. */
static dp_status choose_form(const struct chooser *c, struct trial *trial, struct best *best)
{
    const bool times = trial != NULL && trial->times;
    static const int modes[] = {DP_CUDNN_HEUR_MODE_INSTANT, DP_CUDNN_HEUR_MODE_FALLBACK};
    const struct dp_cudnn_clock clock = {trial, trial_measure};
    struct dp_cudnn_form forms[FORMS];
    const int count = forms_of(c, forms);
    bool keeps_nan = false;

    for (int i = 0; i < 2 * count; i++) {
        const struct dp_cudnn_form *form = &forms[i % count];
        const bool any = best->plan.execution != NULL;
        const struct dp_cudnn_search search = {.mode = modes[i / count],
                                               .clock = trial != NULL ? &clock : NULL,
                                               .first = !times,
                                               .best_ms = any ? best->plan.ms : INFINITY};
        bool found;
        if ((any && !times) || (form->loses_nan && keeps_nan)) {
            continue;
        }
        DP_TRY(consider(c, form, &search, trial, best, &found));
        keeps_nan = keeps_nan || (found && form->fused && !form->loses_nan);
    }
    return DP_OK;
}

/* ---- choices ---- */

/* Everything that the proposed engines depend on. */
static void choice_key(const struct chooser *chooser, char key[DP_ALGO_CHOICE_KEY])
{
    const struct dp_stream *s = chooser->stream;
    const struct dp_conv_case *c = chooser->conv;
    char text[DP_CONV_TEXT];

    dp_cuda_conv_text(text, &c->window, c->rows);
    (void)snprintf(key, DP_ALGO_CHOICE_KEY, "%s %.96s stride %zu padding %zu %s%s%s",
                   c->use == DP_CONV_FORWARD         ? "convolution"
                   : c->use == DP_CONV_BACKWARD_DATA ? "convolution back to data"
                                                     : "convolution back to weights",
                   text, c->window.stride, c->window.padding,
                   dp_device_arithmetic(s->device, s->type, s->tf32 && s->type == DP_TYPE_F32),
                   c->bias != 0 ? " bias" : "", c->act == DP_ACT_RELU ? " relu" : "");
}

enum { NOT_FUSED, FUSED, FUSED_LOSES_NAN };

static dp_status note(const struct chooser *c, const struct best *best, const char *key)
{
    const struct dp_cudnn_pick *pick = &best->plan.pick;
    char value[DP_ALGO_CHOICE_VALUE];

    (void)snprintf(value, sizeof(value), "%d %d %d %d %" PRId64,
                   !best->form.fused      ? NOT_FUSED
                   : best->form.loses_nan ? FUSED_LOSES_NAN
                                          : FUSED,
                   (int)best->form.weights, pick->mode, pick->place, pick->engine);
    return dp_algo_choices_note(c->stream->algo_choices, key, value, best->plan.ms);
}

/* Makes the plan of a known choice; none if cuDNN no longer proposes it, or it does not run. */
static dp_status recall(const struct chooser *c, const char *value, struct trial *trial,
                        struct best *best)
{
    const struct dp_cudnn_clock clock = {trial, trial_measure};
    long long number[5] = {0};
    bool found;
    char *end;

    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++, value = end) {
        number[i] = strtoll(value, &end, 10);
        if (end == value) {
            return DP_OK;
        }
    }
    const struct dp_cudnn_pick pick = {(int)number[2], (int)number[3], number[4]};
    const struct dp_cudnn_search search = {.mode = pick.mode,
                                           .pick = &pick,
                                           .clock = trial != NULL ? &clock : NULL,
                                           .best_ms = INFINITY};
    const struct dp_cudnn_form form = {.fused = number[0] != NOT_FUSED,
                                       .loses_nan = number[0] == FUSED_LOSES_NAN,
                                       .weights = number[1] == DP_TYPE_F32 ? DP_TYPE_F32
                                                                           : c->stream->type};

    return consider(c, &form, &search, trial, best, &found);
}

static dp_status choose(const struct chooser *c, struct trial *trial, struct best *best)
{
    struct dp_algo_choices *algo_choices = c->stream->algo_choices;
    struct trial *tried;
    char key[DP_ALGO_CHOICE_KEY];
    const char *value;

    choice_key(c, key);
    DP_TRY(dp_algo_choices_ask(algo_choices, key, &value));
    trial->exact = c->stream->type == DP_TYPE_F32 && !c->stream->tf32;
    trial->times = dp_algo_choices_open(algo_choices);
    if (value != NULL || trial->times || trial->exact) {
        DP_TRY(trial_create(trial));
    }
    tried = trial->arrays.x != NULL ? trial : NULL;
    if (value != NULL) {
        DP_TRY(recall(c, value, tried, best));
        if (best->plan.execution != NULL) {
            return DP_OK;
        }
        DP_DEBUG("%s: what was chosen before does not run here", key);
    }
    tried = trial->times || trial->exact ? tried : NULL;
    DP_TRY(choose_form(c, tried, best));
    return tried != NULL && trial->times && best->plan.execution != NULL ? note(c, best, key)
                                                                         : DP_OK;
}

dp_status dp_cudnn_choose(struct dp_stream *s, const struct dp_cudnn *library, void *handle,
                          const struct dp_conv_case *conv, struct dp_cudnn_form *form,
                          struct dp_cudnn_plan *plan)
{
    const struct chooser chooser = {s, library, handle, conv};
    struct trial trial = {.chooser = &chooser};
    struct best best = {.form = {.weights = s->type}};
    const dp_status status = choose(&chooser, &trial, &best);

    trial_destroy(&trial);
    *form = best.form;
    *plan = best.plan;
    return status;
}
