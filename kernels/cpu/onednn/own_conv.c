#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/amx/conv_weights_amx.h"
#include "kernels/cpu/amx/pointwise_amx.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/cpu/winograd/winograd.h"
#include "kernels/op_path.h"
#include "kernels/ref/window.h"

static const unsigned uses = DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS;

const char *dp_prepared_own_code(enum dp_prepared_own own)
{
    static const char *const codes[DP_PREPARED_OWNS] = {
        [DP_OWN_AMX] = DP_PREPARED_AMX,
        [DP_OWN_WINOGRAD] = DP_PREPARED_WINOGRAD,
        [DP_OWN_POINTWISE] = DP_PREPARED_POINTWISE,
    };

    return codes[own];
}

bool dp_prepared_has_own(enum dp_prepared_own own, const struct dp_prepared_key *key)
{
    switch (own) {
    case DP_OWN_AMX:
        return key->type == DP_TYPE_BF16 && (key->use & DP_CONV_BACKWARD_WEIGHTS) != 0 &&
               dp_conv_weights_amx_can(&key->window);
    case DP_OWN_WINOGRAD:
        return key->type == DP_TYPE_F32 && dp_winograd_can(&key->window);
    default:
        return key->type == DP_TYPE_F32 && (key->use & DP_CONV_BIAS) == 0 &&
               dp_pointwise_amx_can(&key->window);
    }
}

static size_t scratch_bytes(enum dp_prepared_own own, const struct dp_prepared_key *key,
                            int threads)
{
    const unsigned use = key->use & uses;

    switch (own) {
    case DP_OWN_AMX:
        return dp_conv_weights_amx_bytes(&key->window, key->rows);
    case DP_OWN_WINOGRAD:
        return dp_winograd_bytes(&key->window, use, threads);
    default:
        return dp_pointwise_amx_bytes(&key->window, key->rows, use, threads);
    }
}

dp_status dp_prepared_own_create(enum dp_prepared_own own, const struct dp_prepared_key *key,
                                 int threads, struct dp_prepared_conv **out)
{
    struct dp_prepared_conv *conv = dp_zalloc(1, sizeof(*conv));

    if (conv == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "prepared convolution");
    }
    conv->key = *key;
    conv->own = own;
    conv->code = dp_prepared_own_code(own);
    conv->arena_bytes = scratch_bytes(own, key, threads);
    *out = conv;
    return DP_OK;
}

static double nominal_flops(const struct dp_prepared_key *key)
{
    const struct dp_window *w = &key->window;

    return 2.0 * (double)(key->rows * dp_window_out(w)) *
           (double)(w->kernel_h * w->kernel_w * w->in_c);
}

void dp_prepared_run_own(const struct dp_stream *s, const struct dp_prepared_conv *conv,
                         const struct dp_prepared_arrays *a)
{
    const struct dp_prepared_key *key = &conv->key;
    const struct dp_window *w = &key->window;
    const unsigned use = key->use & uses;
    const struct dp_prepared_onednn *all = s->state;
    /* As for oneDNN: the pointers to what is written are not const at the caller's. */
    const union {
        const void *in;
        float *out;
    } x = {.in = a->x}, y = {.in = a->y}, weights = {.in = a->weights}, bias = {.in = a->bias};

    dp_op_path_note(s, "own", conv->code);
    if (conv->own == DP_OWN_AMX) {
        const struct dp_conv_weights_amx call = {.w = w,
                                                 .rows = key->rows,
                                                 .x = a->x,
                                                 .dy = a->y,
                                                 .dw = weights.out,
                                                 .db = bias.out,
                                                 .adds = a->adds,
                                                 .scratch = all->arena};
        dp_conv_weights_amx(&call, s->threads);
    } else if (conv->own == DP_OWN_POINTWISE) {
        const struct dp_pointwise_amx call = {.w = w,
                                              .rows = key->rows,
                                              .use = use,
                                              .x = x.out,
                                              .y = y.out,
                                              .weights = weights.out,
                                              .adds = a->adds,
                                              .scratch = all->arena};
        dp_pointwise_amx(&call, s->threads);
    } else {
        const struct dp_winograd call = {.w = w,
                                         .rows = key->rows,
                                         .use = use,
                                         .x = x.out,
                                         .y = y.out,
                                         .weights = weights.out,
                                         .bias = bias.out,
                                         .adds = a->adds,
                                         .scratch = all->arena};
        dp_op_path_spare(s, (1.0 - dp_winograd_share(w)) * nominal_flops(key));
        dp_winograd_run(&call, s->threads);
    }
}
