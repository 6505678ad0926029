/*
 * pass_profile.h - how long each layer of a pass takes, what computes it, and how fast its products
 * can be here.
 *
 * While a pass is profiled, the clock is read before and after each call of a layer, also for each
 * tile, by the thread of the first band; on a device with a queue it is waited for, so that calls
 * do not overlap. Otherwise a pass runs as in a step, on data of a step.
 */
#ifndef DP_MODELS_PASS_PASS_PROFILE_H
#define DP_MODELS_PASS_PASS_PROFILE_H

#include "models/pass/pass.h"
#include "models/pass/pass_clock.h"

/* What one layer does in one pass. Plain bytes, so that ranks may send it to each other. */
struct dp_layer_profile {
    char name[64];               /* PyTorch's module path; "loss" for the last one */
    char kind[32];               /* as in the configuration */
    char path[DP_OP_PATH_BYTES]; /* what computed it (op_path.h); empty: a loop of our own */
    double seconds[DP_DIRECTIONS];
    double flops;  /* of both directions, as computed: some algorithms need fewer than the
                    * definition; a multiply and an add count 2 */
    double bytes;  /* of both directions: all arrays of its calls, each read or written once */
    bool cached;   /* its arrays are a tile's, which stays in the cache */
    bool product;  /* a matrix product or convolution */
    double best_s; /* of a product: both directions, at the speed of the fastest of calls that
                    * repeat; 0: not measured */
};

/* Entries of an array for dp_pass_profile(). */
int dp_pass_profile_most(const struct dp_model *model);

/* How long passes are timed, and products after that. */
struct dp_pass_effort {
    double seconds; /* of each of the two, or one pass if that takes longer */
    int passes;     /* at most; 1 or more */
    int repeats;    /* of products, at most; 0: they are not called alone */
    double slow_s;  /* products of a slower pass are not called alone either */
};

/*
 * Runs forward and backward a few times, and then the products alone. layers
 * [dp_pass_profile_most()]: times of the fastest pass, in order of computation; *count of them,
 * without those that do nothing. Writes nothing but the memory of the pass and call->grad,
 * which must not be the one that is trained with. The rows of `call` must be loaded and prepared.
 */
DP_CHECKED dp_status dp_pass_profile(struct dp_pass *pass, const struct dp_pass_call *call,
                                     const struct dp_pass_effort *effort,
                                     struct dp_layer_profile *layers, int *count);

#endif
