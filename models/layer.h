/*
 * layer.h - the kinds of layers a model is made of.
 *
 * To add one: write layer_<name>.c defining `const struct dp_layer_type dp_layer_<name>`, and add
 * one line to layers.def. The gradient test then covers it.
 */
#ifndef DP_MODELS_LAYER_H
#define DP_MODELS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/plugin.h"
#include "base/status.h"
#include "kernels/device.h"
#include "kernels/flat.h"
#include "kernels/tensor.h"

struct dp_layer_type;

/* One layer as the configuration wrote it; `repeat` is unrolled already. */
struct dp_layer_spec {
    const struct dp_layer_type *type;
    void *options;     /* the type's state with its options filled in; owned */
    const char *where; /* "model.cfg:12:5: model.layers[3].conv2d", for error messages; owned */
    struct dp_layer_spec *body, *shortcut; /* of a residual; owned */
    int body_count, shortcut_count;
};

enum { DP_LAYER_PARAMS = 2 };

/* What a layer needs; the model lays out its arenas from this. Sizes are per sample. */
struct dp_layer_plan {
    struct dp_shape in, out;
    struct dp_tensor params[DP_LAYER_PARAMS]; /* each is one tensor of the flat order; `name` is
                                                 local: "weight", "bias" */
    int param_count;
    size_t statistics;  /* elements in the tail (batch norm), and as many running statistics */
    size_t local;       /* floats of a pass (not per sample), kept from forward to backward */
    size_t saved_bytes; /* kept from forward to backward, besides x and y */
    size_t spatial;     /* in: features of a flattened image lie as (space, channel), with so many
                           places; 1 elsewhere. See struct dp_tensor. */
    float momentum;     /* of the running statistics */
    double flops;       /* of forward: multiply and add count 2 */
    bool alias;         /* forward writes nothing: y is x */
    bool passes_dy;     /* backward writes nothing: dx is dy */
    bool y_in_x;        /* y may overwrite x */
    bool dx_in_dy;      /* dx may overwrite dy */
    bool gathers;       /* what follows needs all rows to have gone through here: ends a segment */
    bool row_local;     /* rows do not meet, and few at a time are as fast as many: see struct
                           dp_segment */
    bool skips_x;       /* backward does not read x */
    bool reads_y;       /* backward reads y */
    bool fuses_relu;    /* takes over a relu that follows: dp_layer_call.act; backward then ... */
    bool mask_from_x;   /* ... recomputes y's sign from x, instead of reading y */
    bool synchronised;  /* forward and backward call hooks->sum */
    bool keeps_order;   /* feature i of y belongs to feature i of x: `spatial` is handed on */
};

/* What a model asks of whoever runs it; the trainer fills it. */
struct dp_model_hooks {
    void *context;
    /* Forward is about to read the weights of this tensor, and no more of those behind it. Called
     * for the last tensor of a layer; again for each part of a batch. NULL: they are all there. */
    dp_status (*needs)(void *context, int tensor);
    /* So many of a tensor's numbers, the first ones, may be late: forward may read the others
     * before it asks for this tensor by `needs`, once it has asked for those before it. NULL:
     * none. */
    size_t (*deferred)(void *context, int tensor);
    /* Backward is through with this tensor: its gradient is final. Called from the last tensor of
     * the flat order to the first, each once a step. NULL: nobody wants to know. */
    dp_status (*ready)(void *context, int tensor);
    /* Sums [count] over all ranks (and lanes), in place: synchronised batch norm. NULL: alone. */
    dp_status (*sum)(void *context, float *data, size_t count);
    /* A tensor may be announced while its layer still reads its weights, for the gradient of its
     * input. False where whoever hears of it may let others change these weights. */
    bool early;
};

/* What a layer may touch during one call. Every pointer is borrowed from the model's arenas.
 * Activations are in the compute type (void *); gradients of parameters are float32. */
