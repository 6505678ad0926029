#include "kernels/cpu/amx/gemm_amx.h"

#include "kernels/cpu/amx/products_amx.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

#if DP_AMX_CODE

enum {
    SIDE = DP_AMX_SIDE,
    SPLIT_BLOCK = DP_AMX_SPLIT_BLOCK,
    SUMS = SIDE * SIDE,
    ROWS = 128, /* samples of a chunk, where samples are not summed over */
    STEPS = 16  /* split blocks of weights at a time, in the second cache; twice */
};

struct plan {
    const struct dp_gemm *call;
    size_t row, rows; /* the samples of a chunk */
    size_t steps;     /* blocks along a sum */
    uint16_t *samples;
    char *own; /* threads' scratch */
};

static bool sums_samples(const struct dp_matmul *p)
{
    return p->order_a == DP_TRANSPOSED;
}

static bool transposes_weights(const struct dp_matmul *p)
{
    return p->order_b == DP_TRANSPOSED;
}

static size_t chunk_rows(const struct dp_matmul *p)
{
    return sums_samples(p) ? p->k : dp_smaller(p->m, ROWS);
}

static size_t steps_of(const struct dp_matmul *p)
{
    return dp_div_up(p->k, SIDE);
}

static size_t samples_bytes(const struct dp_matmul *p)
{
    const size_t across = dp_div_up(sums_samples(p) ? p->n : chunk_rows(p), SIDE);

    return across * steps_of(p) * SPLIT_BLOCK * sizeof(uint16_t);
}

/* A thread's: split blocks of weights, or of dy; one for transposing; and sums. */
static size_t own_blocks(const struct dp_matmul *p)
{
    return (sums_samples(p) ? steps_of(p) : (size_t)2 * STEPS) + 1;
}

static size_t own_bytes(const struct dp_matmul *p)
{
    const size_t sums = sums_samples(p) ? 1 : dp_div_up(chunk_rows(p), SIDE);

    return own_blocks(p) * SPLIT_BLOCK * sizeof(uint16_t) + sums * SUMS * sizeof(float);
}

bool dp_gemm_amx_can(const struct dp_matmul *p)
{
    return (p->order_a == DP_PLAIN || p->order_b == DP_PLAIN) && dp_amx_has();
}

size_t dp_gemm_amx_bytes(const struct dp_matmul *p, int threads)
{
    return samples_bytes(p) + (size_t)threads * own_bytes(p);
}

/* ---- weights in parts ---- */

/* Block `step` along the sums of units or inputs [32 i, 32 i + 32). */
static inline struct dp_amx_float_block weights_at(const struct plan *plan, size_t i, size_t step)
{
    const struct dp_matmul *p = &plan->call->product;
    const bool transposes = transposes_weights(p);
    const size_t row = (transposes ? i : step) * SIDE, column = (transposes ? step : i) * SIDE;

    return (struct dp_amx_float_block){p->b + row * p->ldb + column, p->ldb,
                                       (transposes ? p->n : p->k) - row,
                                       (transposes ? p->k : p->n) - column};
}

/* ---- results ---- */

DP_AMX_INLINE void store_row(const struct dp_gemm *call, float *to, __mmask16 mask, __m512 sum,
                             __m512 bias)
{
    sum = call->product.keep != 0 ? _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to)) : sum;
    sum = _mm512_add_ps(sum, bias);
    /* As `sum < 0 ? 0 : sum`: the second operand if it is no number. */
    sum = call->relu ? _mm512_max_ps(_mm512_setzero_ps(), sum) : sum;
    _mm512_mask_storeu_ps(to, mask, sum);
}

/* y of 32 samples and units from sums of units and samples. */
DP_AMX static void store_result(const struct plan *plan, const float *sums, size_t sample,
                                size_t unit)
{
    const struct dp_matmul *p = &plan->call->product;
    const uint32_t mask = dp_amx_mask(p->n - unit);
    const size_t last = plan->rows - sample;

    for (size_t part = 0; part < 4; part++) {
        const size_t right = part / 2 * DP_AMX_ROWS, down = part % 2 * DP_AMX_ROWS;
        const __mmask16 some = (__mmask16)(mask >> down);
        const __m512 bias = plan->call->bias != NULL
                                ? _mm512_maskz_loadu_ps(some, plan->call->bias + unit + down)
                                : _mm512_setzero_ps();
        float *to = p->c + (plan->row + sample + right) * p->ldc + unit + down;
        __m512i v[DP_AMX_ROWS];
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            v[i] = _mm512_load_si512(sums + (down + i) * SIDE + right);
        }
        dp_amx_transpose(v);
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            if (right + i < last) {
                store_row(plan->call, to + i * p->ldc, some, _mm512_castsi512_ps(v[i]), bias);
            }
        }
    }
}

