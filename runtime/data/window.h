/*
 * window.h - the order of an epoch in which rows are shuffled within windows alone: data.shuffle
 * window.
 *
 * Rows are cut into windows of so many, from a row on that depends on the epoch. Windows follow one
 * another in an order of the epoch (the shorter one, if there is one, comes last), and so do rows
 * within a window. So rows that are read about the same time lie together in files. As a
 * permutation (permute.h), it is a function of seed and epoch: no rank needs a table.
 */
#ifndef DP_RUNTIME_DATA_WINDOW_H
#define DP_RUNTIME_DATA_WINDOW_H

#include "runtime/data/permute.h"

/* In memory of the caller; holds no resources. */
struct dp_window_order {
    uint64_t seed, n, rows, first; /* rows: of a window; first: where the windows begin */
    uint64_t whole;                /* windows of that size */
    struct dp_permutation windows; /* of those */
    uint32_t epoch;
};

/* n, window: 1 or more. */
void dp_window_order_init(struct dp_window_order *order, uint64_t seed, uint32_t epoch, uint64_t n,
                          uint64_t window);

/* The row at position `i` < n: each row is at exactly one position. */
uint64_t dp_window_order_at(const struct dp_window_order *order, uint64_t i);

#endif
