#include "models/pass_own.h"

#include "base/trace.h"
#include "kernels/stream_trace.h"

static const struct dp_model_hooks no_hooks = {0};

static const struct dp_model_hooks *hooks_of(const struct dp_pass_call *call)
{
    return call->hooks != NULL ? call->hooks : &no_hooks;
}

static size_t tile_count(const struct dp_pass *p, const struct dp_segment *segment, size_t rows)
{
    return dp_segment_tiles(segment, p->rows, p->tiles, rows);
}

static dp_status prepare_node(struct dp_pass *p, const struct dp_node *node, size_t rows,
                              bool training)
{
    const size_t tiles = tile_count(p, &p->model->segments[node->segment], rows);
    size_t before = (size_t)-1;

    for (size_t i = 0; i < tiles; i++) {
        const size_t count = dp_tile_rows(p->tiles, rows, tiles, i).count;
        if (count != before) {
            DP_TRY(node->type->prepare(node->state, p->stream, count, training, node->dx_slot < 0,
                                       node->act));
        }
        before = count;
    }
    return DP_OK;
}

dp_status dp_pass_prepare(struct dp_pass *p, size_t rows, bool training)
{
    for (int i = 0; i < p->model->node_count; i++) {
        if (p->model->nodes[i].type->prepare != NULL) {
            DP_TRY(prepare_node(p, &p->model->nodes[i], rows, training));
        }
    }
    return DP_OK;
}

size_t dp_pass_rows(const struct dp_pass *p)
{
    return p->rows;
}

/* Address of a tile's rows; memory of a tile's size is used from its start. */
static void *rows_in(const struct dp_pass *p, bool tile, char *memory, size_t count, size_t first)
{
    return tile ? memory : memory + first * count * p->width;
}

static void *value_at(const struct dp_pass *p, int value, size_t first)
{
    const struct dp_value *v;

    if (value < 0) {
        return NULL;
    }
    v = &p->model->values[value];
    return rows_in(p, p->model->storage[v->storage].tile, p->storage[v->storage], v->count, first);
}

const void *dp_pass_kept(const struct dp_pass *p, int value)
{
    const struct dp_value *v = &p->model->values[value];
    const bool until_next =
        p->tiles.bytes > 0 || dp_pass_use_of(p->stream->type, p->training) == DP_PASS_TRAINS_KEPT;
    const bool read = (v->kept && until_next) || v->last_reader < 0;

    return read && p->model->storage[v->storage].part == 0 ? value_at(p, value, 0) : NULL;
}

/* The gradient of `value`, which is in `slot`. */
static void *slot_at(const struct dp_pass *p, int slot, int value, size_t first)
{
    return slot < 0 ? NULL
                    : rows_in(p, p->model->slots[slot].tile, p->slots[slot],
                              p->model->values[value].count, first);
}

/* The arguments of a layer call that are the same in forward and backward. `keep` depends on the
 * tile: the first one of a pass may replace values to which later ones add. */
static struct dp_layer_call call_of(const struct dp_pass *p, const struct dp_pass_call *call,
                                    const struct dp_node *node, struct dp_range rows)
{
    const struct dp_model *m = p->model;
    const struct dp_node *owner = &m->nodes[node->owner];
    struct dp_layer_call c = {
        .stream = p->stream,
        .rows = rows.count,
        .x = value_at(p, node->x, rows.begin),
        .x2 = value_at(p, node->x2, rows.begin),
        .y = value_at(p, node->y, rows.begin),
        .saved = p->saved + node->saved_at * p->rows + rows.begin * node->plan.saved_bytes,
        .local = p->local + owner->local_at,
        .keep = rows.begin > 0 ? 1.0f : call->keep,
        .rows_before = rows.begin,
        .pass_rows = call->rows,
        .training = p->training && call->grad != NULL,
        .act = node->act != DP_ACT_NONE ? node->act : owner->act,
        .first_row = call->first_row + rows.begin,
        .batch_rows = call->batch_rows,
        .seed = call->seed,
        .index = (int)(node - m->nodes),
        .step_params = call->step_params,
        .hooks = hooks_of(call),
        .running = call->running == NULL ? NULL : call->running + owner->statistics,
    };

    for (int i = 0; i < owner->plan.param_count; i++) {
        const struct dp_tensor *tensor = &m->tensors[owner->first_param + i];
        c.weights[i] = (const char *)call->weights + tensor->begin * p->width;
        c.grads[i] = call->grad == NULL ? NULL : call->grad + tensor->begin;
    }
    if (call->grad != NULL) {
        c.statistics = call->grad + m->trained + owner->statistics;
    }
    return c;
}

