#include "tests/support/models/small_model.h"

#include <stdio.h>
#include <string.h>

#include "runtime/config/config_load.h"
#include "tests/support/arrays.h"
#include "tests/support/models/layer_run.h"

struct dp_config *config_from(const char *text)
{
    static char *const no_environment[] = {NULL};
    struct dp_config *config = NULL;
    char *resolved = NULL;

    OK(dp_config_resolve_text(text, strlen(text), "model.cfg", no_environment, NULL, 0, &resolved));
    OK(dp_config_parse(resolved, "model.cfg", &config));
    dp_free(resolved);
    return config;
}

struct small_model small_model_create(const char *input, const char *layers)
{
    struct small_model small = {NULL, NULL, NULL};
    char text[4096];
    const int length =
        snprintf(text, sizeof(text), "model: {input: %s, layers: %s}\n", input, layers);

    assert_true(length > 0 && (size_t)length < sizeof(text));
    small.config = config_from(text);
    small.plain = config_from(text);
    OK(dp_model_create(small.config->model.layers, small.config->model.layer_count,
                       &small.config->model.input, &small.model));
    return small;
}

void small_model_destroy(struct small_model *small)
{
    dp_model_destroy(small->model);
    dp_config_destroy(small->plain);
    dp_config_destroy(small->config);
}

struct small_batch small_batch_create(const struct dp_model *model, size_t rows)
{
    struct small_batch b = {.model = model, .rows = rows};

    b.input = uniform(rows * model->values[0].count, 1, -1, 1);
    b.labels = dp_zalloc(rows, sizeof(*b.labels));
    b.weights = uniform(model->trained, 2, -1, 1);
    b.running = uniform(model->statistics, 3, 0.5f, 1.5f);
    assert_non_null(b.labels);
    for (size_t i = 0; i < rows; i++) {
        b.labels[i] = (int32_t)(i % model->classes);
    }
    b.step_params = (struct dp_step_params){.per_sample = 1.0f / (float)rows,
                                            .loss_factor = 1.0f / (float)rows,
                                            .step = 4,
                                            .factor = 1};
    return b;
}

void small_batch_destroy(struct small_batch *b)
{
    dp_free(b->input);
    dp_free(b->labels);
    dp_free(b->weights);
    dp_free(b->running);
}

size_t grad_count(const struct dp_model *model)
{
    return dp_model_loss_at(model) + 2;
}

struct dp_pass_call batch_call(const struct small_batch *b, size_t first, size_t rows, float *grad,
                               float keep)
{
    return (struct dp_pass_call){
        .rows = rows,
        .first_row = first,
        .batch_rows = b->rows,
        .labels = b->labels + first,
        .seed = 9,
        .weights = b->weights,
        .running = b->running,
        .grad = grad,
        .keep = keep,
        .step_params = &b->step_params,
    };
}

dp_status batch_step(const struct small_batch *b, struct dp_pass *pass,
                     const struct dp_pass_call *call)
{
    const size_t each = b->model->values[0].count;

    DP_TRY(dp_pass_prepare(pass, call->rows, true));
    memcpy(dp_pass_input(pass), b->input + call->first_row * each,
           call->rows * each * sizeof(float));
    DP_TRY(dp_pass_forward(pass, call));
    return dp_pass_backward(pass, call);
}

float *unknown(size_t count)
{
    return held(count, 0, 0);
}

void step_alone(const struct small_batch *batch, struct dp_stream *stream, size_t room,
                const struct dp_pass_call *call)
{
    struct dp_pass *pass = NULL;

    OK(dp_pass_create(batch->model, stream, room, true, &pass));
    OK(batch_step(batch, pass, call));
    dp_pass_destroy(pass);
}

void assert_gradients_near(const struct dp_model *m, const float *a, const float *b,
                           double tolerance)
{
    for (int i = 0; i < m->tensor_count; i++) {
        const size_t begin = m->tensors[i].begin;
        assert_near(a + begin, b + begin, m->tensors[i].count, tolerance, tolerance);
    }
    assert_near(a + m->trained, b + m->trained, m->statistics + 2, tolerance, tolerance);
}

/* ---- layer by layer ---- */

enum { PLAIN_MAX = 64 };