/* Up to 32 rows and columns of c, which are left of it; of dx, or a part of a block of dw. */
DP_AMX static void store_block(const struct dp_gemm *call, float *to, const float *sums,
                               size_t rows, size_t columns)
{
    const uint32_t mask = dp_amx_mask(columns);

    for (size_t i = 0; i < dp_smaller(rows, SIDE); i++, sums += SIDE, to += call->product.ldc) {
        store_row(call, to, (__mmask16)mask, _mm512_load_ps(sums), _mm512_setzero_ps());
        store_row(call, to + DP_AMX_ROWS, (__mmask16)(mask >> DP_AMX_ROWS),
                  _mm512_load_ps(sums + DP_AMX_ROWS), _mm512_setzero_ps());
    }
}

/* ---- y and dx: blocks of weights, each for all samples of the chunk ---- */

/* Up to STEPS blocks of weights, one after the other along the sums: units or inputs
 * [32 i, 32 i + 32). */
struct strip {
    size_t i, step, steps; /* steps 0: there is none */
};

static struct strip strip_after(const struct plan *plan, const struct strip *s, size_t end)
{
    const bool same = s->step + STEPS < plan->steps;
    const struct strip next = {same ? s->i : s->i + 1, same ? s->step + STEPS : 0, 0};

    return (struct strip){next.i, next.step,
                          next.i < end ? dp_smaller(STEPS, plan->steps - next.step) : 0};
}

/* With all calls that multiply a strip, these blocks are split, too. Two blocks ahead: farther is
 * too far where rows are 4 KB apart, since they share few sets of the second cache. */
static struct dp_amx_splitting split_of(const struct plan *plan, const struct strip *s,
                                        uint16_t *to, size_t products)
{
    return (struct dp_amx_splitting){
        .to = to,
        .block = weights_at(plan, s->i, s->step),
        .blocks = s->steps,
        .pairs = dp_div_up(s->steps * SIDE / 2, products),
        .ahead = (size_t)2 * SIDE *
                 (transposes_weights(&plan->call->product) ? 1 : plan->call->product.ldb),
    };
}

DP_AMX_INLINE void compute_strip(const struct plan *plan, const struct strip *s,
                                 const uint16_t *weights, float *sums,
                                 struct dp_amx_splitting *next, bool transposes)
{
    const bool last = s->step + s->steps == plan->steps;

    for (size_t row = 0; row < plan->rows; row += SIDE, sums += SUMS) {
        const uint16_t *samples =
            plan->samples + (row / SIDE * plan->steps + s->step) * SPLIT_BLOCK;
        if (s->step == 0) {
            dp_amx_zero_sums();
        } else {
            dp_amx_load_sums(sums, SIDE);
        }
        dp_amx_add_products(transposes ? weights : samples, transposes ? samples : weights, samples,
                            s->steps, next, transposes);
        dp_amx_store_sums(sums, SIDE);
        if (last && transposes) {
            store_result(plan, sums, row, s->i * SIDE);
        } else if (last) {
            const struct dp_matmul *p = &plan->call->product;
            const size_t input = s->i * SIDE;
            store_block(plan->call, p->c + (plan->row + row) * p->ldc + input, sums,
                        plan->rows - row, p->n - input);
        }
    }
}

/* While a strip is multiplied, the next one is split. */
DP_AMX_INLINE void compute_strips(const struct plan *plan, char *own, size_t begin, size_t end,
                                  bool transposes)
{
    uint16_t *weights[] = {(uint16_t *)(void *)own,
                           (uint16_t *)(void *)own + (size_t)STEPS * SPLIT_BLOCK};
    float *sums =
        (float *)(void *)(own + own_blocks(&plan->call->product) * SPLIT_BLOCK * sizeof(uint16_t));
    const size_t panels = dp_div_up(plan->rows, SIDE);
    struct strip s = {begin, 0, dp_smaller(STEPS, plan->steps)}, after;
    struct dp_amx_splitting next = split_of(plan, &s, weights[0], 1);

    dp_amx_split_some(&next, next.pairs, transposes);
    for (int at = 0; s.steps > 0; s = after, at = 1 - at) {
        after = strip_after(plan, &s, end);
        if (after.steps > 0) {
            next = split_of(plan, &after, weights[1 - at], panels * s.steps * DP_AMX_PRODUCTS);
        }
        compute_strip(plan, &s, weights[at], sums, &next, transposes);
    }
}

DP_AMX static void compute_part(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_matmul *p = &plan->call->product;
    char *own = plan->own + (size_t)part * own_bytes(p);
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(dp_div_up(p->n, SIDE), 1, part, parts, &begin, &end);
    if (begin == end) {
        return;
    }
    dp_amx_begin(&before);
    if (transposes_weights(p)) {
        compute_strips(plan, own, begin, end, true);
    } else {
        compute_strips(plan, own, begin, end, false);
    }
    dp_amx_end(&before);
}

