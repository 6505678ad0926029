#include "runtime/trainer/state/host_state.h"

/* One array of the state, on the device and on the host. */
struct copied {
    void *there, *here;
    size_t bytes;
};

enum { ARRAYS = 6 };

static void list_arrays(const struct dp_host_state *h, struct copied arrays[ARRAYS])
{
    const struct dp_flat *there = h->there, *here = &h->flat;

    arrays[0] =
        (struct copied){there->weights, here->weights, there->trained * dp_type_bytes(there->type)};
    arrays[1] = (struct copied){there->running, here->running, h->statistics * sizeof(float)};
    arrays[4] = (struct copied){there->master, here->master,
                                there->type == DP_TYPE_F32 ? 0 : there->owned * sizeof(float)};
    arrays[5] = (struct copied){there->average, here->average,
                                there->average == NULL ? 0 : there->trained * sizeof(float)};
    for (int i = 0; i < 2; i++) {
        arrays[2 + i] = (struct copied){there->slots[i], here->slots[i],
                                        there->slots[i] == NULL ? 0 : there->owned * sizeof(float)};
    }
}

static dp_status host_state_allocate(struct dp_host_state *h)
{
    const struct dp_device *device = h->stream->device;
    const size_t weights = h->there->trained * dp_type_bytes(h->there->type);
    const size_t owned = h->there->owned * sizeof(float);

    h->flat.weights = device->alloc_host(DP_MEM_WEIGHTS, weights);
    h->flat.running = device->alloc_host(DP_MEM_WEIGHTS, h->statistics * sizeof(float));
    h->flat.master =
        h->there->type == DP_TYPE_F32 ? h->flat.weights : device->alloc_host(DP_MEM_WEIGHTS, owned);
    if (h->flat.weights == NULL || h->flat.running == NULL || h->flat.master == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB of the host, too", weights >> 20);
    }
    for (int i = 0; i < 2 && h->there->slots[i] != NULL; i++) {
        h->flat.slots[i] = device->alloc_host(DP_MEM_OPTIMIZER, owned);
        if (h->flat.slots[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "optimizer state needs %zu MB of the host, too",
                           owned >> 20);
        }
    }
    if (h->there->average != NULL) {
        h->flat.average = device->alloc_host(DP_MEM_OPTIMIZER, h->there->trained * sizeof(float));
    }
    return h->there->average == NULL || h->flat.average != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "the average of the weights needs %zu MB of the host, too",
                         (h->there->trained * sizeof(float)) >> 20);
}

dp_status dp_host_state_create(const struct dp_flat *flat, size_t statistics,
                               struct dp_stream *stream, struct dp_host_state **out)
{
    struct dp_host_state *h = dp_zalloc(1, sizeof(*h));
    dp_status status;

    if (h == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "state for the host");
    }
    h->flat = *flat;
    h->there = flat;
    h->stream = stream;
    h->statistics = statistics;
    h->same = stream->device->host_memory;
    if (!h->same) {
        h->flat.weights = NULL;
        h->flat.average = NULL;
        h->flat.master = h->flat.running = h->flat.slots[0] = h->flat.slots[1] = NULL;
        status = host_state_allocate(h);
        if (status != DP_OK) {
            dp_host_state_destroy(h);
            return status;
        }
    }
    *out = h;
    return DP_OK;
}

void dp_host_state_destroy(struct dp_host_state *h)
{
    if (h == NULL) {
        return;
    }
    if (!h->same) {
        const struct dp_device *device = h->stream->device;
        device->release_host(h->flat.average);
        device->release_host(h->flat.slots[1]);
        device->release_host(h->flat.slots[0]);
        device->release_host(h->flat.type == DP_TYPE_F32 ? NULL : h->flat.master);
        device->release_host(h->flat.running);
        device->release_host(h->flat.weights);
    }
    dp_free(h);
}

dp_status dp_host_state_fetch(struct dp_host_state *h)
{
    const struct dp_device *device = h->stream->device;
    struct copied arrays[ARRAYS];

    list_arrays(h, arrays);
    for (int i = 0; !h->same && i < ARRAYS; i++) {
        DP_TRY(device->download(h->stream, arrays[i].here, arrays[i].there, arrays[i].bytes));
    }
    return device->synchronize(h->stream);
}

dp_status dp_host_state_put(struct dp_host_state *h)
{
    const struct dp_device *device = h->stream->device;
    struct copied arrays[ARRAYS];

    list_arrays(h, arrays);
    for (int i = 0; !h->same && i < ARRAYS; i++) {
        DP_TRY(device->upload(h->stream, arrays[i].there, arrays[i].here, arrays[i].bytes));
    }
    return device->synchronize(h->stream);
}

dp_status dp_host_state_fetch_weights(struct dp_host_state *h, struct dp_range range)
{
    const size_t width = dp_type_bytes(h->there->type);

    if (h->same) {
        return DP_OK;
    }
    return dp_device_read(h->stream, (char *)h->flat.weights + range.begin * width,
                          (const char *)h->there->weights + range.begin * width,
                          range.count * width);
}
