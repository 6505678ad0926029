/*
 * norm_rows.c - arrays of bfloat16 are converted in registers, in pairs, so that half of the bytes
 * are moved and no pass only converts.
 */
#include "kernels/cpu/norm/norm_rows.h"

/* Forward and backward use this one function, so that the mask is equal to the bit. */
DP_INLINE float normalised(float x, float mean, float scale, float beta)
{
    return (x - mean) * scale + beta;
}

/* Fetches the row that comes 2 KB after this one: what the hardware fetches by itself ends with
 * each page of memory, and most of these arrays are beyond the second cache. */
DP_INLINE void prefetch_row(const void *from, size_t at, size_t stride, size_t width, bool narrow)
{
    enum { AHEAD = 2048, LINE = 64 };
    const size_t bytes = width * (narrow ? sizeof(uint16_t) : sizeof(float));
    const char *row = dp_element(from, at + (AHEAD + bytes - 1) / bytes * stride, narrow);

    for (size_t i = 0; i < bytes; i += LINE) {
        __builtin_prefetch(row + i);
    }
}

/* ---- forward ---- */

DP_INLINE float forward_one(const struct dp_norm_factors *f, size_t k, float x, float add,
                            bool adds, bool relu)
{
    const float own = normalised(x, f->mean[k], f->scale[k], f->beta[k]);
    const float v = adds ? own + add : own;

    return relu ? dp_rectified(v) : v;
}

/* y may be x or add. */
DP_INLINE void forward_rows(const struct dp_norm_job *job, size_t first, size_t rows, size_t width,
                            bool adds, bool relu, bool narrow)
{
    const struct dp_norm_factors *f = job->factors;

    for (size_t r = 0; r < rows; r++) {
        const size_t at = first + r * job->tile->stride;
        const void *x = dp_element(job->x, at, narrow);
        const void *add = adds ? dp_element(job->add, at, narrow) : NULL;
        void *y = dp_element_to(job->y, at, narrow);
        prefetch_row(job->x, at, job->tile->stride, width, narrow);
        if (adds) {
            prefetch_row(job->add, at, job->tile->stride, width, narrow);
        }
        DP_INDEPENDENT
        for (size_t j = 0; j < width / dp_halves(narrow); j++) {
            float v[2];
            for (size_t h = 0; h < dp_halves(narrow); h++) {
                v[h] = forward_one(f, j + h * DP_SPLIT, dp_lane(x, j, h, narrow),
                                   adds ? dp_lane(add, j, h, narrow) : 0, adds, relu);
            }
            dp_lanes_to(y, j, v, narrow);
        }
        if (dp_has_last(width, narrow)) {
            const float v = forward_one(f, width / 2, dp_last_of(x, width),
                                        adds ? dp_last_of(add, width) : 0, adds, relu);
            dp_number_to(y, width - 1, v, narrow);
        }
    }
}

#define FORWARD(name, adds, relu, narrow)                                             \
    DP_HOT static void name(const struct dp_norm_job *job, size_t first, size_t rows, \
                            size_t width)                                             \
    {                                                                                 \
        forward_rows(job, first, rows, width, adds, relu, narrow);                    \
    }

FORWARD(forward_plain, false, false, false)
FORWARD(forward_relu, false, true, false)
FORWARD(forward_add, true, false, false)
FORWARD(forward_add_relu, true, true, false)
FORWARD(forward_plain_bfloat, false, false, true)
FORWARD(forward_relu_bfloat, false, true, true)
FORWARD(forward_add_bfloat, true, false, true)
FORWARD(forward_add_relu_bfloat, true, true, true)

dp_norm_row_fn *dp_norm_forward_row(const struct dp_norm_job *job)
{
    static dp_norm_row_fn *const rows[2][2][2] = {
        {{forward_plain, forward_relu}, {forward_add, forward_add_relu}},
        {{forward_plain_bfloat, forward_relu_bfloat},
         {forward_add_bfloat, forward_add_relu_bfloat}},
    };

    return rows[job->narrow][job->add != NULL][job->relu];
}

/* ---- backward ---- */

/* The gradient after the activation, with or without a relu. */
DP_INLINE float masked(float dy, float x, float mean, float scale, float beta, bool relu)
{
    return !relu || normalised(x, mean, scale, beta) > 0 ? dy : 0.0f;
}

