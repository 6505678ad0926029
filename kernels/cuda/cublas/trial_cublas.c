#include "kernels/cuda/cublas/trial_cublas.h"

enum { ALIGNMENT = 256 };

void dp_cublas_trial_destroy(struct dp_cublas_trial *trial)
{
    dp_cuda_clock_close(&trial->clock);
    dp_cuda_scratch_release(&trial->workspace);
    dp_device_cuda.release(trial->a);
    trial->a = NULL;
}

dp_status dp_cublas_trial_create(struct dp_cublas_trial *trial, struct dp_stream *s,
                                 const struct dp_matmul *p, size_t workspace, bool masks)
{
    const enum dp_type type = (enum dp_type)p->type;
    const size_t narrow = dp_type_bytes(type), wide = p->wide != 0 ? sizeof(float) : narrow;
    const size_t a = dp_round_up(p->m * p->k * narrow, ALIGNMENT),
                 b = dp_round_up(p->k * p->n * narrow, ALIGNMENT);
    const size_t d = dp_round_up(p->m * p->n * wide, ALIGNMENT);
    const size_t beside = dp_round_up((p->n > p->m ? p->n : p->m) * sizeof(float), ALIGNMENT);
    const size_t all = a + b + d + beside + (masks ? a : 0);

    *trial = (struct dp_cublas_trial){.stream = s};
    trial->workspace.memory = workspace > 0 ? dp_cuda_trial_alloc(workspace) : NULL;
    trial->workspace.bytes = trial->workspace.memory != NULL ? workspace : 0;
    trial->a = dp_cuda_trial_alloc(all);
    if (trial->a == NULL) {
        return DP_OK;
    }
    trial->b = trial->a + a;
    trial->d = trial->b + b;
    trial->beside = trial->d + d;
    trial->y = masks ? trial->beside + beside : NULL;
    DP_TRY(dp_cuda_fill(s, trial->a, type, all / narrow, 1));
    return dp_cuda_clock_open(&trial->clock);
}
