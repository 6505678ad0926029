#include "kernels/cpu/amx/pointwise_amx.h"

#include "kernels/cpu/amx/products_amx.h"
#include "kernels/cpu/parallel.h"
#include "kernels/tensor.h"

#if DP_AMX_CODE

enum {
    SIDE = DP_AMX_SIDE,
    SPLIT_BLOCK = DP_AMX_SPLIT_BLOCK,
    SUMS = SIDE * SIDE,
    KEPT = 128, /* split blocks that stay in the second cache: 0.75 MB */
    STEPS = 16  /* most blocks of pixels that are summed at a time */
};

struct plan {
    const struct dp_conv_call *call;
    const float *kept, *streamed; /* the operands */
    float *result;
    size_t pixels, kept_columns, streamed_columns;
    size_t at, count; /* what is kept of it: blocks of columns of weights, or of pixels */
    size_t products;  /* of parts, with which a panel is multiplied by what is kept */
    uint16_t *split;  /* what is kept */
    float *sums;      /* of dw: blocks */
    char *own;        /* threads' scratch */
};

bool dp_pointwise_amx_can(const struct dp_window *w)
{
    return w->kernel_h == 1 && w->kernel_w == 1 && w->stride == 1 && w->padding == 0 &&
           w->groups <= 1 && w->in_c % SIDE == 0 && w->out_c % SIDE == 0 && dp_amx_has();
}

static bool sums_pixels(unsigned use)
{
    return (use & DP_CONV_BACKWARD_WEIGHTS) != 0;
}

static size_t pixels_of(const struct dp_window *w, size_t rows)
{
    return rows * w->in_h * w->in_w;
}

/* Channels of the operand that is multiplied by weights, and of the result. */
static size_t sum_channels(const struct dp_window *w, unsigned use)
{
    return (use & DP_CONV_FORWARD) != 0 ? w->in_c : w->out_c;
}

static size_t result_channels(const struct dp_window *w, unsigned use)
{
    return (use & DP_CONV_FORWARD) != 0 ? w->out_c : w->in_c;
}

/* Whether, for dw, it is x that has fewer channels. */
static bool keeps_x(const struct dp_window *w)
{
    return w->in_c <= w->out_c;
}

/* Blocks of columns that are kept, each of `steps` blocks; at least one. */
static size_t kept_weights(const struct dp_window *w, unsigned use)
{
    const size_t steps = sum_channels(w, use) / SIDE;

    return dp_conv_equal_part(result_channels(w, use) / SIDE, KEPT / steps);
}

/* Blocks of pixels that are kept. */
static size_t kept_pixels(const struct dp_window *w, size_t rows)
{
    const size_t across = dp_smaller(w->in_c, w->out_c) / SIDE;

    return dp_conv_equal_part(dp_div_up(pixels_of(w, rows), SIDE),
                              dp_smaller(KEPT / across, STEPS));
}

/* Split blocks of each of two panels that a thread streams. */
static size_t panel_blocks(const struct dp_window *w, size_t rows, unsigned use)
{
    return sums_pixels(use) ? kept_pixels(w, rows) : sum_channels(w, use) / SIDE;
}

static size_t kept_bytes(const struct dp_window *w, size_t rows, unsigned use)
{
    const size_t blocks = sums_pixels(use)
                              ? kept_pixels(w, rows) * (dp_smaller(w->in_c, w->out_c) / SIDE)
                              : kept_weights(w, use) * (sum_channels(w, use) / SIDE);

    return blocks * SPLIT_BLOCK * sizeof(uint16_t);
}

static size_t sums_bytes(const struct dp_window *w, unsigned use)
{
    return sums_pixels(use) ? w->in_c * w->out_c * sizeof(float) : 0;
}

/* Two panels, a block for transposing, a block of sums. */
static size_t own_bytes(const struct dp_window *w, size_t rows, unsigned use)
{
    return (2 * panel_blocks(w, rows, use) + 1) * SPLIT_BLOCK * sizeof(uint16_t) +
           SUMS * sizeof(float);
}

