/*
 * matmul_cublas.c - dense layers, and the products of convolutions, by cuBLASLt.
 *
 * 2 m n k FLOPs on tensor cores; bias and rectifier are applied on the way out, so they cost no
 * pass over memory. cuBLASLt's matrices are column-major: a row-major product d = a b is computed
 * as d' = b' a', where transposing costs nothing.
 */
#include "kernels/cuda/matmul_cublas.h"

#include <cublasLt.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/scratch_cuda.h"
#include "kernels/cuda/stream_cuda.h"

enum {
    PROPOSALS = 8,
    ROUNDS = 5,            /* of measuring; the fastest counts */
    FIRST_CAPACITY = 64,   /* shapes; grows in prepare */
    POINTER_ALIGNMENT = 16 /* what all arrays have, unless rows are narrower */
};

/* One shape, ready to run. */
struct plan {
    struct dp_matmul shape;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t left, right, result; /* of cuBLASLt: left is b, right is a */
    cublasLtMatmulAlgo_t algo;
    bool missing; /* cuBLASLt has no algorithm */
};

struct dp_matmuls {
    cublasLtHandle_t handle;
    struct dp_cuda_scratch workspace; /* grows only in prepare */
    struct plan *plans;               /* owned */
    int count, capacity;
};

dp_status dp_matmuls_create(struct dp_matmuls **out)
{
    struct dp_matmuls *m = dp_zalloc(1, sizeof(*m));
    dp_status status;

    if (m == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "matrix products");
    }
    m->plans = dp_zalloc(FIRST_CAPACITY, sizeof(*m->plans));
    m->capacity = FIRST_CAPACITY;
    status = m->plans == NULL ? DP_FAIL(DP_ERR_NOMEM, "matrix products")
                              : DP_CUBLAS(cublasLtCreate(&m->handle));
    if (status != DP_OK) {
        dp_matmuls_destroy(m);
        return status;
    }
    *out = m;
    return DP_OK;
}

static void plan_destroy(struct plan *plan)
{
    if (plan->result != NULL) {
        (void)cublasLtMatrixLayoutDestroy(plan->result);
    }
    if (plan->right != NULL) {
        (void)cublasLtMatrixLayoutDestroy(plan->right);
    }
    if (plan->left != NULL) {
        (void)cublasLtMatrixLayoutDestroy(plan->left);
    }
    if (plan->desc != NULL) {
        (void)cublasLtMatmulDescDestroy(plan->desc);
    }
}

void dp_matmuls_destroy(struct dp_matmuls *m)
{
    if (m == NULL) {
        return;
    }
    for (int i = 0; m->plans != NULL && i < m->count; i++) {
        plan_destroy(&m->plans[i]);
    }
    if (m->handle != NULL) {
        (void)cublasLtDestroy(m->handle);
    }
    dp_cuda_scratch_release(&m->workspace);
    dp_free(m->plans);
    dp_free(m);
}

static const struct plan *plan_find(const struct dp_matmuls *m, const struct dp_matmul *shape)
{
    for (int i = 0; i < m->count; i++) {
        if (memcmp(&m->plans[i].shape, shape, sizeof(*shape)) == 0) {
            return &m->plans[i];
        }
    }
    return NULL;
}

