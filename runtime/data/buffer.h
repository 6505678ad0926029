/*
 * buffer.h - memory that grows to the largest size that was asked for, so that whoever reads one
 * sample after another allocates only until it has met the largest.
 */
#ifndef DP_RUNTIME_DATA_BUFFER_H
#define DP_RUNTIME_DATA_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

/* Begins with zeros. */
struct dp_buffer {
    void *data; /* owned; aligned to DP_MEM_ALIGN */
    size_t room;
};

/* Makes room for `bytes`; what was in it may be gone. False: there is no memory. */
bool dp_buffer_reserve(struct dp_buffer *buffer, size_t bytes);

/* Releases the memory; the buffer can be used again. */
void dp_buffer_release(struct dp_buffer *buffer);

#endif
