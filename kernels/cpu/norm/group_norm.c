/*
 * group_norm.c - normalisation of groups: see kernels/ops.h for the contract.
 *
 * A group of a sample is computed by one thread, in passes of which the cache serves all but the
 * first. Sums over channels are made in double, each channel's by one thread. Results do not
 * depend on the number of threads.
 */
#include <math.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

enum { LANES = 8, CHANNELS = 32 };

struct job {
    const struct dp_group_norm *norm;
    const float *x, *dy, *gamma, *beta;
    float *y, *dx, *dgamma, *dbeta;
    float *saved; /* written by forward; NULL: not needed */
    const float *kept;
    float keep;
    size_t width; /* channels of a group */
};

static struct job job_of(const struct dp_group_norm *norm)
{
    return (struct job){.norm = norm, .width = norm->channels / norm->groups};
}

/* Elements before place p of group k of all. */
static size_t begin_of(const struct job *j, size_t k, size_t p)
{
    const struct dp_group_norm *n = j->norm;

    return (k / n->groups * n->places + p) * n->channels + k % n->groups * j->width;
}

static double sum_lanes(const double *lanes)
{
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* Adds x - center, or its square, of one place to the lanes. */
DP_HOT static void add_place(double *restrict lanes, const float *restrict x, size_t count,
                             float center, bool squares)
{
    size_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        for (size_t l = 0; l < LANES; l++) {
            const double from = (double)x[i + l] - (double)center;
            lanes[l] += squares ? from * from : from;
        }
    }
    for (size_t l = 0; i + l < count; l++) {
        const double from = (double)x[i + l] - (double)center;
        lanes[l] += squares ? from * from : from;
    }
}

static double mean_of(const struct job *j, size_t k, float center, bool squares)
{
    double lanes[LANES] = {0};

    for (size_t p = 0; p < j->norm->places; p++) {
        add_place(lanes, j->x + begin_of(j, k, p), j->width, center, squares);
    }
    return sum_lanes(lanes) / (double)(j->norm->places * j->width);
}

DP_HOT static void scale_place(float *restrict y, const float *restrict x,
                               const float *restrict gamma, const float *restrict beta,
                               const float *saved, size_t count)
{
    const float mean = saved[0], scale = saved[1];

    for (size_t c = 0; c < count; c++) {
        y[c] = (x[c] - mean) * scale * gamma[c] + beta[c];
    }
}

static void forward_part(void *arg, size_t begin, size_t end)
{
    const struct job *j = arg;

    for (size_t k = begin; k < end; k++) {
        const size_t first = k % j->norm->groups * j->width;
        const float mean = (float)mean_of(j, k, 0, false);
        const double var = mean_of(j, k, mean, true);
        const float own[2] = {mean, (float)(1 / sqrt(var + (double)j->norm->eps))};
        if (j->saved != NULL) {
            j->saved[2 * k] = own[0];
            j->saved[2 * k + 1] = own[1];
        }
        for (size_t p = 0; p < j->norm->places; p++) {
            const size_t at = begin_of(j, k, p);
            scale_place(j->y + at, j->x + at, j->gamma + first, j->beta + first, own, j->width);
        }
    }
}

dp_status dp_cpu_group_norm_forward(struct dp_stream *s, void *y, float *saved, const void *x,
                                    const void *gamma, const void *beta,
                                    const struct dp_group_norm *norm)
{
    struct job j = job_of(norm);

    j.y = y;
    j.saved = saved;
    j.x = x;
    j.gamma = gamma;
    j.beta = beta;
    dp_parallel_rows(s->threads, norm->rows * norm->groups, norm->places * j.width, 1, forward_part,
                     &j);
    return DP_OK;
}

/* Adds one place to the sums of its channels. */
DP_HOT static void add_channels(double *restrict scale, double *restrict shift,
                                const float *restrict dy, const float *restrict x,
                                const float *restrict mean, const float *restrict rate,
                                size_t count)
{
    for (size_t c = 0; c < count; c++) {
        scale[c] += (double)(dy[c] * ((x[c] - mean[c]) * rate[c]));
        shift[c] += (double)dy[c];
    }
}

