/*
 * bench_gpu.c - how close the operations of device `cuda` come to the limits of a GPU, one JSON
 * line each: passes over memory to the bandwidth of a copy, dense layers to cuBLASLt's best
 * algorithm, the convolutions of resnet50 one by one to the best product, copies between host and
 * GPU from pinned and from pageable memory; which algorithms were chosen, with their times, and
 * what computes here.
 *
 *   bench_gpu [small] [PART ...]   small: a hundredth of the work, to try the program itself;
 *                                  PART: dense, conv, pass or transfer, by default all
 *
 * Operations are measured on random numbers, since a GPU multiplies zeros faster.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "benchmarks/gpu_convs.h"
#include "benchmarks/gpu_passes.h"
#include "benchmarks/gpu_timing.h"
#include "collectives/gpu/nccl_api.h"
#include "kernels/algo_choices.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/scratch_cuda.h"
#include "kernels/cuda/stream/stream_cuda.h"

enum {
    PROPOSALS = 100,
    CONV_ROWS = 256, /* of resnet50's batch */
    SMALL_CONV_ROWS = 4
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- passes over memory ---- */

/* The others are compared with the first one. */
static dp_status measure_passes(struct bench *b)
{
    for (size_t i = 0; i < COUNT(passes); i++) {
        measured *const runs[2] = {passes[i].run, copy};
        const void *const whats[2] = {NULL, NULL};
        double us[2], rate, copied;
        DP_TRY(compare(b, runs, whats, us));
        rate = passes[i].bytes * (double)b->count / us[0] / 1e3;
        copied = 8.0 * (double)b->count / us[1] / 1e3;
        printf(
            "{\"kind\": \"pass\", \"op\": \"%s\", \"bytes\": %.0f, \"us\": %.2f, \"gbps\": %.1f, "
            "\"of_copy\": %.4f}\n",
            passes[i].name, passes[i].bytes * (double)b->count, us[0], rate, rate / copied);
        (void)fflush(stdout);
        b->copy_rate = copied > b->copy_rate ? copied : b->copy_rate;
    }
    return DP_OK;
}

/* ---- dense layers ---- */

enum dense_kind {
    FORWARD,
    FORWARD_BIAS_RELU,
    BACKWARD_DATA,
    BACKWARD_WEIGHTS,
    BACKWARD_BOTH,
    DENSE_KINDS
};

/* clang-format off */
static const struct {
    const char *name;
    bool forward, of_weights;
    cublasLtEpilogue_t epilogue; /* with b->d */
} kinds[] = {
    {"forward", true, false, CUBLASLT_EPILOGUE_DEFAULT},
    {"forward, bias, relu", true, false, CUBLASLT_EPILOGUE_RELU_BIAS},
    {"backward data", false, false, CUBLASLT_EPILOGUE_DEFAULT},
    {"backward weights", false, true, CUBLASLT_EPILOGUE_DEFAULT},
    {"backward weights and bias", false, true, CUBLASLT_EPILOGUE_BGRADB},
};
/* clang-format on */

/* x [rows, width], weights [width, width]: all products have 2 rows width^2 FLOPs. */
struct dense {
    enum dense_kind kind;
    size_t rows, width;
};

static dp_status run_dense(struct bench *b, const void *what)
{
    const struct dense *d = (const struct dense *)what;
    const struct dp_ops *ops = b->s->ops;

    switch (d->kind) {
    case FORWARD:
        return ops->dense_forward(b->s, b->a, b->b, b->c, NULL, d->rows, d->width, d->width,
                                  DP_ACT_NONE);
    case FORWARD_BIAS_RELU:
        return ops->dense_forward(b->s, b->a, b->b, b->c, b->d, d->rows, d->width, d->width,
                                  DP_ACT_RELU);
    case BACKWARD_BOTH:
        return ops->dense_backward_both(b->s, b->a, b->d, b->b, b->c, d->rows, d->width, d->width,
                                        0.0f);
    case BACKWARD_DATA:
        return ops->dense_backward_data(b->s, b->a, b->b, b->c, d->rows, d->width, d->width);
    default:
        return ops->dense_backward_weights(b->s, b->a, b->b, b->c, d->rows, d->width, d->width,
                                           0.0f);
    }
}

