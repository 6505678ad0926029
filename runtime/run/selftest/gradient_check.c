#include "runtime/run/selftest/gradient_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/trace.h"
#include "runtime/run/selftest/model_run.h"

/* A wrong backward is wrong by more. The rest is the curvature of the loss over a step, and the
 * places where relu and maxpool bend. */
static const double bound = 0.02;

/* How far a step is to change the loss, of itself: a large one bends, a small one is lost in the
 * roundings of float32; the best of them counts. */
static const double shares[] = {6e-5, 2e-5, 6e-6, 2.5e-4};

/* A tensor whose gradient is a smaller part than this of the whole one, as that of a bias before
 * batch norm, which is zero but for roundings, is compared with this part. */
static const double small = 1e-3;

/* Tensors are left out beyond so long, evenly over the depth: ref takes minutes for a loss of a
 * large model. */
static const double enough_s = 60.0;

enum { DIRECTIONS = 2 };

struct differences {
    struct dp_model_run *run; /* owned, as all below */
    float *weights, *moved;   /* [trained] */
    float *gradient, *direction;
    double loss, length; /* of the whole gradient */
};

static dp_status open_differences(struct differences *d, const struct dp_selftest *selftest,
                                  size_t rows)
{
    const struct dp_device *ref =
        (const struct dp_device *)dp_plugin_find(&dp_devices, "ref", sizeof("ref") - 1);
    const struct dp_run_job *job = selftest->job;
    const size_t count = job->model->trained;

    DP_TRY(dp_selftest_weights(job, &d->weights));
    d->moved = dp_zalloc(count, sizeof(float));
    d->gradient = dp_zalloc(count, sizeof(float));
    d->direction = dp_zalloc(count, sizeof(float));
    if (d->moved == NULL || d->gradient == NULL || d->direction == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "finite differences");
    }
    DP_TRY(dp_model_run_create(selftest, ref, DP_TYPE_F32, rows, &d->run));
    DP_TRY(dp_model_run_gradient(d->run, d->weights, &d->loss, d->gradient));
    for (size_t i = 0; i < count; i++) {
        d->length += (double)d->gradient[i] * (double)d->gradient[i];
    }
    d->length = sqrt(d->length);
    return DP_OK;
}

static void close_differences(struct differences *d)
{
    if (d->run != NULL) {
        dp_model_run_destroy(d->run);
    }
    dp_free(d->direction);
    dp_free(d->gradient);
    dp_free(d->moved);
    dp_free(d->weights);
}

/* Along the gradient of the tensor. Where it is all zero, anywhere. */
static void aim_at_all(struct differences *d, const struct dp_tensor *tensor)
{
    double size = 0.0;

    for (size_t i = 0; i < tensor->count; i++) {
        size += fabs((double)d->gradient[tensor->begin + i]);
    }
    for (size_t i = 0; i < tensor->count; i++) {
        const size_t at = tensor->begin + i;
        const float noise = dp_selftest_noise(1, at);
        d->direction[at] = size > 0.0 ? d->gradient[at] * (1.0f + 0.5f * noise) : noise;
    }
}

/* A few elements, each by as much, up where the loss grows. */
static void aim_at_some(struct differences *d, const struct dp_tensor *tensor)
{
    memset(d->direction + tensor->begin, 0, tensor->count * sizeof(float));
    for (uint32_t i = 0; i < DP_GRADIENT_SAMPLE; i++) {
        const double place = 0.5 + 0.5 * (double)dp_selftest_noise(2 + i, tensor->begin);
        const size_t drawn = (size_t)(place * (double)tensor->count);
        const size_t at = tensor->begin + (drawn < tensor->count ? drawn : tensor->count - 1);
        const float g = d->gradient[at];
        const bool up = g != 0.0f ? g > 0.0f : dp_selftest_noise(2 + i, at) > 0.0f;
        d->direction[at] = up ? 1.0f : -1.0f;
    }
}