/* The call after the last tile, for all rows of the pass. */
static struct dp_layer_call end_call(const struct dp_pass *p, const struct dp_pass_call *call,
                                     const struct dp_node *node)
{
    struct dp_layer_call c = call_of(p, call, node, (struct dp_range){0, call->rows});

    c.x = c.x2 = NULL;
    c.y = NULL;
    return c;
}

/* A function of a layer type. */
typedef dp_status layer_function(const void *state, const struct dp_layer_call *call);

/* Calls it, and times it where there is a clock. */
static dp_status call_layer(const struct dp_pass *p, const struct dp_node *node, int direction,
                            layer_function *function, const struct dp_layer_call *c)
{
    DP_STREAM_SPAN(p->stream, direction == DP_FORWARD ? DP_WORK_FORWARD : DP_WORK_BACKWARD,
                   dp_pass_layer_of(p->model, node));
    dp_status status;

    if (p->clock == NULL) {
        return function(node->state, c);
    }
    const uint64_t begin_ns =
        dp_pass_clock_start(p->clock, p->stream, dp_pass_layer_of(p->model, node));
    status = function(node->state, c);
    dp_pass_clock_stop(p->clock, p->stream, dp_pass_layer_of(p->model, node), direction, begin_ns);
    return status;
}

static dp_status need_weights(const struct dp_pass *p, const struct dp_pass_call *call,
                              const struct dp_segment *segment)
{
    const struct dp_model_hooks *hooks = hooks_of(call);

    for (int n = segment->first; hooks->needs != NULL && n <= segment->last; n++) {
        const struct dp_node *node = &p->model->nodes[n];
        const int count = node->plan.param_count;
        DP_TRY(count > 0 ? hooks->needs(hooks->context, node->first_param + count - 1) : DP_OK);
    }
    return DP_OK;
}

/* Computes the only node of a segment as far as is possible without its deferred weights;
 * *deferred: how many of them there are. */
static dp_status forward_first(struct dp_pass *p, const struct dp_pass_call *call,
                               const struct dp_segment *segment, size_t *deferred)
{
    const struct dp_model_hooks *hooks = hooks_of(call);
    const struct dp_node *node = &p->model->nodes[segment->first];
    struct dp_layer_call c;

    *deferred = 0;
    if (hooks->needs == NULL || hooks->deferred == NULL || segment->first != segment->last ||
        node->type->forward_first == NULL || node->first_param == 0 ||
        tile_count(p, segment, call->rows) != 1) {
        return DP_OK;
    }
    *deferred = hooks->deferred(hooks->context, node->first_param);
    if (*deferred == 0) {
        return DP_OK;
    }
    DP_TRY(hooks->needs(hooks->context, node->first_param - 1));
    c = call_of(p, call, node, (struct dp_range){0, call->rows});
    c.deferred = *deferred;
    return call_layer(p, node, DP_FORWARD, node->type->forward_first, &c);
}

/* Forward of a segment's layers; again: of those that backward needs computed once more, as a part
 * of backward. deferred: see forward_first(). */
static dp_status forward_layers(struct dp_pass *p, const struct dp_pass_call *call,
                                const struct dp_segment *segment, size_t deferred, bool again)
{
    const size_t tiles = tile_count(p, segment, call->rows);
    const int direction = again ? DP_BACKWARD : DP_FORWARD;

    for (size_t i = 0; i < tiles; i++) {
        const struct dp_range rows = dp_tile_rows(p->tiles, call->rows, tiles, i);
        for (int n = segment->first; n <= segment->last; n++) {
            const struct dp_node *node = &p->model->nodes[n];
            struct dp_layer_call c;
            if (again && !node->again) {
                continue;
            }
            c = call_of(p, call, node, rows);
            c.deferred = deferred;
            DP_TRY(call_layer(p, node, direction, node->type->forward, &c));
        }
    }
    return DP_OK;
}

