/*
 * pass_call.c - the bands and tiles of a pass, and what a layer is called with for one of them.
 */
#include "models/pass/pass_own.h"

static const struct dp_model_hooks no_hooks = {0};

const struct dp_model_hooks *dp_pass_hooks(const struct dp_pass_call *call)
{
    return call->hooks != NULL ? call->hooks : &no_hooks;
}

size_t dp_pass_rows(const struct dp_pass *p)
{
    return p->rows;
}

/* ---- bands and tiles ---- */

int dp_pass_bands(const struct dp_pass *p, const struct dp_segment *segment, size_t rows)
{
    return (int)dp_segment_bands(segment, p->tiles, rows);
}

static struct dp_range band_rows(const struct dp_pass *p, const struct dp_segment *segment,
                                 size_t rows, int band)
{
    return dp_rows_part(rows, (size_t)dp_pass_bands(p, segment, rows), (size_t)band);
}

size_t dp_pass_tiles(const struct dp_pass *p, const struct dp_segment *segment, size_t rows,
                     int band)
{
    const bool together = p->tiles.threads > 1 && dp_pass_bands(p, segment, rows) == 1;

    return together ? 1
                    : dp_segment_tiles(segment, p->rows, p->tiles,
                                       band_rows(p, segment, rows, band).count);
}

struct dp_pass_tile dp_pass_tile(const struct dp_pass *p, const struct dp_segment *segment,
                                 size_t rows, int band, size_t i)
{
    const struct dp_range mine = band_rows(p, segment, rows, band);
    const struct dp_range tile = dp_rows_part(mine.count, dp_pass_tiles(p, segment, rows, band), i);
    const bool alone = dp_pass_bands(p, segment, rows) > 1;

    return (struct dp_pass_tile){.stream = alone ? p->bands[band].stream : p->stream,
                                 .band = band,
                                 .rows = {mine.begin + tile.begin, tile.count},
                                 .before = tile.begin};
}

struct dp_pass_tile dp_pass_whole(const struct dp_pass *p, size_t rows)
{
    return (struct dp_pass_tile){.stream = p->stream, .rows = {0, rows}};
}

bool dp_pass_is_whole(const struct dp_pass *p, const struct dp_segment *segment, size_t rows)
{
    return dp_pass_bands(p, segment, rows) == 1 && dp_pass_tiles(p, segment, rows, 0) == 1;
}

bool dp_pass_is_first(const struct dp_pass *p, const struct dp_stream *stream)
{
    return stream == p->stream || stream == p->bands[0].stream;
}

static dp_status prepare_band(struct dp_pass *p, const struct dp_node *node, size_t rows, int band,
                              bool training)
{
    const struct dp_segment *segment = &p->model->segments[node->segment];
    const size_t tiles = dp_pass_tiles(p, segment, rows, band);
    size_t before = (size_t)-1;

    for (size_t i = 0; i < tiles; i++) {
        const struct dp_pass_tile tile = dp_pass_tile(p, segment, rows, band, i);
        if (tile.rows.count != before) {
            tile.stream->algo_choices = p->stream->algo_choices;
            DP_TRY(node->type->prepare(node->state, tile.stream, tile.rows.count, training,
                                       node->dx_slot < 0, node->act));
        }
        before = tile.rows.count;
    }
    return DP_OK;
}

dp_status dp_pass_prepare(struct dp_pass *p, size_t rows, bool training)
{
    for (int n = 0; n < p->model->node_count; n++) {
        const struct dp_node *node = &p->model->nodes[n];
        const int bands = dp_pass_bands(p, &p->model->segments[node->segment], rows);
        for (int i = 0; node->type->prepare != NULL && i < bands; i++) {
            DP_TRY(prepare_band(p, node, rows, i, training));
        }
    }
    return DP_OK;
}

/* ---- addresses ---- */

/* Address of a tile's rows; memory of a tile's size is used from its band's start. tile NULL: of
 * all rows. */
static void *rows_in(const struct dp_pass *p, const struct dp_storage *storage, char *memory,
                     size_t count, const struct dp_pass_tile *tile)
{
    if (tile == NULL) {
        return memory;
    }
    return storage->tile ? memory + (size_t)tile->band *
                                        dp_storage_stride(storage, p->rows, p->tiles) * p->width
                         : memory + tile->rows.begin * count * p->width;
}

void *dp_pass_value(const struct dp_pass *p, int value, const struct dp_pass_tile *tile)
{
    const struct dp_value *v;

    if (value < 0) {
        return NULL;
    }
    v = &p->model->values[value];
    return rows_in(p, &p->model->storage[v->storage], p->storage[v->storage], v->count, tile);
}

const void *dp_pass_kept(const struct dp_pass *p, int value)
{
    const struct dp_value *v = &p->model->values[value];
    const bool until_next =
        p->tiles.bytes > 0 || dp_pass_use_of(p->stream->type, p->training) == DP_PASS_TRAINS_KEPT;
    const bool read = (v->kept && until_next) || v->last_reader < 0;

    return read && p->model->storage[v->storage].part == 0 ? dp_pass_value(p, value, NULL) : NULL;
}

void *dp_pass_slot(const struct dp_pass *p, int slot, int value, const struct dp_pass_tile *tile)
{
    const struct dp_model *m = p->model;

    return slot < 0 ? NULL
                    : rows_in(p, &m->slot_memory[m->slots[slot].memory], p->slots[slot],
                              m->values[value].count, tile);
}

