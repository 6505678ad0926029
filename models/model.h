/*
 * model.h - a model: layers in order, the values between them, and the layout of its memory.
 *
 * A model is made once from the configuration and holds no numbers: weights are in a struct
 * dp_flat, activations in a struct dp_pass (pass.h). Creating one applies three fusions. A relu is
 * fused into the previous layer where that layer can. A relu before a maxpool is moved after it
 * (the same function, and the same bits, on fewer elements). The join of a residual scales and
 * shifts for a batch norm that ends its body (the same bits in float32, one rounding less in narrow
 * types).
 */
#ifndef DP_MODELS_MODEL_H
#define DP_MODELS_MODEL_H

#include "models/layers/layer.h"

/*
 * A run of layers in which rows are independent. All its layers are computed on one tile of rows
 * before the next tile, so that values between them stay in the cache. Values that are not needed
 * again have memory of a tile's size. Other layers are segments of their own. Where a part ends
 * (model_parts.h), so does a segment, whose two pieces keep its tiles.
 *
 * Where a stream has several threads, each computes a band of the rows of such layers, tile by
 * tile, and waits for the others at the end of the segment only. What a layer sums over tiles, a
 * thread sums over its own: gradients in memory of its own, and `local`.
 */
struct dp_segment {
    int first, last; /* nodes */
    bool row_local;  /* its rows are independent */
    bool tiled;      /* and there are several layers */
    size_t row;      /* elements of one sample in all values that its nodes read or write */
    int part;        /* of its nodes */
};

/* Memory for all rows of a pass, or for a tile of any segment. */
struct dp_storage {
    size_t count; /* elements per sample */
    bool tile;
    int part; /* it is needed only while this part is computed, and shared with other parts' memory;
               * 0: it is its own for the whole pass */
};

/* Where the gradient of a value is, from the first write to the last read. */
struct dp_gradient_slot {
    size_t count; /* elements per sample */
    bool tile;    /* it needs memory for a tile only */
    int memory;   /* where there are tiles: one of dp_model.slot_memory, which slots take one after
                   * the other */
};

/* The most slots of a model of `nodes` nodes: one for the loss, and what each of them can take. */
#define DP_SLOTS_MOST(nodes) (3 * (nodes) + 1)

/* What a pass is for, which says what it must still find when. */
enum dp_pass_use {
    DP_PASS_EVALUATES,
    DP_PASS_TRAINS,
    DP_PASS_TRAINS_KEPT, /* what backward reads is there until the next pass */
    DP_PASS_USES
};

/* Where values and gradients lie in one arena, on devices without tiles: each from its first write
 * to its last read (model_lifetimes.c). Elements per sample, at multiples of DP_BLOCK. */
struct dp_arena {
    size_t *begin; /* of each storage, then of each slot */
    size_t size;
    size_t least; /* the most that is in use at any time: it cannot be smaller */
};

/* One layer in order of computation. Values are numbered activations: 0 is the input. */
struct dp_node {
    const struct dp_layer_type *type;
    const void *state; /* borrowed from the spec */
    const char *where; /* borrowed from the spec */
    char path[64];     /* PyTorch's module path, "9.body.0" */
    int x, x2, y;      /* values; x2 is -1 except for the join of a residual */
    struct dp_layer_plan plan;
    int first_param; /* number of its first tensor */
    int segment;
    int part;  /* the number of the part whose activations are computed again together, from 1 on
                * (model_parts.h); 0: the model is not cut */
    int owner; /* the node whose parameters, statistics and `local` it uses: itself; or the next
                * node, whose type has this one's as `before`, and whose activation it uses, too; or
                * the previous node, if this one is its `joined` */
    size_t statistics;         /* offset of its own among all statistics */
    enum dp_activation act;    /* a fused relu */
    size_t saved_at, local_at; /* bytes per row, and floats, of earlier nodes */