static dp_status forward_segment(struct dp_pass *p, const struct dp_pass_call *call,
                                 const struct dp_segment *segment)
{
    size_t deferred;

    DP_TRY(forward_first(p, call, segment, &deferred));
    DP_TRY(need_weights(p, call, segment));
    DP_TRY(forward_layers(p, call, segment, deferred, false));
    for (int n = segment->first; n <= segment->last; n++) {
        const struct dp_node *node = &p->model->nodes[n];
        if (node->type->forward_end != NULL) {
            const struct dp_layer_call c = end_call(p, call, node);
            DP_TRY(call_layer(p, node, DP_FORWARD, node->type->forward_end, &c));
        }
    }
    return DP_OK;
}

static dp_status run_forward(struct dp_pass *p, const struct dp_pass_call *call)
{
    for (int i = 0; i < p->model->segment_count; i++) {
        DP_TRY(forward_segment(p, call, &p->model->segments[i]));
    }
    return DP_OK;
}

/* Compares the outputs with the labels; writes the gradient to dx unless that is NULL. */
static dp_status compare(const struct dp_pass *p, const struct dp_pass_call *call, void *dx,
                         float *loss, const float *scale, float keep)
{
    const struct dp_model *m = p->model;
    const void *outputs = value_at(p, m->nodes[m->node_count - 1].y, 0);
    const bool pairs = m->pairs && call->grad != NULL; /* the test set is not mixed or smoothed */
    const struct dp_output_loss how = {m->loss, call->rows, m->classes,
                                       m->targets > 0 ? DP_TARGET_NUMBERS
                                       : pairs        ? DP_TARGET_PAIRS
                                                      : DP_TARGET_CLASSES,
                                       call->grad != NULL ? m->smoothing : 0.0f};

    return m->loss == DP_LOSS_SOFTMAX && how.targets == DP_TARGET_CLASSES && how.smoothing == 0
               ? p->stream->ops->softmax_loss(p->stream, dx, loss, loss + 1, outputs,
                                              dp_pass_labels(p, call), call->rows, m->classes,
                                              scale, keep)
               : p->stream->ops->output_loss(p->stream, &how, dx, loss, loss + 1, outputs,
                                             dp_pass_labels(p, call), scale, keep);
}

dp_status dp_pass_forward(struct dp_pass *p, const struct dp_pass_call *call)
{
    DP_SPAN(DP_PHASE_FORWARD, (int64_t)call->first_row);
    const struct dp_model *m = p->model;
    const struct dp_node *last = &m->nodes[m->node_count - 1];
    uint64_t begin_ns = 0;

    DP_TRY(run_forward(p, call));
    if (p->clock != NULL) {
        begin_ns = dp_pass_clock_start(p->clock, p->stream, m->node_count);
    }
    DP_TRY(compare(p, call, slot_at(p, last->dy_slot, last->y, 0), call->grad + dp_model_loss_at(m),
                   &call->step_params->loss_factor, call->keep));
    if (p->clock != NULL) {
        dp_pass_clock_stop(p->clock, p->stream, m->node_count, DP_FORWARD, begin_ns);
    }
    return DP_OK;
}

static dp_status announce(const struct dp_model_hooks *hooks, const struct dp_node *node)
{
    for (int k = node->plan.param_count - 1; hooks->ready != NULL && k >= 0; k--) {
        DP_TRY(hooks->ready(hooks->context, node->first_param + k));
    }
    return DP_OK;
}

/* Whether `ready` is called for the only node of a segment before its dx is computed. */
static bool announces_early(const struct dp_pass *p, const struct dp_pass_call *call,
                            const struct dp_segment *segment)
{
    const struct dp_node *node = &p->model->nodes[segment->first];

    return hooks_of(call)->early && segment->first == segment->last && node->dy_slot >= 0 &&
           node->type->backward_data != NULL && node->type->backward_end == NULL &&
           tile_count(p, segment, call->rows) == 1;
}