size_t dp_pointwise_amx_bytes(const struct dp_conv_call *c, int threads)
{
    return kept_bytes(c->w, c->rows, c->use) + sums_bytes(c->w, c->use) +
           (size_t)threads * own_bytes(c->w, c->rows, c->use);
}

/* A thread's scratch. */
struct own {
    uint16_t *panels[2], *room;
    float *sums;
};

static struct own own_of(const struct plan *plan, int part)
{
    const struct dp_conv_call *c = plan->call;
    const size_t panel = panel_blocks(c->w, c->rows, c->use) * SPLIT_BLOCK;
    uint16_t *own =
        (uint16_t *)(void *)(plan->own + (size_t)part * own_bytes(c->w, c->rows, c->use));

    return (struct own){
        {own, own + panel}, own + 2 * panel, (float *)(void *)(own + 2 * panel + SPLIT_BLOCK)};
}

/* ---- y and dx ---- */

/* Weights in blocks of B, one after the other along the sums. */
DP_AMX static void pack_weights(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct dp_window *w = plan->call->w;
    const bool transposes = (plan->call->use & DP_CONV_FORWARD) != 0;
    const size_t steps = plan->streamed_columns / SIDE;
    uint16_t *room = own_of(plan, part).room, *to;
    size_t begin, end;

    dp_part(plan->count, 1, part, parts, &begin, &end);
    to = plan->split + begin * steps * SPLIT_BLOCK;
    for (size_t column = begin; column < end; column++) {
        for (size_t step = 0; step < steps; step++, to += SPLIT_BLOCK) {
            const size_t along = step * SIDE, across = (plan->at + column) * SIDE;
            const float *from = plan->kept + (transposes ? across : along) * w->in_c +
                                (transposes ? along : across);
            const struct dp_amx_float_block block = {from, w->in_c, SIDE, SIDE};
            if (transposes) {
                dp_amx_split_b_transposed(to, room, &block);
            } else {
                dp_amx_split_b(to, &block);
            }
        }
    }
}

/* Panels of 32 pixels; the one after the next is fetched meanwhile. */
static struct dp_amx_splitting split_pixels(const struct plan *plan, size_t panel, uint16_t *to,
                                            size_t products)
{
    const size_t columns = plan->streamed_columns, row = panel * SIDE;

    return (struct dp_amx_splitting){
        .to = to,
        .block = {plan->streamed + row * columns, columns, plan->pixels - row, columns},
        .blocks = columns / SIDE,
        .pairs = dp_div_up(columns / SIDE * DP_AMX_ROWS, products),
        .ahead = SIDE * columns,
    };
}

/* Where a block of results goes: while products are computed. */
DP_AMX_INLINE void fetch_result(float *to, size_t rows, size_t columns)
{
    for (size_t row = 0; row < rows; row++, to += columns) {
        _mm_prefetch((const char *)to, _MM_HINT_ET0);
        _mm_prefetch((const char *)(to + DP_AMX_ROWS), _MM_HINT_ET0);
    }
}

DP_AMX_INLINE void compute_panel(const struct plan *plan, size_t panel, const uint16_t *pixels,
                                 struct dp_amx_splitting *next, float *sums)
{
    const size_t steps = plan->streamed_columns / SIDE, columns = plan->kept_columns;
    const size_t rows = dp_smaller(plan->pixels - panel * SIDE, SIDE);
    float *to = plan->result + panel * SIDE * columns + plan->at * SIDE;
    const uint16_t *weights = plan->split;

    for (size_t column = 0; column < plan->count; column++, to += SIDE) {
        fetch_result(to, rows, columns);
        dp_amx_zero_sums();
        dp_amx_add_products(pixels, weights, weights, steps, next, true);
        weights += steps * SPLIT_BLOCK;
        if (rows == SIDE) {
            dp_amx_store_sums(to, columns);
            continue;
        }
        dp_amx_store_sums(sums, SIDE);
        for (size_t row = 0; row < rows; row++) {
            memcpy(to + row * columns, sums + row * SIDE, SIDE * sizeof(*to));
        }
    }
}

