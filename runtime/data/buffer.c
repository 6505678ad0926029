#include "runtime/data/buffer.h"

#include "base/mem.h"

bool dp_buffer_reserve(struct dp_buffer *buffer, size_t bytes)
{
    const size_t more = buffer->room + buffer->room / 2; /* so that growing ends soon */
    const size_t room = bytes > more ? bytes : more;

    if (bytes <= buffer->room && buffer->data != NULL) {
        return true;
    }
    dp_buffer_release(buffer);
    buffer->data = dp_mem_arena(DP_MEM_DATA, room);
    if (buffer->data == NULL) {
        return false;
    }
    buffer->room = room;
    return true;
}

void dp_buffer_release(struct dp_buffer *buffer)
{
    dp_free(buffer->data);
    *buffer = (struct dp_buffer){NULL, 0};
}
