#include "runtime/run/selftest/device_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/run/selftest/model_run.h"

enum { ROUNDINGS = 32 }; /* one at the weights is followed by one at each operation */

static const double least = 1e-6; /* where one rounding of the weights happens to change nothing */

static const double small = 1e-3; /* see worst_tensor() */

/* What a device computes. */
struct results {
    double loss;
    float *outputs;  /* owned; [rows, classes] */
    float *gradient; /* owned; [trained] */
};

struct comparison {
    struct dp_selftest *selftest;
    size_t rows;
    float *weights; /* owned; [trained] */
    struct results ref, it;
    struct results near;   /* ref with weights that are rounded otherwise */
    struct results narrow; /* ref in the narrow type */
};

static const struct dp_device *device_of(const char *name)
{
    return (const struct dp_device *)dp_plugin_find(&dp_devices, name, strlen(name));
}

static dp_status make_results(const struct comparison *c, struct results *r)
{
    const struct dp_model *m = c->selftest->job->model;

    r->outputs = dp_zalloc(c->rows * m->classes, sizeof(float));
    r->gradient = dp_zalloc(m->trained, sizeof(float));
    return r->outputs != NULL && r->gradient != NULL ? DP_OK
                                                     : DP_FAIL(DP_ERR_NOMEM, "results of a device");
}

static dp_status compute(const struct comparison *c, const struct dp_device *device,
                         enum dp_type type, struct results *out)
{
    struct dp_model_run *run = NULL;
    dp_status status;

    DP_TRY(dp_model_run_create(c->selftest, device, type, c->rows, &run));
    status = dp_model_run_gradient(run, c->weights, &out->loss, out->gradient);
    if (status == DP_OK && type == DP_TYPE_F32) {
        status = dp_model_run_outputs(run, out->outputs);
    }
    dp_model_run_destroy(run);
    return status;
}

/* What ref computes, and what it computes when each weight is moved by up to half of its last
 * bit. */
static dp_status compute_ref(struct comparison *c)
{
    const struct dp_run_job *job = c->selftest->job;
    const struct dp_model *m = job->model;

    DP_TRY(dp_selftest_weights(job, &c->weights));
    DP_TRY(make_results(c, &c->ref));
    DP_TRY(make_results(c, &c->near));
    DP_TRY(make_results(c, &c->it));
    DP_TRY(make_results(c, &c->narrow));
    for (size_t i = 0; i < m->trained; i++) {
        c->weights[i] *= 1.0f + dp_selftest_noise(3, i) / 8388608.0f;
    }
    DP_TRY(compute(c, device_of("ref"), DP_TYPE_F32, &c->near));
    dp_free(c->weights);
    c->weights = NULL;
    DP_TRY(dp_selftest_weights(job, &c->weights));
    return compute(c, device_of("ref"), DP_TYPE_F32, &c->ref);
}

/* The tensor whose gradients are furthest apart, each by its size, or by `small` of the whole
 * gradient's where it is smaller: that of a bias before batch norm is zero but for roundings. */
static double worst_tensor(const struct dp_model *m, const float *a, const float *b,
                           const char **name)
{
    const double floor = small * dp_selftest_length(b, m->trained);
    double worst = 0.0;

    *name = m->tensors[0].name;
    for (int i = 0; i < m->tensor_count; i++) {
        const struct dp_tensor *t = &m->tensors[i];
        const double own = dp_selftest_length(b + t->begin, t->count);
        const double apart = dp_selftest_distance(a + t->begin, b + t->begin, t->count) /
                             fmax(fmax(own, floor), 1e-30);
        if (!(apart <= worst)) { /* also where it is no number */
            worst = apart;
            *name = t->name;
        }
    }
    return worst;
}

static double apart_of(const float *a, const float *b, size_t count)
{
    return dp_selftest_distance(a, b, count) / fmax(dp_selftest_length(b, count), 1e-30);
}

