/*
 * buffer.h - memory that grows to the largest size that was asked for, so that whoever reads one
 * sample after another allocates only until it has met the largest. How much that is depends on the
 * largest size alone, not on what came before, so that it can be predicted.
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

/* The room of a buffer whose largest size that is: at most an eighth more, so that growing ends
 * soon. */
size_t dp_buffer_room(size_t bytes);

/* Makes room for `bytes`; what was in it may be gone. False: there is no memory. */
bool dp_buffer_reserve(struct dp_buffer *buffer, size_t bytes);

/* Releases the memory; the buffer can be used again. */
void dp_buffer_release(struct dp_buffer *buffer);

#endif
