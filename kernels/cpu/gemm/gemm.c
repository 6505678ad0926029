#include "kernels/cpu/gemm/gemm.h"

#include "kernels/cpu/gemm/code.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

enum {
    ROWS = 256,     /* samples of a block */
    DEPTH = 1024,   /* and products of a sum, of c = a b' */
    COPIED = 256,   /* of c = a b: 1024 rows of 4096 bytes would share few sets of a cache */
    ROWS_EACH = 64, /* samples of a thread that are worth reading all weights for */
};

#if DP_GEMM_CODE

static bool processor_can(void)
{
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

#else

void dp_gemm_pack(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    (void)b, (void)begin, (void)end;
}

void dp_gemm_compute(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    (void)b, (void)begin, (void)end;
}

static bool processor_can(void)
{
    return false;
}

#endif

bool dp_gemm_can(const struct dp_matmul *p)
{
    return (p->order_a == DP_PLAIN || p->order_b == DP_PLAIN) && processor_can();
}

static bool sums_samples(const struct dp_matmul *p)
{
    return p->order_a == DP_TRANSPOSED;
}

/* Of a block: how many samples, how many products of a sum. */
static size_t most_rows(const struct dp_matmul *p)
{
    return sums_samples(p) ? p->m : dp_smaller(p->m, ROWS);
}

static size_t most_depth(const struct dp_matmul *p)
{
    return dp_smaller(p->k, sums_samples(p) ? ROWS : p->order_b == DP_TRANSPOSED ? DEPTH : COPIED);
}

/* Floats of packed samples; for each of the three products the largest block. */
static size_t packed_floats(const struct dp_matmul *p)
{
    if (sums_samples(p)) {
        return dp_round_up(p->n, DP_GEMM_WIDTH) * most_depth(p);
    }
    return dp_round_up(most_rows(p), DP_GEMM_WIDTH) *
           (dp_round_up(most_depth(p), DP_GEMM_LANES) + DP_GEMM_EXTRA);
}

static size_t own_floats(const struct dp_matmul *p)
{
    return most_depth(p) * DP_GEMM_WIDTH;
}

/* Threads divide the samples of c = a b' and c = a b where there are enough of them, and then share
 * nothing: each finds its part of a where it wrote it as the result of another product. */
static bool divides_samples(const struct dp_matmul *p, int threads)
{
    return !sums_samples(p) && p->m >= (size_t)threads * ROWS_EACH;
}

/* Floats of one thread's scratch where threads divide samples: the last part is the largest. */
static size_t part_floats(const struct dp_matmul *p, int parts)
{
    struct dp_matmul last = *p;
    size_t begin;

    dp_part(p->m, DP_GEMM_WIDTH, parts - 1, parts, &begin, &last.m);
    last.m -= begin;
    return packed_floats(&last) + own_floats(&last);
}

size_t dp_gemm_bytes(const struct dp_matmul *p, int threads)
{
    return (divides_samples(p, threads) ? (size_t)threads * part_floats(p, threads)
                                        : packed_floats(p) + (size_t)threads * own_floats(p)) *
           sizeof(float);
}

/* ---- on threads ---- */

/* In what pack and compute are divided: panels, half panels of samples, or rows; and columns of c,
 * or rows of weights. */
static size_t pack_units(const struct dp_gemm_block *b)
{
    const struct dp_matmul *p = &b->call->product;

    if (sums_samples(p)) {
        return dp_round_up(p->n, DP_GEMM_WIDTH) / DP_GEMM_WIDTH;
    }
    return p->order_b == DP_TRANSPOSED ? dp_round_up(b->rows, DP_GEMM_LANES) / DP_GEMM_LANES
                                       : b->rows;
}

static void pack_part(void *context, int part, int parts)
{
    const struct dp_gemm_block *b = context;
    size_t begin, end;

    dp_part(pack_units(b), 1, part, parts, &begin, &end);
    dp_gemm_pack(b, begin, end);
}

static void compute_part(void *context, int part, int parts)
{
    struct dp_gemm_block mine = *(const struct dp_gemm_block *)context;
    const struct dp_matmul *p = &mine.call->product;
    const bool plain = p->order_a == DP_PLAIN && p->order_b == DP_PLAIN;
    size_t begin, end;

    mine.own += (size_t)part * own_floats(p);
    dp_part(sums_samples(p) ? p->m : p->n, plain ? DP_GEMM_WIDTH : DP_GEMM_ROWS, part, parts,
            &begin, &end);
    dp_gemm_compute(&mine, begin, end);
}

/* On threads that share what is packed. */
static void run(const struct dp_gemm *gemm, int threads)
{
    const struct dp_matmul *p = &gemm->product;
    const size_t rows = most_rows(p), depth = most_depth(p);
    struct dp_gemm_block b = {
        .call = gemm, .packed = gemm->scratch, .own = gemm->scratch + packed_floats(p)};

    for (b.row = 0; b.row < p->m; b.row += rows) {
        b.rows = dp_smaller(rows, p->m - b.row);
        for (b.at = 0; b.at < p->k; b.at += depth) {
            b.depth = dp_smaller(depth, p->k - b.at);
            b.keep = p->keep != 0 || b.at > 0;
            b.last = b.at + b.depth == p->k;
            dp_parallel_parts(threads, pack_part, &b);
            dp_parallel_parts(threads, compute_part, &b);
        }
    }
}

static void run_part(void *context, int part, int parts)
{
    const struct dp_gemm *gemm = context;
    struct dp_gemm mine = *gemm;
    struct dp_matmul *p = &mine.product;
    size_t begin, end;

    dp_part(p->m, DP_GEMM_WIDTH, part, parts, &begin, &end);
    p->a += begin * p->lda;
    p->c += begin * p->ldc;
    p->m = end - begin;
    mine.scratch += (size_t)part * part_floats(&gemm->product, parts);
    run(&mine, 1);
}

void dp_gemm(const struct dp_gemm *gemm, int threads)
{
    struct dp_gemm call = *gemm;

    if (threads > 1 && divides_samples(&gemm->product, threads)) {
        dp_parallel_parts(threads, run_part, &call);
    } else {
        run(gemm, threads);
    }
}
