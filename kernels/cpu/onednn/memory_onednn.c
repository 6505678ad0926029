#include "kernels/cpu/onednn/memory_onednn.h"

#include "kernels/cpu/onednn/desc_onednn.h"

dp_status dp_onednn_argument(dnnl_engine_t engine, const_dnnl_primitive_desc_t desc,
                             dnnl_query_t what, dnnl_memory_t *out)
{
    DP_ONEDNN_MD wanted = dnnl_primitive_desc_query_md(desc, what, 0);

    if (wanted == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "oneDNN does not describe argument %d", (int)what);
    }
    DP_TRY_ONEDNN(dnnl_memory_create(out, wanted, engine, DNNL_MEMORY_NONE));
    return DP_OK;
}

void dp_onednn_memory_destroy(dnnl_memory_t memory)
{
    if (memory != NULL) {
        (void)dnnl_memory_destroy(memory);
    }
}
