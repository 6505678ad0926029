#include "models/pass_own.h"

#include "base/mem.h"

static size_t arena_bytes(const struct dp_pass *p, const struct dp_storage *storage, int n)
{
    return dp_storage_layout(storage, n, p->rows, p->tile_bytes, NULL) * p->width;
}

static bool arena_cut(const struct dp_pass *p, char **parts, char *arena,
                      const struct dp_storage *storage, int n)
{
    size_t *begin = dp_zalloc((size_t)n, sizeof(*begin));

    if (begin == NULL) {
        return false;
    }
    (void)dp_storage_layout(storage, n, p->rows, p->tile_bytes, begin);
    for (int i = 0; i < n; i++) {
        parts[i] = arena + begin[i] * p->width;
    }
    dp_free(begin);
    return true;
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
    const size_t values = arena_bytes(p, m->storage, m->storage_count);
    const size_t gradients = p->training ? arena_bytes(p, m->slots, m->slot_count) : 0;
    const float one[1 + DP_EVALUATION_SUMS] = {1.0f};

    p->storage = dp_zalloc((size_t)m->storage_count, sizeof(*p->storage));
    p->slots = dp_zalloc((size_t)m->slot_count, sizeof(*p->slots));
    p->values = device->alloc(DP_MEM_ACTIVATIONS, values);
    p->gradients = device->alloc(DP_MEM_ACTIVATIONS, gradients);
    p->local = device->alloc(DP_MEM_ACTIVATIONS, m->local * sizeof(float));
    p->saved = device->alloc(DP_MEM_ACTIVATIONS, p->training ? m->saved_bytes * p->rows : 0);
    p->one = device->alloc(DP_MEM_ACTIVATIONS, sizeof(one));
    if (p->storage == NULL || p->slots == NULL || p->values == NULL || p->gradients == NULL ||
        p->local == NULL || p->saved == NULL || p->one == NULL || !input_allocate(p) ||
        !arena_cut(p, p->storage, p->values, m->storage, m->storage_count) ||
        !arena_cut(p, p->slots, p->gradients, m->slots, p->training ? m->slot_count : 0)) {
        return DP_FAIL(
            DP_ERR_NOMEM,
            "activations of %zu rows need %zu MB; a smaller "
            "train.global_batch or train.micro_batch needs less",
            p->rows,
            dp_model_activation_bytes(m, p->stream->type, p->rows, p->tile_bytes, p->training) >>
                20);
    }
    return dp_device_write(p->stream, p->one, one, sizeof(one));
}

/* The elements of all arrays of one operation on a node: its input, its output, their gradients,
 * and its parameters. */
static size_t node_elements(const struct dp_model *m, const struct dp_node *node, size_t most,
                            size_t tile_bytes)
{
    const struct dp_node *owner = &m->nodes[node->owner];
    const size_t rows = dp_segment_tile(&m->segments[node->segment], most, tile_bytes);
    size_t elements = 2 * (dp_round_up(rows * m->values[node->x].count, DP_BLOCK) +
                           dp_round_up(rows * m->values[node->y].count, DP_BLOCK));

    for (int i = 0; i < owner->plan.param_count; i++) {
        elements += dp_round_up(owner->plan.params[i].count, DP_BLOCK);
    }
    return elements;
}

size_t dp_pass_reserved(const struct dp_model *m, size_t rows, size_t tile_bytes)
{
    size_t most = 2 * dp_round_up(rows * m->classes, DP_BLOCK); /* the loss, the last node */

    for (int i = 0; i < m->node_count; i++) {
        const size_t elements = node_elements(m, &m->nodes[i], rows, tile_bytes);
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
                                            dp_pass_reserved(p->model, p->rows, p->tile_bytes));
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
    p->tile_bytes = stream->device->tile_bytes * (size_t)stream->threads;
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
