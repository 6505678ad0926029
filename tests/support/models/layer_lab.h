/*
 * layer_lab.h - for tests: one layer on arrays of its own, which hold seeded numbers.
 */
#ifndef DP_TESTS_SUPPORT_MODELS_LAYER_LAB_H
#define DP_TESTS_SUPPORT_MODELS_LAYER_LAB_H

#include "base/plugin.h"
#include "models/layers/layer.h"
#include "tests/support/arrays.h"
#include "tests/support/models/layer_run.h"

enum { ROWS = 4, HALF = 2, ARRAYS = 16 };

/* Finite differences jump where a relu or a maximum switches, so their inputs differ by at least
 * 1/8, and are at least 1/16 from zero. */
enum numbers { PLAIN, APART };

struct layer_case {
    const char *text; /* as --set would say it */
    struct dp_shape in;
    enum numbers numbers;
};

struct lab {
    const struct dp_layer_type *type;
    void *state;
    struct dp_layer_plan plan;
    bool passes_dy, dx_in_dy; /* of the layer with what goes before it */
    struct dp_stream *stream;
    struct dp_step_params step_params;
    struct dp_model_hooks hooks;
    size_t in, out;
    float *x, *x2, *y, *dy, *dx, *weights[DP_LAYER_PARAMS], *grads[DP_LAYER_PARAMS];
    float *local, *statistics, *running;
    uint8_t *saved;
    void *taken[ARRAYS]; /* all of them */
    int taken_count;
};

static inline void *lab_keep(struct lab *lab, void *array)
{
    assert_true(lab->taken_count < ARRAYS);
    lab->taken[lab->taken_count++] = array;
    return array;
}

/* Multiples of 1/1024, so that adding a step changes a number by just that step. */
static inline float *numbers(struct lab *lab, size_t count, uint32_t seed, enum numbers kind)
{
    float *array = lab_keep(lab, uniform(count, seed, -1, 1));

    for (size_t i = 0; i < count; i++) {
        array[i] = floorf(array[i] * 1024.0f) / 1024.0f;
    }
    for (size_t i = 0; kind == APART && i < count; i++) {
        array[i] = ((float)i - floorf((float)count * 0.5f)) * 0.125f + 0.0625f;
    }
    for (size_t i = count; kind == APART && i > 1; i--) {
        const size_t k = dp_random_u32(seed, DP_RANDOM_TEST, 1, i) % i;
        const float swapped = array[i - 1];
        array[i - 1] = array[k];
        array[k] = swapped;
    }
    return array;
}

static inline void lab_open(struct lab *lab, const struct layer_case *test,
                            struct dp_stream *stream)
{
    const struct dp_plugin *plugin = NULL;
    char problem[256] = "";