    /* Backward: slots hold gradients of values. dy: the slot it reads, -1: nothing to do. mask:
     * where dy goes after a fused relu is undone (-1: no mask). dx: where backward writes, -1: dx
     * not needed. Then add_y = add_a + add_b joins the branches of a residual, -1: nothing to
     * join. */
    int dy_slot, mask_slot, dx_slot;
    int add_y, add_a, add_b;
    bool again; /* backward calls forward once more: of a model in parts */
    bool
        sum_after; /* the next node, which backward calls just before, adds up this one's dy: a join
                     * that can add it itself */
};

struct dp_value {
    struct dp_shape shape;
    size_t count;    /* per sample */
    size_t spatial;  /* see struct dp_tensor */
    int storage;     /* number of its memory */
    int readers;     /* number of nodes that read it */
    int writer;      /* node; -1: the input */
    int last_reader; /* node; -1: none */
    bool kept;       /* backward reads it */
    bool wanted;     /* a parameter comes before it, so its gradient is needed */
};

struct dp_model {
    struct dp_node *nodes;
    int node_count;
    struct dp_value *values;
    int value_count;
    struct dp_storage *storage; /* of values */
    int storage_count;
    struct dp_gradient_slot *slots; /* of gradients of values */
    int slot_count;
    struct dp_storage *slot_memory; /* of slots, where there are tiles */
    int slot_memory_count;
    struct dp_arena arenas[DP_PASS_USES]; /* of storages and slots, where there are none */
    struct dp_segment *segments;
    int segment_count;

    struct dp_tensor *tensors; /* parameters in flat order */
    int tensor_count;
    struct dp_tensor *buffers; /* running means and variances; begin is an offset in `running` */
    int buffer_count;
    char (*counters)[DP_TENSOR_NAME]; /* names of num_batches_tracked */
    int counter_count;

    size_t trained;    /* elements of the flat order, with gaps */
    size_t parameters; /* without gaps */
    size_t statistics;
    size_t classes;
    size_t saved_bytes, local; /* sums over nodes */
    double flops;              /* forward, per sample */
    bool synchronised;         /* a layer sums over ranks in forward */

    /* Set before passes are made: the loss by dp_model_set_loss(), the others by whoever has the
     * samples. */
    enum dp_loss_kind loss;
    float smoothing;    /* of labels to train with, of DP_LOSS_SOFTMAX: see output_loss */
    bool float_samples; /* samples come as float32, not as bytes */
    size_t targets;     /* a label is so many float32, one for each output; 0: its class */
    bool pairs;         /* labels to train with that would be classes are pairs of them */
};

/* Whether evaluations count rows whose class is among the best DP_TOP. */
enum { DP_TOP = 5 };

static inline bool dp_model_counts_top(const struct dp_model *model)
{
    return model->loss == DP_LOSS_SOFTMAX && model->classes > DP_TOP;
}

/* A label of the data set is so many words of 4 bytes: an int32, or float32. */
static inline size_t dp_model_label_words(const struct dp_model *model)
{
    return model->targets > 0 ? model->targets : 1;
}

/* One to train with; at least as many. */
static inline size_t dp_model_train_words(const struct dp_model *model)
{
    return model->targets == 0 && model->pairs ? DP_PAIR_WORDS : dp_model_label_words(model);
}

/* Bytes of a sample as it comes from the data set. */
static inline size_t dp_model_sample_bytes(const struct dp_model *model)
{
    return model->values[0].count * (model->float_samples ? sizeof(float) : 1);
}

/*
 * Builds the model of specs[0..count), whose input has shape `input`. The specs must live as long
 * as the model. The last layer's output must be [classes]; the loss is softmax cross-entropy.
 *
 * Errors: DP_ERR_CONFIG (a layer does not fit; one line with the layer's `where` and shapes);
 * DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_model_create(const struct dp_layer_spec *specs, int count,
                                     const struct dp_shape *input, struct dp_model **out);
void dp_model_destroy(struct dp_model *model);

/* Sets what outputs are compared with labels by. smoothing: of DP_LOSS_SOFTMAX, from 0 to 1.
 * Errors: DP_ERR_CONFIG (a single output cannot be one of several classes). */
DP_CHECKED dp_status dp_model_set_loss(struct dp_model *model, enum dp_loss_kind loss,
                                       double smoothing);

