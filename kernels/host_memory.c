#include "kernels/host_memory.h"

#include <string.h>

dp_status dp_host_upload(struct dp_stream *stream, void *device, const void *host, size_t bytes)
{
    (void)stream;
    if (bytes > 0 && device != host) {
        memcpy(device, host, bytes);
    }
    return DP_OK;
}

dp_status dp_host_download(struct dp_stream *stream, void *host, const void *device, size_t bytes)
{
    return dp_host_upload(stream, host, device, bytes);
}

void dp_host_pin(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

void dp_host_unpin(void *memory)
{
    (void)memory;
}

dp_status dp_host_order(struct dp_stream *later, struct dp_stream *earlier)
{
    (void)later;
    (void)earlier;
    return DP_OK;
}

dp_status dp_host_event_create(struct dp_event **out)
{
    *out = NULL;
    return DP_OK;
}

void dp_host_event_destroy(struct dp_event *event)
{
    (void)event;
}

dp_status dp_host_event_record(struct dp_event *event, struct dp_stream *stream)
{
    (void)event;
    (void)stream;
    return DP_OK;
}

dp_status dp_host_event_query(const struct dp_event *event, bool *done)
{
    (void)event;
    *done = true;
    return DP_OK;
}

dp_status dp_host_event_wait(struct dp_stream *stream, const struct dp_event *event)
{
    (void)stream;
    (void)event;
    return DP_OK;
}

dp_status dp_host_synchronize(struct dp_stream *stream)
{
    (void)stream;
    return DP_OK;
}
