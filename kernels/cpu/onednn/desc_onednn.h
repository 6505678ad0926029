/*
 * desc_onednn.h - descriptors of oneDNN. Its versions 2 and 3 differ only here and in
 * conv_desc_onednn.h.
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

/* Describes a copy from `from` to `to` that changes the layout. The caller provides scratch memory.
 * Errors: DP_ERR_UNAVAILABLE (oneDNN cannot), DP_ERR_NOMEM, DP_ERR_INTERNAL. */
DP_CHECKED dp_status dp_onednn_reorder_desc(dnnl_engine_t engine, const_dnnl_memory_t from,
                                            const_dnnl_memory_t to, dnnl_primitive_desc_t *out);

/* Describes an array of `type` with these sizes; released with the arrays of its version. */
dnnl_status_t dp_onednn_describe(dnnl_memory_desc_t *out, int count, const dnnl_dims_t sizes,
                                 enum dp_type type, dnnl_format_tag_t tag);

/* A memory object without memory, which the caller destroys; takes over `desc`. */
dnnl_status_t dp_onednn_memory(dnnl_memory_t *out, dnnl_memory_desc_t desc, dnnl_engine_t engine);

/* Attributes with which the caller provides scratch memory; the caller destroys them. */
dnnl_status_t dp_onednn_own_scratchpad(dnnl_primitive_attr_t *out);

/* oneDNN's name for the code that is described, "jit:avx512_core"; it lives as long as that. "?":
 * it says none. */
const char *dp_onednn_desc_code(const_dnnl_primitive_desc_t desc);

/* c = a b + bias, or c += a b: op(a) is [m, k] and op(b) [k, n], both bfloat16, as is the bias [n];
 * c [m, n] is float32 (wide) or bfloat16. */
struct dp_onednn_product {
    size_t m, n, k;
    enum dp_order order_a, order_b;
    bool bias, wide, adds;
};

/* Describes a product, which the caller destroys. The caller of a product provides scratch memory.
 * _try_ returns oneDNN's status and logs nothing. Errors: DP_ERR_UNAVAILABLE (oneDNN cannot),
 * DP_ERR_NOMEM, DP_ERR_INTERNAL. */
dnnl_status_t dp_onednn_try_product(dnnl_engine_t engine, const struct dp_onednn_product *product,
                                    dnnl_primitive_desc_t *out);
DP_CHECKED dp_status dp_onednn_product_desc(dnnl_engine_t engine,
                                            const struct dp_onednn_product *product,
                                            dnnl_primitive_desc_t *out);

#endif