/* Initial weights [trained] in our layout (NULL: not needed), and running statistics [statistics]:
 * a function of `seed` alone. Host memory. */
void dp_model_init(const struct dp_model *model, uint64_t seed, float *weights, float *running);

/* Updates running statistics with this batch's statistics from the tail: r = (1 - m) r + m s. */
DP_CHECKED dp_status dp_model_absorb(const struct dp_model *model, struct dp_stream *stream,
                                     float *running, const float *statistics);

/* The size of tiles. */
struct dp_tiles {
    size_t bytes;   /* of one thread's rows; 0: no tiles */
    size_t threads; /* that have tiles of their own; for few rows all share one */
};

/* Those of a stream with so many threads. */
struct dp_tiles dp_tiles_of(const struct dp_device *device, int threads);

/* How many bands these rows have in a segment, each for a thread: 1 where there are fewer than
 * DP_TILE_ROWS_MIN for each, or they are not independent, which all threads compute together. */
enum { DP_TILE_ROWS_MIN = 4 };
size_t dp_segment_bands(const struct dp_segment *segment, struct dp_tiles tiles, size_t rows);

/* Part `i` of `count` of these rows: a band, or a tile of it. They differ by at most one row. */
struct dp_range dp_rows_part(size_t rows, size_t count, size_t i);

/* Rows of a tile of one thread: as many as fit into tiles.bytes as float32, at least
 * DP_TILE_ROWS_MIN. Without tiles, or of a segment that is not tiled: all rows together. */
size_t dp_segment_tile(const struct dp_segment *segment, size_t rows, struct dp_tiles tiles);

/* How many tiles these rows of a band have, in memory for at most `most` rows. */
size_t dp_segment_tiles(const struct dp_segment *segment, size_t most, struct dp_tiles tiles,
                        size_t rows);

/* The gradients of a segment's parameters, in the flat order, that its layers sum over tiles. Those
 * of the largest segment that is computed in bands. */
struct dp_range dp_segment_gradients(const struct dp_model *model,
                                     const struct dp_segment *segment);
size_t dp_band_gradients(const struct dp_model *model);

/* Elements of a tile's memory of one thread, and of one memory of all threads, for this many
 * rows. */
size_t dp_storage_stride(const struct dp_storage *storage, size_t rows, struct dp_tiles tiles);
size_t dp_storage_elements(const struct dp_storage *storage, size_t rows, struct dp_tiles tiles);

/* Elements of all memories together. begin [count]: where each of them begins; may be NULL. */
size_t dp_storage_layout(const struct dp_storage *storage, int count, size_t rows,
                         struct dp_tiles tiles, size_t *begin);

/* What a pass of this compute type is for. Of fp16, training asks after backward which value
 * overflowed. */
static inline enum dp_pass_use dp_pass_use_of(enum dp_type type, bool training)
{
    const enum dp_pass_use trains = type == DP_TYPE_F16 ? DP_PASS_TRAINS_KEPT : DP_PASS_TRAINS;

    return training ? trains : DP_PASS_EVALUATES;
}

/* Whether backward of a node reads its output. */
static inline bool dp_node_reads_y(const struct dp_node *node)
{
    return node->plan.reads_y || (node->act != DP_ACT_NONE && !node->plan.mask_from_x);
}

/* Bytes of activations and their gradients, in this compute type, for `rows` samples. */
size_t dp_model_activation_bytes(const struct dp_model *model, enum dp_type type, size_t rows,
                                 struct dp_tiles tiles, bool training);

/* The second half of creation, after fusion: assigns memory to values and slots to gradients; and
 * again, after nodes[].part has changed. Then dp_model_lay_out(). */
DP_CHECKED dp_status dp_model_place(struct dp_model *model);

/* Fills in the arenas, once nodes[].again is known, too. */
DP_CHECKED dp_status dp_model_lay_out(struct dp_model *model);

/* FLOPs of a node per sample: forward, then the gradients of parameters and of the input, each as
 * much work as forward (others than products have no parameters that are much work), and forward
 * once more where it is computed again. */
double dp_node_flops(const struct dp_node *node);

#endif
