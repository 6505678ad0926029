/*
 * model_parts.h - cuts a model into parts whose activations are not kept from forward to backward.
 *
 * Forward keeps what one part hands to the next; all else that a part writes is in memory that the
 * parts share. Backward of a part begins with the part's forward once more, from what it was
 * handed; that of the last part does not, since its activations are still there. The results have
 * the same bits: each operation runs on the same numbers again. Random numbers are keyed, and
 * statistics of a batch stay as forward left them.
 *
 * A cut is between two layers where one value alone is handed on, which has memory for all rows
 * anyway; so never inside of a residual or between branches. Of all ways to make so many parts, the
 * one is taken whose largest part writes least.
 *
 * Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost",
 * arXiv:1604.06174, section 4.
 */
#ifndef DP_MODELS_MODEL_PARTS_H
#define DP_MODELS_MODEL_PARTS_H

#include "models/model.h"

/* The most parts that a model can be cut into, 1 or more. Leaves it in one. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_parts_most(struct dp_model *model, int *most);

/* Cuts a model that has no passes yet. parts: from 1, which keeps all activations, to
 * dp_model_parts_most(). Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_cut(struct dp_model *model, int parts);

/* The number of parts. */
int dp_model_parts(const struct dp_model *model);

/* FLOPs that backward computes again, of all FLOPs of forward and backward without them. */
double dp_model_again(const struct dp_model *model);

#endif