/* Adds up the gradient of a value that two layers read. */
static dp_status add_branches(const struct dp_pass *p, const struct dp_node *node, size_t first,
                              size_t rows)
{
    const int v = node->x2 >= 0 ? node->x2 : node->x;

    return p->stream->ops->add_forward(
        p->stream, slot_at(p, node->add_y, v, first), slot_at(p, node->add_a, v, first),
        slot_at(p, node->add_b, v, first), rows * p->model->values[v].count, DP_ACT_NONE);
}

static bool is_whole(const struct dp_node *node, const struct dp_layer_call *c)
{
    return node->type->is_whole != NULL && node->type->is_whole(node->state, c);
}

/* Whether the node before adds up what this one would. */
static bool leaves_sum(const struct dp_pass *p, const struct dp_node *node,
                       const struct dp_layer_call *c)
{
    return node > p->model->nodes && node[-1].sum_after && is_whole(node - 1, c);
}

/* A join, and what comes before it in backward, in one pass over memory. */
static dp_status backward_whole(const struct dp_pass *p, const struct dp_node *node,
                                struct dp_layer_call *c)
{
    if (node->sum_after) {
        c->dy = slot_at(p, node[1].add_a, node->y, c->rows_before);
        c->dy2 = slot_at(p, node[1].add_b, node->y, c->rows_before);
    }
    return node->type->backward_whole(node->state, c);
}

/* Undoes a fused relu, and calls the layer. */
static dp_status backward_layer(const struct dp_pass *p, const struct dp_pass_call *call,
                                const struct dp_node *node, struct dp_layer_call *c, bool early)
{
    void *masked = slot_at(p, node->mask_slot, node->y, c->rows_before);

    if (masked != NULL && node->type->masks != NULL && node->type->masks(node->state, c)) {
        c->masked = masked;
    } else if (masked != NULL) {
        DP_TRY(p->stream->ops->relu_backward(p->stream, masked, c->dy, c->y,
                                             c->rows * p->model->values[node->y].count));
        c->dy = masked;
    }
    DP_TRY(node->type->backward(node->state, c));
    c->dy = masked != NULL ? masked : c->dy;
    DP_TRY(early ? announce(hooks_of(call), node) : DP_OK);
    return node->type->backward_data != NULL && c->dx != NULL
               ? node->type->backward_data(node->state, c)
               : DP_OK;
}

/* Calls the layer, and joins the branches of a residual. */
static dp_status run_backward(struct dp_pass *p, const struct dp_pass_call *call,
                              const struct dp_node *node, struct dp_range rows, bool early)
{
    struct dp_layer_call c = call_of(p, call, node, rows);

    if (node->dy_slot < 0) {
        return DP_OK;
    }
    c.dy = slot_at(p, node->dy_slot, node->y, rows.begin);
    c.dx = slot_at(p, node->dx_slot, node->x, rows.begin);
    DP_TRY(is_whole(node, &c) ? backward_whole(p, node, &c)
                              : backward_layer(p, call, node, &c, early));
    return node->add_y >= 0 && !leaves_sum(p, node, &c)
               ? add_branches(p, node, rows.begin, rows.count)
               : DP_OK;
}

static dp_status backward_node(struct dp_pass *p, const struct dp_pass_call *call,
                               const struct dp_node *node, struct dp_range rows, bool early)
{
    DP_STREAM_SPAN(p->stream, DP_WORK_BACKWARD, dp_pass_layer_of(p->model, node));
    dp_status status;

    if (p->clock == NULL) {
        return run_backward(p, call, node, rows, early);
    }
    const uint64_t begin_ns =
        dp_pass_clock_start(p->clock, p->stream, dp_pass_layer_of(p->model, node));
    status = run_backward(p, call, node, rows, early);
    dp_pass_clock_stop(p->clock, p->stream, dp_pass_layer_of(p->model, node), DP_BACKWARD,
                       begin_ns);
    return status;
}

