#include "kernels/cuda/cudnn/choose_cudnn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/algo_choices.h"
#include "kernels/cuda/cudnn/trial_cudnn.h"
#include "kernels/cuda/layers/conv_cuda.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/ref/window.h"
#include "kernels/tensor.h"

enum {
    WORKSPACE_MOST = 1 << 30,  /* bytes of a plan */
    WORKSPACE_PART = 4,        /* nor may it have more than one of so many parts of what is free */
    WORKSPACE_TIMES = 4,       /* nor than so many times its images */
    WORKSPACE_FREE = 64 << 20, /* but as much it always may */
    FORMS = 6
};

/* ---- forms ---- */

/* The forms of a convolution that is not folded, preferred ones first. */
static int plain_forms(const struct dp_cudnn_chooser *c, struct dp_cudnn_form forms[FORMS])
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

static int forms_of(const struct dp_cudnn_chooser *c, struct dp_cudnn_form forms[FORMS])
{
    const int plain = plain_forms(c, forms);

    if (!dp_cudnn_may_fold(c->conv, c->stream->type)) {
        return plain;
    }
    for (int i = 0; i < plain; i++) {
        forms[plain + i] = forms[i];
        forms[plain + i].folded = true;
    }
    return 2 * plain;
}

/* Bytes that a plan may want: no more than a part of what is free, and little for small images:
 * lenet would take 2 GiB for what it computes in 0.1 ms. */
static size_t workspace_most(const struct dp_cudnn_chooser *c)
{
    const struct dp_window *w = &c->conv->window;
    const size_t images = c->conv->rows * (dp_window_in(w) + dp_window_out(w)) *
                          dp_type_bytes(c->stream->type) * WORKSPACE_TIMES;
    size_t left = 0, total = 0;

    (void)cudaMemGetInfo(&left, &total);
    return dp_smaller(
        left / WORKSPACE_PART,
        dp_smaller(WORKSPACE_MOST, images > WORKSPACE_FREE ? images : WORKSPACE_FREE));
}

static dp_status try_form(const struct dp_cudnn_chooser *c, const struct dp_cudnn_form *form,
                          const struct dp_cudnn_search *search, struct dp_cudnn_plan *plan)
{
    const struct dp_stream *s = c->stream;
    const struct dp_cudnn_wish request = {.type = s->type,
                                          .weights = form->weights,
                                          .tf32 = s->tf32,
                                          .fuses = form->fused,
                                          .loses_nan = form->loses_nan,
                                          .workspace_bytes = workspace_most(c)};
    const struct dp_conv_case conv = dp_cudnn_planned(c->conv, form->folded);

    return dp_cudnn_plan_create(c->library, c->handle, &conv, &request, search, plan);
}

/* The best so far. */
struct best {
    struct dp_cudnn_form form;
    struct dp_cudnn_plan plan;
    bool is_cublas; /* and there is no plan */
};

