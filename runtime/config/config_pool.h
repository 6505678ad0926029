/*
 * config_pool.h - the memory of one configuration: allocated in small pieces, released together.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_POOL_H
#define DP_RUNTIME_CONFIG_CONFIG_POOL_H

#include <stddef.h>

struct dp_pool;

/* An empty pool, owned by the caller (dp_pool_destroy); NULL when there is no memory. */
struct dp_pool *dp_pool_create(void);
void dp_pool_destroy(struct dp_pool *pool);

/* Zeroed memory, aligned for any type; lives as long as the pool. NULL when there is no memory. */
void *dp_pool_take(struct dp_pool *pool, size_t bytes);

/* A copy of text[0..length), with a NUL after it, or NULL. */
char *dp_pool_copy(struct dp_pool *pool, const char *text, size_t length);

/* The text that printf would print, or NULL. */
char *dp_pool_format(struct dp_pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
