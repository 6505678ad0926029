/*
 * layer.h - the kinds of layers of a model.
 *
 * To add one: write layer_<name>.c defining `const struct dp_layer_type dp_layer_<name>`, add one
 * line to layers.def, and a case to test_layer, which fails for a layer without one.
 */
#ifndef DP_MODELS_LAYERS_LAYER_H
#define DP_MODELS_LAYERS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/plugin.h"
#include "base/status.h"
#include "kernels/device.h"
#include "kernels/flat.h"
#include "kernels/tensor.h"

struct dp_layer_type;

/* One layer of the configuration, after `repeat` is unrolled. */
struct dp_layer_spec {
    const struct dp_layer_type *type;
    void *options;     /* the type's state with its options filled in; owned */
    const char *where; /* "model.cfg:12:5: model.layers[3].conv2d", for error messages; owned */
    struct dp_layer_spec *body, *shortcut; /* of a residual; owned. A concat's body are its
                                            * branches, whose bodies are their layers */
    int body_count, shortcut_count;
};

enum { DP_LAYER_PARAMS = 2 };

/* The requirements of a layer, from which the model lays out its arenas. Sizes are per sample. */
struct dp_layer_plan {
    struct dp_shape in, out;
    struct dp_tensor params[DP_LAYER_PARAMS]; /* each is a tensor of the flat order; `name` is
                                               * local: "weight", "bias" */
    int param_count;
    size_t statistics;  /* elements in the tail (batch norm); as many running statistics */
    size_t local;       /* floats per pass (not per sample), kept from forward to backward; each
                         * thread with tiles of its own has as many */
    size_t saved_bytes; /* kept from forward to backward, besides x and y */
    size_t join_saves;  /* the same, of the type that takes a join's place: `joined` */
    size_t spatial;     /* in: the features of a flattened image are in (space, channel) order, with
                         * this many places; 1 elsewhere. See struct dp_tensor. */
    float momentum;     /* of the running statistics */
    double flops;       /* of forward: a multiply and an add count 2 */
    bool alias;         /* forward writes nothing: y is x */
    bool passes_dy;     /* backward writes nothing: dx is dy */
    bool y_in_x;        /* y may overwrite x */
    bool dx_in_dy;      /* dx may overwrite dy */
    bool gathers;       /* the next layer needs all rows to have passed this one: ends a segment */
    bool row_local;     /* rows are independent, and few at a time are as fast as many: see struct
                         * dp_segment */
    bool skips_x;       /* backward does not read x */
    bool reads_y;       /* backward reads y */
    bool fuses_relu;    /* can do a relu that follows: dp_layer_call.act; backward then ... */
    bool mask_from_x;   /* ... recomputes y's sign from x instead of reading y */
    bool synchronised;  /* forward and backward call hooks->sum */
    bool keeps_order;   /* feature i of y belongs to feature i of x: `spatial` is passed on */
};

/* Callbacks of a model; the trainer sets them. */
struct dp_model_hooks {
    void *context;
    /* Called before forward reads the weights of this tensor (and not those of later tensors), for
     * the last tensor of a layer, and again for each part of a batch. NULL: all weights are
     * ready. */
    dp_status (*needs)(void *context, int tensor);
    /* Returns how many elements of a tensor, the first ones, may be deferred. Forward may read the
     * others before it calls `needs` for this tensor, once it has called it for earlier tensors.
     * NULL: none. */
    size_t (*deferred)(void *context, int tensor);
    /* Called when backward is done with this tensor: its gradient is final. From the last tensor of
     * the flat order to the first, each once a step. NULL: not called. */
    dp_status (*ready)(void *context, int tensor);
    /* Sums [count] over all ranks (and lanes), in place: synchronised batch norm. NULL: one
     * rank. */
    dp_status (*sum)(void *context, float *data, size_t count);
    /* Whether `ready` may be called while the tensor's layer still reads its weights, for the
     * gradient of its input. False if `ready` may cause these weights to change. */
    bool early;
};

/* The arguments of one call of a layer. Every pointer is borrowed from the model's arenas.
 * Activations have the compute type (void *); gradients of parameters are float32. */
struct dp_layer_call {
    struct dp_stream *stream;
    size_t rows;     /* samples; may be 0 */
    const void *x;   /* [rows, in] */
    const void *x2;  /* [rows, in]; the shortcut of a residual's join, else NULL */
    void *y;         /* [rows, out]; written by forward; backward may read it */
    const void *dy;  /* [rows, out]; backward only */
    const void *dy2; /* [rows, out]; backward_whole only: to be added to dy; NULL: nothing */
    void *masked;    /* [rows, out]; backward only; of a layer that `masks`: see there; else NULL */
    void *dx;        /* [rows, in]; backward only; NULL for the first layer of a model */
    const void *weights[DP_LAYER_PARAMS]; /* one for each of plan.params, in the compute type */
    float *grads[DP_LAYER_PARAMS];        /* one for each of plan.params; float32 */
    void *saved;                          /* [rows * saved_bytes] */
    float *local;                         /* [plan.local] */
    float keep;             /* 1: add to the gradients and statistics; 0: replace them */
    size_t deferred;        /* forward, after forward_first: this many first elements of weights[0]
                             * were not ready then */
    size_t rows_before;     /* rows of this pass in earlier tiles: 0 in the first one */
    size_t pass_rows;       /* rows of this pass in all tiles */
    bool training;          /* false: evaluation, with running statistics, without dropout */
    enum dp_activation act; /* a fused relu; only where plan.fuses_relu */
    size_t first_row;       /* number of the first row in the global batch: key of random numbers */
    size_t batch_rows;      /* actual rows of the global batch */
    uint64_t seed;
    int index;                                /* number of the layer in the model: key of random
                                               * numbers */
    const struct dp_step_params *step_params; /* device memory */
    const struct dp_model_hooks *hooks;       /* `sum` is for synchronised batch norm; never NULL */
    const float *running;                     /* [statistics]: means, then variances */
    float *statistics; /* [statistics], in the tail: this pass's share of the batch's, by rows */
};

