#include "kernels/cuda/cublas/sums_cublas.h"

#include <math.h>
#include <string.h>

#include "kernels/cuda/cublas/trial_cublas.h"
#include "kernels/cuda/ops_cuda.h"

enum { ROUNDS = 5 }; /* of measuring; the fastest counts */

/* The values of the choice. */
static const char epilogue[] = "epilogue", pass[] = "separate pass";

struct attempt {
    struct dp_cublas_trial trial;
    const struct dp_cublas_plan *plan;
};

static dp_status run(void *context)
{
    const struct attempt *attempt = context;
    const struct dp_cublas_trial *t = &attempt->trial;
    const struct dp_matmul *p = &attempt->plan->shape;
    float *sums = (float *)(void *)t->beside;

    DP_TRY(dp_cublas_plan_run(t->stream, attempt->plan, &t->workspace, t->d, t->a, t->b, sums, 0));
    return p->sums != 0 ? DP_OK : dp_cuda_sum_rows(t->stream, sums, t->a, p->k, p->m, 0);
}

/* ms: of the epilogue, and of the separate pass; both INFINITY if nothing can be measured. */
static dp_status measure(struct attempt *attempt, struct dp_stream *s,
                         const struct dp_cublas_plan *const plans[2], float ms[2])
{
    struct dp_cublas_trial *trial = &attempt->trial;
    const size_t workspace = plans[0]->workspace_bytes > plans[1]->workspace_bytes
                                 ? plans[0]->workspace_bytes
                                 : plans[1]->workspace_bytes;

    ms[0] = ms[1] = INFINITY;
    DP_TRY(dp_cublas_trial_create(trial, s, &plans[0]->shape, workspace));
    for (int i = 0; i < 2 && trial->a != NULL && trial->workspace.bytes >= workspace; i++) {
        attempt->plan = plans[i];
        DP_TRY(dp_cuda_clock_time(&trial->clock, s, run, attempt, ROUNDS, INFINITY, &ms[i]));
    }
    return DP_OK;
}

dp_status dp_cublas_sums_pay(struct dp_stream *s, const struct dp_cublas_plan *with_sums,
                             const struct dp_cublas_plan *plain, bool *pays)
{
    const struct dp_cublas_plan *const plans[2] = {with_sums, plain};
    struct attempt attempt = {.plan = NULL};
    char key[DP_ALGO_CHOICE_KEY];
    const char *value;
    dp_status status;
    float ms[2];

    dp_cublas_key(s, "sums of product", &with_sums->shape, key);
    DP_TRY(dp_algo_choices_ask(s->algo_choices, key, &value));
    *pays = value == NULL || strcmp(value, pass) != 0;
    if ((value != NULL && (!*pays || strcmp(value, epilogue) == 0)) ||
        !dp_algo_choices_open(s->algo_choices)) {
        return DP_OK;
    }
    status = measure(&attempt, s, plans, ms);
    dp_cublas_trial_destroy(&attempt.trial);
    DP_TRY(status);
    *pays = ms[0] <= ms[1];
    return ms[0] < INFINITY || ms[1] < INFINITY
               ? dp_algo_choices_note(s->algo_choices, key, *pays ? epilogue : pass,
                                      *pays ? ms[0] : ms[1])
               : DP_OK;
}
