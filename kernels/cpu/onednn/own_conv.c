#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/amx/conv_weights_amx.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/cpu/winograd/winograd.h"
#include "kernels/op_path.h"
#include "kernels/ref/window.h"

static const unsigned uses = DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS;

const char *dp_prepared_own_code(enum dp_prepared_own own)
{
    return own == DP_OWN_AMX ? DP_PREPARED_AMX : DP_PREPARED_WINOGRAD;
}

bool dp_prepared_has_own(enum dp_prepared_own own, const struct dp_prepared_key *key)
{
    return own == DP_OWN_AMX
               ? key->type == DP_TYPE_BF16 && (key->use & DP_CONV_BACKWARD_WEIGHTS) != 0 &&
                     dp_conv_weights_amx_can(&key->window)
               : key->type == DP_TYPE_F32 && dp_winograd_can(&key->window);
}

dp_status dp_prepared_own_create(enum dp_prepared_own own, const struct dp_prepared_key *key,
                                 int threads, struct dp_prepared_conv **out)
{
    struct dp_prepared_conv *conv = dp_zalloc(1, sizeof(*conv));

    if (conv == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "prepared convolution");
    }
    conv->key = *key;
    conv->code = dp_prepared_own_code(own);
    conv->arena_bytes = own == DP_OWN_AMX
                            ? dp_conv_weights_amx_bytes(&key->window, key->rows)
                            : dp_winograd_bytes(&key->window, key->use & uses, threads);
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
    const struct dp_prepared_onednn *all = s->state;
    /* As for oneDNN: the pointers to what is written are not const at the caller's. */
    const union {
        const void *in;
        float *out;
    } x = {.in = a->x}, y = {.in = a->y}, weights = {.in = a->weights}, bias = {.in = a->bias};

    dp_op_path_note(s, "own", conv->code);
    if (key->type == DP_TYPE_BF16) {
        dp_conv_weights_amx(&(struct dp_conv_weights_amx){.w = &key->window,
                                                          .rows = key->rows,
                                                          .x = a->x,
                                                          .dy = a->y,
                                                          .dw = weights.out,
                                                          .db = bias.out,
                                                          .adds = a->adds,
                                                          .scratch = all->arena},
                            s->threads);
        return;
    }
    dp_op_path_spare(s, (1.0 - dp_winograd_share(&key->window)) * nominal_flops(key));
    dp_winograd_run(&(struct dp_winograd){.w = &key->window,
                                          .rows = key->rows,
                                          .use = key->use & uses,
                                          .x = x.out,
                                          .y = y.out,
                                          .weights = weights.out,
                                          .bias = bias.out,
                                          .adds = a->adds,
                                          .scratch = all->arena},
                    s->threads);
}
