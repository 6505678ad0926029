/*
 * matmul_cublas.c - dense layers, and the products of convolutions, by cuBLASLt.
 *
 * 2 m n k FLOPs on tensor cores; bias and rectifier are applied on the way out, so they cost no
 * pass over memory. Which algorithm computes a shape: plan_cublas.h.
 */
#include "kernels/cuda/cublas/matmul_cublas.h"

#include <string.h>

#include "kernels/cuda/cublas/sums_cublas.h"
#include "kernels/cuda/stream/cuda_status.h"
#include "kernels/cuda/stream/stream_cuda.h"

enum { FIRST_CAPACITY = 64 }; /* shapes; grows in prepare */

struct dp_matmuls {
    cublasLtHandle_t handle;
    struct dp_cuda_scratch workspace; /* grows only in prepare */
    struct dp_cublas_plan *plans;     /* owned */
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

void dp_matmuls_forget(struct dp_matmuls *m)
{
    for (int i = 0; m->plans != NULL && i < m->count; i++) {
        dp_cublas_plan_destroy(&m->plans[i]);
    }
    m->count = 0;
}

void dp_matmuls_destroy(struct dp_matmuls *m)
{
    if (m == NULL) {
        return;
    }
    dp_matmuls_forget(m);
    if (m->handle != NULL) {
        (void)cublasLtDestroy(m->handle);
    }
    dp_cuda_scratch_release(&m->workspace);
    dp_free(m->plans);
    dp_free(m);
}

static struct dp_cublas_plan *plan_find(const struct dp_matmuls *m, const struct dp_matmul *shape)
{
    for (int i = 0; i < m->count; i++) {
        if (memcmp(&m->plans[i].shape, shape, sizeof(*shape)) == 0) {
            return &m->plans[i];
        }
    }
    return NULL;
}

/* ---- preparing and running ---- */

/* Marks a plan with sums as missing if the plain plan, prepared before, and a pass are faster. */
static dp_status drop_slow_sums(struct dp_stream *s, const struct dp_matmuls *m,
                                struct dp_cublas_plan *plan)
{
    struct dp_matmul shape = plan->shape;
    const struct dp_cublas_plan *plain;
    bool pays = true;

    shape.sums = 0;
    plain = plan_find(m, &shape);
    if (plan->shape.sums != 0 && !plan->missing && plain != NULL) {
        DP_TRY(dp_cublas_sums_pay(s, plan, plain, &pays));
    }
    plan->missing = plan->missing || !pays;
    return DP_OK;
}

dp_status dp_matmul_prepare(struct dp_stream *s, const struct dp_matmul *shape)
{
    struct dp_matmuls *m = dp_cuda_of(s)->matmuls;
    struct dp_matmul wanted = *shape;
    struct dp_cublas_plan plan, *plans;
    dp_status status;

    wanted.type = (uint32_t)s->type;
    if (plan_find(m, &wanted) != NULL) {
        return DP_OK;
    }
    plans = dp_cuda_list_room(m->plans, m->count, &m->capacity, sizeof(*plans));
    if (plans == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d matrix products", m->count + 1);
    }
    m->plans = plans;
    DP_TRY(dp_cublas_plan_create(s, m->handle, &wanted, &plan));
    status = drop_slow_sums(s, m, &plan);
    if (status == DP_OK && !plan.missing) {
        status = dp_cuda_scratch_grow(s, &m->workspace, plan.workspace_bytes, "a matrix product");
    }
    if (status != DP_OK) {
        dp_cublas_plan_destroy(&plan);
        return status;
    }
    m->plans[m->count++] = plan;
    return DP_OK;
}

dp_status dp_matmul_choose_mask(struct dp_stream *s, const struct dp_matmul *shape)
{
    const struct dp_matmuls *m = dp_cuda_of(s)->matmuls;
    struct dp_matmul wanted = *shape;
    struct dp_cublas_plan *plain;

    wanted.type = (uint32_t)s->type;
    plain = plan_find(m, &wanted);
    wanted.sums = 1;
    if (plain == NULL || plain->tried_masks) {
        return DP_OK;
    }
    plain->tried_masks = true;
    return dp_cublas_mask_pays(s, plan_find(m, &wanted), plain, &plain->masks_in_sums);
}

static const struct dp_cublas_plan *plan_of(const struct dp_stream *s,
                                            const struct dp_matmul *shape)
{
    struct dp_matmul wanted = *shape;
    const struct dp_cublas_plan *plan;

    wanted.type = (uint32_t)s->type;
    plan = plan_find(dp_cuda_of(s)->matmuls, &wanted);
    return plan != NULL && !plan->missing ? plan : NULL;
}

bool dp_matmul_masks_in_sums(const struct dp_stream *s, const struct dp_matmul *shape)
{
    const struct dp_cublas_plan *plan = plan_of(s, shape);

    return plan != NULL && plan->masks_in_sums;
}

bool dp_matmul_has(const struct dp_stream *s, const struct dp_matmul *shape)
{
    return plan_of(s, shape) != NULL;
}

dp_status dp_matmul_run(struct dp_stream *s, const struct dp_matmul *shape, void *d, const void *a,
                        const void *b, const void *bias, float *sums, float keep)
{
    const struct dp_cublas_plan *plan = plan_of(s, shape);

    if (plan == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "a product of %zux%zux%zu was not prepared", shape->m,
                       shape->n, shape->k);
    }
    return dp_cublas_plan_run(s, plan, &dp_cuda_of(s)->matmuls->workspace, d, a, b,
                              shape->sums != 0 ? sums : bias, keep);
}
