#include "models/pass_own.h"

#include "base/mem.h"

static size_t bytes_of(const struct dp_pass *p, const struct dp_storage *storage, int n)
{
    return dp_storage_layout(storage, n, p->rows, p->tiles, NULL) * p->width;
}

/* Values, and gradients in memory that they share, each in an arena. */
static bool arenas_cut(struct dp_pass *p, size_t *begin)
{
    const struct dp_model *m = p->model;
    const struct dp_device *device = p->stream->device;

    p->values = device->alloc(DP_MEM_ACTIVATIONS, bytes_of(p, m->storage, m->storage_count));
    p->gradients = device->alloc(
        DP_MEM_ACTIVATIONS, p->training ? bytes_of(p, m->slot_memory, m->slot_memory_count) : 0);
    if (p->values == NULL || p->gradients == NULL) {
        return false;
    }
    (void)dp_storage_layout(m->storage, m->storage_count, p->rows, p->tiles, begin);
    for (int i = 0; i < m->storage_count; i++) {
        p->storage[i] = p->values + begin[i] * p->width;
    }
    (void)dp_storage_layout(m->slot_memory, m->slot_memory_count, p->rows, p->tiles, begin);
    for (int i = 0; i < m->slot_count; i++) {
        p->slots[i] = p->gradients + begin[m->slots[i].memory] * p->width;
    }
    return true;
}

/* Without tiles: both in one arena. */
static bool arena_cut(struct dp_pass *p)
{
    const struct dp_model *m = p->model;
    const struct dp_arena *arena = &m->arenas[dp_pass_use_of(p->stream->type, p->training)];
    const size_t row = p->rows * p->width;

    p->values = p->stream->device->alloc(DP_MEM_ACTIVATIONS, arena->size * row);
    for (int i = 0; p->values != NULL && i < m->storage_count; i++) {
        p->storage[i] = p->values + arena->begin[i] * row;
    }
    for (int i = 0; p->values != NULL && i < m->slot_count; i++) {
        p->slots[i] = p->values + arena->begin[m->storage_count + i] * row;
    }
    return p->values != NULL;
}

static bool activations_allocate(struct dp_pass *p)
{
    const size_t storages = (size_t)p->model->storage_count, slots = (size_t)p->model->slot_count;
    size_t *begin;
    bool done;

    p->storage = dp_zalloc(storages, sizeof(*p->storage));
    p->slots = dp_zalloc(slots, sizeof(*p->slots));
    if (p->storage == NULL || p->slots == NULL) {
        return false;
    }
    if (p->tiles.bytes == 0) {
        return arena_cut(p);
    }
    begin = dp_zalloc(storages + slots, sizeof(*begin));
    done = begin != NULL && arenas_cut(p, begin);
    dp_free(begin);
    return done;
}

/* Allocates memory for the host's bytes and labels, unless operations can read the host's. */
static bool input_allocate(struct dp_pass *p)
{
    const struct dp_device *device = p->stream->device;

    if (device->host_memory) {
        return true;
    }
    p->bytes = device->alloc(DP_MEM_ACTIVATIONS, p->rows * dp_model_sample_bytes(p->model));
    p->labels = device->alloc(DP_MEM_ACTIVATIONS,
                              p->rows * dp_model_train_words(p->model) * sizeof(*p->labels));
    return p->bytes != NULL && p->labels != NULL;
}

static dp_status pass_allocate(struct dp_pass *p)
{
    const struct dp_model *m = p->model;
    const struct dp_device *device = p->stream->device;
    const float one[1 + DP_EVALUATION_SUMS] = {1.0f};

    p->local = device->alloc(DP_MEM_ACTIVATIONS, m->local * sizeof(float));
    p->saved = device->alloc(DP_MEM_ACTIVATIONS, p->training ? m->saved_bytes * p->rows : 0);
    p->one = device->alloc(DP_MEM_ACTIVATIONS, sizeof(one));
    if (p->local == NULL || p->saved == NULL || p->one == NULL || !input_allocate(p) ||
        !activations_allocate(p)) {
        return DP_FAIL(
            DP_ERR_NOMEM,
            "activations of %zu rows need %zu MB; a smaller "
            "train.global_batch or train.micro_batch needs less",
            p->rows,
            dp_model_activation_bytes(m, p->stream->type, p->rows, p->tiles, p->training) >> 20);
    }
    return dp_device_write(p->stream, p->one, one, sizeof(one));
}

/* The elements of all arrays of one operation on a node: its input, its output, their gradients,
 * and its parameters. */
static size_t node_elements(const struct dp_model *m, const struct dp_node *node, size_t most,
                            struct dp_tiles tiles)
{
    const struct dp_node *owner = &m->nodes[node->owner];
    const size_t rows = dp_segment_tile(&m->segments[node->segment], most, tiles);
    size_t elements = 2 * (dp_round_up(rows * m->values[node->x].count, DP_BLOCK) +
                           dp_round_up(rows * m->values[node->y].count, DP_BLOCK));

    for (int i = 0; i < owner->plan.param_count; i++) {
        elements += dp_round_up(owner->plan.params[i].count, DP_BLOCK);
    }
    return elements;
}

size_t dp_pass_reserved(const struct dp_model *m, size_t rows, struct dp_tiles tiles)
{
    size_t most = 2 * dp_round_up(rows * m->classes, DP_BLOCK); /* the loss, the last node */

    for (int i = 0; i < m->node_count; i++) {
        const size_t elements = node_elements(m, &m->nodes[i], rows, tiles);
        most = elements > most ? elements : most;
    }
    return most;
}

/* Reserves memory for operations that compute narrow types in float32. */
static dp_status reserve(const struct dp_pass *p)
{
    return p->stream->type == DP_TYPE_F32 || p->stream->device->reserve == NULL
               ? DP_OK
               : p->stream->device->reserve(p->stream,
                                            dp_pass_reserved(p->model, p->rows, p->tiles));
}

dp_status dp_pass_create(const struct dp_model *model, struct dp_stream *stream, size_t rows,
                         bool training, struct dp_pass **out)
{
    struct dp_pass *p = dp_zalloc(1, sizeof(*p));
    dp_status status;

    if (p == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "pass");
    }
    p->model = model;
    p->stream = stream;
    p->width = dp_type_bytes(stream->type);
    p->rows = rows;
    p->training = training;
    p->tiles = dp_tiles_of(stream->device, stream->threads);
    status = pass_allocate(p);
    if (status == DP_OK) {
        status = reserve(p);
    }
    if (status != DP_OK) {
        dp_pass_destroy(p);
        return status;
    }
    *out = p;
    return DP_OK;
}

void dp_pass_destroy(struct dp_pass *p)
{
    const struct dp_device *device;

    if (p == NULL) {
        return;
    }
    device = p->stream->device;
    dp_pass_close_ahead(p);
    device->release(p->labels);
    device->release(p->bytes);
    device->release(p->one);
    device->release(p->saved);
    device->release(p->local);
    device->release(p->gradients);
    device->release(p->values);
    dp_free(p->slots);
    dp_free(p->storage);
    dp_free(p);
}