static void compare(const struct comparison *c, const char *device, const char *what, double apart,
                    double own)
{
    const double bound = ROUNDINGS * fmax(own, least);
    char name[96];

    (void)snprintf(name, sizeof(name), "%s.%s", device, what);
    dp_selftest_line(c->selftest, apart <= bound, name, "%.1e from ref (at most %.1e)", apart,
                     bound);
}

/* In float32. */
static void compare_wide(const struct comparison *c, const char *device)
{
    const struct dp_model *m = c->selftest->job->model;
    const size_t outputs = c->rows * m->classes;
    const double size = fmax(fabs(c->ref.loss), 1e-30);
    const char *tensor, *ignored;
    const double apart = worst_tensor(m, c->it.gradient, c->ref.gradient, &tensor);
    const double own = worst_tensor(m, c->near.gradient, c->ref.gradient, &ignored);
    const double bound = ROUNDINGS * fmax(own, least);
    char name[96];

    compare(c, device, "forward", apart_of(c->it.outputs, c->ref.outputs, outputs),
            apart_of(c->near.outputs, c->ref.outputs, outputs));
    compare(c, device, "loss", fabs(c->it.loss - c->ref.loss) / size,
            fabs(c->near.loss - c->ref.loss) / size);
    (void)snprintf(name, sizeof(name), "%s.gradients", device);
    dp_selftest_line(c->selftest, apart <= bound, name, "%.1e from ref, in %s (at most %.1e)",
                     apart, tensor, bound);
}

/* In the narrow type of the configuration: all gradients together, since one tensor may be all
 * rounding. */
static dp_status compare_narrow(struct comparison *c, const struct dp_device *device,
                                enum dp_type type)
{
    const struct dp_run_job *job = c->selftest->job;
    const size_t count = job->model->trained;
    double apart, own;
    char name[96];

    DP_TRY(compute(c, device_of("ref"), type, &c->narrow));
    DP_TRY(compute(c, device, type, &c->it));
    apart = apart_of(c->it.gradient, c->ref.gradient, count);
    own = apart_of(c->narrow.gradient, c->ref.gradient, count);
    (void)snprintf(name, sizeof(name), "%s.%s.gradients", device->plugin.name,
                   dp_precision_text(job->config->train.precision));
    dp_selftest_line(c->selftest, apart <= 2.0 * own, name,
                     "%.1e from ref in fp32 (at most twice ref's own %.1e)", apart, own);
    return DP_OK;
}

static dp_status compare_device(struct comparison *c, const struct dp_device *device)
{
    const enum dp_type type = dp_precision_type(c->selftest->job->config->train.precision);

    DP_TRY(compute(c, device, DP_TYPE_F32, &c->it));
    compare_wide(c, device->plugin.name);
    return type != DP_TYPE_F32 ? compare_narrow(c, device, type) : DP_OK;
}

static void free_results(struct results *r)
{
    dp_free(r->gradient);
    dp_free(r->outputs);
}

dp_status dp_device_check(struct dp_selftest *selftest, size_t rows)
{
    struct comparison c = {.selftest = selftest, .rows = rows};
    dp_status status = compute_ref(&c);
    const char *why_not;

    for (int i = 0; status == DP_OK && dp_plugin_at(&dp_devices, i) != NULL; i++) {
        const struct dp_device *device = (const struct dp_device *)dp_plugin_at(&dp_devices, i);
        struct dp_log_capture capture;
        dp_status own;
        if (strcmp(device->plugin.name, "ref") == 0 || !device->available(&why_not)) {
            continue;
        }
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        own = compare_device(&c, device);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        if (own != DP_OK) {
            dp_selftest_broken(selftest, device->plugin.name, own, dp_log_captured(&capture));
        }
    }
    free_results(&c.narrow);
    free_results(&c.it);
    free_results(&c.near);
    free_results(&c.ref);
    dp_free(c.weights);
    return status;
}
