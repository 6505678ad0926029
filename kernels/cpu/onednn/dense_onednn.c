#include "kernels/cpu/onednn/dense_onednn.h"

#include "kernels/cpu/gemm/few_rows.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/onednn/choose_dense.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

static dp_status run(struct dp_stream *s, const struct dp_dense_key *key,
                     const struct dp_dense_arrays *arrays, bool own)
{
    const struct dp_gemm gemm = {
        .product = dp_dense_product(key, arrays->c, arrays->a, arrays->b, 0.0f),
        .scratch = arrays->scratch,
    };

    if (own) {
        dp_gemm(&gemm, s->threads);
    } else if (!dp_few_rows(s->threads, &gemm.product)) {
        dp_matmul_onednn(s->threads, &gemm.product);
    }
    return DP_OK;
}

dp_status dp_dense_choose(struct dp_stream *s, size_t rows, size_t in, size_t out, unsigned uses)
{
    static const unsigned each[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                    DP_DENSE_BACKWARD_WEIGHTS};

    for (size_t i = 0; dp_dense_is_open(s, rows, in, out) && i < sizeof(each) / sizeof(each[0]);
         i++) {
        const struct dp_dense_key key = {rows, in, out, each[i], DP_TYPE_F32};
        const struct dp_matmul product = dp_dense_product(&key, NULL, NULL, NULL, 0.0f);
        const struct dp_dense_ways ways = {"sgemm", DP_PREPARED_GEMM,
                                           dp_gemm_bytes(&product, s->threads), run};
        DP_TRY((uses & each[i]) != 0 && dp_gemm_can(&product) ? dp_dense_decide(s, &key, &ways)
                                                              : DP_OK);
    }
    return DP_OK;
}

bool dp_dense_run_own(const struct dp_stream *s, const struct dp_dense_key *key,
                      const struct dp_matmul *product, const float *bias, bool relu)
{
    const struct dp_prepared_onednn *all = s->state;

    if (!dp_dense_is_own(s, key)) {
        return false;
    }
    dp_op_path_note(s, "own", DP_PREPARED_GEMM);
    dp_gemm(&(struct dp_gemm){.product = *product,
                              .bias = bias,
                              .relu = relu,
                              .scratch = (float *)(void *)all->arena},
            s->threads);
    return true;
}