static cudaDataType data_type(uint32_t type)
{
    switch ((enum dp_type)type) {
    case DP_TYPE_BF16:
        return CUDA_R_16BF;
    case DP_TYPE_F16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

static cublasLtEpilogue_t epilogue_of(const struct dp_matmul *shape)
{
    if (shape->sums != 0) {
        return CUBLASLT_EPILOGUE_BGRADB; /* cuBLASLt's b is our a */
    }
    if (shape->act == DP_ACT_RELU) {
        return shape->bias != 0 ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    }
    return shape->bias != 0 ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* A row-major [height, width] is a column-major [width, height]. */
static dp_status layout_create(cublasLtMatrixLayout_t *layout, cudaDataType type, size_t height,
                               size_t width)
{
    return DP_CUBLAS(cublasLtMatrixLayoutCreate(layout, type, width, height, (int64_t)width));
}

static dp_status plan_describe(struct plan *plan, bool tf32)
{
    const struct dp_matmul *p = &plan->shape;
    const cudaDataType type = data_type(p->type), out = p->wide != 0 ? CUDA_R_32F : type;
    const cublasOperation_t left = p->b_order == DP_PLAIN ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t right = p->a_order == DP_PLAIN ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = epilogue_of(p);
    const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const bool a_plain = p->a_order == DP_PLAIN, b_plain = p->b_order == DP_PLAIN;

    DP_TRY(DP_CUBLAS(cublasLtMatmulDescCreate(&plan->desc, compute, CUDA_R_32F)));
    DP_TRY(DP_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &left,
                                                    sizeof(left))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                                    sizeof(right))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &epilogue, sizeof(epilogue))));
    DP_TRY(layout_create(&plan->left, type, b_plain ? p->k : p->n, b_plain ? p->n : p->k));
    DP_TRY(layout_create(&plan->right, type, a_plain ? p->m : p->k, a_plain ? p->k : p->m));
    return layout_create(&plan->result, out, p->m, p->n);
}

/* Arrays begin at POINTER_ALIGNMENT, or whole rows behind that: then at what rows are multiples
 * of. */
static uint32_t alignment_of(size_t cols, size_t element)
{
    const size_t row = cols * element;

    return (uint32_t)(row % POINTER_ALIGNMENT == 0 ? POINTER_ALIGNMENT : row & (~row + 1));
}

static dp_status set_preference(cublasLtMatmulPreference_t wishes, const struct dp_matmul *p)
{
    const size_t narrow = dp_type_bytes((enum dp_type)p->type), workspace = DP_CUDA_WORKSPACE;
    const uint32_t left = alignment_of(p->b_order == DP_PLAIN ? p->n : p->k, narrow);
    const uint32_t right = alignment_of(p->a_order == DP_PLAIN ? p->k : p->m, narrow);
    const uint32_t result = alignment_of(p->n, p->wide != 0 ? sizeof(float) : narrow);
    const bool rounds = p->wide == 0 && p->type != DP_TYPE_F32;
    /* Where k is cut, parts of a sum are added in float32 as well, and not as rounded ones. */
    const uint32_t schemes =
        rounds ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;

    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        wishes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &left, sizeof(left))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &right, sizeof(right))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &result, sizeof(result))));
    return DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result, sizeof(result)));
}

/* Those that cuBLASLt says can be run. */
static int drop_broken(cublasLtMatmulHeuristicResult_t *proposals, int count)
{
    int good = 0;

    for (int i = 0; i < count; i++) {
        if (proposals[i].state == CUBLAS_STATUS_SUCCESS) {
            proposals[good++] = proposals[i];
        }
    }
    return good;
}

/* cuBLASLt's proposals, best first by its own judgement; at least one. */
static dp_status propose(const struct dp_matmuls *m, const struct plan *plan,
                         cublasLtMatmulHeuristicResult_t *proposals, int *count)
{
    const struct dp_matmul *p = &plan->shape;
    cublasLtMatmulPreference_t wishes;
    dp_status status;

    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceCreate(&wishes)));
    status = set_preference(wishes, p);
    if (status == DP_OK) {
        const cublasStatus_t result = cublasLtMatmulAlgoGetHeuristic(
            m->handle, plan->desc, plan->left, plan->right, plan->result, plan->result, wishes,
            PROPOSALS, proposals, count);
        if (p->sums != 0 && result == CUBLAS_STATUS_NOT_SUPPORTED) {
            *count = 0;
        } else {
            status = DP_CUBLAS(result);
            *count = status == DP_OK ? drop_broken(proposals, *count) : 0;
        }
    }
    (void)cublasLtMatmulPreferenceDestroy(wishes);
    if (status == DP_OK && *count == 0 && p->sums == 0) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "cuBLAS has no product of %zux%zux%zu", p->m, p->n,
                       p->k);
    }
    return status;
}