/* One layer of the configuration, computed in this order. */
struct plain_layer {
    const struct dp_layer_spec *spec;
    const struct dp_node *node; /* where the model put it; NULL: a relu that went into another */
    struct dp_layer_plan plan;
    int x, x2, y;
    void *saved;
    float *local;
};

struct plain {
    const struct dp_model *model;
    const struct dp_pass_call *call;
    struct dp_stream *stream;
    struct plain_layer layers[PLAIN_MAX];
    float *values[PLAIN_MAX], *gradients[PLAIN_MAX]; /* gradients: NULL until there is one */
    struct dp_shape shapes[PLAIN_MAX];
    size_t spatials[PLAIN_MAX];
    int layer_count, value_count;
    bool training;
};

static const struct dp_node *node_of(const struct dp_model *m, const struct dp_layer_spec *spec)
{
    for (int i = 0; i < m->node_count; i++) {
        const struct dp_node *node = &m->nodes[i];
        if (strcmp(node->type->plugin.name, spec->type->plugin.name) == 0 &&
            strcmp(node->where, spec->where) == 0) {
            return node;
        }
    }
    return NULL;
}

static int plain_value(struct plain *p, const struct dp_shape *shape, size_t spatial)
{
    assert_true(p->value_count < PLAIN_MAX);
    p->shapes[p->value_count] = *shape;
    p->spatials[p->value_count] = spatial;
    p->values[p->value_count] = held(p->call->rows * dp_shape_count(shape), 0, 0);
    return p->value_count++;
}

static struct dp_layer_call plain_call(const struct plain *p, const struct plain_layer *l)
{
    static const struct dp_model_hooks alone = {0};
    const struct dp_pass_call *call = p->call;
    struct dp_layer_call c = {
        .stream = p->stream,
        .rows = call->rows,
        .x = p->values[l->x],
        .x2 = l->x2 < 0 ? NULL : p->values[l->x2],
        .y = p->values[l->y],
        .saved = l->saved,
        .local = l->local,
        .keep = call->keep,
        .training = p->training,
        .pass_rows = call->rows,
        .first_row = call->first_row,
        .batch_rows = call->batch_rows,
        .seed = call->seed,
        .step_params = call->step_params,
        .hooks = &alone,
    };

    if (l->node != NULL) {
        c.index = (int)(l->node - p->model->nodes);
        c.running = call->running + l->node->statistics;
        c.statistics = call->grad + p->model->trained + l->node->statistics;
        for (int i = 0; i < l->plan.param_count; i++) {
            const size_t begin = p->model->tensors[l->node->first_param + i].begin;
            c.weights[i] = (const float *)call->weights + begin;
            c.grads[i] = call->grad + begin;
        }
    }
    return c;
}

/* Computes one layer forward, and remembers it for backward. Returns its output. */
static int plain_forward(struct plain *p, const struct dp_layer_spec *spec, int x, int x2)
{
    struct plain_layer *l = &p->layers[p->layer_count++];
    struct dp_layer_call call;
    char problem[256];

    assert_true(p->layer_count < PLAIN_MAX);
    *l = (struct plain_layer){.spec = spec, .node = node_of(p->model, spec), .x = x, .x2 = x2};
    l->plan.in = p->shapes[x];
    l->plan.spatial = p->spatials[x];
    OK(spec->type->plan(spec->options, &l->plan, problem, sizeof(problem)));
    l->y = plain_value(p, &l->plan.out, l->node == NULL ? 1 : l->node->plan.spatial);
    l->saved = dp_zalloc(p->call->rows + 1, l->plan.saved_bytes + 1);
    l->local = held(l->plan.local, 0, 0);
    assert_non_null(l->saved);
    call = plain_call(p, l);
    if (spec->type->prepare != NULL) {
        OK(spec->type->prepare(spec->options, p->stream, call.rows, true, false, DP_ACT_NONE));
    }
    if (l->plan.alias) {
        memcpy(call.y, call.x, call.rows * dp_shape_count(&l->plan.in) * sizeof(float));
    } else {
        OK(layer_forward(spec->type, spec->options, &call));
    }
    return l->y;
}

static int plain_list(struct plain *p, const struct dp_layer_spec *specs, int count, int x);

