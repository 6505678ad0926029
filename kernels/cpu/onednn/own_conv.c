#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/amx/conv_amx.h"
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
        [DP_OWN_CONV] = DP_PREPARED_CONV,
        [DP_OWN_CONV_SPLIT] = DP_PREPARED_CONV_SPLIT,
    };

    return codes[own];
}

bool dp_prepared_has_own(enum dp_prepared_own own, const struct dp_prepared_key *key)
{
    const struct dp_window *w = &key->window;
    const bool plain = (key->use & DP_CONV_BIAS) == 0, narrow = key->type == DP_TYPE_BF16;

    switch (own) {
    case DP_OWN_AMX:
        return narrow && (key->use & DP_CONV_BACKWARD_WEIGHTS) != 0 && dp_conv_weights_amx_can(w);
    case DP_OWN_WINOGRAD:
        return !narrow && dp_winograd_can(w);
    case DP_OWN_POINTWISE:
        return !narrow && plain && dp_pointwise_amx_can(w);
    case DP_OWN_CONV:
        return narrow && plain && dp_conv_amx_can(w);
    default:
        return !narrow && plain && dp_conv_amx_can(w);
    }
}

bool dp_prepared_may_use_tiles(const struct dp_prepared_key *key)
{
    return dp_prepared_has_own(DP_OWN_CONV, key) || dp_prepared_has_own(DP_OWN_CONV_SPLIT, key);
}

/* By tiles, without arrays. */
static struct dp_conv_call call_of(const struct dp_prepared_key *key)
{
    return (struct dp_conv_call){
        .w = &key->window, .rows = key->rows, .use = key->use & uses, .type = key->type};
}

static size_t scratch_bytes(enum dp_prepared_own own, const struct dp_prepared_key *key,
                            int threads)
{
    const struct dp_conv_call call = call_of(key);

    switch (own) {
    case DP_OWN_AMX:
        return dp_conv_weights_amx_bytes(&key->window, key->rows);
    case DP_OWN_WINOGRAD:
        return dp_winograd_bytes(&key->window, call.use, threads);
    case DP_OWN_POINTWISE:
        return dp_pointwise_amx_bytes(&call, threads);
    default:
        return dp_conv_amx_bytes(&call, threads);
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

/* The arrays of a call. As for oneDNN: the pointers to what is written are not const at the
 * caller's. */
union array {
    const void *in;
    void *out;
    float *floats;
};

struct call_arrays {
    union array x, y, weights, bias;
};

static void run_winograd(const struct dp_stream *s, const struct dp_prepared_conv *conv,
                         const struct call_arrays *to, bool adds)
{
    const struct dp_prepared_key *key = &conv->key;
    const struct dp_prepared_onednn *all = s->state;
    const struct dp_winograd call = {.w = &key->window,
                                     .rows = key->rows,
                                     .use = key->use & uses,
                                     .x = to->x.floats,
                                     .y = to->y.floats,
                                     .weights = to->weights.floats,
                                     .bias = to->bias.floats,
                                     .adds = adds,
                                     .scratch = all->arena};

    dp_op_path_spare(s, (1.0 - dp_winograd_share(&key->window)) * nominal_flops(key));
    dp_winograd_run(&call, s->threads);
}

static void run_weights(const struct dp_stream *s, const struct dp_prepared_conv *conv,
                        const struct call_arrays *to, bool adds)
{
    const struct dp_prepared_onednn *all = s->state;
    const struct dp_conv_weights_amx call = {.w = &conv->key.window,
                                             .rows = conv->key.rows,
                                             .x = to->x.in,
                                             .dy = to->y.in,
                                             .dw = to->weights.floats,
                                             .db = to->bias.floats,
                                             .adds = adds,
                                             .scratch = all->arena};

    dp_conv_weights_amx(&call, s->threads);
}

static void run_tiles(const struct dp_stream *s, const struct dp_prepared_conv *conv,
                      const struct call_arrays *to, bool adds)
{
    const struct dp_prepared_onednn *all = s->state;
    struct dp_conv_call call = call_of(&conv->key);

    call.x = to->x.out;
    call.y = to->y.out;
    call.weights = to->weights.out;
    call.adds = adds;
    call.scratch = all->arena;
    if (conv->own == DP_OWN_POINTWISE) {
        dp_pointwise_amx(&call, s->threads);
    } else {
        dp_conv_amx(&call, s->threads);
    }
}

void dp_prepared_run_own(const struct dp_stream *s, const struct dp_prepared_conv *conv,
                         const struct dp_prepared_arrays *a)
{
    static void (*const run[DP_PREPARED_OWNS])(const struct dp_stream *s,
                                               const struct dp_prepared_conv *conv,
                                               const struct call_arrays *arrays, bool adds) = {
        [DP_OWN_AMX] = run_weights,      [DP_OWN_WINOGRAD] = run_winograd,
        [DP_OWN_POINTWISE] = run_tiles,  [DP_OWN_CONV] = run_tiles,
        [DP_OWN_CONV_SPLIT] = run_tiles,
    };
    const struct call_arrays arrays = {{a->x}, {a->y}, {a->weights}, {a->bias}};

    dp_op_path_note(s, "own", conv->code);
    run[conv->own](s, conv, &arrays, a->adds);
}