/* The same product by an algorithm of cuBLASLt: column-major, so the factors are swapped. */
struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t left, right, result;
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    int count, chosen;
};

static cublasStatus_t try_product(const struct bench *b, const struct product *p)
{
    const float one = 1.0f, zero = 0.0f;

    return cublasLtMatmul(b->handle, p->desc, &one, b->c, p->left, b->b, p->right, &zero, b->a,
                          p->result, b->a, p->result, &p->found[p->chosen].algo, b->workspace,
                          DP_CUDA_WORKSPACE, dp_cuda_of(b->s)->queue);
}

static dp_status run_product(struct bench *b, const void *what)
{
    return DP_CUBLAS(try_product(b, (const struct product *)what));
}

static void product_close(const struct product *p)
{
    if (p->result != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->result);
    }
    if (p->right != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->right);
    }
    if (p->left != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->left);
    }
    if (p->desc != NULL) {
        (void)cublasLtMatmulDescDestroy(p->desc);
    }
}

/* A row-major [height, width] is a column-major [width, height]. */
static dp_status layout_create(cublasLtMatrixLayout_t *layout, cudaDataType type, size_t height,
                               size_t width)
{
    return DP_CUBLAS(cublasLtMatrixLayoutCreate(layout, type, width, height, (int64_t)width));
}

/* y = x w'; dx = dy w; dw = dy' x, which is float32. */
static dp_status product_describe(const struct bench *b, struct product *p, const struct dense *d)
{
    const cublasOperation_t left = kinds[d->kind].forward ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right = kinds[d->kind].of_weights ? CUBLAS_OP_T : CUBLAS_OP_N;
    const size_t width = d->width, left_rows = kinds[d->kind].of_weights ? d->rows : width;
    const size_t rows = kinds[d->kind].of_weights ? width : d->rows;
    const cudaDataType out = kinds[d->kind].of_weights ? CUDA_R_32F : CUDA_R_16BF;

    DP_TRY(DP_CUBLAS(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    DP_TRY(DP_CUBLAS(
        cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof(left))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                                    sizeof(right))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &kinds[d->kind].epilogue,
                                                    sizeof(kinds[d->kind].epilogue))));
    if (kinds[d->kind].epilogue != CUBLASLT_EPILOGUE_DEFAULT) { /* else none of them runs */
        DP_TRY(DP_CUBLAS(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                        &b->d, sizeof(b->d))));
    }
    DP_TRY(layout_create(&p->left, CUDA_R_16BF, left_rows, width));
    DP_TRY(layout_create(&p->right, CUDA_R_16BF, d->rows, width));
    return layout_create(&p->result, out, rows, width);
}

static dp_status product_search(struct bench *b, const struct dense *d, struct product *p)
{
    const size_t workspace = DP_CUDA_WORKSPACE;
    const uint32_t schemes = kinds[d->kind].of_weights /* what training may take */
                                 ? CUBLASLT_REDUCTION_SCHEME_MASK
                                 : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreference_t requests;
    dp_status status;

    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceCreate(&requests)));
    status = DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        requests, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
    if (status == DP_OK) {
        status = DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
            requests, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)));
    }
    if (status == DP_OK &&
        cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->left, p->right, p->result, p->result,
                                       requests, PROPOSALS, p->found, &p->count) != 0) {
        p->count = 0;
    }
    (void)cublasLtMatmulPreferenceDestroy(requests);
    return status;
}

/* The fastest of all proposals that run, by the better of two short rounds; -1: there is none. */
static dp_status product_choose(struct bench *b, struct product *p)
{
    double best = 0.0;
    int fastest = -1;

    for (p->chosen = 0; p->chosen < p->count; p->chosen++) {
        double us[3];
        if (p->found[p->chosen].state != CUBLAS_STATUS_SUCCESS ||
            try_product(b, p) != CUBLAS_STATUS_SUCCESS) {
            (void)cudaGetLastError();
            continue;
        }
        for (int i = 0; i < 3; i++) { /* the first one warms up */
            DP_TRY(time_round(b, run_product, p, 3, &us[i]));
        }
        us[1] = us[1] < us[2] ? us[1] : us[2];
        if (fastest < 0 || us[1] < best) {
            best = us[1];
            fastest = p->chosen;
        }
    }
    p->chosen = fastest;
    return DP_OK;
}

