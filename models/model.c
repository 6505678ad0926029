#include "models/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"

/* State while the layers are read. */
struct builder {
    struct dp_model *model;
    int node_capacity, value_capacity;
};

static bool is_type(const struct dp_layer_spec *spec, const char *name)
{
    return strcmp(spec->type->plugin.name, name) == 0;
}

static void spec_count(const struct dp_layer_spec *specs, int count, int *total)
{
    for (int i = 0; i < count; i++) {
        *total += specs[i].type->before != NULL ? 2 : 1;
        /* A concat has joins, one less than branches, each of which is a node, too. */
        *total += is_type(&specs[i], "concat") && specs[i].type != &dp_layer_concat_branch
                      ? specs[i].body_count - 2
                      : 0;
        spec_count(specs[i].body, specs[i].body_count, total);
        spec_count(specs[i].shortcut, specs[i].shortcut_count, total);
    }
}

static int add_value(struct dp_model *m, const struct dp_shape *shape, size_t spatial, int writer)
{
    struct dp_value *value = &m->values[m->value_count];

    value->shape = *shape;
    value->count = dp_shape_count(shape);
    value->spatial = spatial;
    value->writer = writer;
    return m->value_count++;
}

/* Sets the names and flat offsets of a node's parameters. */
static void add_tensors(struct dp_model *m, struct dp_node *node)
{
    node->first_param = m->tensor_count;
    for (int i = 0; i < node->plan.param_count; i++) {
        struct dp_tensor *tensor = &m->tensors[m->tensor_count++];

        *tensor = node->plan.params[i];
        (void)snprintf(tensor->name, sizeof(tensor->name), "%s.%s", node->path,
                       node->plan.params[i].name);
        tensor->begin = m->trained;
        m->trained += dp_round_up(tensor->count, DP_BLOCK);
        m->parameters += tensor->count;
    }
}

static void add_buffers(struct dp_model *m, struct dp_node *node)
{
    static const char *const names[] = {"running_mean", "running_var"};
    const size_t each = node->plan.statistics / 2;

    node->statistics = m->statistics;
    if (node->plan.statistics == 0) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        struct dp_tensor *buffer = &m->buffers[m->buffer_count++];
        *buffer = node->plan.params[0];
        (void)snprintf(buffer->name, sizeof(buffer->name), "%s.%s", node->path, names[i]);
        buffer->begin = m->statistics + (size_t)i * each;
        buffer->initial = i == 0 ? 0.0f : 1.0f;
    }
    (void)snprintf(m->counters[m->counter_count++], DP_TENSOR_NAME, "%s.num_batches_tracked",
                   node->path);
    m->statistics += node->plan.statistics;
}

/* Appends a node of this type that reads value x; *y is its output. */
static dp_status add_typed(struct dp_model *m, const struct dp_layer_spec *spec,
                           const struct dp_layer_type *type, const char *path, int x, int x2,
                           int *y)
{
    struct dp_node *node = &m->nodes[m->node_count];
    char problem[256] = "";
    dp_status status;

    node->type = type;
    node->owner = m->node_count + (type != spec->type);
    node->state = spec->options;
    node->where = spec->where;
    (void)snprintf(node->path, sizeof(node->path), "%s", path);
    node->x = x;
    node->x2 = x2;
    node->plan.in = m->values[x].shape;
    node->plan.spatial = m->values[x].spatial;
    status = type->plan(spec->options, &node->plan, problem, sizeof(problem));
    if (status != DP_OK) {
        return DP_FAIL(status, "%s: %s", spec->where, problem);
    }
    if (!node->plan.keeps_order && node->plan.alias && node->plan.in.dims == 3) {
        node->plan.spatial = node->plan.in.dim[0] * node->plan.in.dim[1];
    } else if (!node->plan.keeps_order && !node->plan.alias) {
        node->plan.spatial = 1;
    }
    add_tensors(m, node);
    add_buffers(m, node);
    m->flops += node->plan.flops;
    m->synchronised = m->synchronised || node->plan.synchronised;
    m->values[x].readers++;
    if (x2 >= 0) {
        m->values[x2].readers++;
    }
    node->y = *y = add_value(m, &node->plan.out, node->plan.spatial, m->node_count);
    m->node_count++;
    return DP_OK;
}

/* Appends one layer that reads value x, with the node that it inserts before itself. */
static dp_status add_node(struct dp_model *m, const struct dp_layer_spec *spec, const char *path,
                          int x, int x2, int *y)
{
    if (spec->type->before != NULL) {
        DP_TRY(add_typed(m, spec, spec->type->before, path, x, x2, &x));
    }
    return add_typed(m, spec, spec->type, path, x, x2, y);
}

