#include "runtime/config/config_pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { BLOCK_BYTES = 16384, ALIGN = 16 };

/* Blocks form a list; the first one is being filled. */
struct block {
    struct block *next;
    size_t used, bytes;
};

struct dp_pool {
    struct block *blocks; /* owned */
};

struct dp_pool *dp_pool_create(void)
{
    return dp_zalloc(1, sizeof(struct dp_pool));
}

void dp_pool_destroy(struct dp_pool *pool)
{
    while (pool != NULL && pool->blocks != NULL) {
        struct block *next = pool->blocks->next;
        dp_free(pool->blocks);
        pool->blocks = next;
    }
    dp_free(pool);
}

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

void *dp_pool_take(struct dp_pool *pool, size_t bytes)
{
    const size_t head = round_up(sizeof(struct block));
    const size_t wanted = bytes > 0 ? round_up(bytes) : ALIGN;
    struct block *block = pool->blocks;
    void *piece;

    if (wanted < bytes) {
        return NULL;
    }
    if (block == NULL || wanted > block->bytes - block->used) {
        const size_t capacity = wanted > BLOCK_BYTES ? wanted : BLOCK_BYTES;
        block = dp_zalloc(1, head + capacity);
        if (block == NULL) {
            return NULL;
        }
        block->bytes = capacity;
        block->next = pool->blocks;
        pool->blocks = block;
    }
    piece = (char *)block + head + block->used;
    block->used += wanted;
    return piece;
}

char *dp_pool_copy(struct dp_pool *pool, const char *text, size_t length)
{
    char *copy = dp_pool_take(pool, length + 1);

    if (copy != NULL) {
        memcpy(copy, text, length);
    }
    return copy;
}

char *dp_pool_format(struct dp_pool *pool, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length >= 0) {
        text = dp_pool_take(pool, (size_t)length + 1);
    }
    if (text != NULL) {
        va_start(args, format);
        (void)vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
    }
    return text;
}
