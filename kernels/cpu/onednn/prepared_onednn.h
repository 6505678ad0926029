/*
 * prepared_onednn.h - a stream's prepared convolutions and products: primitives of oneDNN with
 * their memory.
 *
 * Everything is made by prepare and belongs to one stream, so several streams can compute side by
 * side. A call only points the memory objects at its arrays and executes.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_PREPARED_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_PREPARED_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "base/status.h"
#include "kernels/cpu/prepared.h"
#include "kernels/device.h"

enum { DP_PREPARED_LISTS = 64, DP_PREPARED_ARGS = 5 };

/* What tells prepared convolutions apart. `use` is as in dp_onednn_conv_desc(). */
struct dp_prepared_key {
    struct dp_window window;
    size_t rows;
    unsigned use;
    enum dp_type type; /* of all but the gradients of weights and bias */
};

/* One convolution. x, y, weights and bias stand for the values or for their gradients, as the use
 * wants. */
struct dp_prepared_conv {
    struct dp_prepared_conv *next;
    struct dp_prepared_key key;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, y, weights, bias, scratchpad; /* bias: NULL where there is none */
    dnnl_exec_arg_t args[DP_PREPARED_ARGS];
    int arg_count;

    /* From our layout of the weights to the primitive's, or back for a gradient; NULL where the
     * primitive takes ours. `plain` are the weights in our layout. */
    dnnl_primitive_t reorder;
    dnnl_memory_t plain, reorder_scratchpad;

    /* Where things lie in the arena, in bytes. */
    size_t weights_at, plain_at, bias_at, scratchpad_at, arena_bytes;
};

struct dp_prepared_onednn {
    struct dp_prepared base; /* first: see prepared.h */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct dp_prepared_conv *lists[DP_PREPARED_LISTS]; /* by hash of the key */
    struct dp_prepared_product *products;              /* product_onednn.c */
    char *arena; /* one call's scratch; grows in prepare alone */
    size_t arena_bytes;
};

/* The stream's state, made by the first call. Errors: DP_ERR_NOMEM, DP_ERR_INTERNAL. */
DP_CHECKED dp_status dp_prepared_open(struct dp_stream *s, struct dp_prepared_onednn **out);

/* Prepares one use, unless that was done before. On error nothing is left behind but room in the
 * arena. Errors: DP_ERR_NOMEM, DP_ERR_UNAVAILABLE, DP_ERR_INTERNAL. */
DP_CHECKED dp_status dp_prepared_add(struct dp_stream *s, const struct dp_prepared_key *key);

/* What was prepared. Errors: DP_ERR_INTERNAL: it was not. */
DP_CHECKED dp_status dp_prepared_find(struct dp_stream *s, const struct dp_prepared_key *key,
                                      struct dp_prepared_conv **out);

/* Makes the arena at least so large. In prepare alone. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_prepared_grow(struct dp_prepared_onednn *all, size_t bytes);

/* Sets the threads that oneDNN asks OpenMP for, when a primitive is made and when it runs, on the
 * calling thread. Returns how many they were. */
int dp_prepared_threads(int threads);

/* Bytes of what a memory object stands for; 0 for NULL. */
size_t dp_prepared_bytes(dnnl_memory_t memory);

/* The products of a stream that is destroyed. */
void dp_products_destroy(struct dp_prepared_product *products);

/* Points `memory` at `data`. */
DP_CHECKED dp_status dp_prepared_point(dnnl_memory_t memory, const void *data);

/* Executes the convolution, or its reorder, on the stream's threads. All memory but scratchpads
 * must be pointed somewhere. */
DP_CHECKED dp_status dp_prepared_execute(struct dp_stream *s, struct dp_prepared_conv *conv);
DP_CHECKED dp_status dp_prepared_reorder(struct dp_stream *s, struct dp_prepared_conv *conv);

#endif
