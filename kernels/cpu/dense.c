/*
 * dense.c - dense layers: a matrix product, and one pass over its result for bias and relu.
 */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "kernels/cpu/gemm/few_rows.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/op_path.h"
#if DP_HAVE_ONEDNN
#include "kernels/cpu/onednn/dense_onednn.h"
#endif

#if DP_HAVE_ONEDNN && defined(__x86_64__)
static bool wide_vectors(void)
{
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}
#else
#define dp_matmul_onednn dp_matmul_blas
static bool wide_vectors(void)
{
    return false;
}
#endif

static void multiply(const struct dp_stream *s, const struct dp_matmul *p)
{
    assert(p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX);
    if (p->m == 0 || p->n == 0) {
        return;
    }
    if (p->k == 0) {
        for (size_t i = 0; i < p->m && p->keep == 0; i++) {
            memset(p->c + i * p->ldc, 0, p->n * sizeof(*p->c));
        }
        return;
    }
    const bool wide = wide_vectors();
    if (wide && dp_few_rows(s->threads, p)) {
        dp_op_path_note(s, "own", "few rows");
        return;
    }
    dp_op_path_note(s, wide ? "oneDNN" : "OpenBLAS", "sgemm");
    (wide ? dp_matmul_onednn : dp_matmul_blas)(s->threads, p);
}

/* y = act(y + bias), or only one of them, for the first `width` columns of [rows, stride]. */
struct finish {
    float *y;
    const float *bias; /* NULL: none */
    size_t width, stride;
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

DP_HOT static void relu(float *y, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        y[i] = y[i] < 0 ? 0 : y[i];
    }
}

static void finish_part(void *arg, size_t begin, size_t end)
{
    const struct finish *f = arg;

    for (size_t i = begin; i < end; i += f->stride) {
        if (f->bias == NULL) {
            relu(f->y + i, f->width);
        } else if (f->act == DP_ACT_RELU) {
            add_bias_relu(f->y + i, f->bias, f->width);
        } else {
            add_bias(f->y + i, f->bias, f->width);
        }
    }
}

/* ---- the operations ---- */

struct dp_matmul dp_dense_product(const struct dp_dense_key *key, float *c, const float *a,
                                  const float *b, float keep)
{
    const bool weights = key->use == DP_DENSE_BACKWARD_WEIGHTS;
    const bool forward = key->use == DP_DENSE_FORWARD;

    return (struct dp_matmul){.c = c,
                              .a = a,
                              .b = b,
                              .order_a = weights ? DP_TRANSPOSED : DP_PLAIN,
                              .order_b = forward ? DP_TRANSPOSED : DP_PLAIN,
                              .m = weights ? key->out : key->rows,
                              .n = forward ? key->out : key->in,
                              .k = forward   ? key->in
                                   : weights ? key->rows
                                             : key->out,
                              .lda = forward ? key->in : key->out,
                              .ldb = key->in,
                              .ldc = forward ? key->out : key->in,
                              .keep = keep};
}

#if DP_HAVE_ONEDNN

dp_status dp_cpu_dense_prepare(struct dp_stream *s, size_t rows, size_t in, size_t out,
                               unsigned uses)
{
    return dp_dense_choose(s, rows, in, out, uses);
}

#else

dp_status dp_cpu_dense_prepare(struct dp_stream *s, size_t rows, size_t in, size_t out,
                               unsigned uses)
{
    return dp_ref_dense_prepare(s, rows, in, out, uses);
}

static bool dp_dense_run_own(const struct dp_stream *s, const struct dp_dense_key *key,
                             const struct dp_matmul *product, const float *bias, bool relu)
{
    (void)s, (void)key, (void)product, (void)bias, (void)relu;
    return false;
}

#endif

dp_status dp_cpu_dense_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                               const void *b, size_t rows, size_t in, size_t out,
                               enum dp_activation act)
{
    return dp_cpu_dense_forward_part(s, y, x, w, b, rows, in, out, (struct dp_range){0, out}, act);
}

/* Uses only this part of the rows of w, and of the columns of y, in place. */
dp_status dp_cpu_dense_forward_part(struct dp_stream *s, void *y, const void *x, const void *w,
                                    const void *b, size_t rows, size_t in, size_t out,
                                    struct dp_range part, enum dp_activation act)
{
    const struct dp_dense_key key = {rows, in, out, DP_DENSE_FORWARD, DP_TYPE_F32};
    struct finish f = {(float *)y + part.begin, b == NULL ? NULL : (const float *)b + part.begin,
                       part.count, out, act};
    struct dp_matmul product =
        dp_dense_product(&key, f.y, x, (const float *)w + part.begin * in, 0.0f);

    assert(part.begin + part.count <= out);
    product.n = part.count;
    if (dp_dense_run_own(s, &key, &product, f.bias, act == DP_ACT_RELU)) {
        return DP_OK;
    }
    multiply(s, &product);
    if (b != NULL || act == DP_ACT_RELU) {
        dp_parallel(s->threads, rows * out, out, finish_part, &f);
    }
    return DP_OK;
}

static dp_status backward(const struct dp_stream *s, const struct dp_dense_key *key, float *c,
                          const float *a, const float *b, float keep)
{
    const struct dp_matmul product = dp_dense_product(key, c, a, b, keep);

    if (!dp_dense_run_own(s, key, &product, NULL, false)) {
        multiply(s, &product);
    }
    return DP_OK;
}

dp_status dp_cpu_dense_backward_data(struct dp_stream *s, void *dx, const void *dy, const void *w,
                                     size_t rows, size_t in, size_t out)
{
    return backward(s, &(struct dp_dense_key){rows, in, out, DP_DENSE_BACKWARD_DATA, DP_TYPE_F32},
                    dx, dy, w, 0.0f);
}

dp_status dp_cpu_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                        const void *x, size_t rows, size_t in, size_t out,
                                        float keep)
{
    return backward(s,
                    &(struct dp_dense_key){rows, in, out, DP_DENSE_BACKWARD_WEIGHTS, DP_TYPE_F32},
                    dw, dy, x, keep);
}