/* (L(w + h d) - L(w - h d)) / 2 h */
static dp_status difference(struct differences *d, const struct dp_tensor *tensor, double h,
                            double *out)
{
    double losses[2];

    for (int side = 0; side < 2; side++) {
        for (size_t i = tensor->begin; i < tensor->begin + tensor->count; i++) {
            const double step = (side == 0 ? h : -h) * (double)d->direction[i];
            d->moved[i] = (float)((double)d->weights[i] + step);
        }
        DP_TRY(dp_model_run_loss(d->run, d->moved, &losses[side]));
    }
    *out = (losses[0] - losses[1]) / (2.0 * h);
    return DP_OK;
}

/* *error: how far the gradient is from differences in the direction, of itself; what roundings of
 * the loss explain is left out. */
static dp_status check_direction(struct differences *d, const struct dp_tensor *tensor,
                                 double *error)
{
    const double rounding = 2.0 * fabs(d->loss) / 16777216.0; /* of two losses */
    double expected = 0.0, length = 0.0, weights = 0.0, size;

    *error = (double)INFINITY;
    for (size_t i = tensor->begin; i < tensor->begin + tensor->count; i++) {
        expected += (double)d->gradient[i] * (double)d->direction[i];
        length += (double)d->direction[i] * (double)d->direction[i];
        weights += (double)d->weights[i] * (double)d->weights[i];
    }
    size = fmax(fabs(expected), small * d->length * sqrt(length));
    for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]) && *error > bound / 4.0; s++) {
        /* at most a tenth of the weights' own size */
        const double most = 0.1 * sqrt((weights + 1e-4) / length);
        const double wanted = shares[s] * fabs(d->loss) / fmax(size, 1e-30);
        const double h = fmin(wanted, most);
        double found, off;
        DP_TRY(difference(d, tensor, h, &found));
        off = fmax(fabs(found - expected) - rounding / (2.0 * h), 0.0) / fmax(size, 1e-30);
        *error = off < *error ? off : *error; /* NaN is not less */
    }
    memcpy(d->moved + tensor->begin, d->weights + tensor->begin, tensor->count * sizeof(float));
    return DP_OK;
}

static dp_status check_tensor(struct dp_selftest *selftest, struct differences *d,
                              const struct dp_tensor *tensor)
{
    void (*const aims[DIRECTIONS])(struct differences *, const struct dp_tensor *) = {aim_at_all,
                                                                                      aim_at_some};
    double worst = 0.0, error;
    char name[DP_TENSOR_NAME + 16];

    for (int i = 0; i < DIRECTIONS; i++) {
        aims[i](d, tensor);
        DP_TRY(check_direction(d, tensor, &error));
        worst = error > worst ? error : worst;
    }
    (void)snprintf(name, sizeof(name), "gradient.%s", tensor->name);
    dp_selftest_line(selftest, worst <= bound, name,
                     "%.1e of it away from finite differences on ref (at most %.0e)", worst, bound);
    return DP_OK;
}

int dp_gradient_check_count(double one_s, int count)
{
    return one_s * count <= enough_s ? count : (int)fmax(1.0, enough_s / one_s);
}

static dp_status check_tensors(struct dp_selftest *selftest, struct differences *d)
{
    const struct dp_model *m = selftest->job->model;
    const uint64_t begin_ns = dp_now_ns();
    int count = m->tensor_count;

    for (int i = 0; i < count; i++) {
        const int which = (int)((int64_t)i * m->tensor_count / count);
        DP_TRY(check_tensor(selftest, d, &m->tensors[which]));
        if (i == 0) {
            count = dp_gradient_check_count((double)(dp_now_ns() - begin_ns) * 1e-9, count);
        }
    }
    if (count < m->tensor_count) {
        dp_selftest_line(selftest, true, "gradients",
                         "%d of %d tensors were checked, since ref takes long for this model",
                         count, m->tensor_count);
    }
    return DP_OK;
}

dp_status dp_gradient_check(struct dp_selftest *selftest, size_t rows)
{
    const struct dp_model *m = selftest->job->model;
    struct differences d = {.run = NULL};
    dp_status status = open_differences(&d, selftest, rows);

    if (status == DP_OK) {
        memcpy(d.moved, d.weights, m->trained * sizeof(float));
    }
    status = status == DP_OK ? check_tensors(selftest, &d) : status;
    close_differences(&d);
    return status;
}