/* beside: the bias that is read, or the sums that are written. */
static cublasStatus_t try_multiply(struct dp_stream *s, const struct plan *plan,
                                   const cublasLtMatmulAlgo_t *algo,
                                   const struct dp_cuda_scratch *workspace, void *d, const void *a,
                                   const void *b, const void *beside, float keep)
{
    const struct dp_cuda *cuda = dp_cuda_of(s);
    const float one = 1.0f;
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;

    if (plan->shape.bias != 0 || plan->shape.sums != 0) {
        result = cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &beside, sizeof(beside));
    }
    return result != CUBLAS_STATUS_SUCCESS
               ? result
               : cublasLtMatmul(cuda->matmuls->handle, plan->desc, &one, b, plan->left, a,
                                plan->right, &keep, d, plan->result, d, plan->result, algo,
                                workspace->memory, workspace->bytes, cuda->queue);
}

/* ---- measuring ---- */

/* Scratch to measure on. */
struct trial {
    struct dp_stream *stream;
    const struct plan *plan;
    const cublasLtMatmulAlgo_t *algo;
    struct dp_cuda_scratch workspace;
    char *a, *b, *d, *beside;
    struct dp_cuda_clock clock;
};

static void trial_destroy(struct trial *trial)
{
    dp_cuda_clock_close(&trial->clock);
    dp_cuda_scratch_release(&trial->workspace);
    dp_device_cuda.release(trial->a);
}

/* Arrays at multiples of 256 bytes in one piece, with what any algorithm may want as workspace;
 * without memory there is no trial, no error. */
static dp_status trial_create(struct trial *trial, struct dp_stream *s, const struct plan *plan,
                              size_t workspace)
{
    const struct dp_matmul *p = &plan->shape;
    const enum dp_type type = (enum dp_type)p->type;
    const size_t narrow = dp_type_bytes(type), wide = p->wide != 0 ? sizeof(float) : narrow;
    const size_t a = dp_round_up(p->m * p->k * narrow, 256),
                 b = dp_round_up(p->k * p->n * narrow, 256);
    const size_t d = dp_round_up(p->m * p->n * wide, 256);
    const size_t all = a + b + d + dp_round_up((p->n > p->m ? p->n : p->m) * sizeof(float), 256);

    *trial = (struct trial){.stream = s, .plan = plan};
    trial->workspace.memory = workspace > 0 ? dp_device_cuda.alloc(DP_MEM_TRIAL, workspace) : NULL;
    trial->workspace.bytes = trial->workspace.memory != NULL ? workspace : 0;
    trial->a = dp_device_cuda.alloc(DP_MEM_TRIAL, all);
    if (trial->a == NULL) {
        return DP_OK;
    }
    trial->b = trial->a + a;
    trial->d = trial->b + b;
    trial->beside = trial->d + d;
    DP_TRY(dp_cuda_fill(s, trial->a, type, all / narrow, 1));
    return dp_cuda_clock_open(&trial->clock);
}

static dp_status trial_run(void *context)
{
    const struct trial *t = context;
    const cublasStatus_t result =
        try_multiply(t->stream, t->plan, t->algo, &t->workspace, t->d, t->a, t->b, t->beside, 0.0f);

    if (result != CUBLAS_STATUS_SUCCESS) {
        DP_DEBUG("an algorithm of cuBLAS does not run: %s", cublasLtGetStatusString(result));
        return DP_ERR_UNAVAILABLE;
    }
    return DP_OK;
}

