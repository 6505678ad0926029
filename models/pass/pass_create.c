#include "models/pass/pass_own.h"

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

/* Elements of one band's `local`, and of the gradients of all but the first. */
static size_t local_of(const struct dp_model *m)
{
    return dp_round_up(m->local, DP_BLOCK);
}

static size_t band_grads(const struct dp_model *m, struct dp_tiles tiles, bool training)
{
    return training ? (tiles.threads - 1) * dp_band_gradients(m) : 0;
}

size_t dp_pass_band_bytes(const struct dp_model *m, struct dp_tiles tiles, bool training)
{
    return (tiles.threads * local_of(m) + band_grads(m, tiles, training)) * sizeof(float);
}

static bool bands_allocate(struct dp_pass *p)
{
    const struct dp_model *m = p->model;
    const struct dp_device *device = p->stream->device;
    const size_t count = p->tiles.threads, grads = band_grads(m, p->tiles, p->training);

    p->bands = dp_zalloc(count, sizeof(*p->bands));
    p->local = device->alloc(DP_MEM_ACTIVATIONS, count * local_of(m) * sizeof(float));
    p->band_grads = device->alloc(DP_MEM_ACTIVATIONS, grads * sizeof(float));
    if (p->bands == NULL || p->local == NULL || p->band_grads == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        p->bands[i].stream = count > 1 ? p->stream->singles[i] : p->stream;
        p->bands[i].local = p->local + i * local_of(m);
        p->bands[i].grads = i > 0 ? p->band_grads + (i - 1) * dp_band_gradients(m) : NULL;
    }
    return true;
}

static dp_status pass_allocate(struct dp_pass *p)
{
    const struct dp_model *m = p->model;
    const struct dp_device *device = p->stream->device;
    const float one[1 + DP_EVALUATION_SUMS] = {1.0f};

    p->saved = device->alloc(DP_MEM_ACTIVATIONS, p->training ? m->saved_bytes * p->rows : 0);
    p->one = device->alloc(DP_MEM_ACTIVATIONS, sizeof(one));
    if (p->saved == NULL || p->one == NULL || !bands_allocate(p) || !input_allocate(p) ||
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

/* The elements of all arrays of one operation on so many rows of a node: its input, its output,
 * their gradients, and its parameters. */
static size_t node_elements(const struct dp_model *m, const struct dp_node *node, size_t rows)
{
    const struct dp_node *owner = &m->nodes[node->owner];
    size_t elements = 2 * (dp_round_up(rows * m->values[node->x].count, DP_BLOCK) +
                           dp_round_up(rows * m->values[node->y].count, DP_BLOCK));

    for (int i = 0; i < owner->plan.param_count; i++) {
        elements += dp_round_up(owner->plan.params[i].count, DP_BLOCK);
    }
    return elements;
}

/* The most that an operation of one band needs. */
static size_t reserved_alone(const struct dp_model *m, size_t rows, struct dp_tiles tiles)
{
    const size_t mine = (rows + tiles.threads - 1) / tiles.threads;
    size_t most = 0;

    for (int i = 0; i < m->node_count; i++) {
        const struct dp_segment *segment = &m->segments[m->nodes[i].segment];
        const size_t tile = dp_segment_tile(segment, mine, tiles);
        const size_t elements = segment->row_local ? node_elements(m, &m->nodes[i], tile) : 0;
        most = elements > most ? elements : most;
    }
    return most;
}

/* The same of all threads together. */
static size_t reserved_together(const struct dp_model *m, size_t rows, struct dp_tiles tiles)
{
    const size_t few = tiles.threads * DP_TILE_ROWS_MIN;
    size_t most = 2 * dp_round_up(rows * m->classes, DP_BLOCK); /* the loss, the last node */

    for (int i = 0; i < m->node_count; i++) {
        const struct dp_segment *segment = &m->segments[m->nodes[i].segment];
        const bool bands = tiles.threads > 1 && segment->row_local && tiles.bytes > 0;
        const size_t tile =
            bands ? (few < rows ? few : rows) : dp_segment_tile(segment, rows, tiles);
        const size_t elements = node_elements(m, &m->nodes[i], tile);
        most = elements > most ? elements : most;
    }
    return most;
}

size_t dp_pass_reserved(const struct dp_model *m, size_t rows, struct dp_tiles tiles)
{
    return reserved_together(m, rows, tiles) +
           (tiles.threads > 1 ? tiles.threads * reserved_alone(m, rows, tiles) : 0);
}

/* Reserves memory for operations that compute narrow types in float32. */
static dp_status reserve(const struct dp_pass *p)
{
    const struct dp_device *device = p->stream->device;

    if (p->stream->type == DP_TYPE_F32 || device->reserve == NULL) {
        return DP_OK;
    }
    for (size_t i = 0; p->tiles.threads > 1 && i < p->tiles.threads; i++) {
        DP_TRY(device->reserve(p->bands[i].stream, reserved_alone(p->model, p->rows, p->tiles)));
    }
    return device->reserve(p->stream, reserved_together(p->model, p->rows, p->tiles));
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
    device->release(p->band_grads);
    device->release(p->local);
    dp_free(p->bands);
    device->release(p->gradients);
    device->release(p->values);
    dp_free(p->slots);
    dp_free(p->storage);
    dp_free(p);
}