/* ---- calls ---- */

/* Parameters and their gradients; those of a band but the first are its own. */
static void add_params(const struct dp_pass *p, const struct dp_pass_call *call,
                       const struct dp_node *node, int band, struct dp_layer_call *c)
{
    const struct dp_model *m = p->model;
    const struct dp_node *owner = &m->nodes[node->owner];
    const size_t first = dp_segment_gradients(m, &m->segments[node->segment]).begin;

    for (int i = 0; i < owner->plan.param_count; i++) {
        const struct dp_tensor *tensor = &m->tensors[owner->first_param + i];
        c->weights[i] = (const char *)call->weights + tensor->begin * p->width;
        if (call->grad != NULL && band == 0) {
            c->grads[i] = call->grad + tensor->begin;
        } else if (call->grad != NULL && owner == node && node->type->backward_end == NULL) {
            c->grads[i] = p->bands[band].grads + (tensor->begin - first);
        }
    }
}

/* `keep` depends on the tile: the first one of a band may replace values to which later ones
 * add. */
struct dp_layer_call dp_pass_layer_call(const struct dp_pass *p, const struct dp_pass_call *call,
                                        const struct dp_node *node, struct dp_pass_tile tile)
{
    const struct dp_model *m = p->model;
    const struct dp_node *owner = &m->nodes[node->owner];
    struct dp_layer_call c = {
        .stream = tile.stream,
        .rows = tile.rows.count,
        .x = dp_pass_value(p, node->x, &tile),
        .x2 = dp_pass_value(p, node->x2, &tile),
        .y = dp_pass_value(p, node->y, &tile),
        .saved = p->saved + node->saved_at * p->rows + tile.rows.begin * node->plan.saved_bytes,
        .local = p->bands[tile.band].local + owner->local_at,
        .keep = tile.before > 0 ? 1.0f
                : tile.band > 0 ? 0.0f
                                : call->keep,
        .rows_before = tile.before,
        .pass_rows = call->rows,
        .training = p->training && call->grad != NULL,
        .act = node->act != DP_ACT_NONE ? node->act : owner->act,
        .first_row = call->first_row + tile.rows.begin,
        .batch_rows = call->batch_rows,
        .seed = call->seed,
        .index = (int)(node - m->nodes),
        .step_params = call->step_params,
        .hooks = dp_pass_hooks(call),
        .running = call->running == NULL ? NULL : call->running + owner->statistics,
    };

    add_params(p, call, node, tile.band, &c);
    if (call->grad != NULL) {
        c.statistics = call->grad + m->trained + owner->statistics;
    }
    return c;
}

struct dp_layer_call dp_pass_end_call(const struct dp_pass *p, const struct dp_pass_call *call,
                                      const struct dp_node *node)
{
    struct dp_layer_call c = dp_pass_layer_call(p, call, node, dp_pass_whole(p, call->rows));

    c.x = c.x2 = NULL;
    c.y = NULL;
    return c;
}

/* ---- from bands to the whole ---- */

dp_status dp_pass_merge(const struct dp_pass *p, const struct dp_pass_call *call,
                        const struct dp_node *node)
{
    const struct dp_segment *segment = &p->model->segments[node->segment];
    const size_t local_at = p->model->nodes[node->owner].local_at;
    struct dp_layer_call c = dp_pass_end_call(p, call, node);

    for (int i = 1; i < dp_pass_bands(p, segment, call->rows); i++) {
        const struct dp_range rows = band_rows(p, segment, call->rows, i);
        c.rows_before = rows.begin;
        c.rows = rows.count;
        DP_TRY(node->type->merge(node->state, &c, p->bands[i].local + local_at));
    }
    return DP_OK;
}

dp_status dp_pass_spread(const struct dp_pass *p, const struct dp_pass_call *call,
                         const struct dp_node *node)
{
    const struct dp_segment *segment = &p->model->segments[node->segment];
    const struct dp_node *owner = &p->model->nodes[node->owner];

    for (int i = 1; i < dp_pass_bands(p, segment, call->rows); i++) {
        DP_TRY(p->stream->ops->copy(p->stream, p->bands[i].local + owner->local_at,
                                    p->local + owner->local_at, owner->plan.local * sizeof(float)));
    }
    return DP_OK;
}

/* Of one tensor, which begins `at` elements after the segment's first one. */
static dp_status add_tensor(const struct dp_pass *p, const struct dp_pass_call *call, int bands,
                            const struct dp_tensor *tensor, size_t at)
{
    for (int i = 1; i < bands; i++) {
        DP_TRY(p->stream->ops->add(p->stream, call->grad + tensor->begin, p->bands[i].grads + at,
                                   tensor->count));
    }
    return DP_OK;
}

dp_status dp_pass_add_bands(const struct dp_pass *p, const struct dp_pass_call *call,
                            const struct dp_segment *segment)
{
    const struct dp_model *m = p->model;
    const size_t first = dp_segment_gradients(m, segment).begin;
    const int bands = dp_pass_bands(p, segment, call->rows);

    for (int n = segment->first; n <= segment->last; n++) {
        const struct dp_node *node = &m->nodes[n];
        const int count = node->type->backward_end == NULL ? node->plan.param_count : 0;
        for (int k = 0; k < count; k++) {
            const struct dp_tensor *tensor = &m->tensors[node->first_param + k];
            DP_TRY(add_tensor(p, call, bands, tensor, tensor->begin - first));
        }
    }
    return DP_OK;
}
