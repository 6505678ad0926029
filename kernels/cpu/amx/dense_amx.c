#include "kernels/cpu/amx/dense_amx.h"

#include "kernels/cpu/amx/pack_amx.h"
#include "kernels/cpu/amx/sums_amx.h"
#include "kernels/cpu/parallel.h"
#include "kernels/tensor.h"

#if DP_AMX_CODE

enum {
    SIDE = DP_AMX_SIDE,
    BLOCK = DP_AMX_BLOCK,
    TILE = DP_AMX_ROWS * DP_AMX_ROWS, /* floats of a tile of sums */
    SUMS = 4 * TILE,
    ROWS = 256, /* samples of a chunk, where samples are not summed over */
    STEPS = 4   /* blocks of weights in the first cache */
};

struct plan {
    const struct dp_dense_amx *call;
    size_t row, rows; /* the samples of a chunk */
    size_t steps;     /* blocks along a sum */
    uint16_t *samples;
    char *own; /* threads' scratch */
};

static size_t chunk_rows(const struct dp_dense_key *key)
{
    return key->use == DP_DENSE_BACKWARD_WEIGHTS ? key->rows : dp_smaller(key->rows, ROWS);
}

static size_t steps_of(const struct dp_dense_key *key)
{
    return dp_div_up(key->use == DP_DENSE_FORWARD         ? key->in
                     : key->use == DP_DENSE_BACKWARD_DATA ? key->out
                                                          : key->rows,
                     SIDE);
}

static size_t samples_bytes(const struct dp_dense_key *key)
{
    const size_t across = key->use == DP_DENSE_BACKWARD_WEIGHTS ? dp_div_up(key->in, SIDE)
                                                                : dp_div_up(chunk_rows(key), SIDE);

    return across * steps_of(key) * BLOCK * sizeof(uint16_t);
}

/* A thread's: blocks of weights, or of dy; and sums. */
static size_t own_blocks(const struct dp_dense_key *key)
{
    return key->use == DP_DENSE_BACKWARD_WEIGHTS ? steps_of(key) : STEPS;
}

static size_t own_bytes(const struct dp_dense_key *key)
{
    const size_t sums =
        key->use == DP_DENSE_BACKWARD_WEIGHTS ? 1 : dp_div_up(chunk_rows(key), SIDE);

    return own_blocks(key) * BLOCK * sizeof(uint16_t) + sums * SUMS * sizeof(float);
}

size_t dp_dense_amx_bytes(const struct dp_dense_key *key, int threads)
{
    return samples_bytes(key) + (size_t)threads * own_bytes(key);
}

/* ---- a block of sums ---- */

/* What is fetched into the second cache: in each step `rows` cache lines, `row` bytes apart. */
struct ahead {
    const char *at;
    size_t step, row, rows;
};

DP_AMX_INLINE void add_products(const uint16_t *a, const uint16_t *b, size_t steps,
                                const struct ahead *ahead)
{
    const char *step = ahead->at;

    dp_amx_stored();
    for (size_t i = 0; i < steps; i++, a += BLOCK, b += BLOCK, step += ahead->step) {
        const char *at = step;
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        DP_AMX_MULTIPLY(0, 4, 6);
        for (size_t k = 0; k < ahead->rows; k++, at += ahead->row) {
            _mm_prefetch(at, _MM_HINT_T1);
        }
        _tile_loadd(7, b + DP_AMX_TILE, 64);
        DP_AMX_MULTIPLY(1, 4, 7);
        _tile_loadd(5, a + DP_AMX_TILE, 64);
        DP_AMX_MULTIPLY(2, 5, 6);
        DP_AMX_MULTIPLY(3, 5, 7);
    }
}

/* ---- results ---- */

/* Two rows of sums as pairs of bfloats. */
DP_AMX_INLINE __m512i pairs_of(__m512 even, __m512 odd)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

