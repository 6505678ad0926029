/*
 * bench_ops.c - how fast the operations of a device are, one JSON line each.
 *
 *   bench_ops [device] [threads] [part of a name]
 *
 * Shapes are those of the shipped models: mlp with 128 rows, resnet20 with 128 images. Each line
 * has the shortest, the median and the 90th percentile time of a call in microseconds, and the
 * rate at the median: bytes that must be moved (GB/s) or operations (GFLOP/s).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/statistics.h"
#include "base/trace.h"
#include "kernels/device.h"

enum { ROWS = 128, LARGE = 4 * 1024 * 1024, RUNS = 41, STEP_NS = 2000000 };

/* What every operation may use: arrays of LARGE numbers, and the sizes of this case. */
struct bench {
    struct dp_stream *s;
    float *a, *b, *c, *d, *e, *small[6];
    double *sums; /* of norm */
    uint8_t *bytes;
    int32_t labels[ROWS];
    struct dp_step_params step_params;
};

struct shape {
    size_t n[3];
};

struct bench_case {
    const char *name, *unit;
    dp_status (*run)(struct bench *b, const struct shape *shape);
    struct shape shape;
    double work; /* bytes or operations of one call */
};

static dp_status add(struct bench *b, const struct shape *n)
{
    return b->s->ops->add(b->s, b->a, b->b, n->n[0]);
}

static dp_status sum2(struct bench *b, const struct shape *n)
{
    const float *xs[] = {b->a, b->b};

    return b->s->ops->sum_tree(b->s, &b->a, 1, xs, 2, n->n[0]);
}

static dp_status sum4(struct bench *b, const struct shape *n)
{
    const float *xs[] = {b->a, b->b, b->c, b->d};

    return b->s->ops->sum_tree(b->s, &b->e, 1, xs, 4, n->n[0]);
}

static dp_status sum8(struct bench *b, const struct shape *n)
{
    const float *xs[] = {b->a, b->b, b->c, b->d, b->a, b->b, b->c, b->d};

    return b->s->ops->sum_tree(b->s, &b->e, 1, xs, 8, n->n[0]);
}

static dp_status squares(struct bench *b, const struct shape *n)
{
    return b->s->ops->block_squares(b->s, b->e, b->a, n->n[0]);
}

static dp_status bytes_load(struct bench *b, const struct shape *n)
{
    return b->s->ops->bytes_load(b->s, b->a, b->bytes, b->small[0], b->small[1], n->n[1], n->n[0]);
}

static dp_status dense_forward(struct bench *b, const struct shape *n)
{
    return b->s->ops->dense_forward(b->s, b->a, b->b, b->c, b->small[0], n->n[0], n->n[1], n->n[2],
                                    DP_ACT_RELU);
}

static dp_status dense_data(struct bench *b, const struct shape *n)
{
    return b->s->ops->dense_backward_data(b->s, b->a, b->b, b->c, n->n[0], n->n[1], n->n[2]);
}

static dp_status dense_weights(struct bench *b, const struct shape *n)
{
    return b->s->ops->dense_backward_weights(b->s, b->a, b->b, b->c, n->n[0], n->n[1], n->n[2], 0);
}

static dp_status sum_rows(struct bench *b, const struct shape *n)
{
    return b->s->ops->sum_rows(b->s, b->small[0], b->a, n->n[0], n->n[1], 0);
}

static dp_status relu(struct bench *b, const struct shape *n)
{
    return b->s->ops->relu_forward(b->s, b->a, b->b, n->n[0]);
}

static dp_status relu_backward(struct bench *b, const struct shape *n)
{
    return b->s->ops->relu_backward(b->s, b->a, b->a, b->c, n->n[0]);
}

static dp_status gelu(struct bench *b, const struct shape *n)
{
    return b->s->ops->gelu_forward(b->s, b->a, b->b, n->n[0]);
}

static dp_status gelu_backward(struct bench *b, const struct shape *n)
{
    return b->s->ops->gelu_backward(b->s, b->a, b->b, b->c, n->n[0]);
}

static dp_status add_relu(struct bench *b, const struct shape *n)
{
    return b->s->ops->add_forward(b->s, b->a, b->b, b->c, n->n[0], DP_ACT_RELU);
}

static dp_status dropout(struct bench *b, const struct shape *n)
{
    const struct dp_dropout drop = {.seed = 1, .what = 2, .rate = 0.5f};

    return b->s->ops->dropout(b->s, b->a, b->b, n->n[0], &drop, 0, &b->step_params);
}

static struct dp_norm norm_of(const struct shape *n)
{
    return (struct dp_norm){
        .count = n->n[0], .channels = n->n[1], .eps = 1e-5f, .act = DP_ACT_RELU};
}

static dp_status norm_moments(struct bench *b, const struct shape *n)
{
    const struct dp_norm norm = norm_of(n);

    return b->s->ops->norm_moments(b->s, b->sums, 0, b->b, &norm);
}

