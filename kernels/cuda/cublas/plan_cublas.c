#include "kernels/cuda/cublas/plan_cublas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/cublas/trial_cublas.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/stream_cuda.h"
#include "kernels/op_path.h"

enum {
    PROPOSALS = 8,
    ROUNDS = 5,            /* of measuring; the fastest counts */
    POINTER_ALIGNMENT = 16 /* what all arrays have, unless rows are narrower */
};

void dp_cublas_plan_destroy(struct dp_cublas_plan *plan)
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

/* ---- describing ---- */

static bool rounds_to_tf32(const struct dp_stream *s)
{
    return s->tf32 && s->type == DP_TYPE_F32;
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

static dp_status plan_describe(struct dp_cublas_plan *plan, bool tf32)
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

/* Algorithms are proposed for a vector beside the product that begins where this one does: any that
 * is as well aligned as all arrays are. */
static dp_status name_beside(const struct dp_cublas_plan *plan, const void *any)
{
    return plan->shape.bias == 0 && plan->shape.sums == 0
               ? DP_OK
               : DP_CUBLAS(cublasLtMatmulDescSetAttribute(
                     plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any, sizeof(any)));
}

/* Arrays begin at POINTER_ALIGNMENT, or whole rows after that: then at what rows are multiples
 * of. */
static uint32_t alignment_of(size_t cols, size_t element)
{
    const size_t row = cols * element;

    return (uint32_t)(row % POINTER_ALIGNMENT == 0 ? POINTER_ALIGNMENT : row & (~row + 1));
}

static dp_status set_preference(cublasLtMatmulPreference_t requests, const struct dp_matmul *p)
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
        requests, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        requests, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        requests, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &left, sizeof(left))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        requests, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &right, sizeof(right))));
    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        requests, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &result, sizeof(result))));
    return DP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        requests, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result, sizeof(result)));
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
static dp_status propose(const struct dp_cublas_plan *plan,
                         cublasLtMatmulHeuristicResult_t *proposals, int *count)
{
    const struct dp_matmul *p = &plan->shape;
    cublasLtMatmulPreference_t requests;
    dp_status status;

    DP_TRY(DP_CUBLAS(cublasLtMatmulPreferenceCreate(&requests)));
    status = set_preference(requests, p);
    if (status == DP_OK) {
        const cublasStatus_t result = cublasLtMatmulAlgoGetHeuristic(
            plan->handle, plan->desc, plan->left, plan->right, plan->result, plan->result, requests,
            PROPOSALS, proposals, count);
        if (p->sums != 0 && result != CUBLAS_STATUS_SUCCESS) { /* whatever the reason */
            DP_DEBUG("cuBLAS has no product of %zux%zux%zu with sums: %s", p->m, p->n, p->k,
                     cublasLtGetStatusString(result));
            *count = 0;
        } else {
            status = DP_CUBLAS(result);
            *count = status == DP_OK ? drop_broken(proposals, *count) : 0;
        }
    }
    (void)cublasLtMatmulPreferenceDestroy(requests);
    if (status == DP_OK && *count == 0 && p->sums == 0) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "cuBLAS has no product of %zux%zux%zu", p->m, p->n,
                       p->k);
    }
    return status;
}

/* beside: the bias that is read, or the sums that are written. */
static cublasStatus_t try_multiply(struct dp_stream *s, const struct dp_cublas_plan *plan,
                                   const cublasLtMatmulAlgo_t *algo,
                                   const struct dp_cuda_scratch *workspace, void *d, const void *a,
                                   const void *b, const void *beside, float keep)
{
    const float one = 1.0f;
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;

    if (plan->shape.bias != 0 || plan->shape.sums != 0) {
        result = cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &beside, sizeof(beside));
    }
    return result != CUBLAS_STATUS_SUCCESS
               ? result
               : cublasLtMatmul(plan->handle, plan->desc, &one, b, plan->left, a, plan->right,
                                &keep, d, plan->result, d, plan->result, algo, workspace->memory,
                                workspace->bytes, dp_cuda_of(s)->queue);
}

/* ---- measuring ---- */

/* An algorithm that is timed. */
struct attempt {
    struct dp_cublas_trial trial;
    const struct dp_cublas_plan *plan;
    const cublasLtMatmulAlgo_t *algo;
};