DP_AMX static void compute_panels(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct own own = own_of(plan, part);
    struct dp_amx_splitting next;
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(dp_div_up(plan->pixels, SIDE), 1, part, parts, &begin, &end);
    if (begin == end) {
        return;
    }
    dp_amx_begin(&before);
    next = split_pixels(plan, begin, own.panels[0], 1);
    dp_amx_split_some(&next, next.pairs, true);
    for (size_t panel = begin; panel < end; panel++) {
        const size_t at = (panel - begin) % 2;
        next = (struct dp_amx_splitting){0};
        if (panel + 1 < end) {
            next = split_pixels(plan, panel + 1, own.panels[1 - at], plan->products);
        }
        compute_panel(plan, panel, own.panels[at], &next, own.sums);
    }
    dp_amx_end(&before);
}

/* ---- dw ---- */

/* Pixels of the operand with fewer channels, which are rows of A, one block after the other along
 * the sums. */
DP_AMX static void pack_pixels(void *context, int part, int parts)
{
    const struct plan *plan = context;
    uint16_t *room = own_of(plan, part).room, *to;
    const size_t columns = plan->kept_columns;
    size_t begin, end;

    dp_part(columns / SIDE, 1, part, parts, &begin, &end);
    for (size_t step = 0; step < plan->count; step++) {
        const size_t row = (plan->at + step) * SIDE;
        for (size_t column = begin; column < end; column++) {
            const struct dp_amx_float_block block = {plan->kept + row * columns + column * SIDE,
                                                     columns, plan->pixels - row, SIDE};
            to = plan->split + (column * plan->count + step) * SPLIT_BLOCK;
            dp_amx_split_a_transposed(to, room, &block);
        }
    }
}

/* Pixels of 32 channels of the other operand. */
static struct dp_amx_splitting split_channels(const struct plan *plan, size_t column, uint16_t *to,
                                              size_t products)
{
    const size_t columns = plan->streamed_columns, row = plan->at * SIDE;

    return (struct dp_amx_splitting){
        .to = to,
        .block = {plan->streamed + row * columns + column * SIDE, columns, plan->pixels - row,
                  SIDE},
        .blocks = plan->count,
        .pairs = dp_div_up(plan->count * DP_AMX_ROWS, products),
        .ahead = (size_t)2 * SIDE * columns,
    };
}

/* A block of dw from sums of weights of the kept channels and the streamed ones. */
DP_AMX static void store_gradient(const struct plan *plan, size_t kept, size_t streamed,
                                  const float *sums)
{
    const bool transposes = keeps_x(plan->call->w);
    const size_t columns = plan->call->w->in_c;
    const size_t out = (transposes ? streamed : kept) * SIDE,
                 in = (transposes ? kept : streamed) * SIDE;

    for (size_t part = 0; part < 4; part++) {
        const size_t down = part / 2 * DP_AMX_ROWS, right = part % 2 * DP_AMX_ROWS;
        float *to = plan->result + (out + down) * columns + in + right;
        const float *from = transposes ? sums + right * SIDE + down : sums + down * SIDE + right;
        __m512i v[DP_AMX_ROWS];
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            v[i] = _mm512_load_si512(from + i * SIDE);
        }
        if (transposes) {
            dp_amx_transpose(v);
        }
#pragma GCC unroll 16
        for (size_t i = 0; i < DP_AMX_ROWS; i++) {
            const __m512 sum = _mm512_castsi512_ps(v[i]);
            _mm512_storeu_ps(
                to + i * columns,
                plan->call->adds ? _mm512_add_ps(sum, _mm512_loadu_ps(to + i * columns)) : sum);
        }
    }
}