/* Each branch, then each output in its place, added to those before it. */
static int plain_concat(struct plain *p, const struct dp_layer_spec *spec, int x)
{
    int outs[DP_CONCAT_BRANCHES], all = -1;
    size_t width = 0, at = 0;

    for (int b = 0; b < spec->body_count; b++) {
        outs[b] = plain_list(p, spec->body[b].body, spec->body[b].body_count, x);
        width += p->shapes[outs[b]].dim[p->shapes[outs[b]].dims - 1];
    }
    for (int b = 0; b < spec->body_count; b++) {
        struct dp_concat_branch *branch = spec->body[b].options;
        const struct dp_shape *shape = &p->shapes[outs[b]];
        const size_t own = shape->dim[shape->dims - 1];
        int placed;
        branch->columns = (struct dp_columns){at, own, width};
        at += own;
        placed = plain_forward(p, &spec->body[b], outs[b], -1);
        all = b == 0 ? placed : plain_forward(p, spec, all, placed);
    }
    return all;
}

static int plain_list(struct plain *p, const struct dp_layer_spec *specs, int count, int x)
{
    for (int i = 0; i < count; i++) {
        const struct dp_layer_spec *spec = &specs[i];
        if (strcmp(spec->type->plugin.name, "concat") == 0) {
            x = plain_concat(p, spec, x);
        } else if (spec->body_count > 0) {
            const int body = plain_list(p, spec->body, spec->body_count, x);
            const int other = plain_list(p, spec->shortcut, spec->shortcut_count, x);
            x = plain_forward(p, spec, body, other);
        } else {
            x = plain_forward(p, spec, x, -1);
        }
    }
    return x;
}

/* Value v gets a gradient, on top of what it has. Takes the array over. */
static void plain_contribute(struct plain *p, int v, float *gradient)
{
    const size_t count = p->call->rows * dp_shape_count(&p->shapes[v]);

    if (p->gradients[v] == NULL) {
        p->gradients[v] = gradient;
        return;
    }
    OK(p->stream->ops->add(p->stream, p->gradients[v], gradient, count));
    dp_free(gradient);
}

static void plain_backward(struct plain *p, const struct plain_layer *l)
{
    const size_t count = p->call->rows * dp_shape_count(&l->plan.in);
    struct dp_layer_call call = plain_call(p, l);
    float *dx = held(count, 0, 0);

    call.dy = p->gradients[l->y];
    call.dx = dx;
    if (l->plan.passes_dy && l->spec->type->before == NULL) {
        memcpy(dx, call.dy, count * sizeof(float));
    } else {
        OK(layer_backward(l->spec->type, l->spec->options, &call));
    }
    if (l->x2 >= 0) {
        float *same = copy_of(dx, count);
        plain_contribute(p, l->x, dx);
        plain_contribute(p, l->x2, same);
    } else {
        plain_contribute(p, l->x, dx);
    }
}

void plain_step(const struct small_model *small, const struct small_batch *batch,
                struct dp_stream *stream, const struct dp_pass_call *call, float *result)
{
    const struct dp_model *m = small->model;
    const struct dp_model_config *config = &small->plain->model;
    const float one = 1.0f;
    struct plain p = {.model = m, .call = call, .stream = stream, .training = result == NULL};
    const size_t each = dp_shape_count(&config->input);
    float *loss = result != NULL ? result : call->grad + dp_model_loss_at(m);
    int last = plain_value(&p, &config->input, 1);

    memcpy(p.values[last], batch->input + call->first_row * each,
           call->rows * each * sizeof(float));
    last = plain_list(&p, config->layers, config->layer_count, last);
    p.gradients[last] = held(call->rows * m->classes, 0, 0);
    OK(stream->ops->softmax_loss(
        stream, p.gradients[last], loss, loss + 1, p.values[last], call->labels, call->rows,
        m->classes, result != NULL ? &one : &call->step_params->loss_factor, call->keep));
    for (int i = p.layer_count - 1; result == NULL && i >= 0; i--) {
        plain_backward(&p, &p.layers[i]);
    }
    for (int i = 0; i < p.layer_count; i++) {
        dp_free(p.layers[i].saved);
        dp_free(p.layers[i].local);
    }
    for (int i = 0; i < p.value_count; i++) {
        dp_free(p.values[i]);
        dp_free(p.gradients[i]);
    }
}
