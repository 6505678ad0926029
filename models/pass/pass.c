#include "models/pass/pass_own.h"

#include "base/trace.h"
#include "kernels/stream_trace.h"

/* What a thread does with a segment's tiles: those of its band, or all of them. */
struct work {
    dp_status (*run)(const struct work *work, int band);
    struct dp_pass *pass;
    const struct dp_pass_call *call;
    const struct dp_segment *segment;
    size_t deferred; /* forward: see forward_first() */
    bool again;      /* forward: as a part of backward */
    bool early;      /* backward: see announces_early() */
};

static void run_band(void *arg, int band, int bands)
{
    const struct work *w = arg;
    (void)bands;

    w->pass->bands[band].status = w->run(w, band);
}

/* In all bands side by side; the status of the first one that failed. */
static dp_status run_bands(struct work *w)
{
    const int bands = dp_pass_bands(w->pass, w->segment, w->call->rows);

    if (bands == 1) {
        return w->run(w, 0);
    }
    w->pass->stream->device->parallel(bands, run_band, w);
    for (int i = 0; i < bands; i++) {
        DP_TRY(w->pass->bands[i].status);
    }
    return DP_OK;
}

/* A function of a layer type. */
typedef dp_status layer_function(const void *state, const struct dp_layer_call *call);

/* Calls it, and times it where there is a clock, which is that of the first band. */
static dp_status call_layer(const struct dp_pass *p, const struct dp_node *node, int direction,
                            layer_function *function, const struct dp_layer_call *c)
{
    DP_STREAM_SPAN(c->stream, direction == DP_FORWARD ? DP_WORK_FORWARD : DP_WORK_BACKWARD,
                   dp_pass_layer_of(p->model, node));
    dp_status status;

    if (p->clock == NULL || !dp_pass_is_first(p, c->stream)) {
        return function(node->state, c);
    }
    const uint64_t begin_ns =
        dp_pass_clock_start(p->clock, c->stream, dp_pass_layer_of(p->model, node));
    status = function(node->state, c);
    dp_pass_clock_stop(p->clock, c->stream, dp_pass_layer_of(p->model, node), direction, begin_ns);
    return status;
}

static dp_status need_weights(const struct dp_pass *p, const struct dp_pass_call *call,
                              const struct dp_segment *segment)
{
    const struct dp_model_hooks *hooks = dp_pass_hooks(call);

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
    const struct dp_model_hooks *hooks = dp_pass_hooks(call);
    const struct dp_node *node = &p->model->nodes[segment->first];
    struct dp_layer_call c;

    *deferred = 0;
    if (hooks->needs == NULL || hooks->deferred == NULL || segment->first != segment->last ||
        node->type->forward_first == NULL || node->first_param == 0 ||
        !dp_pass_is_whole(p, segment, call->rows)) {
        return DP_OK;
    }
    *deferred = hooks->deferred(hooks->context, node->first_param);
    if (*deferred == 0) {
        return DP_OK;
    }
    DP_TRY(hooks->needs(hooks->context, node->first_param - 1));
    c = dp_pass_layer_call(p, call, node, dp_pass_whole(p, call->rows));
    c.deferred = *deferred;
    return call_layer(p, node, DP_FORWARD, node->type->forward_first, &c);
}

static dp_status forward_band(const struct work *w, int band)
{
    struct dp_pass *p = w->pass;
    const size_t tiles = dp_pass_tiles(p, w->segment, w->call->rows, band);

    for (size_t i = 0; i < tiles; i++) {
        const struct dp_pass_tile tile = dp_pass_tile(p, w->segment, w->call->rows, band, i);
        for (int n = w->segment->first; n <= w->segment->last; n++) {
            const struct dp_node *node = &p->model->nodes[n];
            struct dp_layer_call c;
            if (w->again && !node->again) {
                continue;
            }
            c = dp_pass_layer_call(p, w->call, node, tile);
            c.deferred = w->deferred;
            DP_TRY(
                call_layer(p, node, w->again ? DP_BACKWARD : DP_FORWARD, node->type->forward, &c));
        }
    }
    return DP_OK;
}

/* Forward of a segment's layers; again: of those that backward needs computed once more, as a part
 * of backward. deferred: see forward_first(). */