DP_AMX_INLINE __m512 finished(const struct dp_dense_amx *call, const float *sums, size_t unit)
{
    __m512 sum = _mm512_load_ps(sums);

    if (call->bias != NULL && unit < call->key.out) {
        const __m512i bias = _mm512_set1_epi32((int)((uint32_t)call->bias[unit] << 16));
        sum = _mm512_add_ps(sum, _mm512_castsi512_ps(bias));
    }
    /* As `sum < 0 ? 0 : sum`: the second operand if it is no number. */
    return call->relu ? _mm512_max_ps(_mm512_setzero_ps(), sum) : sum;
}

/* y of 32 samples and units from sums of units and samples. */
DP_AMX static void store_result(const struct plan *plan, const float *sums, size_t sample,
                                size_t unit)
{
    const struct dp_dense_amx *call = plan->call;
    const size_t out = call->key.out, last = plan->rows - sample;
    uint16_t *to = (uint16_t *)call->c + (plan->row + sample) * out + unit;
    const __mmask32 mask = dp_amx_mask(out - unit);
    __m512i v[DP_AMX_ROWS];

    for (size_t half = 0; half < 2; half++) {
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            const float *pair = sums + 2 * i * SIDE + half * DP_AMX_ROWS;
            v[i] = pairs_of(finished(call, pair, unit + 2 * i),
                            finished(call, pair + SIDE, unit + 2 * i + 1));
        }
        dp_amx_transpose(v);
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            if (half * DP_AMX_ROWS + i < last) {
                _mm512_mask_storeu_epi16(to + (half * DP_AMX_ROWS + i) * out, mask, v[i]);
            }
        }
    }
}

/* dx of 32 samples and inputs. */
DP_AMX static void store_back(const struct plan *plan, const float *sums, size_t sample,
                              size_t input)
{
    const size_t in = plan->call->key.in, rows = dp_smaller(plan->rows - sample, SIDE);
    uint16_t *to = (uint16_t *)plan->call->c + (plan->row + sample) * in + input;
    const __mmask32 mask = dp_amx_mask(in - input);

    for (size_t i = 0; i < rows; i++, sums += SIDE, to += in) {
        const __m512bh both =
            _mm512_cvtne2ps_pbh(_mm512_load_ps(sums + DP_AMX_ROWS), _mm512_load_ps(sums));
        _mm512_mask_storeu_epi16(to, mask, _mm512_permutexvar_epi64(dp_amx_fours(), (__m512i)both));
    }
}

/* The part that exists of a block of dw, from sums or to them. */
DP_AMX static void copy_part(const struct dp_dense_amx *call, float *sums, size_t unit,
                             size_t input, bool back)
{
    const size_t in = call->key.in, rows = dp_smaller(call->key.out - unit, SIDE);
    const uint32_t mask = dp_amx_mask(in - input);
    float *c = (float *)call->c + unit * in + input;

    for (size_t i = 0; i < rows; i++, c += in) {
        for (size_t half = 0; half < 2; half++, sums += DP_AMX_ROWS) {
            const __mmask16 some = (__mmask16)(mask >> (half * DP_AMX_ROWS));
            float *at = c + half * DP_AMX_ROWS;
            if (back) {
                _mm512_store_ps(sums, _mm512_maskz_loadu_ps(some, at));
            } else {
                _mm512_mask_storeu_ps(at, some, _mm512_load_ps(sums));
            }
        }
    }
}

/* ---- y and dx: blocks of weights, each for all samples of the chunk ---- */

static bool is_forward(const struct plan *plan)
{
    return plan->call->key.use == DP_DENSE_FORWARD;
}

/* Blocks of weights beside each other, of which each has sums of its own. */
static size_t across(const struct plan *plan)
{
    return dp_div_up(is_forward(plan) ? plan->call->key.out : plan->call->key.in, SIDE);
}

