/*
 * memory_onednn.h - memory objects of oneDNN: where an argument of a primitive lies.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_MEMORY_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_MEMORY_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "base/status.h"

/* One without memory, in the layout that `desc` requires for argument `what` (a dnnl_query_*_md).
 * The caller destroys it. Errors: DP_ERR_INTERNAL, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_onednn_argument(dnnl_engine_t engine, const_dnnl_primitive_desc_t desc,
                                        dnnl_query_t what, dnnl_memory_t *out);

/* NULL is allowed. */
void dp_onednn_memory_destroy(dnnl_memory_t memory);

#endif