/* Adds a column of four rows, or of one, to the sums of g and of g (x - mean). */
DP_INLINE void add_four(const struct dp_norm_factors *f, size_t k, float *restrict sum0,
                        float *restrict sum1, const float x[4], const float dy[4], bool relu)
{
    const float m = f->mean[k], s = f->scale[k], t = f->beta[k];
    const float g = masked(dy[0], x[0], m, s, t, relu), h = masked(dy[1], x[1], m, s, t, relu);
    const float p = masked(dy[2], x[2], m, s, t, relu), q = masked(dy[3], x[3], m, s, t, relu);

    sum0[k] += (g + h) + (p + q);
    sum1[k] += (g * (x[0] - m) + h * (x[1] - m)) + (p * (x[2] - m) + q * (x[3] - m));
}

DP_INLINE void add_one(const struct dp_norm_factors *f, size_t k, float *restrict sum0,
                       float *restrict sum1, float x, float dy, bool relu)
{
    const float g = masked(dy, x, f->mean[k], f->scale[k], f->beta[k], relu);

    sum0[k] += g;
    sum1[k] += g * (x - f->mean[k]);
}

DP_INLINE void add_four_rows(const struct dp_norm_job *job, float *restrict sum0,
                             float *restrict sum1, size_t at, size_t stride, size_t width,
                             bool relu, bool narrow)
{
    const void *x0 = dp_element(job->x, at, narrow), *x1 = dp_element(x0, stride, narrow);
    const void *x2 = dp_element(x1, stride, narrow), *x3 = dp_element(x2, stride, narrow);
    const void *dy0 = dp_element(job->dy, at, narrow), *dy1 = dp_element(dy0, stride, narrow);
    const void *dy2 = dp_element(dy1, stride, narrow), *dy3 = dp_element(dy2, stride, narrow);

    for (size_t i = 0; i < 4; i++) { /* dy was just written */
        prefetch_row(job->x, at + i * stride, stride, width, narrow);
    }
    DP_INDEPENDENT
    for (size_t j = 0; j < width / dp_halves(narrow); j++) {
        for (size_t h = 0; h < dp_halves(narrow); h++) {
            const float x[] = {dp_lane(x0, j, h, narrow), dp_lane(x1, j, h, narrow),
                               dp_lane(x2, j, h, narrow), dp_lane(x3, j, h, narrow)};
            const float dy[] = {dp_lane(dy0, j, h, narrow), dp_lane(dy1, j, h, narrow),
                                dp_lane(dy2, j, h, narrow), dp_lane(dy3, j, h, narrow)};
            add_four(job->factors, j + h * DP_SPLIT, sum0, sum1, x, dy, relu);
        }
    }
    if (dp_has_last(width, narrow)) {
        const float x[] = {dp_last_of(x0, width), dp_last_of(x1, width), dp_last_of(x2, width),
                           dp_last_of(x3, width)};
        const float dy[] = {dp_last_of(dy0, width), dp_last_of(dy1, width), dp_last_of(dy2, width),
                            dp_last_of(dy3, width)};
        add_four(job->factors, width / 2, sum0, sum1, x, dy, relu);
    }
}

DP_INLINE void add_gradients(const struct dp_norm_job *job, float *restrict sum0,
                             float *restrict sum1, size_t first, size_t rows, size_t stride,
                             size_t width, bool relu, bool narrow)
{
    size_t r = 0;

    for (; r + 4 <= rows; r += 4) {
        add_four_rows(job, sum0, sum1, first + r * stride, stride, width, relu, narrow);
    }
    for (; r < rows; r++) {
        const void *x = dp_element(job->x, first + r * stride, narrow);
        const void *dy = dp_element(job->dy, first + r * stride, narrow);
        DP_INDEPENDENT
        for (size_t j = 0; j < width / dp_halves(narrow); j++) {
            for (size_t h = 0; h < dp_halves(narrow); h++) {
                add_one(job->factors, j + h * DP_SPLIT, sum0, sum1, dp_lane(x, j, h, narrow),
                        dp_lane(dy, j, h, narrow), relu);
            }
        }
        if (dp_has_last(width, narrow)) {
            add_one(job->factors, width / 2, sum0, sum1, dp_last_of(x, width),
                    dp_last_of(dy, width), relu);
        }
    }
}

