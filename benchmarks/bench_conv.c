/*
 * bench_conv.c - times convolutions and pools of a device, one JSON object a line.
 *
 *   bench_conv [DEVICE [THREADS [ROWS]]]        default: cpu 1 128
 *
 * With BENCH_VERBOSE set in the environment it also logs which implementation oneDNN chose.
 * Times are medians over repeated calls; gflops counts a multiplication and an addition for each
 * weight and output pixel. Arrays are reused from call to call, as in training.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/random.h"
#include "base/statistics.h"
#include "base/trace.h"
#include "kernels/device.h"

enum { REPEATS = 15 };

struct shape {
    const char *model;
    size_t side, in_c, out_c, kernel, stride, padding, groups;
};

static const struct shape conv_shapes[] = {
    {"lenet", 28, 1, 32, 5, 1, 2, 1},       {"lenet", 14, 32, 64, 5, 1, 2, 1},
    {"resnet20", 28, 1, 16, 3, 1, 1, 1},    {"resnet20", 28, 16, 16, 3, 1, 1, 1},
    {"resnet20", 28, 16, 32, 3, 2, 1, 1},   {"resnet20", 28, 16, 32, 1, 2, 0, 1},
    {"resnet20", 14, 32, 32, 3, 1, 1, 1},   {"resnet20", 14, 32, 64, 3, 2, 1, 1},
    {"resnet20", 7, 64, 64, 3, 1, 1, 1},    {"cifar", 32, 3, 16, 3, 1, 1, 1},
    {"depthwise", 28, 16, 16, 3, 1, 1, 16}, {"depthwise", 28, 64, 64, 3, 1, 1, 64},
    {"dense", 28, 64, 64, 3, 1, 1, 1},      {"grouped", 28, 64, 64, 3, 1, 1, 8},
};

static const struct shape pool_shapes[] = {
    {"lenet", 28, 32, 32, 2, 2, 0, 1},
    {"lenet", 14, 64, 64, 2, 2, 0, 1},
    {"resnet50", 56, 64, 64, 3, 2, 1, 1},
};

/* The arrays of one shape. */
struct work {
    struct dp_stream *s;
    struct dp_window w;
    size_t rows;
    float *x, *y, *dx, *dy, *weights, *dw, *bias, *db;
    uint8_t *which;
};

typedef dp_status (*operation)(struct work *k);

static dp_status forward(struct work *k)
{
    return k->s->ops->conv_forward(k->s, k->y, k->x, k->weights, k->bias, &k->w, k->rows,
                                   DP_ACT_NONE);
}

static dp_status forward_relu(struct work *k)
{
    return k->s->ops->conv_forward(k->s, k->y, k->x, k->weights, k->bias, &k->w, k->rows,
                                   DP_ACT_RELU);
}

static dp_status backward_data(struct work *k)
{
    return k->s->ops->conv_backward_data(k->s, k->dx, k->dy, k->weights, &k->w, k->rows);
}

static dp_status backward_weights(struct work *k)
{
    return k->s->ops->conv_backward_weights(k->s, k->dw, k->db, k->dy, k->x, &k->w, k->rows, 0);
}

static dp_status backward_weights_keep(struct work *k)
{
    return k->s->ops->conv_backward_weights(k->s, k->dw, k->db, k->dy, k->x, &k->w, k->rows, 1);
}

static dp_status max_forward(struct work *k)
{
    return k->s->ops->pool_forward(k->s, k->y, k->which, k->x, &k->w, k->rows, DP_POOL_MAX);
}

static dp_status max_backward(struct work *k)
{
    return k->s->ops->pool_backward(k->s, k->dx, k->dy, k->which, &k->w, k->rows, DP_POOL_MAX);
}

static dp_status average_forward(struct work *k)
{
    return k->s->ops->pool_forward(k->s, k->y, NULL, k->x, &k->w, k->rows, DP_POOL_AVERAGE);
}

static dp_status average_backward(struct work *k)
{
    return k->s->ops->pool_backward(k->s, k->dx, k->dy, NULL, &k->w, k->rows, DP_POOL_AVERAGE);
}

static dp_status time_one(struct work *k, const char *name, operation run, const char *model)
{
    const struct dp_window *w = &k->w;
    const double flop =
        2.0 * (double)(k->rows * w->out_h * w->out_w * w->out_c) *
        (double)(w->kernel_h * w->kernel_w * (k->weights != NULL ? dp_window_fan(w) : 1));
    double ms[REPEATS];

    DP_TRY(run(k));
    DP_TRY(run(k));
    for (int i = 0; i < REPEATS; i++) {
        const uint64_t begin = dp_now_ns();
        DP_TRY(run(k));
        DP_TRY(k->s->device->synchronize(k->s));
        ms[i] = (double)(dp_now_ns() - begin) * 1e-6;
    }
    dp_sort(ms, REPEATS);
    printf("{\"device\":\"%s\",\"threads\":%d,\"model\":\"%s\",\"op\":\"%s\",\"rows\":%zu,"
           "\"in\":[%zu,%zu,%zu],\"out\":[%zu,%zu,%zu],\"kernel\":%zu,\"stride\":%zu,"
           "\"min_ms\":%.4f,\"median_ms\":%.4f,\"max_ms\":%.4f,\"gflops\":%.1f}\n",
           k->s->device->plugin.name, k->s->threads, model, name, k->rows, w->in_h, w->in_w,
           w->in_c, w->out_h, w->out_w, w->out_c, w->kernel_h, w->stride, ms[0], ms[REPEATS / 2],
           ms[REPEATS - 1], flop / ms[REPEATS / 2] * 1e-6);
    return DP_OK;
}

