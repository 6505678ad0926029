#include "models/pass/pass_profile.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "models/pass/pass_own.h"

static const double settled = 0.7; /* of the pass before: one that is no faster than that */

/* ---- work ---- */

static size_t params_of(const struct dp_model *m, const struct dp_node *node)
{
    const struct dp_node *owner = &m->nodes[node->owner];
    size_t count = 0;

    for (int i = 0; i < owner->plan.param_count; i++) {
        count += owner->plan.params[i].count;
    }
    return count;
}

/* A layer whose weights are a matrix, or several. */
static bool is_product(const struct dp_node *node)
{
    return node->plan.param_count > 0 && node->plan.params[0].dims >= 2;
}

/* Bytes per row, and bytes whatever the rows. */
static void add_bytes(const struct dp_pass *p, const struct dp_node *node, size_t rows,
                      struct dp_layer_profile *layer)
{
    const struct dp_model *m = p->model;
    const size_t x = m->values[node->x].count, y = m->values[node->y].count;
    const size_t forward =
        node->plan.alias ? 0 : (x + (node->x2 >= 0 ? x : 0) + y) * (node->again ? 2 : 1);
    const size_t gradients = node->dy_slot < 0 || node->plan.passes_dy
                                 ? 0
                                 : y + (node->plan.skips_x ? 0 : x) +
                                       (node->plan.reads_y || node->mask_slot >= 0 ? y : 0) +
                                       (node->dx_slot >= 0 ? x : 0);
    const size_t params = node->plan.alias ? 0 : params_of(m, node);

    layer->bytes += (double)((forward + gradients) * rows * p->width);
    layer->bytes += (double)params * (double)(p->width * (1 + (size_t)(node->dx_slot >= 0)) +
                                              (node->dy_slot >= 0 ? sizeof(float) : 0));
}

static void describe(const struct dp_pass *p, size_t rows, struct dp_layer_profile *layers)
{
    const struct dp_model *m = p->model;

    for (int n = 0; n < m->node_count; n++) {
        const struct dp_node *node = &m->nodes[n];
        struct dp_layer_profile *layer = &layers[dp_pass_layer_of(m, &m->nodes[n])];
        add_bytes(p, node, rows, layer);
        if (dp_pass_layer_of(m, &m->nodes[n]) != n) {
            continue;
        }
        (void)snprintf(layer->name, sizeof(layer->name), "%s", node->path);
        (void)snprintf(layer->kind, sizeof(layer->kind), "%s", node->type->plugin.name);
        layer->flops = dp_node_flops(node) * (double)rows;
        layer->product = is_product(node);
        layer->cached = m->segments[node->segment].tiled &&
                        dp_segment_tile(&m->segments[node->segment], p->rows, p->tiles) < rows;
    }
    struct dp_layer_profile *loss = &layers[m->node_count];
    (void)snprintf(loss->name, sizeof(loss->name), "loss");
    (void)snprintf(loss->kind, sizeof(loss->kind), "loss");
    loss->bytes = (double)(2 * rows * m->classes * p->width);
}

/* ---- measuring ---- */

static dp_status time_pass(struct dp_pass *p, const struct dp_pass_call *call, uint64_t *ns)
{
    uint64_t begin_ns;

    memset(p->clock->ns, 0, sizeof(*p->clock->ns) * (size_t)dp_pass_profile_most(p->model));
    memset(p->clock->spared, 0, sizeof(*p->clock->spared) * (size_t)dp_pass_profile_most(p->model));
    begin_ns = dp_now_ns();
    DP_TRY(dp_pass_forward(p, call));
    DP_TRY(dp_pass_backward(p, call));
    *ns = dp_now_ns() - begin_ns;
    dp_trace_beat();
    return DP_OK;
}

static void keep_times(const struct dp_pass *p, struct dp_layer_profile *layers)
{
    for (int i = 0; i < dp_pass_profile_most(p->model); i++) {
        for (int d = 0; d < DP_DIRECTIONS; d++) {
            layers[i].seconds[d] = (double)p->clock->ns[i][d] / 1e9;
        }
        memcpy(layers[i].path, p->clock->paths[i], sizeof(layers[i].path));
    }
}

/* Those of the fastest pass: whatever else runs, or has taken memory away, makes passes slower.
 * While they still become much faster, as where memory comes back from a disk, there is another
 * one, whatever the time. */
static dp_status time_passes(struct dp_pass *p, const struct dp_pass_call *call,
                             const struct dp_pass_effort *effort, struct dp_layer_profile *layers,
                             uint64_t *fastest_ns)
{
    uint64_t last_ns, ns, spent_ns = 0;
    bool settles = true;

    DP_TRY(time_pass(p, call, &last_ns)); /* not counted: it warms up */
    *fastest_ns = UINT64_MAX;
    for (int i = 0; i < effort->passes && (settles || (double)spent_ns < 1e9 * effort->seconds);
         i++) {
        DP_TRY(time_pass(p, call, &ns));
        if (ns < *fastest_ns) {
            *fastest_ns = ns;
            keep_times(p, layers);
        }
        settles = (double)ns < settled * (double)last_ns;
        last_ns = ns;
        spent_ns += ns;
    }
    return DP_OK;
}

