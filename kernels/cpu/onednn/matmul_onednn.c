/*
 * matmul_onednn.c - matrix products by oneDNN's sgemm. It has no state, so several streams may call
 * it in parallel. It gets its number of threads from OpenMP, as matmul_blas.c does.
 */
#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/parallel.h"

void dp_matmul_onednn(int threads, const struct dp_matmul *p)
{
    dnnl_status_t status;

    dp_use_threads(threads);
    status = dnnl_sgemm(p->order_a == DP_PLAIN ? 'N' : 'T', p->order_b == DP_PLAIN ? 'N' : 'T',
                        (dnnl_dim_t)p->m, (dnnl_dim_t)p->n, (dnnl_dim_t)p->k, 1.0f, p->a,
                        (dnnl_dim_t)p->lda, p->b, (dnnl_dim_t)p->ldb, p->keep == 0 ? 0.0f : 1.0f,
                        p->c, (dnnl_dim_t)p->ldc);
    if (status != dnnl_success) { /* no memory for its packed copies: OpenBLAS needs none */
        dp_matmul_blas(threads, p);
    }
}

bool dp_matmul_onednn_is_known(void)
{
    const dnnl_version_t *version = dnnl_version();

    return version->major == 2 && version->minor == 6 &&
           (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}