/* Random numbers in -1..1. The memory is given back when the process ends. */
static float *array(size_t count, uint32_t what)
{
    float *data = dp_mem_arena(DP_MEM_ACTIVATIONS, count * sizeof(*data));

    for (size_t i = 0; data != NULL && i < count; i++) {
        data[i] = 2 * dp_random_unit(dp_random_u32(1, DP_RANDOM_TEST, what, i)) - 1;
    }
    return data;
}

static dp_status work_open(struct work *k, struct dp_stream *s, const struct shape *shape,
                           size_t rows, bool conv)
{
    const size_t out = (shape->side + 2 * shape->padding - shape->kernel) / shape->stride + 1;
    const size_t xs = rows * shape->side * shape->side * shape->in_c;
    const size_t ys = rows * out * out * shape->out_c;
    const size_t ws = shape->out_c * shape->kernel * shape->kernel * shape->in_c / shape->groups;

    *k = (struct work){.s = s, .rows = rows};
    k->w = (struct dp_window){shape->side,   shape->side,    shape->in_c,   out,
                              out,           shape->out_c,   shape->kernel, shape->kernel,
                              shape->stride, shape->padding, shape->groups};
    k->x = array(xs, 1);
    k->dx = array(xs, 2);
    k->y = array(ys, 3);
    k->dy = array(ys, 4);
    k->which = dp_mem_arena(DP_MEM_ACTIVATIONS, ys);
    if (conv) {
        k->weights = array(ws, 5);
        k->dw = array(ws, 6);
        k->bias = array(shape->out_c, 7);
        k->db = array(shape->out_c, 8);
    }
    if (k->x == NULL || k->dx == NULL || k->y == NULL || k->dy == NULL || k->which == NULL ||
        (conv && (k->weights == NULL || k->dw == NULL || k->bias == NULL || k->db == NULL))) {
        return DP_FAIL(DP_ERR_NOMEM, "arrays of %zu and %zu", xs, ys);
    }
    return DP_OK;
}

static void work_close(struct work *k)
{
    dp_free(k->x);
    dp_free(k->dx);
    dp_free(k->y);
    dp_free(k->dy);
    dp_free(k->which);
    dp_free(k->weights);
    dp_free(k->dw);
    dp_free(k->bias);
    dp_free(k->db);
}

static dp_status time_conv(struct dp_stream *s, const struct shape *shape, size_t rows)
{
    const unsigned uses = DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS |
                          DP_CONV_BIAS | DP_CONV_RELU;
    struct work k;

    DP_TRY(work_open(&k, s, shape, rows, true));
    DP_TRY(s->ops->conv_prepare(s, &k.w, rows, uses));
    DP_TRY(time_one(&k, "conv_forward", forward, shape->model));
    DP_TRY(time_one(&k, "conv_forward_relu", forward_relu, shape->model));
    if (shape->in_c > 3) { /* never needed for the first layer */
        DP_TRY(time_one(&k, "conv_backward_data", backward_data, shape->model));
    }
    DP_TRY(time_one(&k, "conv_backward_weights", backward_weights, shape->model));
    DP_TRY(time_one(&k, "conv_backward_weights_keep", backward_weights_keep, shape->model));
    work_close(&k);
    return DP_OK;
}

static dp_status time_pool(struct dp_stream *s, const struct shape *shape, size_t rows)
{
    struct work k;

    DP_TRY(work_open(&k, s, shape, rows, false));
    DP_TRY(s->ops->pool_prepare(s, &k.w, rows, DP_POOL_MAX, true));
    DP_TRY(s->ops->pool_prepare(s, &k.w, rows, DP_POOL_AVERAGE, true));
    DP_TRY(time_one(&k, "max_forward", max_forward, shape->model));
    DP_TRY(time_one(&k, "max_backward", max_backward, shape->model));
    DP_TRY(time_one(&k, "average_forward", average_forward, shape->model));
    DP_TRY(time_one(&k, "average_backward", average_backward, shape->model));
    work_close(&k);
    return DP_OK;
}

static dp_status run(const char *name, int threads, size_t rows)
{
    const struct dp_device *device;
    struct dp_stream *s;

    DP_TRY(dp_device_find(name, &device));
    if (!device->host_memory) {
        return DP_FAIL(DP_ERR_USAGE, "device %s does not compute in host memory", name);
    }
    DP_TRY(device->stream_create(device, threads, &s));
    for (size_t i = 0; i < sizeof(conv_shapes) / sizeof(conv_shapes[0]); i++) {
        DP_TRY(time_conv(s, &conv_shapes[i], rows));
    }
    for (size_t i = 0; i < sizeof(pool_shapes) / sizeof(pool_shapes[0]); i++) {
        DP_TRY(time_pool(s, &pool_shapes[i], rows));
    }
    device->stream_destroy(s);
    return DP_OK;
}

int main(int argc, char **argv)
{
    const long threads = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    const long rows = argc > 3 ? strtol(argv[3], NULL, 10) : 128;

    if (argc > 4 || threads < 1 || threads > 1024 || rows < 1) {
        fprintf(stderr, "usage: bench_conv [DEVICE [THREADS [ROWS]]]\n");
        return dp_status_exit(DP_ERR_USAGE);
    }
    if (getenv("BENCH_VERBOSE") != NULL) {
        dp_log_set_level(DP_LOG_DEBUG);
    }
    return dp_status_exit(run(argc > 1 ? argv[1] : "cpu", (int)threads, (size_t)rows));
}
