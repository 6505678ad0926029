#include "kernels/cuda/cudnn/plan_cudnn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/stream/cuda_status.h"

enum {
    DIMS = 4,
    PROPOSALS = 64,    /* of one mode; cuDNN 9 has about 40 for a GPU of sm_90 */
    MEASURED = 10,     /* of them, at most */
    MEASURED_LAST = 4, /* of the last resort, where some take a hundred times as long */
    NOTES = 32
};

/* Numbers of tensors; the last two are inside of a fused plan. */
enum { X_UID = 1, W_UID, Y_UID, BIAS_UID, SUM_UID, BIASED_UID };

/* A graph on its way. The first failure stays, and makes all that follows do nothing. */
struct build {
    const struct dp_cudnn *c;
    void *handle;
    const struct dp_cudnn_wish *request;
    struct dp_cudnn_plan *plan;
    int result;
};

/* ---- descriptors ---- */

static void *make(struct build *b, int kind)
{
    void *made = NULL;

    assert(b->plan->kept_count < DP_CUDNN_KEPT);
    if (b->result == 0) {
        b->result = b->c->descriptor_create(kind, &made);
    }
    if (made != NULL) {
        b->plan->kept[b->plan->kept_count++] = made;
    }
    return made;
}

static void set(struct build *b, void *made, int attribute, int type, int64_t count,
                const void *elements)
{
    if (b->result == 0) {
        b->result = b->c->set(made, attribute, type, count, elements);
    }
}

static void set_number(struct build *b, void *made, int attribute, int type, int number)
{
    set(b, made, attribute, type, 1, &number);
}