/* Calls a product on its first tile again and again; best[] gets the fastest call of each
 * direction. */
static dp_status time_product(struct dp_pass *p, const struct dp_pass_call *call, int node,
                              int repeats, uint64_t best[DP_DIRECTIONS])
{
    uint64_t *ns = p->clock->ns[dp_pass_layer_of(p->model, &p->model->nodes[node])];

    for (int i = 0; i < repeats; i++) {
        ns[DP_FORWARD] = ns[DP_BACKWARD] = 0;
        DP_TRY(dp_pass_run_alone(p, call, node));
        for (int d = 0; d < DP_DIRECTIONS; d++) {
            best[d] = i == 0 || ns[d] < best[d] ? ns[d] : best[d];
        }
    }
    return DP_OK;
}

static dp_status time_products(struct dp_pass *p, const struct dp_pass_call *call, int repeats,
                               struct dp_layer_profile *layers)
{
    for (int n = 0; n < p->model->node_count; n++) {
        struct dp_layer_profile *layer = &layers[dp_pass_layer_of(p->model, &p->model->nodes[n])];
        uint64_t best[DP_DIRECTIONS] = {0};
        if (is_product(&p->model->nodes[n])) {
            DP_TRY(time_product(p, call, n, repeats, best));
            layer->best_s = (double)(best[DP_FORWARD] + best[DP_BACKWARD]) / 1e9 *
                            (double)call->rows / (double)dp_pass_alone_rows(p, call->rows, n);
        }
    }
    return DP_OK;
}

/* As many repeats as fit into the time. */
static int repeats_of(const struct dp_pass_effort *effort, uint64_t pass_ns)
{
    const double fit = 1e9 * effort->seconds / (double)pass_ns;

    return effort->repeats == 0 || (double)pass_ns > 1e9 * effort->slow_s ? 0
           : fit < 1.0                                                    ? 1
           : fit < effort->repeats                                        ? (int)fit
                                                                          : effort->repeats;
}

/* What a layer did without for all rows: the clock has seen those of the first band. */
static double spared_by(const struct dp_pass *p, size_t rows, int layer)
{
    const struct dp_model *m = p->model;
    size_t bands;

    if (layer == m->node_count) {
        return p->clock->spared[layer];
    }
    bands = (size_t)dp_pass_bands(p, &m->segments[m->nodes[layer].segment], rows);
    return bands == 1 ? p->clock->spared[layer]
                      : p->clock->spared[layer] * (double)rows /
                            (double)dp_rows_part(rows, bands, 0).count;
}

static dp_status measure(struct dp_pass *p, const struct dp_pass_call *call,
                         const struct dp_pass_effort *effort, struct dp_layer_profile *layers)
{
    uint64_t fastest_ns;
    int repeats;

    DP_TRY(time_passes(p, call, effort, layers, &fastest_ns));
    for (int i = 0; i < dp_pass_profile_most(p->model); i++) { /* alike in each pass */
        layers[i].flops -= spared_by(p, call->rows, i);
    }
    repeats = call->rows > 0 ? repeats_of(effort, fastest_ns) : 0;
    DP_TRY(repeats > 0 ? time_products(p, call, repeats, layers) : DP_OK);
    return p->clock->failed;
}

/* With a clock for `most` layers. */
static dp_status profile(struct dp_pass *p, const struct dp_pass_call *call,
                         const struct dp_pass_effort *effort, struct dp_layer_profile *layers)
{
    const size_t most = (size_t)dp_pass_profile_most(p->model);
    struct dp_pass_clock clock = {.ns = dp_zalloc(most, sizeof(*clock.ns)),
                                  .spared = dp_zalloc(most, sizeof(*clock.spared)),
                                  .paths = dp_zalloc(most, sizeof(*clock.paths))};
    dp_status status = DP_OK;

    if (clock.ns == NULL || clock.spared == NULL || clock.paths == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "times of %zu layers", most);
    } else {
        p->clock = &clock;
        status = measure(p, call, effort, layers);
        p->clock = NULL;
    }
    dp_free(clock.paths);
    dp_free(clock.spared);
    dp_free(clock.ns);
    return status;
}

int dp_pass_profile_most(const struct dp_model *model)
{
    return model->node_count + 1;
}

dp_status dp_pass_profile(struct dp_pass *p, const struct dp_pass_call *call,
                          const struct dp_pass_effort *effort, struct dp_layer_profile *layers,
                          int *count)
{
    const int most = dp_pass_profile_most(p->model);

    memset(layers, 0, sizeof(*layers) * (size_t)most);
    describe(p, call->rows, layers);
    DP_TRY(profile(p, call, effort, layers));
    *count = 0;
    for (int i = 0; i < most; i++) {
        if (layers[i].bytes > 0.0) {
            layers[(*count)++] = layers[i];
        }
    }
    return DP_OK;
}
