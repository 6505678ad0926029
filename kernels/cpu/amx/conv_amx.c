#include "kernels/cpu/amx/conv_amx.h"

#include "kernels/cpu/amx/conv_grid.h"
#include "kernels/cpu/amx/conv_step.h"
#include "kernels/cpu/parallel.h"
#include "kernels/tensor.h"

#if DP_AMX_CODE

enum {
    SIDE = DP_AMX_SIDE,
    ROW = DP_AMX_DEPTH, /* bfloats of a pixel in a part of a plane */
    SUMS = SIDE * SIDE,
    KEPT = 384,       /* tiles' blocks of weights that stay in the second cache: 0.75 MB */
    PLANES = 2 << 20, /* bytes of planes that are made at a time, or twice those of all weights,
                       * which are packed again for the next images; unless an image needs more */
};

struct plan {
    const struct dp_conv_call *call;
    struct dp_conv_grid grid;
    size_t parts, from_c, to_c; /* of numbers; channels that are read, and written */
    size_t taps;                /* of the kernel */
    size_t images;              /* that are made planes of at a time */
    size_t columns;             /* blocks of outputs whose weights are packed at a time */
    const char *from;
    char *to;
    size_t image, count; /* images of now */
    size_t column, now;  /* blocks of outputs of now */
    int *where;          /* dp_conv_grid_places() */
    uint16_t *pixels;    /* planes: [image][plane][block of channels][part][pixel][32] */
    uint16_t *weights;   /* [block of outputs][tap][block of channels] */
    char *own;           /* threads' scratch */
};

bool dp_conv_amx_can(const struct dp_window *w)
{
    return dp_conv_grid_can(w) && w->in_c % SIDE == 0 && w->out_c % SIDE == 0 && dp_amx_has();
}

/* ---- where things lie ---- */

static size_t steps_of(const struct plan *plan)
{
    return plan->taps * (plan->from_c / SIDE);
}

/* Bfloats. */
static size_t part_size(const struct plan *plan)
{
    return plan->grid.rows * ROW;
}

static size_t image_size(const struct plan *plan)
{
    return plan->grid.planes * (plan->from_c / SIDE) * plan->parts * part_size(plan);
}

static size_t block_size(const struct plan *plan)
{
    return plan->parts * DP_AMX_BLOCK;
}

static struct plan plan_of(const struct dp_conv_call *call)
{
    const struct dp_window *w = call->w;
    const bool back = (call->use & DP_CONV_BACKWARD_DATA) != 0;
    struct plan plan = {.call = call,
                        .parts = call->type == DP_TYPE_F32 ? DP_AMX_PARTS : 1,
                        .from_c = back ? w->out_c : w->in_c,
                        .to_c = back ? w->in_c : w->out_c,
                        .taps = w->kernel_h * w->kernel_w,
                        .from = back ? call->y : call->x,
                        .to = back ? call->x : call->y};
    size_t weights, planes;

    dp_conv_grid_set(&plan.grid, w, back);
    weights = plan.to_c / SIDE * steps_of(&plan) * block_size(&plan) * sizeof(uint16_t);
    planes = 2 * weights > PLANES ? 2 * weights : PLANES;
    plan.images = dp_conv_equal_part(call->rows, planes / (image_size(&plan) * sizeof(uint16_t)));
    plan.columns = dp_conv_equal_part(plan.to_c / SIDE, KEPT / plan.parts / steps_of(&plan));
    return plan;
}

static size_t pixels_bytes(const struct plan *plan)
{
    return plan->images * image_size(plan) * sizeof(uint16_t);
}

static size_t weights_bytes(const struct plan *plan)
{
    return plan->columns * steps_of(plan) * block_size(plan) * sizeof(uint16_t);
}

/* A block for transposing, and sums. */
static size_t own_bytes(const struct plan *plan)
{
    return block_size(plan) * sizeof(uint16_t) + SUMS * sizeof(float);
}

size_t dp_conv_amx_bytes(const struct dp_conv_call *call, int threads)
{
    if ((call->use & DP_CONV_BACKWARD_WEIGHTS) != 0) {
        return dp_conv_gradient_amx_bytes(call, threads);
    }
    const struct plan plan = plan_of(call);

    return dp_conv_grid_bytes(&plan.grid) + pixels_bytes(&plan) + weights_bytes(&plan) +
           (size_t)threads * own_bytes(&plan);
}

/* ---- planes ---- */