static void set_descriptor(struct build *b, void *made, int attribute, void *other)
{
    set(b, made, attribute, DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static void finalize(struct build *b, void *made)
{
    if (b->result == 0) {
        b->result = b->c->finalize(made);
    }
}

static int data_type(enum dp_type type)
{
    return type == DP_TYPE_BF16  ? DP_CUDNN_DATA_BFLOAT16
           : type == DP_TYPE_F16 ? DP_CUDNN_DATA_HALF
                                 : DP_CUDNN_DATA_FLOAT;
}

/* dims in cuDNN's order: rows, channels, height, width; channels lie next to each other. */
static void *tensor(struct build *b, int64_t uid, enum dp_type type, const int64_t dims[DIMS])
{
    const bool images = uid == X_UID || uid == Y_UID, inside = uid >= SUM_UID;
    const int64_t channels = dims[1], row = dims[3] * channels;
    const int64_t strides[DIMS] = {dims[2] * row, 1, row, channels};
    const size_t sample = (size_t)(dims[1] * dims[2] * dims[3]);
    const int64_t alignment =
        images ? (int64_t)dp_cudnn_alignment(type, sample) : DP_CUDNN_ALIGNMENT;
    void *made = make(b, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set_number(b, made, DP_CUDNN_ATTR_TENSOR_DATA_TYPE, DP_CUDNN_TYPE_DATA_TYPE, data_type(type));
    set(b, made, DP_CUDNN_ATTR_TENSOR_DIMENSIONS, DP_CUDNN_TYPE_INT64, DIMS, dims);
    set(b, made, DP_CUDNN_ATTR_TENSOR_STRIDES, DP_CUDNN_TYPE_INT64, DIMS, strides);
    set(b, made, DP_CUDNN_ATTR_TENSOR_UNIQUE_ID, DP_CUDNN_TYPE_INT64, 1, &uid);
    set(b, made, DP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, DP_CUDNN_TYPE_INT64, 1, &alignment);
    set(b, made, DP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, DP_CUDNN_TYPE_BOOLEAN, 1, &inside);
    finalize(b, made);
    return made;
}

static void *window_descriptor(struct build *b, const struct dp_window *w)
{
    const int64_t spatial = 2, ones[2] = {1, 1};
    const int64_t strides[2] = {(int64_t)w->stride, (int64_t)w->stride};
    const int64_t paddings[2] = {(int64_t)w->padding, (int64_t)w->padding};
    void *made = make(b, DP_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    set_number(b, made, DP_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DP_CUDNN_TYPE_DATA_TYPE,
               DP_CUDNN_DATA_FLOAT);
    set_number(b, made, DP_CUDNN_ATTR_CONVOLUTION_CONV_MODE, DP_CUDNN_TYPE_CONVOLUTION_MODE,
               DP_CUDNN_CROSS_CORRELATION);
    set(b, made, DP_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, DP_CUDNN_TYPE_INT64, 1, &spatial);
    set(b, made, DP_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, DP_CUDNN_TYPE_INT64, 2, paddings);
    set(b, made, DP_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, DP_CUDNN_TYPE_INT64, 2, paddings);
    set(b, made, DP_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, DP_CUDNN_TYPE_INT64, 2, strides);
    set(b, made, DP_CUDNN_ATTR_CONVOLUTION_DILATIONS, DP_CUDNN_TYPE_INT64, 2, ones);
    finalize(b, made);
    return made;
}

/* ---- operations ---- */

struct names {
    int kind, x, w, y, window, alpha, beta;
};

#define NAMES(operation, prefix, grad_x, grad_w, grad_y)                 \
    {                                                                    \
        DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_##operation##_DESCRIPTOR, \
            DP_CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##grad_x,     \
            DP_CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##grad_w,     \
            DP_CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##grad_y,     \
            DP_CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC,    \
            DP_CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,        \
            DP_CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA          \
    }

static const struct names *names_of(uint32_t use)
{
    static const struct names forward = NAMES(FORWARD, FORWARD, X, W, Y);
    static const struct names data = NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY);
    static const struct names weights = NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);

    return use == DP_CONV_FORWARD ? &forward : use == DP_CONV_BACKWARD_DATA ? &data : &weights;
}

/* y = x w, or one of its gradients. */
static void *convolution(struct build *b, const struct names *names, void *window, void *x, void *w,
                         void *y)
{
    const float alpha = 1.0f, beta = 0.0f;
    void *made = make(b, names->kind);

    set_descriptor(b, made, names->window, window);
    set_descriptor(b, made, names->x, x);
    set_descriptor(b, made, names->w, w);
    set_descriptor(b, made, names->y, y);
    set(b, made, names->alpha, DP_CUDNN_TYPE_FLOAT, 1, &alpha);
    set(b, made, names->beta, DP_CUDNN_TYPE_FLOAT, 1, &beta);
    finalize(b, made);
    return made;
}

/* y = x + other, or the rectifier of x. */
static void *pointwise(struct build *b, int mode, void *x, void *other, void *y)
{
    void *how = make(b, DP_CUDNN_BACKEND_POINTWISE_DESCRIPTOR), *made;

    set_number(b, how, DP_CUDNN_ATTR_POINTWISE_MODE, DP_CUDNN_TYPE_POINTWISE_MODE, mode);
    set_number(b, how, DP_CUDNN_ATTR_POINTWISE_MATH_PREC, DP_CUDNN_TYPE_DATA_TYPE,
               DP_CUDNN_DATA_FLOAT);
    if (mode == DP_CUDNN_POINTWISE_RELU_FWD && !b->request->loses_nan) {
        set_number(b, how, DP_CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, DP_CUDNN_TYPE_NAN_PROPOGATION,
                   DP_CUDNN_PROPAGATE_NAN);
    }
    finalize(b, how);
    made = make(b, DP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(b, made, DP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(b, made, DP_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (other != NULL) {
        set_descriptor(b, made, DP_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    }
    set_descriptor(b, made, DP_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finalize(b, made);
    return made;
}

/* The operations of a convolution, each of which hands on to the next. Returns how many. */
static int add_operations(struct build *b, const struct dp_conv_case *conv, void *operations[3])
{
    const struct dp_cudnn_wish *request = b->request;
    const struct dp_window *w = &conv->window;
    const int64_t rows = (int64_t)conv->rows, in_c = (int64_t)w->in_c, out_c = (int64_t)w->out_c;
    const int64_t x_dims[DIMS] = {rows, in_c, (int64_t)w->in_h, (int64_t)w->in_w};
    const int64_t y_dims[DIMS] = {rows, out_c, (int64_t)w->out_h, (int64_t)w->out_w};
    const int64_t fan = (int64_t)dp_window_fan(w); /* which tells cuDNN the groups */
    const int64_t w_dims[DIMS] = {out_c, fan, (int64_t)w->kernel_h, (int64_t)w->kernel_w};
    const int64_t bias_dims[DIMS] = {1, out_c, 1, 1};
    const bool adds = request->fuses && conv->bias != 0;
    const bool rectifies = request->fuses && conv->act == DP_ACT_RELU;
    void *x = tensor(b, X_UID, request->type, x_dims), *y = tensor(b, Y_UID, request->type, y_dims);
    void *weights = tensor(b, W_UID, request->weights, w_dims), *sum = y, *biased = y;
    int count = 0;

    if (adds || rectifies) {
        sum = tensor(b, SUM_UID, DP_TYPE_F32, y_dims);
    }
    operations[count++] =
        convolution(b, names_of(conv->use), window_descriptor(b, w), x, weights, sum);
    if (adds) {
        void *bias = tensor(b, BIAS_UID, request->type, bias_dims);
        biased = rectifies ? tensor(b, BIASED_UID, DP_TYPE_F32, y_dims) : y;
        operations[count++] = pointwise(b, DP_CUDNN_POINTWISE_ADD, sum, bias, biased);
    }
    if (rectifies) {
        operations[count++] =
            pointwise(b, DP_CUDNN_POINTWISE_RELU_FWD, adds ? biased : sum, NULL, y);
    }
    b->plan->has_bias = adds;
    return count;
}

static void *graph(struct build *b, const struct dp_conv_case *conv)
{
    void *operations[3], *made;
    const int count = add_operations(b, conv, operations);

    made = make(b, DP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, made, DP_CUDNN_ATTR_OPERATIONGRAPH_HANDLE, DP_CUDNN_TYPE_HANDLE, 1, &b->handle);
    set(b, made, DP_CUDNN_ATTR_OPERATIONGRAPH_OPS, DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
        operations);
    finalize(b, made);
    return made;
}

/* ---- engines ---- */

/* Winograd's transforms of large tiles lose digits: a convolution of 5x5 by tiles of 13x13 was off
 * by 2e-3 of its result in float32. */
static bool is_allowed(int note, const struct dp_cudnn_wish *request)
{
    const bool exact = request->type == DP_TYPE_F32 && !request->tf32;

    return note != DP_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
           note != DP_CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
           note != DP_CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 &&
           note != DP_CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 &&
           !(request->type == DP_TYPE_F32 && note == DP_CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
           !(exact && note == DP_CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

/* Whether all that is noted about the engine of a configuration may be; in doubt it may not.
 * number: cuDNN's own of it. */
static bool engine_will_do(const struct build *b, void *config, int64_t *number)
{
    const struct dp_cudnn *c = b->c;
    int notes[NOTES];
    int64_t count = 0;
    void *engine = NULL;
    bool good = c->descriptor_create(DP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == 0;

    good = good &&
           c->get(config, DP_CUDNN_ATTR_ENGINECFG_ENGINE, DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &count, &engine) == 0 &&
           c->get(engine, DP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, DP_CUDNN_TYPE_INT64, 1, &count,
                  number) == 0 &&
           c->get(engine, DP_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, DP_CUDNN_TYPE_NUMERICAL_NOTE, 0,
                  &count, NULL) == 0 &&
           count <= NOTES;
    if (good && count > 0) {
        good = c->get(engine, DP_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, DP_CUDNN_TYPE_NUMERICAL_NOTE,
                      count, &count, notes) == 0;
    }
    for (int64_t i = 0; good && i < count; i++) {
        good = is_allowed(notes[i], b->request);
    }
    if (engine != NULL) {
        (void)c->descriptor_destroy(engine);
    }
    return good;
}

/* The plan of a configuration. NULL: it does not work here, or wants too much. */
static void *execution_of(const struct build *b, void *config, size_t *workspace_bytes)
{
    const struct dp_cudnn *c = b->c;
    void *made = NULL;
    int64_t count = 0, bytes = 0;
    bool good = c->descriptor_create(DP_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made) == 0;

    good = good &&
           c->set(made, DP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE, DP_CUDNN_TYPE_HANDLE, 1, &b->handle) ==
               0 &&
           c->set(made, DP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                  DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == 0 &&
           c->finalize(made) == 0 &&
           c->get(made, DP_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, DP_CUDNN_TYPE_INT64, 1, &count,
                  &bytes) == 0 &&
           bytes >= 0 && (size_t)bytes <= b->request->workspace_bytes;
    if (!good && made != NULL) {
        (void)c->descriptor_destroy(made);
        return NULL;
    }
    *workspace_bytes = (size_t)bytes;
    return made;
}

/* Proposals of one mode, and how good they are. */
struct choice {
    void *configs[PROPOSALS];
    void *execution; /* of the best */
    int64_t engine;
    int best;  /* -1: none yet */
    int tried; /* how many work */
    size_t workspace_bytes;
    float ms;
};

static int64_t propose(const struct build *b, void *made_graph, int mode, struct choice *choice)
{
    const struct dp_cudnn *c = b->c;
    void *heuristics = NULL;
    int64_t count = 0;
    bool good = c->descriptor_create(DP_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics) == 0;

    for (int i = 0; i < PROPOSALS && good; i++) {
        good =
            c->descriptor_create(DP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &choice->configs[i]) == 0;
    }
    good =
        good &&
        c->set(heuristics, DP_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
               DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &made_graph) == 0 &&
        c->set(heuristics, DP_CUDNN_ATTR_ENGINEHEUR_MODE, DP_CUDNN_TYPE_HEUR_MODE, 1, &mode) == 0 &&
        c->finalize(heuristics) == 0 &&
        c->get(heuristics, DP_CUDNN_ATTR_ENGINEHEUR_RESULTS, DP_CUDNN_TYPE_BACKEND_DESCRIPTOR,
               PROPOSALS, &count, choice->configs) == 0;
    if (heuristics != NULL) {
        (void)c->descriptor_destroy(heuristics);
    }
    return !good ? 0 : count < PROPOSALS ? count : PROPOSALS;
}

/* Looks at one proposal, and keeps it if it is the first good one, or faster. */
static dp_status consider(const struct build *b, int i, const struct dp_cudnn_search *search,
                          struct choice *choice)
{
    const struct dp_cudnn_pick *pick = search->pick;
    const float best = choice->best >= 0 ? choice->ms : search->best_ms;
    struct dp_cudnn_plan trial = *b->plan;
    dp_status status = DP_OK;
    int64_t engine = -1;
    float ms = 0.0f;

    if ((pick != NULL && pick->place != i) || !engine_will_do(b, choice->configs[i], &engine) ||
        (pick != NULL && pick->engine != engine)) {
        return DP_OK;
    }
    trial.execution = execution_of(b, choice->configs[i], &trial.workspace_bytes);
    if (trial.execution == NULL) {
        return DP_OK;
    }
    choice->tried++;
    if (search->clock != NULL) {
        status = search->clock->measure(search->clock->context, &trial, best, &ms);
    }
    if (status != DP_OK || !(ms < INFINITY) || (choice->best >= 0 && ms >= choice->ms)) {
        (void)b->c->descriptor_destroy(trial.execution);
        return status;
    }
    if (choice->execution != NULL) {
        (void)b->c->descriptor_destroy(choice->execution);
    }
    choice->execution = trial.execution;
    choice->engine = engine;
    choice->workspace_bytes = trial.workspace_bytes;
    choice->best = i;
    choice->ms = ms;
    return DP_OK;
}

static int enough_of(const struct dp_cudnn_search *search)
{
    return search->clock == NULL                         ? 1
           : search->mode == DP_CUDNN_HEUR_MODE_FALLBACK ? MEASURED_LAST
                                                         : MEASURED;
}

/* The best of the proposals becomes the plan's. */
static dp_status choose(struct build *b, void *made_graph, const struct dp_cudnn_search *search)
{
    struct choice choice = {.best = -1};
    struct dp_cudnn_plan *plan = b->plan;
    const int64_t count = propose(b, made_graph, search->mode, &choice);
    dp_status status = DP_OK;

    for (int i = 0; i < count && status == DP_OK && choice.tried < enough_of(search) &&
                    (!search->first || choice.best < 0);
         i++) {
        status = consider(b, i, search, &choice);
    }
    for (int i = 0; i < PROPOSALS; i++) {
        if (choice.configs[i] != NULL && i != choice.best) {
            (void)b->c->descriptor_destroy(choice.configs[i]);
        }
    }
    if (choice.best >= 0) {
        plan->kept[plan->kept_count++] = choice.configs[choice.best];
        plan->kept[plan->kept_count++] = plan->execution = choice.execution;
        plan->workspace_bytes = choice.workspace_bytes;
        plan->pick = (struct dp_cudnn_pick){search->mode, choice.best, choice.engine};
        plan->ms = choice.ms;
    }
    return status;
}

dp_status dp_cudnn_plan_create(const struct dp_cudnn *c, void *handle,
                               const struct dp_conv_case *conv, const struct dp_cudnn_wish *request,
                               const struct dp_cudnn_search *search, struct dp_cudnn_plan *plan)
{
    struct build b = {.c = c, .handle = handle, .request = request, .plan = plan};
    void *made_graph;

    memset(plan, 0, sizeof(*plan));
    made_graph = graph(&b, conv);
    if (b.result != 0) {
        DP_DEBUG("cuDNN takes no such graph: %s", c->error_text(b.result));
        return DP_OK;
    }
    return choose(&b, made_graph, search);
}

void dp_cudnn_plan_destroy(const struct dp_cudnn *c, struct dp_cudnn_plan *plan)
{
    while (plan->kept_count > 0) {
        (void)c->descriptor_destroy(plan->kept[--plan->kept_count]);
    }
    plan->execution = NULL;
}

/* ---- running ---- */

static int fill_pack(const struct dp_cudnn *c, void *pack, const struct dp_cudnn_plan *plan,
                     const struct dp_cudnn_arrays *arrays)
{
    static const int64_t uids[] = {X_UID, W_UID, Y_UID, BIAS_UID};
    void *pointers[] = {arrays->x, arrays->w, arrays->y, arrays->bias};
    const int64_t count = plan->has_bias ? 4 : 3;
    int result;

    result = c->set(pack, DP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, DP_CUDNN_TYPE_INT64, count, uids);
    if (result == 0) {
        result = c->set(pack, DP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, DP_CUDNN_TYPE_VOID_PTR,
                        count, pointers);
    }
    if (result == 0) {
        result = c->set(pack, DP_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, DP_CUDNN_TYPE_VOID_PTR, 1,
                        &arrays->workspace);
    }
    return result != 0 ? result : c->finalize(pack);
}

/* A pack cannot be changed once it is finalized, so each run has its own. */
int dp_cudnn_plan_try(const struct dp_cudnn *c, void *handle, const struct dp_cudnn_plan *plan,
                      const struct dp_cudnn_arrays *arrays)
{
    void *pack = NULL;
    int result = c->descriptor_create(DP_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    if (result != 0) {
        return result;
    }
    result = fill_pack(c, pack, plan, arrays);
    if (result == 0) {
        result = c->execute(handle, plan->execution, pack);
    }
    (void)c->descriptor_destroy(pack);
    return result;
}