#define ADD_GRADIENTS(name, relu, narrow)                                                     \
    DP_HOT static void name(const void *arg, float *const sums[2], size_t first, size_t rows, \
                            size_t stride, size_t width)                                      \
    {                                                                                         \
        _Alignas(DP_MEM_ALIGN) float split[2][DP_TILE];                                       \
                                                                                              \
        if (!(narrow)) {                                                                      \
            add_gradients(arg, sums[0], sums[1], first, rows, stride, width, relu, false);    \
            return;                                                                           \
        }                                                                                     \
        dp_columns_split(split[0], sums[0], width);                                           \
        dp_columns_split(split[1], sums[1], width);                                           \
        add_gradients(arg, split[0], split[1], first, rows, stride, width, relu, true);       \
        dp_columns_join(sums[0], split[0], width);                                            \
        dp_columns_join(sums[1], split[1], width);                                            \
    }

ADD_GRADIENTS(add_gradients_plain, false, false)
ADD_GRADIENTS(add_gradients_relu, true, false)
ADD_GRADIENTS(add_gradients_plain_bfloat, false, true)
ADD_GRADIENTS(add_gradients_relu_bfloat, true, true)

dp_column_add_fn *dp_norm_add_gradients(const struct dp_norm_job *job)
{
    static dp_column_add_fn *const adds[2][2] = {
        {add_gradients_plain, add_gradients_relu},
        {add_gradients_plain_bfloat, add_gradients_relu_bfloat}};

    return adds[job->narrow][job->relu];
}

DP_INLINE float backward_one(const struct dp_norm_factors *f, size_t k, float x, float dy,
                             bool relu)
{
    const float g = masked(dy, x, f->mean[k], f->scale[k], f->beta[k], relu);
    const float hat = (x - f->mean[k]) * f->slope[k];

    return f->scale[k] * ((g - f->center[k]) - hat);
}

/* dx may be dy. */
DP_INLINE void backward_rows(const struct dp_norm_job *job, size_t first, size_t rows, size_t width,
                             bool relu, bool narrow)
{
    const struct dp_norm_factors *f = job->factors;

    for (size_t r = 0; r < rows; r++) {
        const size_t at = first + r * job->tile->stride;
        const void *x = dp_element(job->x, at, narrow), *dy = dp_element(job->dy, at, narrow);
        void *dx = dp_element_to(job->y, at, narrow);
        prefetch_row(job->x, at, job->tile->stride, width, narrow);
        prefetch_row(job->dy, at, job->tile->stride, width, narrow);
        DP_INDEPENDENT
        for (size_t j = 0; j < width / dp_halves(narrow); j++) {
            float v[2];
            for (size_t h = 0; h < dp_halves(narrow); h++) {
                v[h] = backward_one(f, j + h * DP_SPLIT, dp_lane(x, j, h, narrow),
                                    dp_lane(dy, j, h, narrow), relu);
            }
            dp_lanes_to(dx, j, v, narrow);
        }
        if (dp_has_last(width, narrow)) {
            const float v =
                backward_one(f, width / 2, dp_last_of(x, width), dp_last_of(dy, width), relu);
            dp_number_to(dx, width - 1, v, narrow);
        }
    }
}

#define BACKWARD(name, relu, narrow)                                                  \
    DP_HOT static void name(const struct dp_norm_job *job, size_t first, size_t rows, \
                            size_t width)                                             \
    {                                                                                 \
        backward_rows(job, first, rows, width, relu, narrow);                         \
    }

BACKWARD(backward_plain, false, false)
BACKWARD(backward_relu, true, false)
BACKWARD(backward_plain_bfloat, false, true)
BACKWARD(backward_relu_bfloat, true, true)

dp_norm_row_fn *dp_norm_backward_row(const struct dp_norm_job *job)
{
    static dp_norm_row_fn *const rows[2][2] = {{backward_plain, backward_relu},
                                               {backward_plain_bfloat, backward_relu_bfloat}};

    return rows[job->narrow][job->relu];
}