static dp_status measure_dense(struct bench *b, const struct dense *d, struct product *p)
{
    measured *const runs[2] = {run_dense, run_product};
    const void *const whats[2] = {d, p};
    const double flops = 2.0 * (double)d->rows * (double)d->width * (double)d->width;
    double us[2];

    DP_TRY(product_describe(b, p, d));
    DP_TRY(product_search(b, d, p));
    DP_TRY(product_choose(b, p));
    if (p->chosen < 0) {
        return d->kind == BACKWARD_BOTH /* which a library may lack */
                   ? DP_OK
                   : DP_FAIL(DP_ERR_UNAVAILABLE, "cuBLAS has no product");
    }
    DP_TRY(compare(b, runs, whats, us));
    printf("{\"kind\": \"dense\", \"op\": \"%s\", \"rows\": %zu, \"width\": %zu, \"us\": %.2f, "
           "\"tflops\": %.2f, \"best_us\": %.2f, \"best_tflops\": %.2f, \"of_best\": %.4f, "
           "\"algorithms\": %d}\n",
           kinds[d->kind].name, d->rows, d->width, us[0], flops / us[0] / 1e6, us[1],
           flops / us[1] / 1e6, us[1] / us[0], p->count);
    (void)fflush(stdout);
    b->peak_rate = flops / us[1] / 1e6 > b->peak_rate ? flops / us[1] / 1e6 : b->peak_rate;
    return DP_OK;
}

static dp_status measure_dense_layers(struct bench *b, size_t rows, size_t narrowest, size_t widest)
{
    for (size_t width = narrowest; width <= widest; width *= 2) {
        const unsigned uses = DP_DENSE_FORWARD | DP_DENSE_BACKWARD_DATA | DP_DENSE_BACKWARD_WEIGHTS;
        DP_TRY(b->s->ops->dense_prepare(b->s, rows, width, width, uses));
        DP_TRY(b->s->ops->dense_prepare(b->s, rows, width, width,
                                        uses | DP_DENSE_BIAS | DP_DENSE_RELU));
        for (int kind = 0; kind < DENSE_KINDS; kind++) {
            const struct dense d = {(enum dense_kind)kind, rows, width};
            struct product p = {0};
            const dp_status status = measure_dense(b, &d, &p);
            product_close(&p);
            DP_TRY(status);
        }
    }
    return DP_OK;
}

/* ---- convolutions ---- */

static dp_status measure_conv(struct bench *b, const struct conv *conv)
{
    measured *const runs[2] = {run_conv, NULL};
    const void *const whats[2] = {conv, NULL};
    const struct dp_window *w = &conv->window;
    double us[2];

    DP_TRY(compare(b, runs, whats, us));
    printf("{\"kind\": \"conv\", \"op\": \"%s\", \"rows\": %zu, \"in\": [%zu, %zu, %zu], \"out\": "
           "[%zu, %zu, %zu], \"kernel\": %zu, \"stride\": %zu, \"us\": %.2f, \"tflops\": %.2f}\n",
           conv_names[conv->kind], conv->rows, w->in_h, w->in_w, w->in_c, w->out_h, w->out_w,
           w->out_c, w->kernel_h, w->stride, us[0], conv_flops(conv) / us[0] / 1e6);
    (void)fflush(stdout);
    return DP_OK;
}

