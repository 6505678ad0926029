/*
 * layer_order.h - which layers of a run take longest, and which are slower than others of their
 * kind.
 */
#ifndef DP_RUNTIME_REPORT_LAYERS_LAYER_ORDER_H
#define DP_RUNTIME_REPORT_LAYERS_LAYER_ORDER_H

#include <stdbool.h>

#include "runtime/report/summary.h"

enum { DP_LAYERS_SHOWN = 10 };

/* Forward and backward of a step, in ms. */
double dp_layer_ms(const struct dp_run_layer *layer);

/* Achieved arithmetic over what the machine allows the layer, a fraction of 1; NaN where the layer
 * computes none. */
double dp_layer_of_limit(const struct dp_run_layer *layer);

/* The layers that take longest, longest first: indices into summary->layers, at most
 * DP_LAYERS_SHOWN. Returns how many. */
int dp_layers_longest(const struct dp_run_summary *summary, int order[DP_LAYERS_SHOWN]);

/*
 * Whether a layer runs on a slower path than its neighbours: it takes a hundredth of the time or
 * more, others of its kind went by another path of the libraries, all of these get more than four
 * times as near to their limits, and none that went by its path does. `other`: out, the index of
 * one of them. A path is the libraries and what they call it, without the numbers of
 * algorithms, among which a run chooses by measuring. Where contention bounds the run, none is.
 */
bool dp_layer_is_slow(const struct dp_run_summary *summary, int index, int *other);

#endif
