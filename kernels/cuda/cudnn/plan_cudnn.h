/*
 * plan_cudnn.h - one convolution of one shape, as a plan that cuDNN can execute.
 */
#ifndef DP_KERNELS_CUDA_CUDNN_PLAN_CUDNN_H
#define DP_KERNELS_CUDA_CUDNN_PLAN_CUDNN_H

#include "kernels/cuda/cudnn/cudnn_api.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

/* Unused bytes must be zero: they are compared as bytes. */
struct dp_conv_case {
    struct dp_window window;
    size_t rows;        /* above 0 */
    uint32_t use;       /* DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA or DP_CONV_BACKWARD_WEIGHTS */
    uint32_t bias, act; /* of forward: 1: there is one; enum dp_activation */
    uint32_t unused;
};

/* What a plan is to be, beyond its case. */
struct dp_cudnn_wish {
    enum dp_type type, weights; /* of images, and of weights or their gradient */
    bool tf32;                  /* of type float32: factors may be rounded */
    bool fuses;                 /* bias and rectifier are part of the plan */
    bool loses_nan;             /* whose rectifier may make 0 of a NaN */
    size_t workspace_bytes;     /* at most */
};

enum { DP_CUDNN_KEPT = 16, DP_CUDNN_ALIGNMENT = 16 };

/* What addresses of images are multiples of: they may begin any number of samples of `count`
 * elements after the begin of an array. */
static inline size_t dp_cudnn_alignment(enum dp_type type, size_t count)
{
    const size_t bytes = count * dp_type_bytes(type);

    return bytes % DP_CUDNN_ALIGNMENT == 0 ? DP_CUDNN_ALIGNMENT : bytes & (~bytes + 1);
}

/* Where an engine's configuration is found: which proposal of a mode of heuristics it is, and the
 * number that cuDNN has for the engine. */
struct dp_cudnn_pick {
    int mode, place;
    int64_t engine;
};

struct dp_cudnn_plan {
    void *kept[DP_CUDNN_KEPT]; /* owned; all that the plan was made of, in order of creation */
    int kept_count;
    void *execution; /* one of these; NULL: cuDNN has no such plan */
    bool has_bias;
    size_t workspace_bytes;
    struct dp_cudnn_pick pick;
    float ms; /* as measured; 0: it was not */
};

/* x is what forward reads and y what it writes, or gradients of them; w weights or their gradient.
 * All but x and y at multiples of DP_CUDNN_ALIGNMENT. */
struct dp_cudnn_arrays {
    void *x, *w, *y, *bias, *workspace;
};

/* Finds out how long a plan takes, in ms, or a little of that where it takes more than twice
 * `best`; INFINITY: it cannot be run here, or is not exact enough. */
struct dp_cudnn_clock {
    void *context;
    dp_status (*measure)(void *context, const struct dp_cudnn_plan *plan, float best, float *ms);
};

/* Which of the engines that cuDNN proposes for a graph are looked at. */
struct dp_cudnn_search {
    int mode;                           /* of heuristics */
    const struct dp_cudnn_pick *pick;   /* that one of this mode and no other; NULL: any */
    const struct dp_cudnn_clock *clock; /* the fastest; NULL: the first one */
    bool first;                         /* with a clock: the first that has a time */
    float best_ms;                      /* of what was found before; INFINITY: nothing was */
};

/*
 * Takes the first engine that cuDNN proposes, or with a clock the fastest of those, among engines
 * that give the same bits on every run, sum in float32, and compute with the factors they are
 * given. `plan` becomes one that dp_cudnn_plan_destroy() must get, with execution NULL where there
 * is none. Errors: those of the clock.
 */
DP_CHECKED dp_status dp_cudnn_plan_create(const struct dp_cudnn *c, void *handle,
                                          const struct dp_conv_case *conv,
                                          const struct dp_cudnn_wish *request,
                                          const struct dp_cudnn_search *search,
                                          struct dp_cudnn_plan *plan);

/* A zeroed plan is allowed. */
void dp_cudnn_plan_destroy(const struct dp_cudnn *c, struct dp_cudnn_plan *plan);

/* Queues it on the handle's stream; 0, or what cuDNN says, which is not logged. */
int dp_cudnn_plan_try(const struct dp_cudnn *c, void *handle, const struct dp_cudnn_plan *plan,
                      const struct dp_cudnn_arrays *arrays);

#endif