/* A tile of channels, over all rows. */
static void affine_tile(const struct job *j, size_t begin, size_t count)
{
    const struct dp_group_norm *n = j->norm;
    double scale[CHANNELS] = {0}, shift[CHANNELS] = {0};
    float mean[CHANNELS], rate[CHANNELS];

    for (size_t row = 0; row < n->rows; row++) {
        for (size_t c = 0; c < count; c++) {
            const float *saved = j->kept + 2 * (row * n->groups + (begin + c) / j->width);
            mean[c] = saved[0];
            rate[c] = saved[1];
        }
        for (size_t p = 0; p < n->places; p++) {
            const size_t at = (row * n->places + p) * n->channels + begin;
            add_channels(scale, shift, j->dy + at, j->x + at, mean, rate, count);
        }
    }
    for (size_t c = 0; c < count; c++) {
        float *dgamma = &j->dgamma[begin + c], *dbeta = &j->dbeta[begin + c];
        *dgamma = (float)((j->keep != 0 ? (double)*dgamma : 0) + scale[c]);
        *dbeta = (float)((j->keep != 0 ? (double)*dbeta : 0) + shift[c]);
    }
}

static void affine_part(void *arg, size_t begin, size_t end)
{
    for (size_t c = begin; c < end; c += CHANNELS) {
        affine_tile(arg, c, end - c < CHANNELS ? end - c : CHANNELS);
    }
}

/* Adds g = dy gamma, and g times the normalised x, of one place to the lanes. */
DP_HOT static void add_slopes(double *restrict sums, double *restrict slopes,
                              const float *restrict dy, const float *restrict x,
                              const float *restrict gamma, const float *saved, size_t count)
{
    const float mean = saved[0], rate = saved[1];

    for (size_t c = 0; c < count; c++) {
        const double g = (double)(dy[c] * gamma[c]);
        sums[c % LANES] += g;
        slopes[c % LANES] += g * (double)((x[c] - mean) * rate);
    }
}

/* dx may be dy. */
DP_HOT static void slope_place(float *dx, const float *dy, const float *restrict x,
                               const float *restrict gamma, const float *saved, const float *means,
                               size_t count)
{
    const float mean = saved[0], rate = saved[1], sum = means[0], slope = means[1];

    DP_INDEPENDENT
    for (size_t c = 0; c < count; c++) {
        dx[c] = (dy[c] * gamma[c] - sum - (x[c] - mean) * rate * slope) * rate;
    }
}

static void backward_part(void *arg, size_t begin, size_t end)
{
    const struct job *j = arg;
    const size_t places = j->norm->places;

    for (size_t k = begin; k < end; k++) {
        const float *gamma = j->gamma + k % j->norm->groups * j->width;
        const double count = (double)(places * j->width);
        double sums[LANES] = {0}, slopes[LANES] = {0};
        for (size_t p = 0; p < places; p++) {
            const size_t at = begin_of(j, k, p);
            add_slopes(sums, slopes, j->dy + at, j->x + at, gamma, j->kept + 2 * k, j->width);
        }
        const float means[2] = {(float)(sum_lanes(sums) / count),
                                (float)(sum_lanes(slopes) / count)};
        for (size_t p = 0; p < places; p++) {
            const size_t at = begin_of(j, k, p);
            slope_place(j->dx + at, j->dy + at, j->x + at, gamma, j->kept + 2 * k, means, j->width);
        }
    }
}

dp_status dp_cpu_group_norm_backward(struct dp_stream *s, void *dx, float *dgamma, float *dbeta,
                                     const void *dy, const void *x, const void *gamma,
                                     const float *saved, const struct dp_group_norm *norm,
                                     float keep)
{
    struct job j = job_of(norm);

    j.dx = dx;
    j.dgamma = dgamma;
    j.dbeta = dbeta;
    j.dy = dy;
    j.x = x;
    j.gamma = gamma;
    j.kept = saved;
    j.keep = keep;
    dp_parallel_rows(s->threads, norm->channels, norm->rows * norm->places, CHANNELS, affine_part,
                     &j);
    if (dx != NULL) {
        dp_parallel_rows(s->threads, norm->rows * norm->groups, norm->places * j.width, 1,
                         backward_part, &j);
    }
    return DP_OK;
}
