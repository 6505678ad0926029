/*
 * prepared_onednn.h - a stream's prepared convolutions and products: primitives of oneDNN with
 * their memory.
 *
 * Everything is made by prepare and belongs to one stream, so several streams can compute in
 * parallel. A call only sets the addresses of the memory objects and executes.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_PREPARED_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_PREPARED_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#include "base/status.h"
#include "kernels/cpu/prepared.h"
#include "kernels/device.h"

enum { DP_PREPARED_LISTS = 64, DP_PREPARED_ARGS = 5 };

/* The key of a prepared convolution. `use` is as in struct dp_onednn_conv. */
struct dp_prepared_key {
    struct dp_window window;
    size_t rows;
    unsigned use;
    enum dp_type type; /* of all arrays but the gradients of weights and bias */
};

/* Our ways of computing a convolution: the gradient of weights in bfloat16 (conv_weights_amx.h),
 * and any use by Winograd's way (winograd.h), as a product of matrices (pointwise_amx.h), or as
 * several (conv_amx.h), of bfloat16 or of float32. */
enum dp_prepared_own {
    DP_OWN_AMX,
    DP_OWN_WINOGRAD,
    DP_OWN_POINTWISE,
    DP_OWN_CONV,
    DP_OWN_CONV_SPLIT,
    DP_PREPARED_OWNS
};

/* One convolution. x, y, weights and bias are the values or their gradients, depending on the
 * use. Without a primitive it is one of enum dp_prepared_own. */
struct dp_prepared_conv {
    struct dp_prepared_conv *next;
    struct dp_prepared_key key;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, y, weights, bias, scratchpad; /* bias: NULL if there is none */
    dnnl_exec_arg_t args[DP_PREPARED_ARGS];
    const char *code; /* dp_prepared_code(), or that of `own` */
    enum dp_prepared_own own;
    int arg_count;

    /* From our layout of the weights to the primitive's, or back for a gradient; NULL where they
     * are the same. `plain` are the weights in our layout. */
    dnnl_primitive_t reorder;
    dnnl_memory_t plain, reorder_scratchpad;

    /* Offsets in the arena, in bytes. */
    size_t weights_at, plain_at, bias_at, scratchpad_at, arena_bytes;
};

struct dp_prepared_onednn {
    struct dp_prepared base; /* first: see prepared.h */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct dp_prepared_conv *lists[DP_PREPARED_LISTS]; /* by hash of the key */
    struct dp_prepared_product *products;              /* product_onednn.c */
    struct dp_prepared_dense *dense;                   /* choose_dense.c */
    char *arena; /* one call's scratch; grows only in prepare */
    size_t arena_bytes;
};

/* The stream's state, which the first call makes. Errors: DP_ERR_NOMEM, DP_ERR_INTERNAL. */
DP_CHECKED dp_status dp_prepared_open(struct dp_stream *s, struct dp_prepared_onednn **out);

/* Makes a convolution by a described implementation; the caller destroys it.
 * Errors: DP_ERR_NOMEM, DP_ERR_UNAVAILABLE, DP_ERR_INTERNAL. */
DP_CHECKED dp_status dp_prepared_conv_create(dnnl_engine_t engine,
                                             const struct dp_prepared_key *key,
                                             const_dnnl_primitive_desc_t desc,
                                             struct dp_prepared_conv **out);

/* What this repository has besides oneDNN. */
#define DP_PREPARED_AMX "amx_bf16"
#define DP_PREPARED_WINOGRAD "winograd"
#define DP_PREPARED_GEMM "gemm"
#define DP_PREPARED_GEMM_AMX "gemm_bf16x3"
#define DP_PREPARED_DENSE_AMX "dense_amx"
#define DP_PREPARED_POINTWISE "pointwise_bf16x3"
#define DP_PREPARED_CONV "conv_amx"
#define DP_PREPARED_CONV_SPLIT "conv_bf16x3"

/* Its name; whether it can compute the convolution; makes it. Errors: DP_ERR_NOMEM. */
const char *dp_prepared_own_code(enum dp_prepared_own own);
bool dp_prepared_has_own(enum dp_prepared_own own, const struct dp_prepared_key *key);
bool dp_prepared_may_use_tiles(const struct dp_prepared_key *key); /* one of ours may */
DP_CHECKED dp_status dp_prepared_own_create(enum dp_prepared_own own,
                                            const struct dp_prepared_key *key, int threads,
                                            struct dp_prepared_conv **out);
void dp_prepared_conv_destroy(struct dp_prepared_conv *conv); /* NULL is allowed */

/* Whether one is among the stream's. */
bool dp_prepared_has(const struct dp_prepared_onednn *all, const struct dp_prepared_key *key);

/* Adds one to them, and owns it from then on, also after an error. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_prepared_add(struct dp_prepared_onednn *all, struct dp_prepared_conv *conv);

/* Finds a prepared convolution. Errors: DP_ERR_INTERNAL: it is not prepared. */
DP_CHECKED dp_status dp_prepared_find(struct dp_stream *s, const struct dp_prepared_key *key,
                                      struct dp_prepared_conv **out);

/* Makes the arena at least this large. Only in prepare. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_prepared_grow(struct dp_prepared_onednn *all, size_t bytes);

/* Sets the number of threads that oneDNN gets from OpenMP on the calling thread, for making and for
 * running a primitive. Returns the previous number. */
int dp_prepared_threads(int threads);

/* oneDNN's name for the code of a primitive, "jit:avx512_core"; it lives as long as that. */
const char *dp_prepared_code(const_dnnl_primitive_t primitive);

/* Bytes of a memory object's array; 0 for NULL. */
size_t dp_prepared_bytes(dnnl_memory_t memory);

/* Destroys the products of a stream. */
void dp_products_destroy(struct dp_prepared_product *products);
void dp_prepared_dense_destroy(struct dp_prepared_dense *dense);

/* Sets the address of `memory` to `data`. */
DP_CHECKED dp_status dp_prepared_point(dnnl_memory_t memory, const void *data);

/* Where the arrays of a convolution lie: values or their gradients, as in struct dp_prepared_conv;
 * weights in our layout. */
struct dp_prepared_arrays {
    const void *x, *y, *weights, *bias; /* those that the use computes are written */
    bool adds; /* to the gradients of weights and bias: only without a primitive */
};

/* One without a primitive. */
void dp_prepared_run_own(const struct dp_stream *s, const struct dp_prepared_conv *conv,
                         const struct dp_prepared_arrays *arrays);

/* Computes on the stream's threads. */
DP_CHECKED dp_status dp_prepared_run(struct dp_stream *s, struct dp_prepared_conv *conv,
                                     const struct dp_prepared_arrays *arrays);

#endif