static dp_status trial_run(void *context)
{
    const struct attempt *attempt = context;
    const struct dp_cublas_trial *t = &attempt->trial;
    const cublasStatus_t result = try_multiply(t->stream, attempt->plan, attempt->algo,
                                               &t->workspace, t->d, t->a, t->b, t->beside, 0.0f);

    if (result != CUBLAS_STATUS_SUCCESS) {
        DP_DEBUG("an algorithm of cuBLAS does not run: %s", cublasLtGetStatusString(result));
        return DP_ERR_UNAVAILABLE;
    }
    return DP_OK;
}

/* The fastest proposal; the first one, and INFINITY, if nothing can be measured; -1: none of them
 * runs. */
static dp_status choose(struct dp_stream *s, const struct dp_cublas_plan *plan,
                        const cublasLtMatmulHeuristicResult_t *proposals, int count, int *best,
                        float *best_ms)
{
    struct attempt attempt = {.plan = plan};
    struct dp_cublas_trial *trial = &attempt.trial;
    size_t workspace = 0;
    dp_status status;
    int tried = 0;

    for (int i = 0; i < count; i++) {
        workspace = proposals[i].workspaceSize > workspace ? proposals[i].workspaceSize : workspace;
    }
    status = dp_cublas_trial_create(trial, s, &plan->shape, workspace, false);
    *best = -1;
    *best_ms = INFINITY;
    for (int i = 0; status == DP_OK && trial->a != NULL && i < count; i++) {
        float ms = INFINITY;
        if (proposals[i].workspaceSize > trial->workspace.bytes) {
            continue;
        }
        tried++;
        attempt.algo = &proposals[i].algo;
        status = dp_cuda_clock_time(&trial->clock, s, trial_run, &attempt, ROUNDS, *best_ms, &ms);
        if (status == DP_OK && ms < *best_ms) {
            *best_ms = ms;
            *best = i;
        }
    }
    *best = tried == 0 ? 0 : *best;
    dp_cublas_trial_destroy(trial);
    return status;
}

/* ---- choosing ---- */

void dp_cublas_key(const struct dp_stream *s, const char *what, const struct dp_matmul *p,
                   char key[DP_ALGO_CHOICE_KEY])
{
    (void)snprintf(key, DP_ALGO_CHOICE_KEY, "%s %zux%zux%zu %c%c %s%s%s%s%s", what, p->m, p->n,
                   p->k, p->a_order == DP_PLAIN ? 'n' : 't', p->b_order == DP_PLAIN ? 'n' : 't',
                   dp_device_arithmetic(s->device, s->type, rounds_to_tf32(s)),
                   p->wide != 0 ? " wide" : "", p->bias != 0 ? " bias" : "",
                   p->act == DP_ACT_RELU ? " relu" : "", p->sums != 0 ? " sums" : "");
}

/* cuBLASLt lets an algorithm be kept as its bytes, for the same version of it. */
static void write_algo(const cublasLtMatmulAlgo_t *algo, char value[DP_ALGO_CHOICE_VALUE])
{
    unsigned char bytes[sizeof(*algo)];

    _Static_assert(2 * sizeof(bytes) < DP_ALGO_CHOICE_VALUE, "an algorithm is a value of a choice");
    memcpy(bytes, algo, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(value + 2 * i, 3, "%02x", bytes[i]);
    }
}

static bool read_algo(const char *value, cublasLtMatmulAlgo_t *algo)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[sizeof(*algo)] = {0};

    if (strlen(value) != 2 * sizeof(bytes) || strspn(value, digits) != 2 * sizeof(bytes)) {
        return false;
    }
    for (size_t i = 0; i < 2 * sizeof(bytes); i++) {
        bytes[i / 2] = (unsigned char)(bytes[i / 2] << 4 | (strchr(digits, value[i]) - digits));
    }
    memcpy(algo, bytes, sizeof(bytes));
    return true;
}

/* Takes what is known, if cuBLASLt accepts it for this shape and it runs. */
static dp_status recall(struct dp_stream *s, const struct dp_cublas_plan *plan, const char *value,
                        cublasLtMatmulHeuristicResult_t *chosen, bool *good)
{
    cublasLtMatmulHeuristicResult_t known = {.workspaceSize = 0};
    cublasLtMatmulAlgo_t algo;
    int best = -1;
    float ms;

    *good = read_algo(value, &algo) &&
            cublasLtMatmulAlgoCheck(plan->handle, plan->desc, plan->left, plan->right, plan->result,
                                    plan->result, &algo, &known) == CUBLAS_STATUS_SUCCESS &&
            known.workspaceSize <= DP_CUDA_WORKSPACE;
    if (*good) {
        known.algo = algo; /* the check leaves it alone */
        DP_TRY(choose(s, plan, &known, 1, &best, &ms));
        *good = best == 0;
        *chosen = known;
    }
    return DP_OK;
}