DP_AMX_INLINE void compute_channels(const struct plan *plan, size_t column,
                                    const uint16_t *streamed, struct dp_amx_splitting *next)
{
    const size_t across = plan->kept_columns / SIDE;
    const bool last = (plan->at + plan->count) * SIDE >= plan->pixels;
    float *sums = plan->sums + column * across * SUMS;
    const uint16_t *kept = plan->split;

    for (size_t i = 0; i < across; i++, sums += SUMS) {
        if (plan->at == 0) {
            dp_amx_zero_sums();
        } else {
            dp_amx_load_sums(sums, SIDE);
        }
        dp_amx_add_products(kept, streamed, kept, plan->count, next, false);
        kept += plan->count * SPLIT_BLOCK;
        dp_amx_store_sums(sums, SIDE);
        if (last) {
            store_gradient(plan, i, column, sums);
        }
    }
}

DP_AMX static void compute_gradient(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct own own = own_of(plan, part);
    struct dp_amx_splitting next;
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(plan->streamed_columns / SIDE, 1, part, parts, &begin, &end);
    if (begin == end) {
        return;
    }
    dp_amx_begin(&before);
    next = split_channels(plan, begin, own.panels[0], 1);
    dp_amx_split_some(&next, next.pairs, false);
    for (size_t column = begin; column < end; column++) {
        const size_t at = (column - begin) % 2;
        next = (struct dp_amx_splitting){0};
        if (column + 1 < end) {
            next = split_channels(plan, column + 1, own.panels[1 - at], plan->products);
        }
        compute_channels(plan, column, own.panels[at], &next);
    }
    dp_amx_end(&before);
}

/* ---- all ---- */

static struct plan plan_of(const struct dp_conv_call *c)
{
    const struct dp_window *w = c->w;
    const bool forward = (c->use & DP_CONV_FORWARD) != 0, x = keeps_x(w);
    char *scratch = c->scratch;
    struct plan plan = {.call = c, .pixels = pixels_of(w, c->rows)};

    if (sums_pixels(c->use)) {
        plan.kept = x ? c->x : c->y;
        plan.streamed = x ? c->y : c->x;
        plan.result = c->weights;
        plan.kept_columns = x ? w->in_c : w->out_c;
        plan.streamed_columns = x ? w->out_c : w->in_c;
    } else {
        plan.kept = c->weights;
        plan.streamed = forward ? c->x : c->y;
        plan.result = forward ? c->y : c->x;
        plan.kept_columns = result_channels(w, c->use);
        plan.streamed_columns = sum_channels(w, c->use);
    }
    plan.split = (uint16_t *)(void *)scratch;
    scratch += kept_bytes(w, c->rows, c->use);
    plan.sums = (float *)(void *)scratch;
    plan.own = scratch + sums_bytes(w, c->use);
    return plan;
}

void dp_pointwise_amx(const struct dp_conv_call *call, int threads)
{
    struct plan plan = plan_of(call);
    const bool gradient = sums_pixels(call->use);
    const size_t all = dp_div_up(gradient ? plan.pixels : plan.kept_columns, SIDE);
    const size_t most =
        gradient ? kept_pixels(call->w, call->rows) : kept_weights(call->w, call->use);
    const size_t steps = (gradient ? plan.kept_columns : plan.streamed_columns) / SIDE;

    for (; plan.at < all; plan.at += most) {
        plan.count = dp_smaller(most, all - plan.at);
        plan.products = plan.count * steps * DP_AMX_PRODUCTS;
        dp_parallel_parts(threads, gradient ? pack_pixels : pack_weights, &plan);
        dp_parallel_parts(threads, gradient ? compute_gradient : compute_panels, &plan);
    }
}

#else

bool dp_pointwise_amx_can(const struct dp_window *w)
{
    (void)w;
    return false;
}

size_t dp_pointwise_amx_bytes(const struct dp_conv_call *call, int threads)
{
    (void)call, (void)threads;
    return 0;
}

void dp_pointwise_amx(const struct dp_conv_call *call, int threads)
{
    (void)call, (void)threads;
}

#endif