struct dp_layer_call {
    struct dp_stream *stream;
    size_t rows;    /* samples; may be 0 */
    const void *x;  /* [rows, in] */
    const void *x2; /* [rows, in]; the shortcut of a residual's join, else NULL */
    void *y;        /* [rows, out]; written by forward; backward may read it */
    const void *dy; /* [rows, out]; backward only */
    void *dx;       /* [rows, in]; backward only; NULL for the first layer of a model */
    const void *weights[DP_LAYER_PARAMS]; /* one for each of plan.params, in the compute type */
    float *grads[DP_LAYER_PARAMS];        /* likewise; float32 */
    void *saved;                          /* [rows * saved_bytes] */
    float *local;                         /* [plan.local] */
    float keep;             /* 1: add to the gradients and statistics; 0: replace them */
    size_t deferred;        /* forward, where forward_first went before it: without the first so
                               many numbers of weights[0] */
    size_t rows_before;     /* of this pass, in earlier tiles: 0 in the first one */
    size_t pass_rows;       /* of this pass, in all tiles */
    bool training;          /* false: evaluation, with running statistics, without dropout */
    enum dp_activation act; /* a fused relu; only where plan.fuses_relu */
    size_t first_row;       /* of these rows, in the global batch: key of random numbers */
    size_t batch_rows;      /* of the global batch: the real ones */
    uint64_t seed;
    int index;                                /* of the layer in the model: key of random numbers */
    const struct dp_step_params *step_params; /* device memory */
    const struct dp_model_hooks *hooks;       /* `sum` for synchronised batch norm; never NULL */
    const float *running;                     /* [statistics]: means, then variances */
    float *statistics; /* [statistics], in the tail: this batch's share of them, by rows */
};

struct dp_layer_type {
    struct dp_plugin plugin;

    /*
     * Checks the options against the input and says what the layer needs. plan->in is filled in;
     * the rest is zero. May store what it derives (windows ...) in `state`.
     *
     * Errors: DP_ERR_CONFIG with `problem` filled in; nothing is logged. The model adds where.
     */
    dp_status (*plan)(void *state, struct dp_layer_plan *plan, char *problem, size_t problem_size);

    /* Prepares a stream for this row count. first: no dx will be wanted. NULL: nothing to do. */
    dp_status (*prepare)(const void *state, struct dp_stream *stream, size_t rows, bool training,
                         bool first, enum dp_activation act);

    /* Called for a tile of rows at a time: see struct dp_segment (model.h). */
    dp_status (*forward)(const void *state, const struct dp_layer_call *call);
    /* What forward can compute without the first call->late numbers of weights[0], which is not 0;
     * forward then computes the rest, with the same `late`. NULL: nothing. */
    dp_status (*forward_first)(const void *state, const struct dp_layer_call *call);
    dp_status (*backward)(const void *state, const struct dp_layer_call *call);

    /* The rest of backward, by those that can say first what their parameters' gradients are: dx,
     * which is not NULL. A large gradient is then on its way while dx is computed. NULL: backward
     * computes everything. */
    dp_status (*backward_data)(const void *state, const struct dp_layer_call *call);

    /* Behind the last tile of a pass, with all its rows; x, y, dx and dy are not set. NULL: nothing
     * is left to do. Gradients of parameters are final after backward_end. */
    dp_status (*forward_end)(const void *state, const struct dp_layer_call *call);
    dp_status (*backward_end)(const void *state, const struct dp_layer_call *call);

    /* A layer type that goes before this one, with the same state, parameters and `local`: what has
     * to see all rows of a pass first (batch norm's statistics). NULL: nothing has to. */
    const struct dp_layer_type *before;

    /* What this layer and the join become where it ends the body of a residual: `deferred` takes
     * its own place and writes nothing (y is x), and `joined`, with its state, parameters and
     * `local`, takes the join's, to do both in one pass over memory. NULL: it cannot. */
    const struct dp_layer_type *deferred, *joined;
};

extern struct dp_plugin_family dp_layers;

/* Fills `problem` in for plan(). Returns DP_ERR_CONFIG. */
dp_status dp_layer_refuse(char *problem, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "[28, 28, 1]". */
const char *dp_shape_text(const struct dp_shape *shape, char *text, size_t size);

/* Backward of a join of so many features per sample: hands dy on as dx. The model has undone a
 * fused relu already. */
DP_CHECKED dp_status dp_layer_hand_on(const struct dp_layer_call *call, size_t features);

/* DP_OK, or the problem that the input is not an image [height, width, channels]. */
DP_CHECKED dp_status dp_layer_wants_image(const struct dp_layer_plan *plan, char *problem,
                                          size_t size);

/* Output of a window that moves over the input of `plan`; out_c 0 means as many as came in. */
DP_CHECKED dp_status dp_layer_window(const struct dp_layer_plan *plan, size_t kernel, size_t stride,
                                     size_t padding, size_t out_c, struct dp_window *window,
                                     char *problem, size_t problem_size);

/* Adds a parameter to the plan: its name, PyTorch shape and fan_in; layouts equal. */
struct dp_tensor *dp_layer_param(struct dp_layer_plan *plan, const char *name, int dims,
                                 const size_t *shape, size_t fan_in);

#endif