/* One pixel's 32 channels; NULL: padding. */
DP_AMX_INLINE void pack_pixel(uint16_t *to, const char *from, size_t part, size_t parts)
{
    if (from == NULL) {
        for (size_t k = 0; k < parts; k++) {
            _mm512_store_si512((void *)(to + k * part), _mm512_setzero_si512());
        }
    } else if (parts == 1) {
        _mm512_store_si512((void *)to, _mm512_loadu_si512((const void *)from));
    } else {
        const struct dp_amx_parts p =
            dp_amx_split(_mm512_loadu_ps((const float *)(const void *)from),
                         _mm512_loadu_ps((const float *)(const void *)from + DP_AMX_ROWS));
        dp_amx_store_parts(to, part, &p);
    }
}

DP_AMX_INLINE void pack_plane(const struct plan *plan, size_t image, size_t plane, size_t parts)
{
    const size_t number = dp_conv_number(parts), part = part_size(plan);
    const size_t bytes = plan->from_c * number;
    const char *from =
        plan->from + (plan->image + image) * plan->grid.from_h * plan->grid.from_w * bytes;
    uint16_t *to =
        plan->pixels + image * image_size(plan) + plane * (plan->from_c / SIDE) * parts * part;
    const int *where = plan->where + plane * plan->grid.rows;

    for (size_t row = 0; row < plan->grid.rows; row++, to += ROW) {
        const char *pixel = where[row] < 0 ? NULL : from + (size_t)where[row] * bytes;
        uint16_t *block = to;
        for (size_t c = 0; c < plan->from_c; c += SIDE, block += parts * part) {
            pack_pixel(block, pixel != NULL ? pixel + c * number : NULL, part, parts);
        }
    }
}

DP_AMX static void pack_planes(void *context, int part, int parts)
{
    const struct plan *plan = context;
    size_t begin, end;

    dp_part(plan->count * plan->grid.planes, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t image = i / plan->grid.planes, plane = i % plan->grid.planes;
        if (plan->parts == 1) {
            pack_plane(plan, image, plane, 1);
        } else {
            pack_plane(plan, image, plane, DP_AMX_PARTS);
        }
    }
}

/* ---- weights ---- */

/* 32 x 32 weights as B: `across` the results' channels, `along` the sums. */
DP_AMX static void pack_weights(const struct plan *plan, uint16_t *to, uint16_t *room, size_t tap,
                                size_t along, size_t across)
{
    const struct dp_window *w = plan->call->w;
    const bool forward = (plan->call->use & DP_CONV_FORWARD) != 0;
    const size_t ld = plan->taps * w->in_c;
    const size_t at = (forward ? across : along) * ld + tap * w->in_c + (forward ? along : across);

    if (plan->parts == 1) {
        const struct dp_amx_block block = {(const uint16_t *)plan->call->weights + at, ld, SIDE,
                                           SIDE};
        if (forward) {
            dp_amx_pack_b_transposed(to, &block);
        } else {
            dp_amx_pack_b(to, &block, true);
        }
        return;
    }
    const struct dp_amx_float_block block = {(const float *)plan->call->weights + at, ld, SIDE,
                                             SIDE};

    if (forward) {
        dp_amx_split_b_transposed(to, room, &block);
    } else {
        dp_amx_split_b(to, &block);
    }
}

DP_AMX static void pack_columns(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const size_t steps = steps_of(plan), blocks = plan->from_c / SIDE;
    uint16_t *room = (uint16_t *)(void *)(plan->own + (size_t)part * own_bytes(plan));
    size_t begin, end;

    dp_part(plan->now * steps, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        pack_weights(plan, plan->weights + i * block_size(plan), room, i % steps / blocks,
                     i % blocks * SIDE, (plan->column + i / steps) * SIDE);
    }
}

/* ---- products ---- */

/* 32 results, which may be rows of the image, and what lies beyond their ends. */
struct panel {
    const struct dp_conv_pass *pass;
    const uint16_t *pixels;
    char *to[SIDE]; /* of the first channel; NULL: beyond */
};

static void panel_set(const struct plan *plan, size_t image, size_t pass, size_t row,
                      struct panel *panel)
{
    const struct dp_conv_grid *g = &plan->grid;
    const struct dp_conv_pass *p = &g->pass[pass];
    const size_t pixel = plan->to_c * dp_conv_number(plan->parts);
    char *to = plan->to + (plan->image + image) * g->to_h * g->to_w * pixel;

    panel->pass = p;
    panel->pixels = plan->pixels + image * image_size(plan) + row * ROW;
    for (size_t i = 0; i < SIDE; i++) {
        const size_t y = (row + i) / g->width, x = (row + i) % g->width;
        panel->to[i] = y < p->height && x < p->width
                           ? to + ((p->y + y * g->step) * g->to_w + p->x + x * g->step) * pixel
                           : NULL;
    }
}

/* Where results go: while products are computed. */
DP_AMX_INLINE void fetch_results(const struct panel *panel, size_t at, size_t parts)
{
    for (size_t i = 0; i < SIDE; i++) {
        if (panel->to[i] != NULL) {
            _mm_prefetch(panel->to[i] + at, _MM_HINT_ET0);
            if (parts > 1) {
                _mm_prefetch(panel->to[i] + at + 64, _MM_HINT_ET0);
            }
        }
    }
}