static dp_status backward_segment(struct dp_pass *p, const struct dp_pass_call *call,
                                  const struct dp_segment *segment)
{
    const size_t tiles = tile_count(p, segment, call->rows);
    const bool early = announces_early(p, call, segment);

    for (size_t i = 0; i < tiles; i++) {
        const struct dp_range rows = dp_tile_rows(p->tiles, call->rows, tiles, i);
        for (int n = segment->last; n >= segment->first; n--) {
            DP_TRY(backward_node(p, call, &p->model->nodes[n], rows, early));
        }
    }
    return DP_OK;
}

/* After all tiles: the gradients of the segment's tensors become final. */
static dp_status end_backward(const struct dp_pass *p, const struct dp_pass_call *call,
                              const struct dp_segment *segment)
{
    if (announces_early(p, call, segment)) {
        return DP_OK;
    }
    for (int n = segment->last; n >= segment->first; n--) {
        const struct dp_node *node = &p->model->nodes[n];
        if (node->type->backward_end != NULL) {
            const struct dp_layer_call c = end_call(p, call, node);
            DP_TRY(call_layer(p, node, DP_BACKWARD, node->type->backward_end, &c));
        }
        DP_TRY(announce(hooks_of(call), node));
    }
    return DP_OK;
}

/* Before backward of a part other than the last one, whose activations are still there: computes
 * those of the part that ends with segment `last`. Its weights are those of forward: backward has
 * made none of their gradients yet, and layers find what is of all rows (`local`) as it was. */
static dp_status compute_again(struct dp_pass *p, const struct dp_pass_call *call, int last)
{
    const struct dp_segment *segments = p->model->segments;
    const int part = segments[last].part;

    if (last + 1 == p->model->segment_count || segments[last + 1].part == part) {
        return DP_OK;
    }
    for (int i = 0; i <= last; i++) {
        DP_TRY(segments[i].part == part ? forward_layers(p, call, &segments[i], 0, true) : DP_OK);
    }
    return DP_OK;
}

dp_status dp_pass_backward(struct dp_pass *p, const struct dp_pass_call *call)
{
    DP_SPAN(DP_PHASE_BACKWARD, (int64_t)call->first_row);

    for (int i = p->model->segment_count - 1; i >= 0; i--) {
        DP_TRY(compute_again(p, call, i));
        DP_TRY(backward_segment(p, call, &p->model->segments[i]));
        DP_TRY(end_backward(p, call, &p->model->segments[i]));
    }
    return DP_OK;
}

size_t dp_pass_alone_rows(const struct dp_pass *p, size_t rows, int node)
{
    const struct dp_segment *segment = &p->model->segments[p->model->nodes[node].segment];

    return dp_tile_rows(p->tiles, rows, tile_count(p, segment, rows), 0).count;
}

dp_status dp_pass_run_alone(struct dp_pass *p, const struct dp_pass_call *call, int n)
{
    const struct dp_range rows = {0, dp_pass_alone_rows(p, call->rows, n)};
    const struct dp_node *node = &p->model->nodes[n];
    const struct dp_layer_call c = call_of(p, call, node, rows);

    DP_TRY(call_layer(p, node, DP_FORWARD, node->type->forward, &c));
    return backward_node(p, call, node, rows, false);
}

dp_status dp_pass_evaluate(struct dp_pass *p, const struct dp_pass_call *call,
                           float result[DP_EVALUATION_SUMS])
{
    const struct dp_model *m = p->model;
    const struct dp_node *last = &m->nodes[m->node_count - 1];
    struct dp_pass_call forward = *call;
    float *out = p->one + 1;

    forward.grad = NULL;
    DP_TRY(run_forward(p, &forward));
    DP_TRY(compare(p, call, NULL, out, p->one, 0.0f));
    if (dp_model_counts_top(m)) {
        DP_TRY(p->stream->ops->count_top(p->stream, out + DP_SUM_TOP, value_at(p, last->y, 0),
                                         dp_pass_labels(p, call), call->rows, m->classes, DP_TOP,
                                         0.0f));
    }
    return dp_device_read(p->stream, result, out, DP_EVALUATION_SUMS * sizeof(*result));
}
