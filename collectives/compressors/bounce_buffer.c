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

static dp_status open_memory(struct dp_bounce_buffer *bounce, size_t bytes)
{
    const struct dp_device *device = device_of(bounce->comm);

    bounce->host = bounce->shared ? dp_group_memory(bounce->comm->group, DP_MEM_COMM, bytes)
                                  : device->alloc_host(DP_MEM_COMM, bytes);
    if (bounce->host == NULL) {
        return DP_ERR_NOMEM;
    }
    bounce->there = bounce->host;
    if (device->host_memory) {
        return DP_OK;
    }
    if (bounce->shared) {
        device->pin(bounce->host, bytes);
    }
    bounce->there = device->alloc(DP_MEM_COMM, bytes);
    return bounce->there != NULL ? device->event_create(&bounce->sent) : DP_ERR_NOMEM;
}

dp_status dp_bounce_buffer_open(struct dp_bounce_buffer *bounce, struct dp_comm *comm, size_t bytes,
                                bool shared)
{
    dp_status status;

    *bounce = (struct dp_bounce_buffer){.comm = comm, .shared = shared};
    status = open_memory(bounce, bytes);
    if (status != DP_OK) {
        dp_bounce_buffer_close(bounce);
    }
    return status;
}

void dp_bounce_buffer_close(struct dp_bounce_buffer *bounce)
{
    const struct dp_device *device = bounce->comm == NULL ? NULL : device_of(bounce->comm);

    if (device == NULL) {
        return;
    }
    device->event_destroy(bounce->sent);
    if (bounce->there != bounce->host) {
        device->release(bounce->there);
    }
    if (bounce->shared) {
        if (!device->host_memory && bounce->host != NULL) {
            device->unpin(bounce->host);
        }
        dp_group_release(bounce->comm->group, bounce->host);
    } else {
        device->release_host(bounce->host);
    }
    *bounce = (struct dp_bounce_buffer){.comm = NULL};
}

dp_status dp_bounce_buffer_out(struct dp_bounce_buffer *bounce, size_t at, size_t bytes)
{
    return bounce->there == bounce->host
               ? DP_OK
               : device_of(bounce->comm)
                     ->download(bounce->comm->codes, bounce->host + at, bounce->there + at, bytes);
}

dp_status dp_bounce_buffer_in(struct dp_bounce_buffer *bounce, size_t at, size_t bytes)
{
    return bounce->there == bounce->host
               ? DP_OK
               : device_of(bounce->comm)
                     ->upload(bounce->comm->codes, bounce->there + at, bounce->host + at, bytes);
}

dp_status dp_bounce_buffer_wait(struct dp_bounce_buffer *bounce)
{
    const struct dp_device *device = device_of(bounce->comm);
    struct dp_backoff backoff = {.cancel = bounce->comm->group->cancel,
                                 .spin_ns = bounce->comm->group->spin_ns};

    if (bounce->there == bounce->host) {
        return DP_OK;
    }
    DP_TRY(device->event_record(bounce->sent, bounce->comm->codes));
    for (bool done = false;;) {
        DP_TRY(device->event_query(bounce->sent, &done));
        if (done) {
            return DP_OK;
        }
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}

dp_status dp_bounce_buffer_gather(struct dp_bounce_buffer *bounce, size_t at, size_t bytes,
                                  bool reaches, char *all)
{
    struct dp_group *group = bounce->comm->group;
    char *mine = bounce->host + at;

    if (!reaches) {
        return dp_group_allgather(group, mine, bytes, all);
    }
    DP_TRY(dp_comm_barrier(bounce->comm));
    for (int i = 0; i < group->size; i++) {
        memcpy(all + (size_t)i * bytes, i == group->rank ? mine : dp_group_peer(group, mine, i),
               bytes);
    }
    group->wire_bytes += (uint64_t)(group->size - 1) * bytes;
    return DP_OK;
}