static dp_status forward_layers(struct dp_pass *p, const struct dp_pass_call *call,
                                const struct dp_segment *segment, size_t deferred, bool again)
{
    return run_bands(&(struct work){.run = forward_band,
                                    .pass = p,
                                    .call = call,
                                    .segment = segment,
                                    .deferred = deferred,
                                    .again = again});
}

/* One of a layer's functions for all rows, after all tiles. */
static dp_status end_layer(struct dp_pass *p, const struct dp_pass_call *call,
                           const struct dp_node *node, int direction)
{
    layer_function *end =
        direction == DP_FORWARD ? node->type->forward_end : node->type->backward_end;

    if (end == NULL) {
        return DP_OK;
    }
    const struct dp_layer_call c = dp_pass_end_call(p, call, node);
    DP_TRY(dp_pass_merge(p, call, node));
    DP_TRY(call_layer(p, node, direction, end, &c));
    return dp_pass_spread(p, call, node);
}

static dp_status forward_segment(struct dp_pass *p, const struct dp_pass_call *call,
                                 const struct dp_segment *segment)
{
    size_t deferred;

    DP_TRY(forward_first(p, call, segment, &deferred));
    DP_TRY(need_weights(p, call, segment));
    DP_TRY(forward_layers(p, call, segment, deferred, false));
    for (int n = segment->first; n <= segment->last; n++) {
        DP_TRY(end_layer(p, call, &p->model->nodes[n], DP_FORWARD));
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
    const void *outputs = dp_pass_value(p, m->nodes[m->node_count - 1].y, NULL);
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
    DP_TRY(compare(p, call, dp_pass_slot(p, last->dy_slot, last->y, NULL),
                   call->grad + dp_model_loss_at(m), &call->step_params->loss_factor, call->keep));
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

    return dp_pass_hooks(call)->early && segment->first == segment->last && node->dy_slot >= 0 &&
           node->type->backward_data != NULL && node->type->backward_end == NULL &&
           dp_pass_is_whole(p, segment, call->rows);
}

/* Adds up the gradient of a value that two layers read. */
static dp_status add_branches(const struct dp_pass *p, const struct dp_node *node,
                              const struct dp_pass_tile *tile)
{
    const int v = node->x2 >= 0 ? node->x2 : node->x;

    return tile->stream->ops->add_forward(
        tile->stream, dp_pass_slot(p, node->add_y, v, tile), dp_pass_slot(p, node->add_a, v, tile),
        dp_pass_slot(p, node->add_b, v, tile), tile->rows.count * p->model->values[v].count,
        DP_ACT_NONE);
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
                                const struct dp_pass_tile *tile, struct dp_layer_call *c)
{
    if (node->sum_after) {
        c->dy = dp_pass_slot(p, node[1].add_a, node->y, tile);
        c->dy2 = dp_pass_slot(p, node[1].add_b, node->y, tile);
    }
    return node->type->backward_whole(node->state, c);
}

/* Undoes a fused relu, and calls the layer. */
static dp_status backward_layer(const struct work *w, const struct dp_node *node,
                                const struct dp_pass_tile *tile, struct dp_layer_call *c)
{
    const struct dp_pass *p = w->pass;
    void *masked = dp_pass_slot(p, node->mask_slot, node->y, tile);

    if (masked != NULL && node->type->masks != NULL && node->type->masks(node->state, c)) {
        c->masked = masked;
    } else if (masked != NULL) {
        DP_TRY(c->stream->ops->relu_backward(c->stream, masked, c->dy, c->y,
                                             c->rows * p->model->values[node->y].count));
        c->dy = masked;
    }
    DP_TRY(node->type->backward(node->state, c));
    c->dy = masked != NULL ? masked : c->dy;
    DP_TRY(w->early ? announce(dp_pass_hooks(w->call), node) : DP_OK);
    return node->type->backward_data != NULL && c->dx != NULL
               ? node->type->backward_data(node->state, c)
               : DP_OK;
}

/* Calls the layer, and joins the branches of a residual. */
static dp_status run_backward(const struct work *w, const struct dp_node *node,
                              const struct dp_pass_tile *tile)
{
    const struct dp_pass *p = w->pass;
    struct dp_layer_call c = dp_pass_layer_call(p, w->call, node, *tile);

    if (node->dy_slot < 0) {
        return DP_OK;
    }
    c.dy = dp_pass_slot(p, node->dy_slot, node->y, tile);
    c.dx = dp_pass_slot(p, node->dx_slot, node->x, tile);
    DP_TRY(is_whole(node, &c) ? backward_whole(p, node, tile, &c)
                              : backward_layer(w, node, tile, &c));
    return node->add_y >= 0 && !leaves_sum(p, node, &c) ? add_branches(p, node, tile) : DP_OK;
}

static dp_status backward_node(const struct work *w, const struct dp_node *node,
                               const struct dp_pass_tile *tile)
{
    const struct dp_pass *p = w->pass;
    const int layer = dp_pass_layer_of(p->model, node);
    DP_STREAM_SPAN(tile->stream, DP_WORK_BACKWARD, layer);
    dp_status status;

    if (p->clock == NULL || !dp_pass_is_first(p, tile->stream)) {
        return run_backward(w, node, tile);
    }
    const uint64_t begin_ns = dp_pass_clock_start(p->clock, tile->stream, layer);
    status = run_backward(w, node, tile);
    dp_pass_clock_stop(p->clock, tile->stream, layer, DP_BACKWARD, begin_ns);
    return status;
}

static dp_status backward_band(const struct work *w, int band)
{
    const struct dp_pass *p = w->pass;
    const size_t tiles = dp_pass_tiles(p, w->segment, w->call->rows, band);

    for (size_t i = 0; i < tiles; i++) {
        const struct dp_pass_tile tile = dp_pass_tile(p, w->segment, w->call->rows, band, i);
        for (int n = w->segment->last; n >= w->segment->first; n--) {
            DP_TRY(backward_node(w, &p->model->nodes[n], &tile));
        }
    }
    return DP_OK;
}

static dp_status backward_segment(struct dp_pass *p, const struct dp_pass_call *call,
                                  const struct dp_segment *segment)
{
    return run_bands(&(struct work){.run = backward_band,
                                    .pass = p,
                                    .call = call,
                                    .segment = segment,
                                    .early = announces_early(p, call, segment)});
}

/* After all tiles: the gradients of the segment's tensors become final. */
static dp_status end_backward(struct dp_pass *p, const struct dp_pass_call *call,
                              const struct dp_segment *segment)
{
    if (announces_early(p, call, segment)) {
        return DP_OK;
    }
    DP_TRY(dp_pass_add_bands(p, call, segment));
    for (int n = segment->last; n >= segment->first; n--) {
        const struct dp_node *node = &p->model->nodes[n];
        DP_TRY(end_layer(p, call, node, DP_BACKWARD));
        DP_TRY(announce(dp_pass_hooks(call), node));
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
    size_t count = 0;

    for (int i = 0; i < dp_pass_bands(p, segment, rows); i++) {
        count += dp_pass_tile(p, segment, rows, i, 0).rows.count;
    }
    return count;
}

/* Of one node, which is the work's segment. */
static dp_status alone_band(const struct work *w, int band)
{
    const struct dp_pass *p = w->pass;
    const struct dp_node *node = &p->model->nodes[w->segment->first];
    const struct dp_segment *segment = &p->model->segments[node->segment];
    const struct dp_pass_tile tile = dp_pass_tile(p, segment, w->call->rows, band, 0);
    const struct dp_layer_call c = dp_pass_layer_call(p, w->call, node, tile);

    DP_TRY(call_layer(p, node, DP_FORWARD, node->type->forward, &c));
    return backward_node(w, node, &tile);
}

dp_status dp_pass_run_alone(struct dp_pass *p, const struct dp_pass_call *call, int n)
{
    struct dp_segment alone = p->model->segments[p->model->nodes[n].segment];

    alone.first = alone.last = n;
    return run_bands(&(struct work){.run = alone_band, .pass = p, .call = call, .segment = &alone});
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
        DP_TRY(p->stream->ops->count_top(p->stream, out + DP_SUM_TOP,
                                         dp_pass_value(p, last->y, NULL), dp_pass_labels(p, call),
                                         call->rows, m->classes, DP_TOP, 0.0f));
    }
    return dp_device_read(p->stream, result, out, DP_EVALUATION_SUMS * sizeof(*result));
}