/* Block `step` along the sums of units or inputs [32 i, 32 i + 32). */
static inline struct dp_amx_block weights_at(const struct plan *plan, size_t i, size_t step)
{
    const struct dp_dense_key *key = &plan->call->key;
    const size_t row = (is_forward(plan) ? i : step) * SIDE;
    const size_t column = (is_forward(plan) ? step : i) * SIDE;

    return (struct dp_amx_block){plan->call->b + row * key->in + column, key->in, key->out - row,
                                 key->in - column};
}

DP_AMX static void copy_weights(const struct plan *plan, uint16_t *to, size_t i, size_t step)
{
    struct dp_amx_block block = weights_at(plan, i, step);

    if (is_forward(plan)) {
        dp_amx_pack_a(to, &block);
    } else {
        dp_amx_pack_b(to, &block, false);
    }
}

/* The weights that come after these; panels of samples fetch a part each. Beyond the last ones is
 * nothing to fetch, which does no harm. */
static struct ahead ahead_of(const struct plan *plan, size_t i, size_t step)
{
    const size_t panels = dp_div_up(plan->rows, SIDE), row = plan->call->key.in * sizeof(uint16_t);
    const bool same = step + STEPS < plan->steps, last = i + 1 == across(plan);
    struct ahead ahead = {
        .step = is_forward(plan) ? SIDE * sizeof(uint16_t) : SIDE * row,
        .row = row,
        .rows = same || !last ? dp_div_up(SIDE, panels) : 0,
    };

    ahead.at = (const char *)weights_at(plan, same ? i : i + !last, same ? step + STEPS : 0).from;
    return ahead;
}

DP_AMX static void compute_strip(const struct plan *plan, char *own, size_t i, size_t step)
{
    uint16_t *weights = (uint16_t *)(void *)own;
    float *sums = (float *)(void *)(own + (size_t)STEPS * BLOCK * sizeof(uint16_t));
    const size_t steps = dp_smaller(STEPS, plan->steps - step);
    struct ahead ahead = ahead_of(plan, i, step);

    for (size_t k = 0; k < steps; k++) {
        copy_weights(plan, weights + k * BLOCK, i, step + k);
    }
    for (size_t row = 0; row < plan->rows; row += SIDE, sums += SUMS) {
        const uint16_t *samples = plan->samples + (row / SIDE * plan->steps + step) * BLOCK;
        if (step == 0) {
            dp_amx_zero_sums();
        } else {
            dp_amx_load_sums(sums, SIDE);
        }
        add_products(is_forward(plan) ? weights : samples, is_forward(plan) ? samples : weights,
                     steps, &ahead);
        dp_amx_store_sums(sums, SIDE);
        ahead.at += ahead.rows * ahead.row;
        if (step + steps == plan->steps && is_forward(plan)) {
            store_result(plan, sums, row, i * SIDE);
        } else if (step + steps == plan->steps) {
            store_back(plan, sums, row, i * SIDE);
        }
    }
}

DP_AMX static void compute_part(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_dense_key *key = &plan->call->key;
    char *own = plan->own + (size_t)part * own_bytes(key);
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(across(plan), 1, part, parts, &begin, &end);
    dp_amx_begin(&before);
    for (size_t i = begin; i < end; i++) {
        for (size_t step = 0; step < plan->steps; step += STEPS) {
            compute_strip(plan, own, i, step);
        }
    }
    dp_amx_end(&before);
}

/* Panels of 32 samples. */
DP_AMX static void pack_part(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_dense_key *key = &plan->call->key;
    const size_t width = is_forward(plan) ? key->in : key->out;
    size_t begin, end;

    dp_part(dp_div_up(plan->rows, SIDE), 1, part, parts, &begin, &end);
    for (size_t panel = begin; panel < end; panel++) {
        for (size_t step = 0; step < plan->steps; step++) {
            const size_t row = panel * SIDE, column = step * SIDE;
            const struct dp_amx_block block = {plan->call->a + (plan->row + row) * width + column,
                                               width, plan->rows - row, width - column};
            uint16_t *to = plan->samples + (panel * plan->steps + step) * BLOCK;
            if (is_forward(plan)) {
                dp_amx_pack_b_transposed(to, &block);
            } else {
                dp_amx_pack_a(to, &block);
            }
        }
    }
}

