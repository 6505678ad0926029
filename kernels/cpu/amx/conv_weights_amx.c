#include "kernels/cpu/amx/conv_weights_amx.h"

#include "kernels/cpu/amx/pixels_amx.h"
#include "kernels/cpu/parallel.h"
#include "kernels/ref/window.h"

#if DP_AMX_CODE

enum {
    ROWS = DP_AMX_ROWS,
    DEPTH = DP_AMX_DEPTH,
    TILE = DP_AMX_TILE,
    QUAD = 4,           /* tiles of sums at a time */
    SUMS = ROWS * ROWS, /* floats of one */
    FEWEST = 6,         /* steps of a chunk, for which sums are read and written once */
    CACHE = 40 * 1024   /* of the first cache, what the pixels of a chunk may take */
};

/*
 * The rows of a tile are a set: 16 channels at one position of the kernel. With few channels they
 * are the positions of one plane along x instead, of one channel: each begins one pixel later.
 *
 * A quad is two sets by two blocks of output channels, or four sets by one where there is only one.
 */
struct set {
    size_t at, pitch;  /* of the first row in an image, and from row to row, in bfloats */
    size_t rows;       /* that count; none: the set only fills a quad */
    size_t weight;     /* of the first row: its place among an output channel's weights */
    size_t weight_gap; /* from row to row */
};

struct plan {
    const struct dp_conv_weights_amx *call;
    struct dp_amx_pixels pixels;
    size_t across; /* blocks of a quad */
    size_t sets, quads;
    size_t chunk; /* steps at a time */
    size_t sums_bytes;
    float *sums;     /* [blocks / across, quads, QUAD, 16, 16] */
    struct set *set; /* [quads, QUAD / across]; the last ones may have no rows */
};

static struct plan plan_of(const struct dp_conv_weights_amx *call)
{
    const struct dp_window *w = call->w;
    const size_t across = w->out_c > ROWS ? 2 : 1;
    struct plan plan = {
        .call = call, .pixels = dp_amx_pixels_of(w, call->rows, across), .across = across};
    const struct dp_amx_pixels *p = &plan.pixels;
    const size_t step = (p->channels + across * ROWS) * DEPTH * sizeof(uint16_t);

    plan.sets = p->few ? w->kernel_h * p->stride * w->in_c
                       : w->kernel_h * w->kernel_w * (p->channels / ROWS);
    plan.quads = (plan.sets * across + QUAD - 1) / QUAD;
    plan.chunk = CACHE / step > FEWEST ? CACHE / step : FEWEST;
    plan.sums_bytes = p->blocks / across * plan.quads * QUAD * SUMS * sizeof(float);
    return plan;
}

static struct set set_few(const struct dp_amx_pixels *p, size_t i)
{
    const struct dp_window *w = p->w;
    const size_t channel = i % w->in_c, phase = i / w->in_c % p->stride;
    const size_t ky = i / w->in_c / p->stride;
    const size_t plane = ky % p->stride * p->stride + phase;

    return (struct set){
        .at = channel * p->channel + plane * p->plane + ky / p->stride * p->pitch,
        .pitch = 1,
        .rows = phase < w->kernel_w ? (w->kernel_w - phase + p->stride - 1) / p->stride : 0,
        .weight = (ky * w->kernel_w + phase) * w->in_c + channel,
        .weight_gap = p->stride * w->in_c,
    };
}

static struct set set_many(const struct dp_amx_pixels *p, size_t i)
{
    const struct dp_window *w = p->w;
    const size_t blocks = p->channels / ROWS, channel = i % blocks * ROWS;
    const size_t kx = i / blocks % w->kernel_w, ky = i / blocks / w->kernel_w;
    const size_t plane = ky % p->stride * p->stride + kx % p->stride;

    return (struct set){
        .at = channel * p->channel + plane * p->plane + ky / p->stride * p->pitch + kx / p->stride,
        .pitch = p->channel,
        .rows = w->in_c - channel < ROWS ? w->in_c - channel : ROWS,
        .weight = (ky * w->kernel_w + kx) * w->in_c + channel,
        .weight_gap = 1,
    };
}

static struct set set_of(const struct plan *plan, size_t i)
{
    if (i >= plan->sets) {
        return (struct set){.pitch = 1};
    }
    return plan->pixels.few ? set_few(&plan->pixels, i) : set_many(&plan->pixels, i);
}

/* Once for a call: it takes divisions. */
static void find_sets(const struct plan *plan)
{
    for (size_t i = 0; i < plan->quads * QUAD / plan->across; i++) {
        plan->set[i] = set_of(plan, i);
    }
}

/* A quad of tiles, and steps [begin, end) of the batch, one image's after the other's. */
struct work {
    const struct set *set; /* QUAD / across of them */
    size_t block;          /* the first one */
    size_t begin, end;
    float *sums;
};