static dp_status norm_apply(struct bench *b, const struct shape *n)
{
    const struct dp_norm norm = norm_of(n);

    return b->s->ops->norm_apply(b->s, b->a, b->b, NULL, b->small[2], b->small[2], b->small[2],
                                 b->small[3], &norm);
}

static dp_status norm_backward_sums(struct bench *b, const struct shape *n)
{
    const struct dp_norm norm = norm_of(n);

    return b->s->ops->norm_backward_sums(b->s, b->sums, b->b, b->c, b->small[2], b->small[2],
                                         b->small[2], b->small[3], &norm, 0);
}

static dp_status norm_backward_apply(struct bench *b, const struct shape *n)
{
    const struct dp_norm norm = norm_of(n);

    return b->s->ops->norm_backward_apply(b->s, b->a, b->b, b->c, b->small[2], b->small[2],
                                          b->small[2], b->small[3], b->sums, (double)n->n[0],
                                          &norm);
}

static dp_status softmax(struct bench *b, const struct shape *n)
{
    float loss, correct;

    return b->s->ops->softmax_loss(b->s, b->a, &loss, &correct, b->b, b->labels, n->n[0], n->n[1],
                                   &b->step_params.per_sample, 0);
}

static dp_status sgd(struct bench *b, const struct shape *n)
{
    const struct dp_update u = {.master = b->a,
                                .weights = b->a,
                                .grad = b->b,
                                .slots = {b->c, NULL},
                                .count = n->n[0],
                                .step_params = &b->step_params};

    return b->s->ops->sgd(b->s, &u, 0.9f, false, 1e-4f);
}

static dp_status adamw(struct bench *b, const struct shape *n)
{
    const struct dp_update u = {.master = b->a,
                                .weights = b->a,
                                .grad = b->b,
                                .slots = {b->c, b->d},
                                .count = n->n[0],
                                .step_params = &b->step_params};

    return b->s->ops->adamw(b->s, &u, 0.9, 0.999, 1e-8f, 1e-2f);
}

