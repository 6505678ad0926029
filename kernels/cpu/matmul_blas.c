/*
 * matmul_blas.c - dense layers by OpenBLAS: the only file that knows it.
 *
 * Threads. The OpenMP flavour of OpenBLAS (0.3.21) asks omp_get_max_threads() in every call. That
 * number belongs to the calling thread. If it is 1, the call computes on its own thread and
 * touches no global state, so any number of streams with one thread each may run side by side,
 * each at full speed. If it is T > 1 and differs from the last such number of the process,
 * OpenBLAS resizes its own tables; streams with several threads are not run side by side. So the
 * number is set for the calling thread whenever it is not the stream's; openblas_set_num_threads()
 * is process-wide and not used.
 *
 * Bits depend on the shape and on the number of threads, and on nothing else.
 */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include <cblas.h>
#if DP_HAVE_OPENMP
#include <omp.h>
#endif

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

static void use_threads(int threads)
{
#if DP_HAVE_OPENMP
    if (omp_get_max_threads() != threads) {
        omp_set_num_threads(threads);
    }
#else
    (void)threads;
#endif
}

/* c = op(a) op(b) + keep c, where op(a) is [m, k], op(b) is [k, n] and c is [m, n]. */
static void multiply(const struct dp_stream *s, float *c, const float *a, enum dp_order order_a,
                     const float *b, enum dp_order order_b, size_t m, size_t n, size_t k,
                     float keep)
{
    const size_t lda = order_a == DP_PLAIN ? k : m, ldb = order_b == DP_PLAIN ? n : k;

    assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX);
    if (m == 0 || n == 0) {
        return;
    }
    if (k == 0) {
        if (keep == 0) {
            memset(c, 0, m * n * sizeof(*c));
        }
        return;
    }
    use_threads(s->threads);
    cblas_sgemm(CblasRowMajor, order_a == DP_PLAIN ? CblasNoTrans : CblasTrans,
                order_b == DP_PLAIN ? CblasNoTrans : CblasTrans, (int)m, (int)n, (int)k, 1.0f, a,
                (int)lda, b, (int)ldb, keep == 0 ? 0.0f : 1.0f, c, (int)n);
}

/* y = act(y + bias), or only one of them; y [rows, width]. */
struct finish {
    float *y;
    const float *bias; /* NULL: none */
    size_t width;
    enum dp_activation act;
};

DP_HOT static void add_bias(float *restrict y, const float *restrict bias, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        y[i] += bias[i];
    }
}

DP_HOT static void add_bias_relu(float *restrict y, const float *restrict bias, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        const float v = y[i] + bias[i];
        y[i] = v < 0 ? 0 : v;
    }
}

static void finish_part(void *arg, size_t begin, size_t end)
{
    const struct finish *f = arg;

    for (size_t i = begin; i < end; i += f->width) {
        if (f->act == DP_ACT_RELU) {
            add_bias_relu(f->y + i, f->bias, f->width);
        } else {
            add_bias(f->y + i, f->bias, f->width);
        }
    }
}

dp_status dp_cpu_dense_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                               const void *b, size_t rows, size_t in, size_t out,
                               enum dp_activation act)
{
    struct finish f = {y, b, out, act};

    multiply(s, y, x, DP_PLAIN, w, DP_TRANSPOSED, rows, out, in, 0.0f);
    if (b != NULL) {
        dp_parallel(s->threads, rows * out, out, finish_part, &f);
    } else if (act == DP_ACT_RELU) {
        return dp_cpu_relu_forward(s, y, y, rows * out);
    }
    return DP_OK;
}

dp_status dp_cpu_dense_backward_data(struct dp_stream *s, void *dx, const void *dy, const void *w,
                                     size_t rows, size_t in, size_t out)
{
    multiply(s, dx, dy, DP_PLAIN, w, DP_PLAIN, rows, in, out, 0.0f);
    return DP_OK;
}

dp_status dp_cpu_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                        const void *x, size_t rows, size_t in, size_t out,
                                        float keep)
{
    multiply(s, dw, dy, DP_TRANSPOSED, x, DP_PLAIN, out, in, rows, keep);
    return DP_OK;
}
