#include "kernels/cpu/amx/conv_amx.h"
#include "kernels/cpu/amx/conv_grid.h"
#include "kernels/cpu/amx/conv_step.h"
#include "kernels/cpu/parallel.h"
#include "kernels/tensor.h"

#if DP_AMX_CODE

enum {
    SIDE = DP_AMX_SIDE,
    ROW = DP_AMX_DEPTH, /* bfloats of a pair of pixels in a part of a plane: 16 channels */
    SUMS = SIDE * SIDE,
    PLANES = 512 << 10 /* bytes of a thread's planes, unless an image needs more */
};

struct plan {
    const struct dp_conv_call *call;
    struct dp_conv_grid grid;
    size_t parts, taps;
    size_t ins, outs;  /* blocks of 32 channels */
    size_t pair;       /* pixels of a pair are so far apart */
    size_t images;     /* that are summed at a time */
    size_t image, now; /* images of now */
    int *where;        /* dp_conv_grid_places() */
    uint16_t *dy;      /* [block of outputs][image][panel] */
    float *sums;       /* [block of inputs][block of outputs][tap], if not all images are of now */
    char *own;         /* threads' scratch */
};

/* ---- where things lie ---- */

static size_t block_size(const struct plan *plan)
{
    return plan->parts * DP_AMX_BLOCK;
}

static size_t part_size(const struct plan *plan)
{
    return plan->grid.rows * ROW;
}

/* An image's planes of 32 channels. */
static size_t image_size(const struct plan *plan)
{
    return plan->grid.planes * 2 * plan->parts * part_size(plan);
}

static struct plan plan_of(const struct dp_conv_call *call)
{
    const struct dp_window *w = call->w;
    struct plan plan = {.call = call,
                        .parts = call->type == DP_TYPE_F32 ? DP_AMX_PARTS : 1,
                        .taps = w->kernel_h * w->kernel_w,
                        .ins = w->in_c / SIDE,
                        .outs = w->out_c / SIDE,
                        .pair = call->type == DP_TYPE_F32 ? DP_AMX_ROWS : 1};

    dp_conv_grid_set(&plan.grid, w, false);
    plan.images = dp_conv_equal_part(call->rows, PLANES / (image_size(&plan) * sizeof(uint16_t)));
    return plan;
}

static size_t dy_bytes(const struct plan *plan)
{
    return plan->outs * plan->images * plan->grid.panels * block_size(plan) * sizeof(uint16_t);
}

static size_t sums_bytes(const struct plan *plan)
{
    return plan->images < plan->call->rows
               ? plan->ins * plan->outs * plan->taps * SUMS * sizeof(float)
               : 0;
}

static size_t own_bytes(const struct plan *plan)
{
    return (plan->images * image_size(plan) + block_size(plan)) * sizeof(uint16_t) +
           (size_t)2 * SUMS * sizeof(float);
}

size_t dp_conv_gradient_amx_bytes(const struct dp_conv_call *call, int threads)
{
    const struct plan plan = plan_of(call);

    return dp_conv_grid_bytes(&plan.grid) + dy_bytes(&plan) + sums_bytes(&plan) +
           (size_t)threads * own_bytes(&plan);
}

/* A thread's scratch. */
struct own {
    uint16_t *planes; /* of now's images */
    uint16_t *room;   /* a block for transposing */
    float *rows, *sums;
};

static struct own own_of(const struct plan *plan, int part)
{
    uint16_t *at = (uint16_t *)(void *)(plan->own + (size_t)part * own_bytes(plan));
    struct own own = {.planes = at, .room = at + plan->images * image_size(plan)};

    own.rows = (float *)(void *)(own.room + block_size(plan));
    own.sums = own.rows + SUMS;
    return own;
}

/* ---- dy ---- */