/* Fuses a relu into the node that wrote value x, if that node can and no other node reads x. */
static bool fuse_relu(struct dp_model *m, const struct dp_layer_spec *spec, int x)
{
    struct dp_node *writer;

    if (!is_type(spec, "relu") || m->values[x].writer < 0 || m->values[x].readers > 0) {
        return false;
    }
    writer = &m->nodes[m->values[x].writer];
    if (!writer->plan.fuses_relu || writer->act != DP_ACT_NONE) {
        return false;
    }
    writer->act = DP_ACT_RELU;
    return true;
}

static dp_status add_list(struct dp_model *m, const struct dp_layer_spec *specs, int count,
                          const char *prefix, int x, int *y);

/* Appends ".body." and the like; a model whose names overflow, nested too deeply, is refused. */
static dp_status path_join(const struct dp_layer_spec *spec, char *out, size_t size,
                           const char *path, const char *more)
{
    const int length = snprintf(out, size, "%s%s", path, more);

    if (length < 0 || (size_t)length >= size) {
        return DP_FAIL(DP_ERR_CONFIG, "%s: residuals are nested too deeply", spec->where);
    }
    return DP_OK;
}

/* Lets the join, the newest node, scale and shift for the layer that ends the body: one pass over
 * memory instead of two. The join must be the only reader of that layer's output. */
static void fuse_join(struct dp_model *m, int body)
{
    const int number = m->values[body].writer;
    struct dp_node *last = &m->nodes[number], *join = &m->nodes[m->node_count - 1];

    if (last->type->joined == NULL || last->act != DP_ACT_NONE) {
        return;
    }
    join->type = last->type->joined;
    join->state = last->state;
    join->owner = number;
    join->plan.saved_bytes = last->plan.join_saves;
    join->plan.y_in_x = false; /* x is now the layer's own input, which backward reads */
    last->type = last->type->deferred;
    last->plan.alias = true;
}

static dp_status add_residual(struct dp_model *m, const struct dp_layer_spec *spec,
                              const char *path, int x, int *y)
{
    char prefix[64], in[96], other[96];
    int body = x, shortcut = x;

    if (spec->body_count == 0) {
        return DP_FAIL(DP_ERR_CONFIG, "%s: the body is empty", spec->where);
    }
    /* The other branch, not built yet, also reads the value: nothing may fuse into it. */
    m->values[x].readers++;
    DP_TRY(path_join(spec, prefix, sizeof(prefix), path, ".body."));
    DP_TRY(add_list(m, spec->body, spec->body_count, prefix, x, &body));
    DP_TRY(path_join(spec, prefix, sizeof(prefix), path, ".shortcut."));
    DP_TRY(add_list(m, spec->shortcut, spec->shortcut_count, prefix, x, &shortcut));
    m->values[x].readers--;
    if (!dp_shape_equal(&m->values[body].shape, &m->values[shortcut].shape)) {
        return DP_FAIL(DP_ERR_CONFIG, "%s: the body gives %s, the shortcut %s", spec->where,
                       dp_shape_text(&m->values[body].shape, in, sizeof(in)),
                       dp_shape_text(&m->values[shortcut].shape, other, sizeof(other)));
    }
    if (m->values[body].spatial != m->values[shortcut].spatial) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: body and shortcut order the features of a flattened image differently; "
                       "put a dense layer after the flatten first",
                       spec->where);
    }
    DP_TRY(add_node(m, spec, path, body, shortcut, y));
    fuse_join(m, body);
    return DP_OK;
}

/* Whether outputs of two branches of a concat can be beside each other. */
static dp_status check_branch(const struct dp_model *m, const struct dp_layer_spec *spec, int first,
                              int value, int number)
{
    const struct dp_value *a = &m->values[first], *b = &m->values[value];
    struct dp_shape shape = b->shape;
    char text[96], other[96];

    shape.dim[shape.dims - 1] = a->shape.dim[a->shape.dims - 1];
    if (!dp_shape_equal(&a->shape, &shape)) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: branch 0 gives %s, branch %d %s: only their last numbers may differ",
                       spec->where, dp_shape_text(&a->shape, text, sizeof(text)), number,
                       dp_shape_text(&b->shape, other, sizeof(other)));
    }
    if (b->spatial != 1) {
        return DP_FAIL(
            DP_ERR_CONFIG,
            "%s: branch %d gives the features of a flattened image, which PyTorch has in "
            "another order; put the flatten after the concat",
            spec->where, number);
    }
    return DP_OK;
}

