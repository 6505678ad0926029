#include "runtime/trainer/host_state.h"

/* One array of the state, there and here. */
struct copied {
    void *there, *here;
    size_t bytes;
};

enum { ARRAYS = 5 };

static void list_arrays(const struct dp_host_state *m, struct copied arrays[ARRAYS])
{
    const struct dp_flat *there = m->there, *here = &m->flat;

    arrays[0] =
        (struct copied){there->weights, here->weights, there->trained * dp_type_bytes(there->type)};
    arrays[1] = (struct copied){there->running, here->running, m->statistics * sizeof(float)};
    arrays[4] = (struct copied){there->master, here->master,
                                there->type == DP_TYPE_F32 ? 0 : there->owned * sizeof(float)};
    for (int i = 0; i < 2; i++) {
        arrays[2 + i] = (struct copied){there->slots[i], here->slots[i],
                                        there->slots[i] == NULL ? 0 : there->owned * sizeof(float)};
    }
}

static dp_status host_state_allocate(struct dp_host_state *m)
{
    const struct dp_device *device = m->stream->device;
    const size_t weights = m->there->trained * dp_type_bytes(m->there->type);
    const size_t owned = m->there->owned * sizeof(float);

    m->flat.weights = device->alloc_host(DP_MEM_WEIGHTS, weights);
    m->flat.running = device->alloc_host(DP_MEM_WEIGHTS, m->statistics * sizeof(float));
    m->flat.master =
        m->there->type == DP_TYPE_F32 ? m->flat.weights : device->alloc_host(DP_MEM_WEIGHTS, owned);
    if (m->flat.weights == NULL || m->flat.running == NULL || m->flat.master == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB of the host, too", weights >> 20);
    }
    for (int i = 0; i < 2 && m->there->slots[i] != NULL; i++) {
        m->flat.slots[i] = device->alloc_host(DP_MEM_OPTIMIZER, owned);
        if (m->flat.slots[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "optimizer state needs %zu MB of the host, too",
                           owned >> 20);
        }
    }
    return DP_OK;
}

dp_status dp_host_state_create(const struct dp_flat *flat, size_t statistics,
                               struct dp_stream *stream, struct dp_host_state **out)
{
    struct dp_host_state *m = dp_zalloc(1, sizeof(*m));
    dp_status status;

    if (m == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "state for the host");
    }
    m->flat = *flat;
    m->there = flat;
    m->stream = stream;
    m->statistics = statistics;
    m->same = stream->device->host_memory;
    if (!m->same) {
        m->flat.weights = NULL;
        m->flat.master = m->flat.running = m->flat.slots[0] = m->flat.slots[1] = NULL;
        status = host_state_allocate(m);
        if (status != DP_OK) {
            dp_host_state_destroy(m);
            return status;
        }
    }
    *out = m;
    return DP_OK;
}

void dp_host_state_destroy(struct dp_host_state *m)
{
    if (m == NULL) {
        return;
    }
    if (!m->same) {
        const struct dp_device *device = m->stream->device;
        device->release_host(m->flat.slots[1]);
        device->release_host(m->flat.slots[0]);
        device->release_host(m->flat.type == DP_TYPE_F32 ? NULL : m->flat.master);
        device->release_host(m->flat.running);
        device->release_host(m->flat.weights);
    }
    dp_free(m);
}

dp_status dp_host_state_fetch(struct dp_host_state *m)
{
    const struct dp_device *device = m->stream->device;
    struct copied arrays[ARRAYS];

    list_arrays(m, arrays);
    for (int i = 0; !m->same && i < ARRAYS; i++) {
        DP_TRY(device->download(m->stream, arrays[i].here, arrays[i].there, arrays[i].bytes));
    }
    return device->synchronize(m->stream);
}

dp_status dp_host_state_put(struct dp_host_state *m)
{
    const struct dp_device *device = m->stream->device;
    struct copied arrays[ARRAYS];

    list_arrays(m, arrays);
    for (int i = 0; !m->same && i < ARRAYS; i++) {
        DP_TRY(device->upload(m->stream, arrays[i].there, arrays[i].here, arrays[i].bytes));
    }
    return device->synchronize(m->stream);
}

dp_status dp_host_state_fetch_weights(struct dp_host_state *m, struct dp_range range)
{
    const size_t width = dp_type_bytes(m->there->type);

    if (m->same) {
        return DP_OK;
    }
    return dp_device_read(m->stream, (char *)m->flat.weights + range.begin * width,
                          (const char *)m->there->weights + range.begin * width,
                          range.count * width);
}
