#include "kernels/cuda/cublas/sums_cublas.h"

#include <math.h>
#include <string.h>

#include "kernels/cuda/cublas/trial_cublas.h"
#include "kernels/cuda/ops_cuda.h"

enum { ROUNDS = 5 }; /* of measuring; the fastest counts */

/* What undoes a rectifier before the product. */
enum mask { NO_MASK, MASK_APART, MASK_IN_SUMS };

/* A way to compute a product and its sums. */
struct form {
    const struct dp_cublas_plan *plan;
    enum mask mask;
};

struct attempt {
    struct dp_cublas_trial trial;
    struct form form;
};

static dp_status run(void *context)
{
    const struct attempt *attempt = context;
    const struct dp_cublas_trial *t = &attempt->trial;
    const struct dp_matmul *p = &attempt->form.plan->shape;
    float *sums = (float *)(void *)t->beside;
    const struct dp_dense_backward b = {
        .dy = t->a, .y = t->y, .g = t->a, .db = sums, .rows = p->k, .out = p->m};

    if (attempt->form.mask == MASK_APART) {
        DP_TRY(dp_cuda_relu_backward(t->stream, t->a, t->a, t->y, p->k * p->m));
    }
    if (attempt->form.mask == MASK_IN_SUMS) {
        DP_TRY(dp_cuda_sum_masked(t->stream, &b));
    }
    DP_TRY(dp_cublas_plan_run(t->stream, attempt->form.plan, &t->workspace, t->d, t->a, t->b, sums,
                              0));
    return p->sums != 0 || attempt->form.mask == MASK_IN_SUMS
               ? DP_OK
               : dp_cuda_sum_rows(t->stream, sums, t->a, p->k, p->m, 0);
}

/* ms: of both forms; both INFINITY if nothing can be measured. */
static dp_status measure(struct attempt *attempt, struct dp_stream *s, const struct form forms[2],
                         float ms[2])
{
    struct dp_cublas_trial *trial = &attempt->trial;
    const size_t workspace = forms[0].plan->workspace_bytes > forms[1].plan->workspace_bytes
                                 ? forms[0].plan->workspace_bytes
                                 : forms[1].plan->workspace_bytes;

    ms[0] = ms[1] = INFINITY;
    DP_TRY(dp_cublas_trial_create(trial, s, &forms[0].plan->shape, workspace,
                                  forms[0].mask != NO_MASK));
    for (int i = 0; i < 2 && trial->a != NULL && trial->workspace.bytes >= workspace; i++) {
        attempt->form = forms[i];
        DP_TRY(dp_cuda_clock_time(&trial->clock, s, run, attempt, ROUNDS, INFINITY, &ms[i]));
    }
    return DP_OK;
}

/* Of two forms, which the choice calls by these names. *first: the first one is used; without a
 * choice, and without measuring, it is left as it is. */
static dp_status choose(struct dp_stream *s, const char *key, const struct form forms[2],
                        const char *const names[2], bool *first)
{
    struct attempt attempt = {.form = {NULL, NO_MASK}};
    const char *value;
    dp_status status;
    float ms[2];

    DP_TRY(dp_algo_choices_ask(s->algo_choices, key, &value));
    for (int i = 0; i < 2; i++) {
        if (value != NULL && strcmp(value, names[i]) == 0) {
            *first = i == 0;
            return DP_OK;
        }
    }
    if (!dp_algo_choices_open(s->algo_choices)) {
        return DP_OK;
    }
    status = measure(&attempt, s, forms, ms);
    dp_cublas_trial_destroy(&attempt.trial);
    DP_TRY(status);
    if (ms[0] == INFINITY && ms[1] == INFINITY) {
        return DP_OK;
    }
    *first = ms[0] <= ms[1];
    return dp_algo_choices_note(s->algo_choices, key, names[*first ? 0 : 1], ms[*first ? 0 : 1]);
}

dp_status dp_cublas_sums_pay(struct dp_stream *s, const struct dp_cublas_plan *with_sums,
                             const struct dp_cublas_plan *plain, bool *pays)
{
    static const char *const names[] = {"epilogue", "separate pass"};
    const struct form forms[] = {{with_sums, NO_MASK}, {plain, NO_MASK}};
    char key[DP_ALGO_CHOICE_KEY];

    dp_cublas_key(s, "sums of product", &with_sums->shape, key);
    *pays = true;
    return choose(s, key, forms, names, pays);
}

dp_status dp_cublas_mask_pays(struct dp_stream *s, const struct dp_cublas_plan *with_sums,
                              const struct dp_cublas_plan *plain, bool *pays)
{
    static const char *const names[] = {"separate pass", "with the sums"};
    const bool sums = with_sums != NULL && !with_sums->missing;
    const struct form forms[] = {{sums ? with_sums : plain, MASK_APART}, {plain, MASK_IN_SUMS}};
    char key[DP_ALGO_CHOICE_KEY];
    bool apart = true;

    dp_cublas_key(s, "relu before product", &plain->shape, key);
    DP_TRY(choose(s, key, forms, names, &apart));
    *pays = !apart;
    return DP_OK;
}