/* After the branches: each output in its place, and their sum. */
static dp_status add_joins(struct dp_model *m, const struct dp_layer_spec *spec, const char *path,
                           const int *outs, int *y)
{
    size_t width = 0, at = 0;
    char name[64];
    int placed;

    for (int b = 0; b < spec->body_count; b++) {
        const struct dp_shape *shape = &m->values[outs[b]].shape;
        DP_TRY(check_branch(m, spec, outs[0], outs[b], b));
        width += shape->dim[shape->dims - 1];
    }
    for (int b = 0; b < spec->body_count; b++) {
        const struct dp_shape *shape = &m->values[outs[b]].shape;
        const size_t count = shape->dim[shape->dims - 1];
        struct dp_concat_branch *branch = spec->body[b].options;
        char number[32];
        branch->columns = (struct dp_columns){at, count, width};
        at += count;
        (void)snprintf(number, sizeof(number), ".branches.%d", b);
        DP_TRY(path_join(spec, name, sizeof(name), path, number));
        DP_TRY(add_node(m, &spec->body[b], name, outs[b], -1, &placed));
        DP_TRY(b == 0 ? DP_OK : add_node(m, spec, path, *y, placed, &placed));
        *y = placed;
    }
    return DP_OK;
}

static dp_status add_concat(struct dp_model *m, const struct dp_layer_spec *spec, const char *path,
                            int x, int *y)
{
    int outs[DP_CONCAT_BRANCHES];
    char prefix[64], number[32];

    m->values[x].readers++; /* the branches that are not built yet: see add_residual() */
    for (int b = 0; b < spec->body_count; b++) {
        const struct dp_layer_spec *branch = &spec->body[b];
        (void)snprintf(number, sizeof(number), ".branches.%d.", b);
        DP_TRY(path_join(spec, prefix, sizeof(prefix), path, number));
        DP_TRY(add_list(m, branch->body, branch->body_count, prefix, x, &outs[b]));
    }
    m->values[x].readers--;
    return add_joins(m, spec, path, outs, y);
}

static dp_status add_list(struct dp_model *m, const struct dp_layer_spec *specs, int count,
                          const char *prefix, int x, int *y)
{
    char path[64], next[64], number[16];

    for (int i = 0; i < count; i++) {
        (void)snprintf(number, sizeof(number), "%d", i);
        DP_TRY(path_join(&specs[i], path, sizeof(path), prefix, number));
        if (is_type(&specs[i], "relu") && i + 1 < count && is_type(&specs[i + 1], "maxpool")) {
            (void)snprintf(number, sizeof(number), "%d", i + 1);
            DP_TRY(path_join(&specs[i + 1], next, sizeof(next), prefix, number));
            DP_TRY(add_node(m, &specs[i + 1], next, x, -1, &x));
            DP_TRY(add_node(m, &specs[i], path, x, -1, &x));
            i++;
        } else if (is_type(&specs[i], "residual")) {
            DP_TRY(add_residual(m, &specs[i], path, x, &x));
        } else if (is_type(&specs[i], "concat")) {
            DP_TRY(add_concat(m, &specs[i], path, x, &x));
        } else if (!fuse_relu(m, &specs[i], x)) {
            DP_TRY(add_node(m, &specs[i], path, x, -1, &x));
        }
    }
    *y = x;
    return DP_OK;
}

static dp_status model_allocate(struct dp_model *m, int layers)
{
    const size_t n = (size_t)layers;

    m->nodes = dp_zalloc(n, sizeof(*m->nodes));
    m->values = dp_zalloc(n + 1, sizeof(*m->values));
    m->storage = dp_zalloc(n + 1, sizeof(*m->storage));
    m->slots = dp_zalloc(DP_SLOTS_MOST(n), sizeof(*m->slots));
    m->slot_memory = dp_zalloc(DP_SLOTS_MOST(n), sizeof(*m->slot_memory));
    m->segments = dp_zalloc(n, sizeof(*m->segments));
    m->tensors = dp_zalloc(DP_LAYER_PARAMS * n, sizeof(*m->tensors));
    m->buffers = dp_zalloc(2 * n, sizeof(*m->buffers));
    m->counters = dp_zalloc(n, sizeof(*m->counters));
    for (int i = 0; i < DP_PASS_USES; i++) {
        m->arenas[i].begin = dp_zalloc(n + 1 + DP_SLOTS_MOST(n), sizeof(*m->arenas[i].begin));
        if (m->arenas[i].begin == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "memory of %d layers", layers);
        }
    }
    if (m->nodes == NULL || m->values == NULL || m->storage == NULL || m->slots == NULL ||
        m->slot_memory == NULL || m->segments == NULL || m->tensors == NULL || m->buffers == NULL ||
        m->counters == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a model of %d layers", layers);
    }
    return DP_OK;
}