static dp_status measure_convs(struct bench *b, const struct conv_shape *shapes, size_t count,
                               size_t rows)
{
    for (size_t i = 0; i < count; i++) {
        const bool first = shapes[i].in_c == 3; /* its input has no gradient */
        struct conv conv = {.window = window_of(&shapes[i]), .rows = rows};
        DP_TRY(b->s->ops->conv_prepare(b->s, &conv.window, rows,
                                       DP_CONV_FORWARD | DP_CONV_BACKWARD_WEIGHTS |
                                           (first ? 0U : (unsigned)DP_CONV_BACKWARD_DATA)));
        for (int kind = 0; kind < CONV_KINDS; kind++) {
            conv.kind = (enum conv_kind)kind;
            if (!first || conv.kind != CONV_BACKWARD_DATA) {
                DP_TRY(measure_conv(b, &conv));
            }
        }
    }
    return DP_OK;
}

/* ---- copies between host and GPU ---- */

struct transfer {
    void *host;
    size_t bytes;
    bool up;
};

static dp_status run_transfer(struct bench *b, const void *what)
{
    const struct transfer *t = (const struct transfer *)what;

    return t->up ? b->s->device->upload(b->s, b->a, t->host, t->bytes)
                 : b->s->device->download(b->s, t->host, b->a, t->bytes);
}

/* From and to pinned memory, and pageable: what a loader would have. */
static dp_status measure_transfers(struct bench *b)
{
    const size_t most = (size_t)256 << 20, all = b->count * sizeof(float);
    const size_t bytes = all < most ? all : most;
    void *const memory[] = {b->s->device->alloc_host(DP_MEM_OTHER, bytes),
                            dp_mem_arena(DP_MEM_OTHER, bytes)};
    dp_status status = DP_OK;

    if (memory[0] == NULL || memory[1] == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "memory to copy from and to");
    }
    for (int i = 0; i < 4 && status == DP_OK; i++) {
        const struct transfer t = {memory[i / 2], bytes, i % 2 == 0};
        measured *const runs[2] = {run_transfer, NULL};
        const void *const whats[2] = {&t, NULL};
        double us[2];
        memset(memory[i / 2], 0, bytes);
        status = compare(b, runs, whats, us);
        if (status == DP_OK) {
            printf("{\"kind\": \"transfer\", \"memory\": \"%s\", \"to\": \"%s\", \"bytes\": %zu, "
                   "\"gbps\": %.2f}\n",
                   i < 2 ? "pinned" : "pageable", t.up ? "GPU" : "host", bytes,
                   (double)bytes / us[0] / 1e3);
        }
    }
    if (memory[0] != NULL) {
        b->s->device->release_host(memory[0]);
    }
    dp_free(memory[1]);
    return status;
}

/* ---- what was chosen, and by what ---- */

static void print_choices(const struct bench *b)
{
    struct dp_algo_choice choice;
    size_t at = 0;

    while (dp_algo_choices_next(b->algo_choices, &at, &choice)) {
        const char *key = strchr(choice.name, '\n'); /* after the machine */
        printf("{\"kind\": \"choice\", \"what\": \"%s\", \"ms\": %.5f}\n",
               key != NULL ? key + 1 : choice.name, choice.ms);
    }
}

static void print_limits(const struct bench *b)
{
    const char *why_not = NULL;
    const struct dp_nccl *nccl = dp_nccl_find(NULL, &why_not);
    char machine[DP_ALGO_CHOICE_MACHINE];

    b->s->device->machine(machine, sizeof(machine));
    printf("{\"kind\": \"limits\", \"version\": \"%s\", \"machine\": \"%s\", \"nccl\": %d, "
           "\"copy_gbps\": %.1f, \"peak_tflops\": %.2f}\n",
           DP_VERSION, machine, nccl != NULL ? nccl->version : 0, b->copy_rate, b->peak_rate);
}

/* ---- arrays ---- */

