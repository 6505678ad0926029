/*
 * desc_onednn.h - descriptors of oneDNN: the one place where its versions 2 and 3 differ.
 *
 * All data is float32. Activations are [rows, height, width, channels], weights of ours [out_c,
 * kernel_h, kernel_w, in_c]; how a primitive wants its weights is its own choice.
 */
#ifndef DP_KERNELS_CPU_DESC_ONEDNN_H
#define DP_KERNELS_CPU_DESC_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "base/status.h"
#include "kernels/ops.h"

/* How a memory descriptor is passed. */
#if DNNL_VERSION_MAJOR >= 3
#define DP_ONEDNN_MD const_dnnl_memory_desc_t
#else
#define DP_ONEDNN_MD const dnnl_memory_desc_t *
#endif

/* Logs which call of oneDNN failed, and gives our status for it. */
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
 * dp_onednn_conv_desc - describes one use of a convolution. Scratch memory is the caller's.
 *
 *   use   in   DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA or DP_CONV_BACKWARD_WEIGHTS, or'ed with
 *              DP_CONV_BIAS where the bias, or its gradient, takes part
 *   out   out  destroyed by the caller
 *
 * Errors: DP_ERR_UNAVAILABLE (oneDNN cannot), DP_ERR_NOMEM, DP_ERR_INTERNAL.
 */
DP_CHECKED dp_status dp_onednn_conv_desc(dnnl_engine_t engine, const struct dp_window *w,
                                         size_t rows, unsigned use, dnnl_primitive_desc_t *out);

/* Copies `from` to `to`, changing the layout. As above. */
DP_CHECKED dp_status dp_onednn_reorder_desc(dnnl_engine_t engine, const_dnnl_memory_t from,
                                            const_dnnl_memory_t to, dnnl_primitive_desc_t *out);

/* Memory objects without memory: weights in our layout, and what `desc` wants as argument `what`
 * (a dnnl_query_*_md). The caller destroys them. */
DP_CHECKED dp_status dp_onednn_weights(dnnl_engine_t engine, const struct dp_window *w,
                                       dnnl_memory_t *out);
DP_CHECKED dp_status dp_onednn_argument(dnnl_engine_t engine, const_dnnl_primitive_desc_t desc,
                                        dnnl_query_t what, dnnl_memory_t *out);

#endif
