/*
 * norm_rows.h - the loops of batch normalisation over rows: for norm.c.
 */
#ifndef DP_KERNELS_CPU_NORM_NORM_ROWS_H
#define DP_KERNELS_CPU_NORM_NORM_ROWS_H

#include "kernels/cpu/columns.h"
#include "kernels/device.h"

/* Values for each column of a tile, repeated to its width, where loops over lanes have them. */
struct dp_norm_factors {
    _Alignas(DP_MEM_ALIGN) float mean[DP_TILE]; /* aligned: whole vectors never cross a cache
                                                 * line */
    float scale[DP_TILE], beta[DP_TILE];        /* scale = gamma / sqrt(var + eps) */
    float center[DP_TILE], slope[DP_TILE];      /* of the gradient: see dp_norm_backward_row() */
};

/* One tile of one operation. */
struct dp_norm_job {
    const struct dp_tile *tile;
    struct dp_norm_factors *factors;
    const void *x, *dy, *add; /* add: forward only; NULL: nothing */
    void *y;                  /* dx in backward, which may be dy */
    bool relu;
    bool narrow; /* these arrays are of bfloat16, else of float32 */
};

/* A loop over rows: one function for each kind, so that nothing is decided inside. `first` is the
 * offset of the first row's first element. */
typedef void dp_norm_row_fn(const struct dp_norm_job *job, size_t first, size_t rows, size_t width);

/* y = (x - mean) scale + beta, plus add, rectified if relu. */
dp_norm_row_fn *dp_norm_forward_row(const struct dp_norm_job *job);

/* dx = scale (g - center - (x - mean) slope), where g is dy, of a rectified y where that is > 0. */
dp_norm_row_fn *dp_norm_backward_row(const struct dp_norm_job *job);

/* Sums of g and of g (x - mean), for dp_columns_sum() with the job as its argument. */
dp_column_add_fn *dp_norm_add_gradients(const struct dp_norm_job *job);

#endif