/* 32 channels of the pixels of a panel, one after the other; 0 beyond the image. */
DP_AMX_INLINE void gather(const struct plan *plan, size_t image, size_t panel, size_t channel,
                          char *to, size_t parts)
{
    const struct dp_window *w = plan->call->w;
    const size_t number = dp_conv_number(parts), bytes = w->out_c * number;
    const char *from = (const char *)plan->call->y +
                       (plan->image + image) * w->out_h * w->out_w * bytes + channel * number;

    for (size_t i = 0; i < SIDE; i++, to += SIDE * number) {
        const size_t y = (panel * SIDE + i) / plan->grid.width;
        const size_t x = (panel * SIDE + i) % plan->grid.width;
        if (y < w->out_h && x < w->out_w) {
            memcpy(to, from + (y * w->out_w + x) * bytes, SIDE * number);
        } else {
            memset(to, 0, SIDE * number);
        }
    }
}

DP_AMX static void pack_dy(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct own own = own_of(plan, part);
    const size_t panels = plan->now * plan->grid.panels;
    char *rows = (char *)(void *)own.rows;
    size_t begin, end;

    dp_part(panels, 1, part, parts, &begin, &end);
    for (size_t i = begin * plan->outs; i < end * plan->outs; i++) {
        const size_t panel = i / plan->outs, out = i % plan->outs;
        const size_t image = panel / plan->grid.panels, at = panel % plan->grid.panels;
        uint16_t *to = plan->dy + (out * panels + panel) * block_size(plan);
        if (plan->parts == 1) {
            const struct dp_amx_block block = {(const uint16_t *)(void *)rows, SIDE, SIDE, SIDE};
            gather(plan, image, at, out * SIDE, rows, 1);
            dp_amx_pack_a_transposed(to, &block);
        } else {
            const struct dp_amx_float_block block = {own.rows, SIDE, SIDE, SIDE};
            gather(plan, image, at, out * SIDE, rows, DP_AMX_PARTS);
            dp_amx_split_a_transposed(to, own.room, &block);
        }
    }
}

/* ---- x ---- */

/* 16 channels of a pair of pixels; NULL: padding. */
DP_AMX_INLINE void pack_pair(uint16_t *to, const char *first, const char *second, size_t part,
                             size_t parts)
{
    if (parts == 1) {
        const __m256i none = _mm256_setzero_si256();
        const __m256i a = first != NULL ? _mm256_loadu_si256((const void *)first) : none;
        const __m256i b = second != NULL ? _mm256_loadu_si256((const void *)second) : none;
        _mm512_store_si512((void *)to,
                           _mm512_or_si512(_mm512_cvtepu16_epi32(a),
                                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16)));
        return;
    }
    const __m512 none = _mm512_setzero_ps();
    const struct dp_amx_parts p =
        dp_amx_split(first != NULL ? _mm512_loadu_ps((const void *)first) : none,
                     second != NULL ? _mm512_loadu_ps((const void *)second) : none);

    dp_amx_store_parts(to, part, &p);
}

/* Planes of 32 channels of an image. */
DP_AMX_INLINE void pack_image(const struct plan *plan, size_t image, size_t channel, uint16_t *to,
                              size_t parts)
{
    const struct dp_window *w = plan->call->w;
    const size_t number = dp_conv_number(parts), bytes = w->in_c * number;
    const size_t part = part_size(plan), rows = plan->grid.rows;
    const char *from = (const char *)plan->call->x +
                       (plan->image + image) * w->in_h * w->in_w * bytes + channel * number;

    for (size_t plane = 0; plane < plan->grid.planes; plane++, to += 2 * parts * part) {
        const int *where = plan->where + plane * rows;
        for (size_t row = 0; row < rows; row++) {
            const int first = where[row],
                      second = row + plan->pair < rows ? where[row + plan->pair] : -1;
            for (size_t half = 0; half < 2; half++) {
                const char *at = from + half * DP_AMX_ROWS * number;
                pack_pair(to + half * parts * part + row * ROW,
                          first < 0 ? NULL : at + (size_t)first * bytes,
                          second < 0 ? NULL : at + (size_t)second * bytes, part, parts);
            }
        }
    }
}

/* ---- products ---- */