/* Tries the engines of one form; *found: one of them runs. */
static dp_status consider(const struct dp_cudnn_chooser *c, const struct dp_cudnn_form *form,
                          const struct dp_cudnn_search *search, struct dp_cudnn_trial *trial,
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
static dp_status choose_form(const struct dp_cudnn_chooser *c, struct dp_cudnn_trial *trial,
                             struct best *best)
{
    const bool times = trial != NULL && trial->times;
    static const int modes[] = {DP_CUDNN_HEUR_MODE_INSTANT, DP_CUDNN_HEUR_MODE_FALLBACK};
    const struct dp_cudnn_clock clock = {trial, dp_cudnn_trial_measure};
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

/* cublas is a form, too, unless cuDNN was asked for. */
static bool may_be_cublas(const struct dp_cudnn_chooser *c)
{
    const struct dp_stream *s = c->stream;

    return s->type == DP_TYPE_F32 && !s->tf32 && s->conv == DP_CONV_AUTO &&
           dp_window_groups(&c->conv->window) == 1;
}

/* Of the engines that lose no digits, cuDNN 9.19 has one for gradients of weights in NHWC; on an
 * H100 it took twice as long as windows that are written out and multiplied by cublas. */
static dp_status try_cublas(const struct dp_cudnn_chooser *c, struct dp_cudnn_trial *trial,
                            struct best *best)
{
    const float before = best->plan.execution != NULL ? best->plan.ms : INFINITY;
    float ms = INFINITY;
    dp_status status;

    if (!may_be_cublas(c)) {
        return DP_OK;
    }
    dp_algo_choices_try(c->stream->algo_choices);
    status = dp_cudnn_trial_cublas(trial, before, &ms);
    dp_algo_choices_tried(c->stream->algo_choices, status == DP_OK && ms < before);
    DP_TRY(status);
    if (ms < before) {
        dp_cudnn_plan_destroy(c->library, &best->plan);
        *best = (struct best){.form = {.weights = c->stream->type}, .is_cublas = true};
        best->plan.ms = ms;
    }
    return DP_OK;
}

/* ---- choices ---- */

/* Everything that the proposed engines depend on, and which forms there are beside them. */
static void choice_key(const struct dp_cudnn_chooser *chooser, char key[DP_ALGO_CHOICE_KEY])
{
    const struct dp_stream *s = chooser->stream;
    const struct dp_conv_case *c = chooser->conv;
    const bool folds = dp_cudnn_may_fold(c, s->type);
    const size_t pieces = dp_cudnn_pieces(c, folds);
    char text[DP_CONV_TEXT], how[32] = "";

    if (pieces > 1) {
        (void)snprintf(how, sizeof(how), " by %zu rows", c->rows / pieces);
    }
    dp_cuda_conv_text(text, &c->window, c->rows);
    (void)snprintf(key, DP_ALGO_CHOICE_KEY, "%s %.96s stride %zu padding %zu %s%s%s%s%s%s",
                   c->use == DP_CONV_FORWARD         ? "convolution"
                   : c->use == DP_CONV_BACKWARD_DATA ? "convolution back to data"
                                                     : "convolution back to weights",
                   text, c->window.stride, c->window.padding,
                   dp_device_arithmetic(s->device, s->type, s->tf32 && s->type == DP_TYPE_F32),
                   c->bias != 0 ? " bias" : "", c->act == DP_ACT_RELU ? " relu" : "",
                   folds ? " or folded" : "", how, may_be_cublas(chooser) ? " or cublas" : "");
}

/* The first number of a value; FOLDED is added. */
enum { NOT_FUSED, FUSED, FUSED_LOSES_NAN, BY_CUBLAS, FOLDED };

static int how_of(const struct best *best)
{
    const int fused = !best->form.fused      ? NOT_FUSED
                      : best->form.loses_nan ? FUSED_LOSES_NAN
                                             : FUSED;

    return best->is_cublas ? BY_CUBLAS : fused + (best->form.folded ? FOLDED : 0);
}

static dp_status note(const struct dp_cudnn_chooser *c, const struct best *best, const char *key)
{
    const struct dp_cudnn_pick *pick = &best->plan.pick;
    char value[DP_ALGO_CHOICE_VALUE];

    (void)snprintf(value, sizeof(value), "%d %d %d %d %" PRId64, how_of(best),
                   (int)best->form.weights, pick->mode, pick->place, pick->engine);
    return dp_algo_choices_note(c->stream->algo_choices, key, value, (double)best->plan.ms);
}

/* Makes the plan of a known choice, if it is not cublas; none if cuDNN no longer proposes it, or it
 * does not run. */
static dp_status recall(const struct dp_cudnn_chooser *c, const char *value,
                        struct dp_cudnn_trial *trial, struct best *best)
{
    const struct dp_cudnn_clock clock = {trial, dp_cudnn_trial_measure};
    long long number[5] = {0};
    bool found;
    char *end;

    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++, value = end) {
        number[i] = strtoll(value, &end, 10);
        if (end == value) {
            return DP_OK;
        }
    }
    best->is_cublas = number[0] == BY_CUBLAS && may_be_cublas(c);
    if (best->is_cublas) {
        return DP_OK;
    }
    const struct dp_cudnn_pick pick = {(int)number[2], (int)number[3], number[4]};
    const struct dp_cudnn_search search = {.mode = pick.mode,
                                           .pick = &pick,
                                           .clock = trial != NULL ? &clock : NULL,
                                           .best_ms = INFINITY};
    const struct dp_cudnn_form form = {
        .fused = number[0] % FOLDED == FUSED || number[0] % FOLDED == FUSED_LOSES_NAN,
        .loses_nan = number[0] % FOLDED == FUSED_LOSES_NAN,
        .folded = number[0] >= FOLDED && dp_cudnn_may_fold(c->conv, c->stream->type),
        .weights = number[1] == DP_TYPE_F32 ? DP_TYPE_F32 : c->stream->type};

    return consider(c, &form, &search, trial, best, &found);
}

static dp_status choose(const struct dp_cudnn_chooser *c, struct dp_cudnn_trial *trial,
                        struct best *best)
{
    struct dp_algo_choices *algo_choices = c->stream->algo_choices;
    struct dp_cudnn_trial *tried;
    char key[DP_ALGO_CHOICE_KEY];
    const char *value;

    choice_key(c, key);
    DP_TRY(dp_algo_choices_ask(algo_choices, key, &value));
    trial->exact = c->stream->type == DP_TYPE_F32 && !c->stream->tf32;
    trial->times = dp_algo_choices_open(algo_choices);
    if (value != NULL || trial->times || trial->exact) {
        DP_TRY(dp_cudnn_trial_create(trial));
    }
    tried = trial->arrays.x != NULL ? trial : NULL;
    if (value != NULL) {
        DP_TRY(recall(c, value, tried, best));
        if (best->plan.execution != NULL || best->is_cublas) {
            return DP_OK;
        }
        DP_DEBUG("%s: what was chosen before does not run here", key);
    }
    tried = trial->times || trial->exact ? tried : NULL;
    DP_TRY(choose_form(c, tried, best));
    if (tried == NULL || !trial->times) {
        return DP_OK;
    }
    DP_TRY(try_cublas(c, trial, best));
    return best->plan.execution != NULL || best->is_cublas ? note(c, best, key) : DP_OK;
}

dp_status dp_cudnn_choose(struct dp_stream *s, const struct dp_cudnn *library, void *handle,
                          const struct dp_conv_case *conv, struct dp_cudnn_form *form,
                          struct dp_cudnn_plan *plan)
{
    const struct dp_cudnn_chooser chooser = {s, library, handle, conv};
    struct dp_cudnn_trial trial = {.chooser = &chooser};
    struct best best = {.form = {.weights = s->type}};
    const dp_status status = choose(&chooser, &trial, &best);

    dp_cudnn_trial_destroy(&trial);
    *form = best.form;
    *plan = best.plan;
    return status;
}
