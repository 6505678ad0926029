#include "runtime/data/buffer.h"

#include "base/mem.h"

size_t dp_buffer_room(size_t bytes)
{
    size_t step = 1;

    while (bytes / step > 16) {
        step *= 2;
    }
    return (bytes + step - 1) / step * step;
}

bool dp_buffer_reserve(struct dp_buffer *buffer, size_t bytes)
{
    const size_t room = dp_buffer_room(bytes);

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