/* A block of dw from its sums. */
DP_AMX static void store_gradient(const struct plan *plan, const float *sums, size_t in, size_t out,
                                  size_t tap)
{
    const struct dp_window *w = plan->call->w;
    float *to =
        (float *)plan->call->weights + (out * SIDE * plan->taps + tap) * w->in_c + in * SIDE;

    for (size_t i = 0; i < SIDE; i++, sums += SIDE, to += plan->taps * w->in_c) {
        __m512 left = _mm512_load_ps(sums), right = _mm512_load_ps(sums + DP_AMX_ROWS);
        if (plan->call->adds) {
            left = _mm512_add_ps(left, _mm512_loadu_ps(to));
            right = _mm512_add_ps(right, _mm512_loadu_ps(to + DP_AMX_ROWS));
        }
        _mm512_storeu_ps(to, left);
        _mm512_storeu_ps(to + DP_AMX_ROWS, right);
    }
}

DP_AMX_INLINE void compute_block(const struct plan *plan, const struct own *own, size_t in,
                                 size_t out, const struct dp_conv_tap *tap, size_t parts)
{
    const size_t part = part_size(plan), block = parts * DP_AMX_BLOCK;
    const bool whole = plan->images >= plan->call->rows;
    float *sums =
        whole ? own->sums : plan->sums + ((in * plan->outs + out) * plan->taps + tap->at) * SUMS;
    const uint16_t *dy = plan->dy + out * plan->now * plan->grid.panels * block;
    const uint16_t *x = own->planes + tap->plane * 2 * parts * part + tap->row * ROW;

    if (plan->image == 0) {
        dp_amx_zero_sums();
    } else {
        dp_amx_load_sums(sums, SIDE);
    }
    for (size_t image = 0; image < plan->now; image++, x += image_size(plan)) {
        for (size_t panel = 0; panel < plan->grid.panels; panel++, dy += block) {
            const struct dp_amx_operand a = dp_amx_operand_at(dy);
            const struct dp_amx_operand b = {x + panel * SIDE * ROW, parts * part, part,
                                             parts == 1 ? 128 : 64};
            dp_conv_add_step(&a, &b, dy + block, parts);
        }
    }
    dp_amx_store_sums(sums, SIDE);
    if (plan->image + plan->now == plan->call->rows) {
        store_gradient(plan, sums, in, out, tap->at);
    }
}

DP_AMX_INLINE void compute_inputs(const struct plan *plan, const struct own *own, size_t in,
                                  size_t parts)
{
    const struct dp_conv_pass *pass = &plan->grid.pass[0];

    for (size_t image = 0; image < plan->now; image++) {
        pack_image(plan, image, in * SIDE, own->planes + image * image_size(plan), parts);
    }
    dp_amx_stored();
    for (size_t out = 0; out < plan->outs; out++) {
        for (size_t t = 0; t < pass->count; t++) {
            compute_block(plan, own, in, out, &pass->tap[t], parts);
        }
    }
}

DP_AMX static void compute_part(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const struct own own = own_of(plan, part);
    struct dp_amx_shape before;
    size_t begin, end;

    dp_part(plan->ins, 1, part, parts, &begin, &end);
    dp_amx_begin(&before);
    for (size_t in = begin; in < end; in++) {
        if (plan->parts == 1) {
            compute_inputs(plan, &own, in, 1);
        } else {
            compute_inputs(plan, &own, in, DP_AMX_PARTS);
        }
    }
    dp_amx_end(&before);
}

void dp_conv_gradient_amx(const struct dp_conv_call *call, int threads)
{
    struct plan plan = plan_of(call);
    char *scratch = call->scratch;

    plan.where = (int *)(void *)scratch;
    plan.dy = (uint16_t *)(void *)(scratch += dp_conv_grid_bytes(&plan.grid));
    plan.sums = (float *)(void *)(scratch += dy_bytes(&plan));
    plan.own = scratch + sums_bytes(&plan);
    dp_conv_grid_places(&plan.grid, plan.where);
    for (; plan.image < call->rows; plan.image += plan.images) {
        plan.now = dp_smaller(plan.images, call->rows - plan.image);
        dp_parallel_parts(threads, pack_dy, &plan);
        dp_parallel_parts(threads, compute_part, &plan);
    }
}

#endif
