/*
 * host_memory.h - copies, orders and events for devices that use the host's memory, and whose
 * operations are done when they return.
 */
#ifndef DP_KERNELS_HOST_MEMORY_H
#define DP_KERNELS_HOST_MEMORY_H

#include "kernels/device.h"

/* Both directions: `host` may be `device`; then nothing is copied. */
DP_CHECKED dp_status dp_host_upload(struct dp_stream *stream, void *device, const void *host,
                                    size_t bytes);
DP_CHECKED dp_status dp_host_download(struct dp_stream *stream, void *host, const void *device,
                                      size_t bytes);
void dp_host_pin(void *memory, size_t bytes);
void dp_host_unpin(void *memory);
DP_CHECKED dp_status dp_host_order(struct dp_stream *later, struct dp_stream *earlier);
DP_CHECKED dp_status dp_host_event_create(struct dp_event **out); /* gives NULL */
void dp_host_event_destroy(struct dp_event *event);
DP_CHECKED dp_status dp_host_event_record(struct dp_event *event, struct dp_stream *stream);
DP_CHECKED dp_status dp_host_event_query(const struct dp_event *event, bool *done);
DP_CHECKED dp_status dp_host_event_wait(struct dp_stream *stream, const struct dp_event *event);
DP_CHECKED dp_status dp_host_synchronize(struct dp_stream *stream);

/* Initializers for the table of such a device. */
#define DP_HOST_MEMORY                                                                             \
    .host_memory = true, .alloc = dp_mem_arena, .release = dp_free, .alloc_host = dp_mem_arena,    \
    .release_host = dp_free, .pin = dp_host_pin, .unpin = dp_host_unpin, .upload = dp_host_upload, \
    .download = dp_host_download, .order = dp_host_order, .event_create = dp_host_event_create,    \
    .event_destroy = dp_host_event_destroy, .event_record = dp_host_event_record,                  \
    .event_query = dp_host_event_query, .event_wait = dp_host_event_wait,                          \
    .synchronize = dp_host_synchronize

#endif