/* The best of what cuBLASLt proposes, and a note of it if it was measured. *found: false: there is
 * none, which only sums may have. */
static dp_status select_algo(struct dp_stream *s, const struct dp_cublas_plan *plan,
                             const char *key, cublasLtMatmulHeuristicResult_t *chosen, bool *found)
{
    const struct dp_matmul *p = &plan->shape;
    cublasLtMatmulHeuristicResult_t proposals[PROPOSALS];
    char value[DP_ALGO_CHOICE_VALUE];
    float ms = INFINITY;
    int count = 0, best = 0;

    DP_TRY(propose(plan, proposals, &count));
    if (dp_algo_choices_open(s->algo_choices) && count > 1) {
        DP_TRY(choose(s, plan, proposals, count, &best, &ms));
    }
    *found = count > 0 && best >= 0;
    if (!*found) {
        return p->sums != 0 ? DP_OK
                            : DP_FAIL(DP_ERR_UNAVAILABLE,
                                      "a product of %zux%zux%zu: of %d algorithms of cuBLAS none "
                                      "runs here",
                                      p->m, p->n, p->k, count);
    }
    *chosen = proposals[best];
    if (ms < INFINITY) {
        write_algo(&chosen->algo, value);
        DP_TRY(dp_algo_choices_note(s->algo_choices, key, value, ms));
    }
    return DP_OK;
}

/* What was chosen before, or else the best that there is. */
static dp_status find(struct dp_stream *s, const struct dp_cublas_plan *plan,
                      cublasLtMatmulHeuristicResult_t *chosen, bool *found)
{
    char key[DP_ALGO_CHOICE_KEY];
    const char *value;

    dp_cublas_key(s, "product", &plan->shape, key);
    DP_TRY(dp_algo_choices_ask(s->algo_choices, key, &value));
    *found = false;
    if (value != NULL) {
        DP_TRY(recall(s, plan, value, chosen, found));
        if (!*found) {
            DP_DEBUG("%s: what was chosen before does not run here", key);
        }
    }
    return *found ? DP_OK : select_algo(s, plan, key, chosen, found);
}

dp_status dp_cublas_plan_create(struct dp_stream *s, cublasLtHandle_t handle,
                                const struct dp_matmul *shape, struct dp_cublas_plan *out)
{
    struct dp_cublas_plan plan = {.shape = *shape, .handle = handle};
    cublasLtMatmulHeuristicResult_t chosen = {.workspaceSize = 0};
    dp_status status = plan_describe(&plan, rounds_to_tf32(s));
    bool found = false;

    status = status == DP_OK ? name_beside(&plan, dp_cuda_of(s)->partials) : status;
    if (status == DP_OK) {
        status = find(s, &plan, &chosen, &found);
    }
    if (status != DP_OK) {
        dp_cublas_plan_destroy(&plan);
        return status;
    }
    plan.algo = chosen.algo;
    plan.workspace_bytes = chosen.workspaceSize;
    plan.missing = !found;
    *out = plan;
    return DP_OK;
}

/* "cuBLASLt algorithm 66", for whoever asks. */
static void note_path(const struct dp_stream *s, const cublasLtMatmulAlgo_t *algo)
{
    int32_t number = -1;
    char text[32];

    if (s->path != NULL &&
        cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_ID, &number, sizeof(number),
                                             NULL) == CUBLAS_STATUS_SUCCESS) {
        (void)snprintf(text, sizeof(text), "algorithm %d", (int)number);
        dp_op_path_note(s, "cuBLASLt", text);
    }
}

dp_status dp_cublas_plan_run(struct dp_stream *s, const struct dp_cublas_plan *plan,
                             const struct dp_cuda_scratch *workspace, void *d, const void *a,
                             const void *b, const void *beside, float keep)
{
    note_path(s, &plan->algo);
    return DP_CUBLAS(try_multiply(s, plan, &plan->algo, workspace, d, a, b, beside, keep));
}
