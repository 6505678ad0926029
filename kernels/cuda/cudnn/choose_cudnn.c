#include "kernels/cuda/cudnn/choose_cudnn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "kernels/algo_choices.h"
#include "kernels/cuda/conv_cuda.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/scratch_cuda.h"
#include "kernels/ref/window.h"

enum {
    WORKSPACE_MOST = 1 << 30, /* bytes of a plan */
    WORKSPACE_PART = 4,       /* nor may it have more than one of so many parts of what is free */
    PIECE = 256,              /* what arrays of a trial are rounded up to */
    ROUNDS = 3,               /* of measuring; the fastest counts */
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

/* Arrays to measure on, in one block of memory. */
struct trial {
    const struct chooser *chooser;
    struct dp_cudnn_form form;        /* that is measured now */
    const struct dp_cudnn_plan *plan; /* likewise */
    struct dp_cuda_scratch workspace;
    struct dp_cudnn_arrays arrays;
    float *gradient; /* of weights, converted to float32 */
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

/* Uses a workspace of its own: the stream's has the size of the chosen plans. */
static dp_status trial_measure(void *context, const struct dp_cudnn_plan *plan, float best,
                               float *ms)
{
    struct trial *trial = context;
    struct dp_stream *s = trial->chooser->stream;
    const size_t bytes = plan->workspace_bytes;

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
    return dp_cuda_clock_time(&trial->clock, s, trial_run, trial, ROUNDS, best, ms);
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

/* Bytes that a plan may want: no more than a part of what is free. */
static size_t workspace_most(void)
{
    size_t left = 0, total = 0;

    (void)cudaMemGetInfo(&left, &total);
    return left / WORKSPACE_PART < WORKSPACE_MOST ? left / WORKSPACE_PART : WORKSPACE_MOST;
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
                                          .workspace_bytes = workspace_most()};

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

/* trial NULL: takes the first engine without measuring. */
static dp_status choose_form(const struct chooser *c, struct trial *trial, struct best *best)
{
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
                                               .best_ms = any ? best->plan.ms : INFINITY};
        bool found;
        if ((any && trial == NULL) || (form->loses_nan && keeps_nan)) {
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
    const struct dp_cudnn_search search = {pick.mode, &pick, trial != NULL ? &clock : NULL,
                                           INFINITY};
    const struct dp_cudnn_form form = {.fused = number[0] != NOT_FUSED,
                                       .loses_nan = number[0] == FUSED_LOSES_NAN,
                                       .weights = number[1] == DP_TYPE_F32 ? DP_TYPE_F32
                                                                           : c->stream->type};

    return consider(c, &form, &search, trial, best, &found);
}

static dp_status choose(const struct chooser *c, struct trial *trial, struct best *best)
{
    struct dp_algo_choices *algo_choices = c->stream->algo_choices;
    struct trial *measured = NULL;
    char key[DP_ALGO_CHOICE_KEY];
    const char *value;

    choice_key(c, key);
    DP_TRY(dp_algo_choices_ask(algo_choices, key, &value));
    if (value != NULL || dp_algo_choices_open(algo_choices)) {
        DP_TRY(trial_create(trial));
        measured = trial->arrays.x != NULL ? trial : NULL;
    }
    if (value != NULL) {
        DP_TRY(recall(c, value, measured, best));
        if (best->plan.execution != NULL) {
            return DP_OK;
        }
        DP_DEBUG("%s: what was chosen before does not run here", key);
    }
    measured = dp_algo_choices_open(algo_choices) ? measured : NULL;
    DP_TRY(choose_form(c, measured, best));
    return measured != NULL && best->plan.execution != NULL ? note(c, best, key) : DP_OK;
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