DP_AMX static inline void load_sums(const struct work *work)
{
    dp_amx_stored();
    if (work->begin == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, work->sums, 64);
        _tile_loadd(1, work->sums + SUMS, 64);
        _tile_loadd(2, work->sums + (size_t)2 * SUMS, 64);
        _tile_loadd(3, work->sums + (size_t)3 * SUMS, 64);
    }
}

DP_AMX static inline void store_sums(const struct work *work)
{
    _tile_stored(0, work->sums, 64);
    _tile_stored(1, work->sums + SUMS, 64);
    _tile_stored(2, work->sums + (size_t)2 * SUMS, 64);
    _tile_stored(3, work->sums + (size_t)3 * SUMS, 64);
}

/* Where a step's pixels are. */
struct cursor {
    const uint16_t *x, *dy;
    size_t step; /* of the image */
};

static inline struct cursor cursor_at(const struct dp_amx_pixels *p, const struct work *work)
{
    const size_t image = work->begin / p->steps, step = work->begin % p->steps;

    return (struct cursor){
        p->x + image * p->channels * p->channel + step * DEPTH,
        p->dy + ((image * p->blocks + work->block) * p->steps + step) * TILE,
        step,
    };
}

static inline void advance(const struct dp_amx_pixels *p, struct cursor *c)
{
    c->x += DEPTH;
    c->dy += TILE;
    c->step++;
    if (c->step == p->steps) {
        c->x += p->channels * p->channel - p->steps * DEPTH;
        c->dy += (p->blocks - 1) * p->steps * TILE;
        c->step = 0;
    }
}

/* Two sets by two blocks. */
DP_AMX static void multiply_two(const struct dp_amx_pixels *p, const struct work *work)
{
    const struct set *set = work->set;
    const long pitch[] = {(long)(2 * set[0].pitch), (long)(2 * set[1].pitch)};
    struct cursor c = cursor_at(p, work);

    load_sums(work);
    for (size_t at = work->begin; at < work->end; at++) {
        _tile_loadd(4, c.x + set[0].at, pitch[0]);
        _tile_loadd(6, c.dy, 64);
        DP_AMX_MULTIPLY(0, 4, 6);
        _tile_loadd(7, c.dy + p->steps * TILE, 64);
        DP_AMX_MULTIPLY(1, 4, 7);
        _tile_loadd(5, c.x + set[1].at, pitch[1]);
        DP_AMX_MULTIPLY(2, 5, 6);
        DP_AMX_MULTIPLY(3, 5, 7);
        advance(p, &c);
    }
    store_sums(work);
}

/* Four sets by one block. */
DP_AMX static void multiply_one(const struct dp_amx_pixels *p, const struct work *work)
{
    const struct set *set = work->set;
    const long pitch[] = {(long)(2 * set[0].pitch), (long)(2 * set[1].pitch),
                          (long)(2 * set[2].pitch), (long)(2 * set[3].pitch)};
    struct cursor c = cursor_at(p, work);

    load_sums(work);
    for (size_t at = work->begin; at < work->end; at++) {
        _tile_loadd(6, c.dy, 64);
        _tile_loadd(4, c.x + set[0].at, pitch[0]);
        DP_AMX_MULTIPLY(0, 4, 6);
        _tile_loadd(5, c.x + set[1].at, pitch[1]);
        DP_AMX_MULTIPLY(1, 5, 6);
        _tile_loadd(4, c.x + set[2].at, pitch[2]);
        DP_AMX_MULTIPLY(2, 4, 6);
        _tile_loadd(5, c.x + set[3].at, pitch[3]);
        DP_AMX_MULTIPLY(3, 5, 6);
        advance(p, &c);
    }
    store_sums(work);
}

/* ---- the result ---- */

/* Stores floats at `places` from `to`, where the mask says so, after adding what is there. */
DP_AMX static inline void put(float *to, __mmask16 mask, __m512i places, __m512 sum, bool adds)
{
    if (adds) {
        sum =
            _mm512_add_ps(sum, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, places, to, 4));
    }
    _mm512_mask_i32scatter_ps(to, mask, places, sum, 4);
}

/* The same of neighbours, which is faster. */
DP_AMX static inline void put_row(float *to, __mmask16 mask, __m512 sum, bool adds)
{
    if (adds) {
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to));
    }
    _mm512_mask_storeu_ps(to, mask, sum);
}