static dp_status prepare(struct bench *b)
{
    const struct dp_device *device = b->s->device;
    float **const arrays[] = {&b->a, &b->b, &b->c, &b->d, &b->e};
    const struct dp_step_params step_params = {.lr = 1e-6f, .factor = 1.0f, .per_sample = 1.0f};
    float ones[CLASSES];

    b->ones = device->alloc(DP_MEM_OTHER, sizeof(ones));
    b->sums = device->alloc(DP_MEM_OTHER, (size_t)2 * CHANNELS * sizeof(*b->sums));
    b->labels = device->alloc(DP_MEM_OTHER, b->count / CLASSES * sizeof(int32_t));
    b->step_params = device->alloc(DP_MEM_OTHER, sizeof(*b->step_params));
    b->workspace = device->alloc(DP_MEM_WORKSPACE, DP_CUDA_WORKSPACE);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        *arrays[i] = device->alloc(DP_MEM_OTHER, b->count * sizeof(float));
    }
    if (b->ones == NULL || b->sums == NULL || b->labels == NULL || b->step_params == NULL ||
        b->workspace == NULL || b->a == NULL || b->b == NULL || b->c == NULL || b->d == NULL ||
        b->e == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "arrays of bench_gpu");
    }
    /* Two bfloats in [-1, 1) are a float of that range. The last array stays zero: AdamW takes
     * roots of it. */
    for (uint32_t i = 0; i + 1 < sizeof(arrays) / sizeof(arrays[0]); i++) {
        DP_TRY(dp_cuda_fill(b->s, *arrays[i], DP_TYPE_BF16, 2 * b->count, i));
    }
    for (int i = 0; i < CLASSES; i++) {
        ones[i] = 1.0f;
    }
    DP_TRY(dp_device_write(b->s, b->ones, ones, sizeof(ones)));
    DP_TRY(dp_device_write(b->s, b->step_params, &step_params, sizeof(step_params)));
    return DP_CUBLAS(cublasLtCreate(&b->handle));
}

static void release(struct bench *b)
{
    void *const all[] = {b->a,    b->b,    b->c,      b->d,           b->e,
                         b->ones, b->sums, b->labels, b->step_params, b->workspace};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        b->s->device->release(all[i]);
    }
    if (b->handle != NULL) {
        (void)cublasLtDestroy(b->handle);
    }
    dp_algo_choices_destroy(b->algo_choices);
    b->s->device->stream_destroy(b->s);
}

static dp_status measure_part(struct bench *b, const char *part, bool small)
{
    if (strcmp(part, "dense") == 0) {
        return small ? measure_dense_layers(b, 64, 32, 64)
                     : measure_dense_layers(b, 8192, 1024, 8192);
    }
    if (strcmp(part, "conv") == 0) {
        return small
                   ? measure_convs(b, small_conv_shapes, COUNT(small_conv_shapes), SMALL_CONV_ROWS)
                   : measure_convs(b, conv_shapes, COUNT(conv_shapes), CONV_ROWS);
    }
    if (strcmp(part, "pass") == 0) {
        return measure_passes(b);
    }
    return strcmp(part, "transfer") == 0 ? measure_transfers(b)
                                         : DP_FAIL(DP_ERR_ARG, "bench_gpu has no part %s", part);
}

static dp_status bench(bool small, int count, char **parts)
{
    static char all[][9] = {"dense", "conv", "pass", "transfer"};
    const struct dp_device *device = NULL;
    struct bench b = {.count = small ? (size_t)1 << 16 : (size_t)1 << 27};
    dp_status status;

    DP_TRY(dp_device_find("cuda", &device));
    DP_TRY(device->stream_create(device, 1, &b.s));
    DP_TRY_GOTO(dp_algo_choices_create("here", &b.algo_choices), status, done);
    b.s->algo_choices = b.algo_choices;
    dp_stream_set_type(b.s, DP_TYPE_BF16);
    DP_TRY_GOTO(prepare(&b), status, done);
    for (int i = 0; i < (count > 0 ? count : (int)COUNT(all)); i++) {
        DP_TRY_GOTO(measure_part(&b, count > 0 ? parts[i] : all[i], small), status, done);
    }
    print_choices(&b);
    print_limits(&b);

done:
    release(&b);
    return status;
}

int main(int argc, char **argv)
{
    const int skip = argc > 1 && strcmp(argv[1], "small") == 0 ? 2 : 1;

    return dp_status_exit(bench(skip == 2, argc > skip ? argc - skip : 0, argv + skip));
}
