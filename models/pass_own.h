/*
 * pass_own.h - the struct of a pass: for pass_create.c, which allocates it, pass_input.c, which
 * loads its input, pass.c, which runs it, and pass_profile.c, which times it.
 */
#ifndef DP_MODELS_PASS_OWN_H
#define DP_MODELS_PASS_OWN_H

#include "models/pass.h"
#include "models/pass_clock.h"

/* Copies the next rows while the pass computes. All NULL: not prepared. */
struct dp_pass_sender {
    struct dp_stream *stream;       /* owned */
    struct dp_event *there, *taken; /* owned; bytes have arrived; bytes may be overwritten */
    int32_t *labels;                /* owned; device; of the rows in `bytes` */
    struct dp_pass_rows sent;       /* in `bytes`, or being copied; images NULL: none */
};

struct dp_pass {
    const struct dp_model *model; /* borrowed */
    struct dp_stream *stream;     /* borrowed */
    size_t rows;                  /* the most */
    bool training;
    struct dp_tiles tiles;
    size_t width;             /* bytes of an element in the compute type */
    char **storage;           /* [storage_count], owned through `values` */
    char **slots;             /* [slot_count], likewise, or through `gradients` */
    char *values, *gradients; /* compute type; gradients NULL: all is in one arena */
    float *local;
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

/* ---- pass.c, for pass_profile.c ---- */

/* Forward and backward of one node on the first tile of the call's rows, on what is in the pass'
 * memory; and how many rows that are. */
DP_CHECKED dp_status dp_pass_run_alone(struct dp_pass *pass, const struct dp_pass_call *call,
                                       int node);
size_t dp_pass_alone_rows(const struct dp_pass *pass, size_t rows, int node);

/* Releases the sender, also of a pass without one. */
void dp_pass_close_ahead(struct dp_pass *pass);

#endif