struct dp_layer_type {
    struct dp_plugin plugin;

    /*
     * Checks the options against the input and fills in the plan. plan->in is set; the rest is
     * zero. May store derived values (windows ...) in `state`.
     *
     * Errors: DP_ERR_CONFIG with `problem` filled in; nothing is logged. The model adds the place.
     */
    dp_status (*plan)(void *state, struct dp_layer_plan *plan, char *problem, size_t problem_size);

    /* Prepares a stream for this row count. first: dx will not be computed. NULL: nothing to do. */
    dp_status (*prepare)(const void *state, struct dp_stream *stream, size_t rows, bool training,
                         bool first, enum dp_activation act);

    /* Called for a tile of rows at a time: see struct dp_segment (model.h). Where activations are
     * not kept (model_parts.h), forward of a layer that is no `alias` is called once more in
     * backward, with the same x, weights and `local`, and must write the same y and `saved`. */
    dp_status (*forward)(const void *state, const struct dp_layer_call *call);
    /* Computes the part of forward that does not need the first call->deferred elements of
     * weights[0] (more than 0). forward then computes the rest, with the same `deferred`. NULL:
     * there is none. */
    dp_status (*forward_first)(const void *state, const struct dp_layer_call *call);
    dp_status (*backward)(const void *state, const struct dp_layer_call *call);

    /* The second half of backward, for layers that compute their parameters' gradients first: dx,
     * which is not NULL. A large gradient is then sent while dx is computed. It reads neither x nor
     * y, whose memory dx may have. NULL: backward computes everything. */
    dp_status (*backward_data)(const void *state, const struct dp_layer_call *call);

    /* Whether backward undoes a fused relu itself: it writes dy where y > 0, else 0, to
     * call->masked, which may be dy, and which backward_data gets as its dy. NULL: it does not. */
    bool (*masks)(const void *state, const struct dp_layer_call *call);

    /* Of a layer that sums something over tiles in `local`: adds `from`, another thread's, of
     * call->rows rows, to call->local, of the call->rows_before rows before. Called before the next
     * two, after which all threads find the same in `local`. The host reads the device's memory.
     * NULL: there is no such sum. */
    dp_status (*merge)(const void *state, const struct dp_layer_call *call, const float *from);

    /* Called after the last tile of a pass, with all its rows; x, y, dx and dy are not set. NULL:
     * nothing to do. A layer with backward_end writes the gradients of its parameters there, and
     * only there. */
    dp_status (*forward_end)(const void *state, const struct dp_layer_call *call);
    dp_status (*backward_end)(const void *state, const struct dp_layer_call *call);

    /* A layer type to insert before this one, with the same state, parameters and `local`, for work
     * that needs all rows of a pass first (batch norm's statistics). NULL: none. */
    const struct dp_layer_type *before;

    /* Replacements where this layer ends the body of a residual. `deferred` takes this layer's
     * place and writes nothing (y is x). `joined` takes the join's place, with this layer's state,
     * parameters and `local`, and does both in one pass over memory. NULL: not possible. */
    const struct dp_layer_type *deferred, *joined;

    /* Of a `joined` type: in calls of which is_whole() says so backward_whole() takes backward()'s
     * place. It adds dy2 to dy and undoes a fused relu itself, by y, all in one pass over memory.
     * NULL: in none. */
    bool (*is_whole)(const void *state, const struct dp_layer_call *call);
    dp_status (*backward_whole)(const void *state, const struct dp_layer_call *call);
};

extern struct dp_plugin_family dp_layers;

/* The type of a concat's branches, which is in no list, and the options of one. */
extern const struct dp_layer_type dp_layer_concat_branch;

enum { DP_CONCAT_BRANCHES = 64 /* at most */ };

struct dp_concat_branch {
    struct dp_columns columns; /* among all channels; the model sets them */
    size_t places;             /* of a sample */
};

/* Writes `problem` for plan(). Returns DP_ERR_CONFIG. */
dp_status dp_layer_refuse(char *problem, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "[28, 28, 1]". */
const char *dp_shape_text(const struct dp_shape *shape, char *text, size_t size);

/* Backward of a join with this many features per sample: copies dy to dx. The model has undone a
 * fused relu already. */
DP_CHECKED dp_status dp_layer_hand_on(const struct dp_layer_call *call, size_t features);

/* DP_OK, or the problem that the input is not an image [height, width, channels]. */
DP_CHECKED dp_status dp_layer_wants_image(const struct dp_layer_plan *plan, char *problem,
                                          size_t size);

/* The output of a window that moves over the input of `plan`; out_c 0: as many channels as the
 * input. */
DP_CHECKED dp_status dp_layer_window(const struct dp_layer_plan *plan, size_t kernel, size_t stride,
                                     size_t padding, size_t out_c, struct dp_window *window,
                                     char *problem, size_t problem_size);

/* Adds a parameter to the plan: its name, PyTorch shape and fan_in, in PyTorch's layout. */
struct dp_tensor *dp_layer_param(struct dp_layer_plan *plan, const char *name, int dims,
                                 const size_t *shape, size_t fan_in);

#endif
