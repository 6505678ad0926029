/*
 * matmul_blas.c - matrix products by OpenBLAS: the only file that includes its header.
 *
 * Threads. The OpenMP flavour of OpenBLAS (0.3.21) calls omp_get_max_threads() in every call. That
 * number belongs to the calling thread. If it is 1, the call computes on its own thread and uses no
 * global state, so any number of streams with one thread each can run in parallel at full speed. If
 * it is T > 1 and differs from the last such number of the process, OpenBLAS resizes its own
 * tables; streams with several threads do not run in parallel. So the number is set for the calling
 * thread whenever it is not the stream's. openblas_set_num_threads() is process-wide and not used.
 *
 * Bits depend only on the shape and the number of threads.
 */
#include <cblas.h>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/parallel.h"

void dp_matmul_blas(int threads, const struct dp_matmul *p)
{
    dp_use_threads(threads);
    cblas_sgemm(CblasRowMajor, p->order_a == DP_PLAIN ? CblasNoTrans : CblasTrans,
                p->order_b == DP_PLAIN ? CblasNoTrans : CblasTrans, (int)p->m, (int)p->n, (int)p->k,
                1.0f, p->a, (int)p->lda, p->b, (int)p->ldb, p->keep == 0 ? 0.0f : 1.0f, p->c,
                (int)p->ldc);
}
