#include "kernels/cpu/winograd/winograd.h"

#include <string.h>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/winograd/code.h"
#include "kernels/ref/window.h"

enum {
    CACHE = 448 * 1024, /* of the second cache, what a block's arrays may take, if that is enough
                         * for the fewest tiles */
    CHANNELS = 256,     /* at most: the transformed weights of more are too large to gain */
};

#if DP_WINOGRAD_CODE

static const struct dp_winograd_code *code_here(void)
{
    if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0) {
        return &dp_winograd_avx512;
    }
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0
               ? &dp_winograd_avx2
               : NULL;
}

#else

static const struct dp_winograd_code *code_here(void)
{
    return NULL;
}

#endif

static bool fits(size_t channels)
{
    return channels % DP_WINOGRAD_UNIT == 0 && channels <= CHANNELS;
}

bool dp_winograd_can(const struct dp_window *w)
{
    return code_here() != NULL && w->kernel_h == w->kernel_w &&
           (w->kernel_h == 3 || w->kernel_h == 5) && w->stride == 1 && w->padding < w->kernel_h &&
           dp_window_groups(w) == 1 && fits(w->in_c) && fits(w->out_c);
}

/* G: row i has the powers of point i, divided by the product of its distances from the others; the
 * last row is that of infinity. */
static void fill_matrix(struct dp_winograd_plan *p)
{
    enum { FINITE = DP_WINOGRAD_SIDE - 1 };
    static const double points[FINITE] = {0.0, 0.75, -0.75, 1.5, -1.5};

    for (size_t i = 0; i < FINITE; i++) {
        double value = 1.0;
        for (size_t k = 0; k < FINITE; k++) {
            value /= k == i ? 1.0 : points[i] - points[k];
        }
        for (size_t k = 0; k < p->kernel; k++) {
            p->matrix[i][k] = (float)value;
            value *= points[i];
        }
    }
    for (size_t k = 0; k < p->kernel; k++) {
        p->matrix[DP_WINOGRAD_SIDE - 1][k] = k + 1 == p->kernel ? 1.0f : 0.0f;
    }
}

static void set_sizes(struct dp_winograd_plan *p, const struct dp_window *w, unsigned use)
{
    const bool back = (use & DP_CONV_BACKWARD_DATA) != 0; /* from dy to dx */

    p->kernel = w->kernel_h;
    p->step = DP_WINOGRAD_SIDE + 1 - p->kernel;
    p->in_h = back ? w->out_h : w->in_h;
    p->in_w = back ? w->out_w : w->in_w;
    p->in_c = back ? w->out_c : w->in_c;
    p->out_h = back ? w->in_h : w->out_h;
    p->out_w = back ? w->in_w : w->out_w;
    p->out_c = back ? w->in_c : w->out_c;
    p->padding = back ? w->kernel_h - 1 - w->padding : w->padding;
}

static struct dp_winograd_plan plan_of(const struct dp_window *w, unsigned use)
{
    const size_t point_bytes = DP_WINOGRAD_POINTS * sizeof(float);
    struct dp_winograd_plan p = {.call = NULL};

    set_sizes(&p, w, use);
    p.down = (p.out_h + p.step - 1) / p.step;
    p.across = (p.out_w + p.step - 1) / p.step;
    p.block = CACHE / (point_bytes * (p.in_c + p.out_c)) / DP_WINOGRAD_TILES * DP_WINOGRAD_TILES;
    p.block = p.block > 0 ? p.block : DP_WINOGRAD_TILES;
    p.v_gap = p.block * p.in_c + DP_WINOGRAD_EXTRA;
    p.m_gap = p.block * p.out_c + DP_WINOGRAD_EXTRA;
    p.u_gap = p.in_c * p.out_c + DP_WINOGRAD_EXTRA;
    p.weights = DP_WINOGRAD_POINTS * p.u_gap;
    p.part_floats = DP_WINOGRAD_POINTS * (p.v_gap + p.m_gap);
    if ((use & DP_CONV_BACKWARD_WEIGHTS) != 0) {
        p.part_floats += p.weights + p.out_c;
    }
    return p;
}

static struct dp_winograd_part part_of(const struct dp_winograd_plan *p, int part)
{
    float *at = p->part + (size_t)part * p->part_floats;
    struct dp_winograd_part mine = {.v = at, .m = at + DP_WINOGRAD_POINTS * p->v_gap};