/* A tile's sums, by row of the set and channel, to their weights. */
DP_AMX static void store_tile(const struct plan *plan, const struct set *set, size_t block,
                              const float *sums)
{
    const struct dp_conv_weights_amx *call = plan->call;
    const struct dp_window *w = call->w;
    const size_t weights = w->kernel_h * w->kernel_w * w->in_c;
    const __mmask16 mask = (__mmask16)((1u << set->rows) - 1);
    const __m512i rows = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places = _mm512_mullo_epi32(rows, _mm512_set1_epi32((int)set->weight_gap));
    __m512i v[ROWS];

    for (size_t i = 0; i < ROWS; i++) {
        v[i] = _mm512_loadu_si512(sums + i * ROWS);
    }
    dp_amx_transpose(v);
    for (size_t i = 0; i < ROWS && block * ROWS + i < w->out_c; i++) {
        float *to = call->dw + (block * ROWS + i) * weights + set->weight;
        if (set->weight_gap == 1) {
            put_row(to, mask, _mm512_castsi512_ps(v[i]), call->adds);
        } else {
            put(to, mask, places, _mm512_castsi512_ps(v[i]), call->adds);
        }
    }
}

static struct work work_of(const struct plan *plan, size_t blocks, size_t quad)
{
    return (struct work){
        .set = plan->set + quad * (QUAD / plan->across),
        .block = blocks * plan->across,
        .sums = plan->sums + (blocks * plan->quads + quad) * QUAD * SUMS,
    };
}

static void store_quad(const struct plan *plan, const struct work *work)
{
    for (size_t tile = 0; tile < QUAD; tile++) {
        store_tile(plan, &work->set[tile / plan->across], work->block + tile % plan->across,
                   work->sums + tile * SUMS);
    }
}

/* The quads [begin, end) of one group of blocks. */
static void product(const struct plan *plan, size_t blocks, size_t begin, size_t end)
{
    const struct dp_amx_pixels *p = &plan->pixels;
    const size_t steps = p->rows * p->steps;

    for (size_t at = 0; at < steps; at += plan->chunk) {
        for (size_t quad = begin; quad < end; quad++) {
            struct work work = work_of(plan, blocks, quad);
            work.begin = at;
            work.end = at + plan->chunk < steps ? at + plan->chunk : steps;
            if (plan->across == 2) {
                multiply_two(p, &work);
            } else {
                multiply_one(p, &work);
            }
        }
    }
    for (size_t quad = begin; quad < end; quad++) {
        const struct work work = work_of(plan, blocks, quad);
        store_quad(plan, &work);
    }
}

/* Threads share the quads of each group of blocks. */
DP_AMX static void product_part(void *context, int part, int parts)
{
    const struct plan *plan = context;
    struct dp_amx_shape before;
    size_t begin, end;

    dp_amx_begin(&before);
    dp_part(plan->quads, 1, part, parts, &begin, &end);
    for (size_t blocks = 0; blocks < plan->pixels.blocks / plan->across; blocks++) {
        product(plan, blocks, begin, end);
    }
    dp_amx_end(&before);
}

static void copy_part(void *context, int part, int parts)
{
    const struct plan *plan = context;

    dp_amx_pixels_copy(&plan->pixels, part, parts);
}

bool dp_conv_weights_amx_can(const struct dp_window *w)
{
    return dp_amx_has() && dp_window_groups(w) == 1 && (w->kernel_w - 1) / w->stride < (size_t)ROWS;
}

size_t dp_conv_weights_amx_bytes(const struct dp_window *w, size_t rows)
{
    const struct dp_conv_weights_amx call = {.w = w, .rows = rows};
    const struct plan plan = plan_of(&call);

    return plan.pixels.x_bytes + plan.pixels.dy_bytes + plan.sums_bytes +
           plan.quads * QUAD / plan.across * sizeof(struct set) +
           plan.pixels.blocks * ROWS * sizeof(float);
}

void dp_conv_weights_amx(const struct dp_conv_weights_amx *call, int threads)
{
    struct plan plan = plan_of(call);
    char *scratch = call->scratch;

    plan.pixels.from_x = call->x;
    plan.pixels.from_dy = call->dy;
    plan.pixels.x = call->scratch;
    plan.pixels.dy = (uint16_t *)(void *)(scratch + plan.pixels.x_bytes);
    plan.sums = (float *)(void *)(scratch + plan.pixels.x_bytes + plan.pixels.dy_bytes);
    plan.set = (struct set *)(void *)((char *)plan.sums + plan.sums_bytes);
    plan.pixels.totals = (float *)(void *)(plan.set + plan.quads * QUAD / plan.across);
    find_sets(&plan);
    dp_parallel_parts(threads, copy_part, &plan);
    dp_parallel_parts(threads, product_part, &plan);
    for (size_t i = 0; call->db != NULL && i < call->w->out_c; i++) {
        call->db[i] = plan.pixels.totals[i] + (call->adds ? call->db[i] : 0.0f);
    }
}

#else

bool dp_conv_weights_amx_can(const struct dp_window *w)
{
    (void)w;
    return false;
}

size_t dp_conv_weights_amx_bytes(const struct dp_window *w, size_t rows)
{
    (void)w;
    (void)rows;
    return 0;
}

void dp_conv_weights_amx(const struct dp_conv_weights_amx *call, int threads)
{
    (void)call;
    (void)threads;
}

#endif
