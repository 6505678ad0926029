/*
 * conv_desc_onednn.h - descriptors of convolutions: which implementations oneDNN has for one, and
 * which is taken unless measuring finds a faster one (choose_onednn.h).
 *
 * oneDNN proposes implementations in an order of its own, which our layouts do not always suit.
 * Implementations that are not safe are left out.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_CONV_DESC_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_CONV_DESC_ONEDNN_H

#include "kernels/cpu/onednn/desc_onednn.h"

/* One use of a convolution. */
struct dp_onednn_conv {
    dnnl_engine_t engine;
    const struct dp_window *window;
    size_t rows;
    unsigned use;      /* DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA or DP_CONV_BACKWARD_WEIGHTS, or'ed
                        * with DP_CONV_BIAS if there is a bias, or its gradient */
    enum dp_type type; /* of all arrays except the gradients of weights and bias: float32 */
};

/*
 * dp_onednn_conv_desc - describes the preferred implementation. The caller provides scratch memory.
 *
 *   out  out  destroyed by the caller
 *
 * Errors: DP_ERR_UNAVAILABLE (oneDNN cannot), DP_ERR_NOMEM, DP_ERR_INTERNAL.
 */
DP_CHECKED dp_status dp_onednn_conv_desc(const struct dp_onednn_conv *conv,
                                         dnnl_primitive_desc_t *out);

/* The same, but returns oneDNN's status and logs nothing. */
dnnl_status_t dp_onednn_try_conv(const struct dp_onednn_conv *conv, dnnl_primitive_desc_t *out);

/* Called with each implementation, in oneDNN's order, until it returns true. `desc` is borrowed. */
typedef bool dp_onednn_visit_fn(void *context, const_dnnl_primitive_desc_t desc);

DP_CHECKED dp_status dp_onednn_each_conv(const struct dp_onednn_conv *conv,
                                         dp_onednn_visit_fn *visit, void *context);

/* A memory object without memory: weights in our layout. The caller destroys it. */
DP_CHECKED dp_status dp_onednn_weights(dnnl_engine_t engine, const struct dp_window *w,
                                       enum dp_type type, dnnl_memory_t *out);

#endif