    mine.sums = mine.m + DP_WINOGRAD_POINTS * p->m_gap;
    mine.bias = mine.sums + p->weights;
    return mine;
}

size_t dp_winograd_bytes(const struct dp_window *w, unsigned use, int threads)
{
    const struct dp_winograd_plan p = plan_of(w, use);
    const size_t shared = (use & DP_CONV_BACKWARD_WEIGHTS) != 0 ? 0 : p.weights;

    return (shared + p.in_w * p.in_c + (size_t)threads * p.part_floats) * sizeof(float);
}

double dp_winograd_share(const struct dp_window *w)
{
    const struct dp_winograd_plan p = plan_of(w, DP_CONV_FORWARD);
    const double wanted = (double)(p.out_h * p.out_w * p.kernel * p.kernel);

    return (double)(p.down * p.across * DP_WINOGRAD_POINTS) / wanted;
}

/* ---- on threads ---- */

static void weights_part(void *context, int part, int parts)
{
    const struct dp_winograd_plan *p = context;
    size_t begin, end;

    dp_part(p->in_c, DP_WINOGRAD_UNIT, part, parts, &begin, &end);
    p->code->weights(p, begin, end);
}

/* Threads share the tiles. */
static void tiles_part(void *context, int part, int parts)
{
    const struct dp_winograd_plan *p = context;
    const struct dp_winograd_part mine = part_of(p, part);
    const bool sums = (p->call->use & DP_CONV_BACKWARD_WEIGHTS) != 0;
    size_t begin, end;

    dp_part(p->tiles, DP_WINOGRAD_TILES, part, parts, &begin, &end);
    if (sums) {
        memset(mine.sums, 0, (p->weights + p->out_c) * sizeof(float));
    }
    for (size_t at = begin; at < end; at += p->block) {
        const size_t next = at + p->block < end ? at + p->block : end;
        (sums ? p->code->sum : p->code->convolve)(p, &mine, at, next);
    }
}

/* Adds the sums of all threads to those of the first. */
static void add_parts(const struct dp_winograd_plan *p, size_t begin, size_t end, int threads)
{
    float *sum = part_of(p, 0).sums;

    for (int i = 1; i < threads; i++) {
        const float *other = part_of(p, i).sums;
        for (size_t k = begin; k < end; k++) {
            sum[k] += other[k];
        }
    }
}

struct gradients {
    const struct dp_winograd_plan *plan;
    int threads; /* which have sums */
};

static void gradients_part(void *context, int part, int parts)
{
    const struct gradients *g = context;
    const struct dp_winograd_plan *p = g->plan;
    size_t begin, end;

    dp_part(p->out_c, 1, part, parts, &begin, &end);
    for (size_t i = 0; i < DP_WINOGRAD_POINTS; i++) {
        const size_t at = i * p->u_gap;
        add_parts(p, at + begin * p->in_c, at + end * p->in_c, g->threads);
    }
    p->code->gradients(p, part_of(p, 0).sums, begin, end);
}

static void set_bias(const struct dp_winograd_plan *p, int threads)
{
    const struct dp_winograd *call = p->call;

    for (size_t o = 0; call->bias != NULL && o < p->out_c; o++) {
        float sum = call->adds ? call->bias[o] : 0.0f;
        for (int i = 0; i < threads; i++) {
            sum += part_of(p, i).bias[o];
        }
        call->bias[o] = sum;
    }
}

void dp_winograd_run(const struct dp_winograd *call, int threads)
{
    struct dp_winograd_plan p = plan_of(call->w, call->use);
    const bool sums = (call->use & DP_CONV_BACKWARD_WEIGHTS) != 0;

    p.call = call;
    p.code = call->code != NULL ? call->code : code_here();
    p.tiles = call->rows * p.down * p.across;
    p.u = call->scratch;
    p.zero = p.u + (sums ? 0 : p.weights);
    p.part = p.zero + p.in_w * p.in_c;
    memset(p.zero, 0, p.in_w * p.in_c * sizeof(float));
    fill_matrix(&p);
    if (!sums) {
        dp_parallel_parts(threads, weights_part, &p);
    }
    dp_parallel_parts(threads, tiles_part, &p);
    if (sums) {
        struct gradients gradients = {&p, threads};
        dp_parallel_parts(threads, gradients_part, &gradients);
        set_bias(&p, threads);
    }
}