static dp_status model_build(struct dp_model *m, const struct dp_layer_spec *specs, int count,
                             const struct dp_shape *input)
{
    const struct dp_value *last;
    char text[96];
    int layers = 0, y;

    spec_count(specs, count, &layers);
    DP_TRY(model_allocate(m, layers));
    (void)add_value(m, input, 1, -1);
    DP_TRY(add_list(m, specs, count, "", 0, &y));
    last = &m->values[y];
    if (m->node_count == 0 || last->shape.dims != 1 || m->tensor_count == 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: the last layer gives %s; a model must end with [classes], and have "
                       "weights",
                       m->node_count == 0 ? "model.layers" : m->nodes[m->node_count - 1].where,
                       dp_shape_text(&last->shape, text, sizeof(text)));
    }
    m->classes = last->count;
    DP_TRY(dp_model_place(m));
    return dp_model_lay_out(m);
}

dp_status dp_model_create(const struct dp_layer_spec *specs, int count,
                          const struct dp_shape *input, struct dp_model **out)
{
    struct dp_model *m = dp_zalloc(1, sizeof(*m));
    dp_status status;

    if (m == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "model");
    }
    status = model_build(m, specs, count, input);
    if (status != DP_OK) {
        dp_model_destroy(m);
        return status;
    }
    *out = m;
    return DP_OK;
}

dp_status dp_model_set_loss(struct dp_model *m, enum dp_loss_kind loss, double smoothing)
{
    if (loss == DP_LOSS_SOFTMAX && m->classes < 2) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: the last layer gives [1]; train.loss softmax_cross_entropy needs "
                       "[classes], 2 or more: give it more units, or set train.loss to "
                       "binary_cross_entropy or mse",
                       m->nodes[m->node_count - 1].where);
    }
    m->loss = loss;
    m->smoothing = loss == DP_LOSS_SOFTMAX ? (float)smoothing : 0.0f;
    return DP_OK;
}

void dp_model_destroy(struct dp_model *m)
{
    if (m == NULL) {
        return;
    }
    dp_free(m->counters);
    dp_free(m->buffers);
    dp_free(m->tensors);
    dp_free(m->segments);
    for (int i = 0; i < DP_PASS_USES; i++) {
        dp_free(m->arenas[i].begin);
    }
    dp_free(m->slot_memory);
    dp_free(m->slots);
    dp_free(m->storage);
    dp_free(m->values);
    dp_free(m->nodes);
    dp_free(m);
}

/* Uniform in +-1/sqrt(fan_in), as PyTorch's Linear and Conv2d; element i of PyTorch's layout gets
 * number i of the random sequence. */
static void init_tensor(const struct dp_tensor *tensor, int number, uint64_t seed, float *values)
{
    const uint32_t what = DP_RANDOM_WEIGHTS + (uint32_t)number;
    const float bound = tensor->fan_in == 0 ? 0.0f : (float)(1.0 / sqrt((double)tensor->fan_in));
    uint32_t words[4] = {0};

    for (size_t i = 0; i < tensor->count; i++) {
        if (bound != 0.0f && (i & 3) == 0) {
            dp_random_block(seed, what, 0, i >> 2, words);
        }
        values[dp_tensor_index(tensor, i)] =
            bound == 0.0f ? tensor->initial : (2.0f * dp_random_unit(words[i & 3]) - 1.0f) * bound;
    }
}

void dp_model_init(const struct dp_model *m, uint64_t seed, float *weights, float *running)
{
    for (int i = 0; weights != NULL && i < m->tensor_count; i++) {
        init_tensor(&m->tensors[i], i, seed, weights + m->tensors[i].begin);
    }
    for (int i = 0; i < m->buffer_count; i++) {
        const struct dp_tensor *buffer = &m->buffers[i];
        for (size_t k = 0; k < buffer->count; k++) {
            running[buffer->begin + k] = buffer->initial;
        }
    }
}

static dp_status blend_range(struct dp_stream *stream, float *running, const float *statistics,
                             float momentum, struct dp_range range)
{
    return range.count == 0 ? DP_OK
                            : stream->ops->blend(stream, running + range.begin,
                                                 statistics + range.begin, momentum, range.count);
}

/* Statistics that lie one after the other and have one momentum are one array. */
dp_status dp_model_absorb(const struct dp_model *m, struct dp_stream *stream, float *running,
                          const float *statistics)
{
    struct dp_range run = {0, 0};
    float momentum = 0.0f;

    for (int i = 0; i < m->node_count; i++) {
        const struct dp_layer_plan *plan = &m->nodes[i].plan;
        if (plan->statistics > 0 && plan->momentum != momentum) {
            DP_TRY(blend_range(stream, running, statistics, momentum, run));
            run = (struct dp_range){m->nodes[i].statistics, 0};
            momentum = plan->momentum;
        }
        run.count += plan->statistics;
    }
    return blend_range(stream, running, statistics, momentum, run);
}
