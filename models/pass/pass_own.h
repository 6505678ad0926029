/*
 * pass_own.h - the struct of a pass: for pass_create.c, which allocates it, pass_input.c, which
 * loads its input, pass.c, which runs it, pass_call.c, which says on what, and pass_profile.c,
 * which times it.
 */
#ifndef DP_MODELS_PASS_PASS_OWN_H
#define DP_MODELS_PASS_PASS_OWN_H

#include "models/pass/pass.h"
#include "models/pass/pass_clock.h"

/* Copies the next rows while the pass computes. All NULL: not prepared. */
struct dp_pass_sender {
    struct dp_stream *stream;       /* owned */
    struct dp_event *there, *taken; /* owned; bytes have arrived; bytes may be overwritten */
    int32_t *labels;                /* owned; device; of the rows in `bytes` */
    struct dp_pass_rows sent;       /* in `bytes`, or being copied; images NULL: none */
};

/* What a thread has of its own that computes a band of the rows. */
struct dp_pass_band {
    struct dp_stream *stream; /* borrowed */
    float *local;             /* [model.local] */
    float *grads;             /* of its rows: dp_segment_gradients(); NULL for the first band, which
                               * has those of the pass */
    dp_status status;         /* of what it did last */
};

struct dp_pass {
    const struct dp_model *model; /* borrowed */
    struct dp_stream *stream;     /* borrowed */
    size_t rows;                  /* the most */
    bool training;
    struct dp_tiles tiles;
    size_t width;               /* bytes of an element in the compute type */
    char **storage;             /* [storage_count], owned through `values` */
    char **slots;               /* [slot_count], likewise, or through `gradients` */
    char *values, *gradients;   /* compute type; gradients NULL: all is in one arena */
    struct dp_pass_band *bands; /* owned; [tiles.threads] */
    float *local;               /* of all bands; the first one's is the pass' */
    float *band_grads;          /* of all bands but the first */
    char *saved;
    float *one;      /* [1], device: the scale of an evaluation's loss; then its results */
    char *bytes;     /* device; `rows` samples as they come; NULL: the device reads the host's */
    int32_t *labels; /* device; [rows, label words]; likewise */
    struct dp_pass_sender sender;
    struct dp_pass_clock *clock; /* borrowed; NULL: layers are not timed */
};

/* The layer that a node's time belongs to: a normalisation's statistics are part of it. */
static inline int dp_pass_layer_of(const struct dp_model *model, const struct dp_node *node)
{
    const int n = (int)(node - model->nodes);

    return node->owner > n ? node->owner : n;
}

/* The labels of a call, in memory that operations can read. */
static inline const int32_t *dp_pass_labels(const struct dp_pass *p,
                                            const struct dp_pass_call *call)
{
    return p->labels != NULL ? p->labels : call->labels;
}

/* ---- pass_call.c ---- */

/* Some rows of a segment, and who computes them. */
struct dp_pass_tile {
    struct dp_stream *stream; /* of a thread, or of all that share a tile */
    int band;
    struct dp_range rows; /* of the pass */
    size_t before;        /* rows of earlier tiles of the band */
};

/* The bands of these rows in a segment, and the tiles of one: see dp_segment_bands(). */
int dp_pass_bands(const struct dp_pass *pass, const struct dp_segment *segment, size_t rows);
size_t dp_pass_tiles(const struct dp_pass *pass, const struct dp_segment *segment, size_t rows,
                     int band);
struct dp_pass_tile dp_pass_tile(const struct dp_pass *pass, const struct dp_segment *segment,
                                 size_t rows, int band, size_t i);

/* All rows as a tile; and whether they are the only one of a segment. */
struct dp_pass_tile dp_pass_whole(const struct dp_pass *pass, size_t rows);
bool dp_pass_is_whole(const struct dp_pass *pass, const struct dp_segment *segment, size_t rows);

/* Whether the stream is that of all threads, or of the first band. */
bool dp_pass_is_first(const struct dp_pass *pass, const struct dp_stream *stream);

/* Never NULL. */
const struct dp_model_hooks *dp_pass_hooks(const struct dp_pass_call *call);

/* Where a tile's rows of a value are, or of its gradient, which is in `slot`. tile NULL: the first
 * row of all. value, slot < 0: NULL. */
void *dp_pass_value(const struct dp_pass *pass, int value, const struct dp_pass_tile *tile);
void *dp_pass_slot(const struct dp_pass *pass, int slot, int value,
                   const struct dp_pass_tile *tile);

/* What is the same in forward and backward of a tile; and in calls after the last tile, for all
 * rows of the pass. */
struct dp_layer_call dp_pass_layer_call(const struct dp_pass *pass, const struct dp_pass_call *call,
                                        const struct dp_node *node, struct dp_pass_tile tile);
struct dp_layer_call dp_pass_end_call(const struct dp_pass *pass, const struct dp_pass_call *call,
                                      const struct dp_node *node);

/* After the last tile of all bands: adds what a layer has summed in `local` to the first band's,
 * and copies that, once it is final, to the others'. */
DP_CHECKED dp_status dp_pass_merge(const struct dp_pass *pass, const struct dp_pass_call *call,
                                   const struct dp_node *node);
DP_CHECKED dp_status dp_pass_spread(const struct dp_pass *pass, const struct dp_pass_call *call,
                                    const struct dp_node *node);

/* Adds the bands' gradients of a segment's parameters to the call's, in the order of bands. */
DP_CHECKED dp_status dp_pass_add_bands(const struct dp_pass *pass, const struct dp_pass_call *call,
                                       const struct dp_segment *segment);

/* ---- pass.c, for pass_profile.c ---- */

/* Forward and backward of one node on the first tile of each band of the call's rows, on what is in
 * the pass' memory; and how many rows that are. */
DP_CHECKED dp_status dp_pass_run_alone(struct dp_pass *pass, const struct dp_pass_call *call,
                                       int node);
size_t dp_pass_alone_rows(const struct dp_pass *pass, size_t rows, int node);

/* Releases the sender, also of a pass without one. */
void dp_pass_close_ahead(struct dp_pass *pass);

#endif