    memset(lab, 0, sizeof(*lab));
    assert_int_equal(
        dp_plugin_create(&dp_layers, test->text, &plugin, &lab->state, problem, sizeof(problem)),
        DP_OK);
    lab->type = (const struct dp_layer_type *)plugin;
    lab->stream = stream;
    lab->step_params = (struct dp_step_params){
        .per_sample = 1.0f / ROWS, .loss_factor = 1.0f / ROWS, .step = 7, .factor = 1};
    lab->plan.in = test->in;
    lab->plan.spatial = 1;
    OK(lab->type->plan(lab->state, &lab->plan, problem, sizeof(problem)));
    lab->passes_dy = lab->plan.passes_dy;
    lab->dx_in_dy = lab->plan.dx_in_dy;
    if (lab->type->before != NULL) {
        struct dp_layer_plan before = {.in = test->in, .spatial = 1};
        OK(lab->type->before->plan(lab->state, &before, problem, sizeof(problem)));
        lab->passes_dy = lab->passes_dy && before.passes_dy;
        lab->dx_in_dy = before.dx_in_dy;
    }
    lab->in = dp_shape_count(&lab->plan.in);
    lab->out = dp_shape_count(&lab->plan.out);
    lab->x = numbers(lab, ROWS * lab->in, 1, test->numbers);
    lab->x2 = numbers(lab, ROWS * lab->in, 2, PLAIN);
    lab->dy = numbers(lab, ROWS * lab->out, 3, PLAIN);
    lab->y = lab->plan.alias ? lab->x : lab_keep(lab, held(ROWS * lab->out, 4, 0));
    lab->dx = lab->passes_dy ? lab->dy : lab_keep(lab, held(ROWS * lab->in, 5, 0));
    for (int i = 0; i < lab->plan.param_count; i++) {
        lab->weights[i] = numbers(lab, lab->plan.params[i].count, 6 + (uint32_t)i, PLAIN);
        lab->grads[i] = lab_keep(lab, held(lab->plan.params[i].count, 8, 0));
    }
    lab->local = lab_keep(lab, held(lab->plan.local, 9, 0));
    lab->statistics = lab_keep(lab, held(lab->plan.statistics, 10, 0));
    lab->running = lab_keep(lab, uniform(lab->plan.statistics, 11, 0.5f, 1.5f));
    lab->saved = lab_keep(lab, dp_zalloc(ROWS + 1, lab->plan.saved_bytes + 1));
    for (size_t rows = 0; lab->type->prepare != NULL && rows <= ROWS; rows++) {
        OK(lab->type->prepare(lab->state, stream, rows, true, false, DP_ACT_NONE));
    }
}

static inline void lab_close(struct lab *lab)
{
    for (int i = 0; i < lab->taken_count; i++) {
        dp_free(lab->taken[i]);
    }
    dp_free(lab->state);
}

/* Rows [first, first + rows) of the lab's arrays. */
static inline struct dp_layer_call lab_call(struct lab *lab, size_t first, size_t rows, float keep)
{
    const char *name = lab->type->plugin.name;
    const bool joins = strcmp(name, "residual") == 0 || strcmp(name, "concat") == 0;

    return (struct dp_layer_call){
        .stream = lab->stream,
        .rows = rows,
        .x = lab->x + first * lab->in,
        .x2 = joins ? lab->x2 + first * lab->in : NULL,
        .y = lab->y + first * lab->out,
        .dy = lab->dy + first * lab->out,
        .dx = lab->dx + first * lab->in,
        .weights = {lab->weights[0], lab->weights[1]},
        .grads = {lab->grads[0], lab->grads[1]},
        .saved = lab->saved + first * lab->plan.saved_bytes,
        .local = lab->local,
        .keep = keep,
        .training = true,
        .pass_rows = rows,
        .first_row = first,
        .batch_rows = ROWS,
        .seed = 5,
        .index = 3,
        .step_params = &lab->step_params,
        .hooks = &lab->hooks,
        .running = lab->running,
        .statistics = lab->statistics,
    };
}

static inline void lab_run(struct lab *lab, const struct dp_layer_call *call)
{
    OK(layer_forward(lab->type, lab->state, call));
    OK(layer_backward(lab->type, lab->state, call));
}

static inline void lab_run_all(struct lab *lab)
{
    const struct dp_layer_call call = lab_call(lab, 0, ROWS, 0);

    lab_run(lab, &call);
}

/* What both labs computed, within rounding: sums of some dozen terms of size 1. */
static inline void assert_labs_near(const struct lab *a, const struct lab *b, double absolute)
{
    assert_near(a->y, b->y, ROWS * a->out, absolute, 1e-5);
    assert_near(a->dx, b->dx, ROWS * a->in, absolute, 1e-5);
    for (int i = 0; i < a->plan.param_count; i++) {
        assert_near(a->grads[i], b->grads[i], a->plan.params[i].count, absolute, 1e-5);
    }
    assert_near(a->statistics, b->statistics, a->plan.statistics, absolute, 1e-5);
}

#endif