/* clang-format off */
#define PASS(name, count, each) {#name, "GB/s", name, {{count, 0, 0}}, (double)(count) * (each)}
#define DENSE(name, in, out) \
    {#name, "GFLOP/s", name, {{ROWS, in, out}}, 2.0 * ROWS * (in) * (out)}
#define NORM(name, each) \
    {#name, "GB/s", name, {{(size_t)ROWS * 28 * 28, 16, 0}}, ROWS * 28.0 * 28 * 16 * (each)}, \
    {#name, "GB/s", name, {{(size_t)ROWS * 14 * 14, 32, 0}}, ROWS * 14.0 * 14 * 32 * (each)}, \
    {#name, "GB/s", name, {{(size_t)ROWS * 7 * 7, 64, 0}}, ROWS * 7.0 * 7 * 64 * (each)}, \
    {#name, "GB/s", name, {{(size_t)ROWS * 14 * 14, 3, 0}}, ROWS * 14.0 * 14 * 3 * (each)}, \
    {#name, "GB/s", name, {{(size_t)ROWS * 3 * 3, 2048, 0}}, ROWS * 3.0 * 3 * 2048 * (each)}

static const struct bench_case cases[] = {
    PASS(add, LARGE, 12), PASS(add, 65536, 12),
    PASS(sum2, LARGE, 12), PASS(sum4, LARGE, 20), PASS(sum8, LARGE, 20), PASS(sum8, 65536, 20),
    PASS(squares, LARGE, 4), PASS(squares, 65536, 4),
    {"bytes_load", "GB/s", bytes_load, {{(size_t)ROWS * 784, 1, 0}}, ROWS * 784.0 * 5},
    {"bytes_load", "GB/s", bytes_load, {{(size_t)ROWS * 3072, 3, 0}}, ROWS * 3072.0 * 5},
    DENSE(dense_forward, 784, 1024), DENSE(dense_forward, 1024, 1024),
    DENSE(dense_forward, 1024, 10),
    DENSE(dense_data, 784, 1024), DENSE(dense_data, 1024, 1024), DENSE(dense_data, 1024, 10),
    DENSE(dense_weights, 784, 1024), DENSE(dense_weights, 1024, 1024),
    DENSE(dense_weights, 1024, 10),
    {"sum_rows", "GB/s", sum_rows, {{ROWS, 1024, 0}}, ROWS * 1024.0 * 4},
    {"sum_rows", "GB/s", sum_rows, {{ROWS, 10, 0}}, ROWS * 10.0 * 4},
    {"sum_rows", "GB/s", sum_rows, {{(size_t)ROWS * 784, 32, 0}}, ROWS * 784.0 * 32 * 4},
    PASS(relu, (size_t)ROWS * 1024, 8), PASS(relu_backward, (size_t)ROWS * 1024, 12),
    PASS(relu, LARGE, 8),
    PASS(gelu, (size_t)ROWS * 1024, 8), PASS(gelu_backward, (size_t)ROWS * 1024, 12),
    PASS(add_relu, (size_t)ROWS * 784 * 16, 12), PASS(dropout, (size_t)ROWS * 1024, 8),
    NORM(norm_moments, 4), NORM(norm_apply, 8), NORM(norm_backward_sums, 8),
    NORM(norm_backward_apply, 12),
    {"softmax", "GB/s", softmax, {{ROWS, 10, 0}}, ROWS * 10.0 * 8},
    {"softmax", "GB/s", softmax, {{ROWS, 1000, 0}}, ROWS * 1000.0 * 8},
    PASS(sgd, 1863690, 20), PASS(adamw, 1863690, 28), PASS(sgd, 65536, 20), PASS(adamw, 65536, 28),
};
/* clang-format on */

static dp_status measure(struct bench *b, const struct bench_case *c)
{
    double us[RUNS];
    uint64_t begin = dp_now_ns();
    int calls = 0;

    for (; calls < 3 || dp_now_ns() - begin < STEP_NS; calls++) { /* warm, and how many a run */
        DP_TRY(c->run(b, &c->shape));
    }
    for (int run = 0; run < RUNS; run++) {
        begin = dp_now_ns();
        for (int i = 0; i < calls; i++) {
            DP_TRY(c->run(b, &c->shape));
        }
        DP_TRY(b->s->device->synchronize(b->s));
        us[run] = (double)(dp_now_ns() - begin) / 1e3 / calls;
    }
    dp_sort(us, RUNS);
    printf("{\"op\": \"%s\", \"shape\": [%zu, %zu, %zu], \"min_us\": %.2f, \"median_us\": %.2f, "
           "\"p90_us\": %.2f, \"rate\": %.1f, \"unit\": \"%s\"}\n",
           c->name, c->shape.n[0], c->shape.n[1], c->shape.n[2], us[0], us[RUNS / 2],
           us[RUNS * 9 / 10], c->work / us[RUNS / 2] / 1e3, c->unit);
    fflush(stdout);
    return DP_OK;
}

static void fill(float *array, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        array[i] = (float)(i * 2654435761u % 1000) / 500.0f - 1;
    }
}

static dp_status prepare(struct bench *b)
{
    float **const arrays[] = {&b->a, &b->b, &b->c, &b->d, &b->e};
    const struct dp_device *device = b->s->device;

    if (!device->host_memory) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "bench_ops fills its arrays from the host");
    }
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        *arrays[i] = device->alloc(DP_MEM_OTHER, LARGE * sizeof(float));
        if (*arrays[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "arrays of bench_ops");
        }
        fill(*arrays[i], LARGE);
    }
    for (size_t i = 0; i < 6; i++) {
        b->small[i] = device->alloc(DP_MEM_OTHER, 2048 * sizeof(float));
        if (b->small[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "arrays of bench_ops");
        }
        for (size_t c = 0; c < 2048; c++) {
            b->small[i][c] = 0.5f;
        }
    }
    b->bytes = device->alloc(DP_MEM_OTHER, LARGE);
    b->sums = device->alloc(DP_MEM_OTHER, 4096 * sizeof(double));
    b->step_params = (struct dp_step_params){.lr = 1e-6f, .factor = 1, .per_sample = 1.0f / ROWS};
    return b->bytes != NULL && b->sums != NULL ? DP_OK
                                               : DP_FAIL(DP_ERR_NOMEM, "arrays of bench_ops");
}

static void release(struct bench *b)
{
    void *const all[] = {b->a,        b->b,        b->c,        b->d,        b->e,
                         b->bytes,    b->sums,     b->small[0], b->small[1], b->small[2],
                         b->small[3], b->small[4], b->small[5]};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        b->s->device->release(all[i]);
    }
    b->s->device->stream_destroy(b->s);
}

static dp_status bench(const char *name, int threads, const char *part)
{
    const struct dp_device *device = NULL;
    struct bench b = {0};
    dp_status status;

    DP_TRY(dp_device_find(name, &device));
    DP_TRY(device->stream_create(device, threads, &b.s));
    status = prepare(&b);
    if (status == DP_OK) {
        printf("{\"bench\": \"ops\", \"version\": \"%s\", \"device\": \"%s\", \"threads\": %d}\n",
               DP_VERSION, device->plugin.name, threads);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && status == DP_OK; i++) {
        if (strstr(cases[i].name, part) != NULL) {
            status = measure(&b, &cases[i]);
        }
    }
    release(&b);
    return status;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    const long threads = argc > 2 ? strtol(argv[2], NULL, 10) : 1;

    return dp_status_exit(
        bench(name, threads > 0 && threads < 1024 ? (int)threads : 1, argc > 3 ? argv[3] : ""));
}