DP_AMX_INLINE void store_results(const struct panel *panel, size_t at, const float *sums,
                                 size_t parts)
{
    for (size_t i = 0; i < SIDE; i++, sums += SIDE) {
        const __m512 left = _mm512_load_ps(sums), right = _mm512_load_ps(sums + DP_AMX_ROWS);
        if (panel->to[i] == NULL) {
            continue;
        }
        char *to = panel->to[i] + at;
        if (parts == 1) {
            _mm512_storeu_si512((void *)to, (__m512i)_mm512_cvtne2ps_pbh(right, left));
        } else {
            _mm512_storeu_ps((void *)to, left);
            _mm512_storeu_ps((void *)(to + 64), right);
        }
    }
}

DP_AMX_INLINE void compute_panel(const struct plan *plan, const struct panel *panel, float *sums,
                                 size_t parts)
{
    const size_t blocks = plan->from_c / SIDE, part = part_size(plan);
    const size_t block = parts * DP_AMX_BLOCK, number = dp_conv_number(parts);

    for (size_t column = 0; column < plan->now; column++) {
        const uint16_t *weights = plan->weights + column * steps_of(plan) * block;
        const size_t at = (plan->column + column) * SIDE * number;
        fetch_results(panel, at, parts);
        dp_amx_zero_sums();
        for (size_t t = 0; t < panel->pass->count; t++) {
            const struct dp_conv_tap *tap = &panel->pass->tap[t];
            const uint16_t *from =
                panel->pixels + tap->plane * blocks * parts * part + tap->row * ROW;
            const uint16_t *next = weights + tap->at * blocks * block;
            for (size_t i = 0; i < blocks; i++, from += parts * part, next += block) {
                const struct dp_amx_operand a = {from, DP_AMX_TILE, part, 64};
                const struct dp_amx_operand b = dp_amx_operand_at(next);
                dp_conv_add_step(&a, &b, next + block, parts);
            }
        }
        dp_amx_store_sums(sums, SIDE);
        store_results(panel, at, sums, parts);
    }
}

DP_AMX static void compute_panels(void *context, int part, int parts)
{
    const struct plan *plan = context;
    const size_t each = plan->grid.passes * plan->grid.panels;
    float *sums = (float *)(void *)(plan->own + (size_t)part * own_bytes(plan) +
                                    block_size(plan) * sizeof(uint16_t));
    struct dp_amx_shape before;
    struct panel panel;
    size_t begin, end;

    dp_part(plan->count * each, 1, part, parts, &begin, &end);
    dp_amx_begin(&before);
    dp_amx_stored();
    for (size_t i = begin; i < end; i++) {
        panel_set(plan, i / each, i % each / plan->grid.panels, i % plan->grid.panels * SIDE,
                  &panel);
        if (plan->parts == 1) {
            compute_panel(plan, &panel, sums, 1);
        } else {
            compute_panel(plan, &panel, sums, DP_AMX_PARTS);
        }
    }
    dp_amx_end(&before);
}

void dp_conv_amx(const struct dp_conv_call *call, int threads)
{
    if ((call->use & DP_CONV_BACKWARD_WEIGHTS) != 0) {
        dp_conv_gradient_amx(call, threads);
        return;
    }
    struct plan plan = plan_of(call);
    char *scratch = call->scratch;

    plan.where = (int *)(void *)scratch;
    plan.pixels = (uint16_t *)(void *)(scratch += dp_conv_grid_bytes(&plan.grid));
    plan.weights = (uint16_t *)(void *)(scratch += pixels_bytes(&plan));
    plan.own = scratch + weights_bytes(&plan);
    dp_conv_grid_places(&plan.grid, plan.where);
    for (; plan.image < call->rows; plan.image += plan.images) {
        plan.count = dp_smaller(plan.images, call->rows - plan.image);
        dp_parallel_parts(threads, pack_planes, &plan);
        for (plan.column = 0; plan.column < plan.to_c / SIDE; plan.column += plan.columns) {
            plan.now = dp_smaller(plan.columns, plan.to_c / SIDE - plan.column);
            dp_parallel_parts(threads, pack_columns, &plan);
            dp_parallel_parts(threads, compute_panels, &plan);
        }
    }
}

#else

bool dp_conv_amx_can(const struct dp_window *w)
{
    (void)w;
    return false;
}

size_t dp_conv_amx_bytes(const struct dp_conv_call *call, int threads)
{
    (void)call, (void)threads;
    return 0;
}

void dp_conv_amx(const struct dp_conv_call *call, int threads)
{
    (void)call, (void)threads;
}

#endif
