#include "collectives/compressors/bounce_buffer.h"

#include <string.h>

#include "collectives/core/backoff.h"

static const struct dp_device *device_of(const struct dp_comm *comm)
{
    return comm->codes->device;
}

void *dp_codes_alloc(const struct dp_comm *comm, size_t bytes)
{
    return device_of(comm)->alloc(DP_MEM_COMM, bytes);
}

void dp_codes_release(const struct dp_comm *comm, void *memory)
{
    device_of(comm)->release(memory);
}

static dp_status ferry_memory(struct dp_bounce_buffer *f, size_t bytes)
{
    const struct dp_device *device = device_of(f->comm);

    f->host = f->shared ? dp_group_memory(f->comm->group, DP_MEM_COMM, bytes)
                        : device->alloc_host(DP_MEM_COMM, bytes);
    if (f->host == NULL) {
        return DP_ERR_NOMEM;
    }
    f->there = f->host;
    if (device->host_memory) {
        return DP_OK;
    }
    if (f->shared) {
        device->pin(f->host, bytes);
    }
    f->there = device->alloc(DP_MEM_COMM, bytes);
    return f->there != NULL ? device->event_create(&f->sent) : DP_ERR_NOMEM;
}

dp_status dp_bounce_buffer_open(struct dp_bounce_buffer *f, struct dp_comm *comm, size_t bytes,
                                bool shared)
{
    dp_status status;

    *f = (struct dp_bounce_buffer){.comm = comm, .shared = shared};
    status = ferry_memory(f, bytes);
    if (status != DP_OK) {
        dp_bounce_buffer_close(f);
    }
    return status;
}

void dp_bounce_buffer_close(struct dp_bounce_buffer *f)
{
    const struct dp_device *device = f->comm == NULL ? NULL : device_of(f->comm);

    if (device == NULL) {
        return;
    }
    device->event_destroy(f->sent);
    if (f->there != f->host) {
        device->release(f->there);
    }
    if (f->shared) {
        if (!device->host_memory && f->host != NULL) {
            device->unpin(f->host);
        }
        dp_group_release(f->comm->group, f->host);
    } else {
        device->release_host(f->host);
    }
    *f = (struct dp_bounce_buffer){.comm = NULL};
}

dp_status dp_bounce_buffer_out(struct dp_bounce_buffer *f, size_t at, size_t bytes)
{
    return f->there == f->host
               ? DP_OK
               : device_of(f->comm)->download(f->comm->codes, f->host + at, f->there + at, bytes);
}

dp_status dp_bounce_buffer_in(struct dp_bounce_buffer *f, size_t at, size_t bytes)
{
    return f->there == f->host
               ? DP_OK
               : device_of(f->comm)->upload(f->comm->codes, f->there + at, f->host + at, bytes);
}

dp_status dp_bounce_buffer_wait(struct dp_bounce_buffer *f)
{
    const struct dp_device *device = device_of(f->comm);
    struct dp_backoff patience = {.cancel = f->comm->group->cancel,
                                  .spin_ns = f->comm->group->spin_ns};

    if (f->there == f->host) {
        return DP_OK;
    }
    DP_TRY(device->event_record(f->sent, f->comm->codes));
    for (bool done = false;;) {
        DP_TRY(device->event_query(f->sent, &done));
        if (done) {
            return DP_OK;
        }
        if (!dp_backoff_wait(&patience)) {
            return DP_ERR_CANCELLED;
        }
    }
}

dp_status dp_bounce_buffer_gather(struct dp_bounce_buffer *f, size_t at, size_t bytes, bool reaches,
                                  char *all)
{
    struct dp_group *group = f->comm->group;
    char *mine = f->host + at;

    if (!reaches) {
        return dp_group_allgather(group, mine, bytes, all);
    }
    DP_TRY(dp_comm_barrier(f->comm));
    for (int i = 0; i < group->size; i++) {
        memcpy(all + (size_t)i * bytes, i == group->rank ? mine : dp_group_peer(group, mine, i),
               bytes);
    }
    group->wire_bytes += (uint64_t)(group->size - 1) * bytes;
    return DP_OK;
}