/* A thread's room for transposing a split block. */
static uint16_t *room_of(const struct plan *plan, int part)
{
    const struct dp_matmul *p = &plan->call->product;

    return (uint16_t *)(void *)(plan->own + (size_t)part * own_bytes(p)) +
           (own_blocks(p) - 1) * SPLIT_BLOCK;
}

/* Panels of 32 samples. */
DP_AMX static void pack_part(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_matmul *p = &plan->call->product;
    size_t begin, end;

    dp_part(dp_div_up(plan->rows, SIDE), 1, part, parts, &begin, &end);
    for (size_t panel = begin; panel < end; panel++) {
        for (size_t step = 0; step < plan->steps; step++) {
            const size_t row = panel * SIDE, column = step * SIDE;
            const struct dp_amx_float_block block = {p->a + (plan->row + row) * p->lda + column,
                                                     p->lda, plan->rows - row, p->k - column};
            uint16_t *to = plan->samples + (panel * plan->steps + step) * SPLIT_BLOCK;
            if (transposes_weights(p)) {
                dp_amx_split_b_transposed(to, room_of(plan, part), &block);
            } else {
                dp_amx_split_a(to, &block);
            }
        }
    }
}

/* ---- dw: blocks of it, over all samples ---- */

DP_AMX static void compute_gradient(const struct plan *plan, char *own, size_t unit, size_t input)
{
    const struct dp_gemm *call = plan->call;
    const struct dp_matmul *p = &call->product;
    const bool whole = p->m - unit >= SIDE && p->n - input >= SIDE && p->keep == 0;
    const uint16_t *dy = (const uint16_t *)(void *)own;
    const uint16_t *x = plan->samples + input / SIDE * plan->steps * SPLIT_BLOCK;
    float *part = (float *)(void *)(own + own_blocks(p) * SPLIT_BLOCK * sizeof(uint16_t));
    float *c = p->c + unit * p->ldc + input;
    struct dp_amx_splitting nothing = {0};

    dp_amx_zero_sums();
    dp_amx_add_products(dy, x, x, plan->steps, &nothing, false);
    dp_amx_store_sums(whole ? c : part, whole ? p->ldc : SIDE);
    if (!whole) {
        store_block(call, c, part, p->m - unit, p->n - input);
    }
}

DP_AMX static void compute_gradients(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_matmul *p = &plan->call->product;
    char *own = plan->own + (size_t)part * own_bytes(p);
    uint16_t *room = room_of(plan, part);
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(p->m, SIDE, part, parts, &begin, &end);
    dp_amx_begin(&before);
    for (size_t unit = begin; unit < end; unit += SIDE) {
        for (size_t step = 0; step < plan->steps; step++) {
            const struct dp_amx_float_block block = {p->a + step * SIDE * p->lda + unit, p->lda,
                                                     p->k - step * SIDE, p->m - unit};
            dp_amx_split_a_transposed((uint16_t *)(void *)own + step * SPLIT_BLOCK, room, &block);
        }
        for (size_t input = 0; input < p->n; input += SIDE) {
            compute_gradient(plan, own, unit, input);
        }
    }
    dp_amx_end(&before);
}

/* Columns of x. */
DP_AMX static void pack_columns(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_matmul *p = &plan->call->product;
    size_t begin, end;

    dp_part(p->n, SIDE, part, parts, &begin, &end);
    for (size_t step = 0; step < plan->steps; step++) {
        for (size_t input = begin; input < end; input += SIDE) {
            const struct dp_amx_float_block block = {p->b + step * SIDE * p->ldb + input, p->ldb,
                                                     p->k - step * SIDE, p->n - input};
            dp_amx_split_b(plan->samples + (input / SIDE * plan->steps + step) * SPLIT_BLOCK,
                           &block);
        }
    }
}

void dp_gemm_amx(const struct dp_gemm *gemm, int threads)
{
    const struct dp_matmul *p = &gemm->product;
    const bool gradient = sums_samples(p);
    const size_t rows = chunk_rows(p), all = gradient ? p->k : p->m;
    char *scratch = (char *)(void *)gemm->scratch;
    struct plan plan = {.call = gemm,
                        .steps = steps_of(p),
                        .samples = (uint16_t *)(void *)scratch,
                        .own = scratch + samples_bytes(p)};

    for (; plan.row < all; plan.row += rows) {
        plan.rows = dp_smaller(rows, all - plan.row);
        dp_parallel_parts(threads, gradient ? pack_columns : pack_part, &plan);
        dp_parallel_parts(threads, gradient ? compute_gradients : compute_part, &plan);
    }
}

#else

bool dp_gemm_amx_can(const struct dp_matmul *p)
{
    (void)p;
    return false;
}

size_t dp_gemm_amx_bytes(const struct dp_matmul *p, int threads)
{
    (void)p, (void)threads;
    return 0;
}

void dp_gemm_amx(const struct dp_gemm *gemm, int threads)
{
    (void)gemm, (void)threads;
}

#endif