/* ---- dw: blocks of it, over all samples ---- */

DP_AMX static void compute_gradient(const struct plan *plan, char *own, size_t unit, size_t input)
{
    const struct dp_dense_amx *call = plan->call;
    const size_t in = call->key.in;
    const bool whole = call->key.out - unit >= SIDE && in - input >= SIDE;
    const uint16_t *dy = (const uint16_t *)(void *)own;
    float *part = (float *)(void *)(own + plan->steps * BLOCK * sizeof(uint16_t));
    float *c = (float *)call->c + unit * in + input;
    const struct ahead none = {0};

    if (!whole && call->adds) {
        copy_part(call, part, unit, input, true);
    }
    if (call->adds) {
        dp_amx_load_sums(whole ? c : part, whole ? in : SIDE);
    } else {
        dp_amx_zero_sums();
    }
    add_products(dy, plan->samples + input / SIDE * plan->steps * BLOCK, plan->steps, &none);
    dp_amx_store_sums(whole ? c : part, whole ? in : SIDE);
    if (!whole) {
        copy_part(call, part, unit, input, false);
    }
}

DP_AMX static void compute_gradients(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_dense_key *key = &plan->call->key;
    char *own = plan->own + (size_t)part * own_bytes(key);
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(key->out, SIDE, part, parts, &begin, &end);
    dp_amx_begin(&before);
    for (size_t unit = begin; unit < end; unit += SIDE) {
        for (size_t step = 0; step < plan->steps; step++) {
            const struct dp_amx_block block = {plan->call->a + step * SIDE * key->out + unit,
                                               key->out, key->rows - step * SIDE, key->out - unit};
            dp_amx_pack_a_transposed((uint16_t *)(void *)own + step * BLOCK, &block);
        }
        for (size_t input = 0; input < key->in; input += SIDE) {
            compute_gradient(plan, own, unit, input);
        }
    }
    dp_amx_end(&before);
}

/* Columns of x. */
DP_AMX static void pack_columns(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_dense_key *key = &plan->call->key;
    size_t begin, end;

    dp_part(key->in, SIDE, part, parts, &begin, &end);
    for (size_t step = 0; step < plan->steps; step++) {
        for (size_t input = begin; input < end; input += SIDE) {
            const struct dp_amx_block block = {plan->call->b + step * SIDE * key->in + input,
                                               key->in, key->rows - step * SIDE, key->in - input};
            dp_amx_pack_b(plan->samples + (input / SIDE * plan->steps + step) * BLOCK, &block,
                          true);
        }
    }
}

void dp_dense_amx(const struct dp_dense_amx *call, int threads)
{
    const struct dp_dense_key *key = &call->key;
    const bool sums_samples = key->use == DP_DENSE_BACKWARD_WEIGHTS;
    const size_t rows = chunk_rows(key);
    char *scratch = call->scratch;
    struct plan plan = {.call = call,
                        .steps = steps_of(key),
                        .samples = call->scratch,
                        .own = scratch + samples_bytes(key)};

    for (; plan.row < key->rows; plan.row += rows) {
        plan.rows = dp_smaller(rows, key->rows - plan.row);
        dp_parallel_parts(threads, sums_samples ? pack_columns : pack_part, &plan);
        dp_parallel_parts(threads, sums_samples ? compute_gradients : compute_part, &plan);
    }
}

#else

size_t dp_dense_amx_bytes(const struct dp_dense_key *key, int threads)
{
    (void)key, (void)threads;
    return 0;
}

void dp_dense_amx(const struct dp_dense_amx *call, int threads)
{
    (void)call, (void)threads;
}

#endif