/* The fastest proposal; the first one, if nothing can be measured; -1: none of them runs. */
static dp_status choose(struct dp_stream *s, const struct plan *plan,
                        const cublasLtMatmulHeuristicResult_t *proposals, int count, int *best)
{
    struct trial trial;
    float best_ms = INFINITY;
    size_t workspace = 0;
    dp_status status;
    int tried = 0;

    for (int i = 0; i < count; i++) {
        workspace = proposals[i].workspaceSize > workspace ? proposals[i].workspaceSize : workspace;
    }
    status = trial_create(&trial, s, plan, workspace);
    *best = -1;
    for (int i = 0; status == DP_OK && trial.a != NULL && i < count; i++) {
        float ms = INFINITY;
        if (proposals[i].workspaceSize > trial.workspace.bytes) {
            continue;
        }
        tried++;
        trial.algo = &proposals[i].algo;
        status = dp_cuda_clock_time(&trial.clock, s, trial_run, &trial, ROUNDS, &ms);
        if (status == DP_OK && ms < best_ms) {
            best_ms = ms;
            *best = i;
        }
    }
    *best = tried == 0 ? 0 : *best;
    trial_destroy(&trial);
    return status;
}

/* ---- preparing and running ---- */

static dp_status plan_make(struct dp_stream *s, struct plan *plan)
{
    struct dp_matmuls *m = dp_cuda_of(s)->matmuls;
    cublasLtMatmulHeuristicResult_t proposals[PROPOSALS];
    int count = 0, best = 0;

    DP_TRY(plan_describe(plan, s->tf32 && s->type == DP_TYPE_F32));
    DP_TRY(propose(m, plan, proposals, &count));
    if (s->measures && count > 1) {
        DP_TRY(choose(s, plan, proposals, count, &best));
    }
    plan->missing = count == 0 || (best < 0 && plan->shape.sums != 0);
    if (plan->missing) {
        return DP_OK;
    }
    if (best < 0) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "a product of %zux%zux%zu: of %d algorithms of cuBLAS "
                       "none runs here",
                       plan->shape.m, plan->shape.n, plan->shape.k, count);
    }
    plan->algo = proposals[best].algo;
    return dp_cuda_scratch_grow(s, &m->workspace, proposals[best].workspaceSize,
                                "a matrix product");
}

dp_status dp_matmul_prepare(struct dp_stream *s, const struct dp_matmul *shape)
{
    struct dp_matmuls *m = dp_cuda_of(s)->matmuls;
    struct plan plan = {.shape = *shape}, *plans;
    dp_status status;

    plan.shape.type = (uint32_t)s->type;
    if (plan_find(m, &plan.shape) != NULL) {
        return DP_OK;
    }
    plans = dp_cuda_list_room(m->plans, m->count, &m->capacity, sizeof(*plans));
    if (plans == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d matrix products", m->count + 1);
    }
    m->plans = plans;
    status = plan_make(s, &plan);
    if (status != DP_OK) {
        plan_destroy(&plan);
        return status;
    }
    m->plans[m->count++] = plan;
    return DP_OK;
}

static const struct plan *plan_of(const struct dp_stream *s, const struct dp_matmul *shape)
{
    struct dp_matmul wanted = *shape;
    const struct plan *plan;

    wanted.type = (uint32_t)s->type;
    plan = plan_find(dp_cuda_of(s)->matmuls, &wanted);
    return plan != NULL && !plan->missing ? plan : NULL;
}

bool dp_matmul_has(const struct dp_stream *s, const struct dp_matmul *shape)
{
    return plan_of(s, shape) != NULL;
}

dp_status dp_matmul_run(struct dp_stream *s, const struct dp_matmul *shape, void *d, const void *a,
                        const void *b, const void *bias, float *sums, float keep)
{
    const struct plan *plan = plan_of(s, shape);

    if (plan == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "a product of %zux%zux%zu was not prepared", shape->m,
                       shape->n, shape->k);
    }
    return DP_CUBLAS(try_multiply(s, plan, &plan->algo, &dp_cuda_of(s)->matmuls->workspace, d, a, b,
                                  shape->sums != 0 ? sums : bias, keep));
}
