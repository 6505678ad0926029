/*
 * desc_onednn.h - descriptors of oneDNN: the one place where its versions 2 and 3 differ.
 *
 * Data is float32 or, where a type says so, narrow. Activations are [rows, height, width,
 * channels], our weights [out_c, kernel_h, kernel_w, in_c]; a primitive chooses the layout of its
 * own weights.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_DESC_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_DESC_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#include "base/status.h"
#include "kernels/ops.h"

/* How a memory descriptor is passed. */
#if DNNL_VERSION_MAJOR >= 3
#define DP_ONEDNN_MD const_dnnl_memory_desc_t
#else
#define DP_ONEDNN_MD const dnnl_memory_desc_t *
#endif

/* Logs which call of oneDNN failed, and returns our status for it. */
dp_status dp_onednn_fail(const char *file, int line, dnnl_status_t status, const char *call);

/* Returns from the calling function if a call of oneDNN fails. */
#define DP_TRY_ONEDNN(call)                                          \
    do {                                                             \
        const dnnl_status_t dnnl_ = (call);                          \
        if (dnnl_ != dnnl_success) {                                 \
            return dp_onednn_fail(__FILE__, __LINE__, dnnl_, #call); \
        }                                                            \
    } while (0)

/*
 * dp_onednn_conv_desc - describes one use of a convolution. The caller provides scratch memory.
 *
 *   use   in   DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA or DP_CONV_BACKWARD_WEIGHTS, or'ed with
 *              DP_CONV_BIAS if there is a bias, or its gradient
 *   type  in   of all arrays except the gradients of weights and bias, which are float32
 *   out   out  destroyed by the caller
 *
 * Errors: DP_ERR_UNAVAILABLE (oneDNN cannot), DP_ERR_NOMEM, DP_ERR_INTERNAL.
 */
DP_CHECKED dp_status dp_onednn_conv_desc(dnnl_engine_t engine, const struct dp_window *w,
                                         size_t rows, unsigned use, enum dp_type type,
                                         dnnl_primitive_desc_t *out);

/* The same, also for products below, but returns oneDNN's status and logs nothing. */
dnnl_status_t dp_onednn_try_conv(dnnl_engine_t engine, const struct dp_window *w, size_t rows,
                                 unsigned use, enum dp_type type, dnnl_primitive_desc_t *out);

/* Describes a copy from `from` to `to` that changes the layout. As above. */
DP_CHECKED dp_status dp_onednn_reorder_desc(dnnl_engine_t engine, const_dnnl_memory_t from,
                                            const_dnnl_memory_t to, dnnl_primitive_desc_t *out);

/* A memory object without memory: weights in our layout. The caller destroys it. */
DP_CHECKED dp_status dp_onednn_weights(dnnl_engine_t engine, const struct dp_window *w,
                                       enum dp_type type, dnnl_memory_t *out);

/* c = a b + bias, or c += a b: op(a) is [m, k] and op(b) [k, n], both bfloat16, as is the bias [n];
 * c [m, n] is float32 (wide) or bfloat16. */
struct dp_onednn_product {
    size_t m, n, k;
    enum dp_order order_a, order_b;
    bool bias, wide, adds;
};

/* Describes a product; as dp_onednn_conv_desc() and dp_onednn_try_conv(). */
dnnl_status_t dp_onednn_try_product(dnnl_engine_t engine, const struct dp_onednn_product *product,
                                    dnnl_primitive_desc_t *out);
DP_CHECKED dp_status dp_onednn_product_desc(dnnl_engine_t engine,
                                            const struct dp_onednn_product *product,
                                            dnnl_primitive_desc_t *out);

#endif
