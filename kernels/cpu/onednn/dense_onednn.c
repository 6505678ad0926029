#include "kernels/cpu/onednn/dense_onednn.h"

#include "kernels/cpu/amx/gemm_amx.h"
#include "kernels/cpu/gemm/few_rows.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/onednn/choose_dense.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

/* Ways of choose_dense.h. */
enum { THEIRS, GEMM, GEMM_AMX };

static dp_status run(struct dp_stream *s, const struct dp_dense_key *key,
                     const struct dp_dense_arrays *arrays, int way)
{
    const struct dp_gemm gemm = {
        .product = dp_dense_product(key, arrays->c, arrays->a, arrays->b, 0.0f),
        .scratch = arrays->scratch,
    };

    if (way == GEMM_AMX) {
        dp_gemm_amx(&gemm, s->threads);
    } else if (way == GEMM) {
        dp_gemm(&gemm, s->threads);
    } else if (!dp_few_rows(s->threads, &gemm.product)) {
        dp_matmul_onednn(s->threads, &gemm.product);
    }
    return DP_OK;
}

static dp_status choose(struct dp_stream *s, const struct dp_dense_key *key)
{
    const struct dp_matmul product = dp_dense_product(key, NULL, NULL, NULL, 0.0f);
    const bool tiles = dp_gemm_amx_can(&product);
    /* A core has one unit for tiles: two threads of it lose more by tiles than by vectors. */
    const struct dp_dense_ways ways = {
        .count = tiles ? GEMM_AMX + 1 : GEMM + 1,
        .way = {{"sgemm", 0},
                {DP_PREPARED_GEMM, dp_gemm_bytes(&product, s->threads)},
                {DP_PREPARED_GEMM_AMX, dp_gemm_amx_bytes(&product, s->threads)}},
        .by_all = tiles,
        .run = run,
    };

    return dp_gemm_can(&product) ? dp_dense_decide(s, key, &ways) : DP_OK;
}

dp_status dp_dense_choose(struct dp_stream *s, size_t rows, size_t in, size_t out, unsigned uses)
{
    static const unsigned each[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                    DP_DENSE_BACKWARD_WEIGHTS};

    for (size_t i = 0; dp_dense_is_open(s, rows, in, out) && i < sizeof(each) / sizeof(each[0]);
         i++) {
        const struct dp_dense_key key = {rows, in, out, each[i], DP_TYPE_F32};
        DP_TRY((uses & each[i]) != 0 ? choose(s, &key) : DP_OK);
    }
    return DP_OK;
}

bool dp_dense_run_own(const struct dp_stream *s, const struct dp_dense_key *key,
                      const struct dp_matmul *product, const float *bias, bool relu)
{
    const struct dp_prepared_onednn *all = s->state;
    const int way = dp_dense_way(s, key);

    if (way == THEIRS) {
        return false;
    }
    const struct dp_gemm gemm = {
        .product = *product, .bias = bias, .relu = relu, .scratch = (float *)(void *)all->arena};
    dp_op_path_note(s, "own", way == GEMM_AMX ? DP_PREPARED_GEMM_AMX : DP_PREPARED_GEMM);
    (way == GEMM_AMX ? dp_gemm_amx : dp_gemm)(&gemm, s->threads);
    return true;
}
