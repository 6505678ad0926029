/*
 * code.h - what winograd.c shares with its loops, which are compiled for each instruction set.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_CODE_H
#define DP_KERNELS_CPU_WINOGRAD_CODE_H

#include <stddef.h>

#include "kernels/cpu/winograd/call.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define DP_WINOGRAD_CODE 1
#else
#define DP_WINOGRAD_CODE 0
#endif

enum {
    DP_WINOGRAD_SIDE = 6, /* pixels of a tile, along one side */
    DP_WINOGRAD_POINTS = DP_WINOGRAD_SIDE * DP_WINOGRAD_SIDE,
    DP_WINOGRAD_KERNEL = 5, /* the largest */
    DP_WINOGRAD_UNIT = 16,  /* channels come in multiples of it */
    DP_WINOGRAD_TILES = 24, /* and the tiles of a block */
    DP_WINOGRAD_EXTRA = 16, /* floats between points: 4096 bytes apart they would share a cache's
                              * set */
};

struct dp_winograd_plan {
    const struct dp_winograd *call;
    const struct dp_winograd_code *code;
    size_t kernel; /* its side */
    size_t step;   /* pixels of the result a tile gives, along one side */

    /* What tiles are cut from, and what comes out; of the gradient of weights: x and dy. */
    size_t in_h, in_w, in_c, out_h, out_w, out_c, padding;

    size_t across, down, tiles; /* of an image, and of the batch */
    size_t block;               /* tiles at a time */
    size_t v_gap, m_gap;        /* floats from point to point in a block's arrays */
    size_t u_gap;               /* and in transformed weights and the sums of their gradient */
    size_t weights;             /* floats of transformed weights */
    size_t part_floats;         /* of a thread's own scratch */

    float *u;    /* [points, in_c, out_c], points u_gap apart: transformed weights */
    float *zero; /* [in_w, in_c] zeros: a row outside the image */
    float *part; /* by thread */
    float matrix[DP_WINOGRAD_SIDE][DP_WINOGRAD_KERNEL]; /* G */
};

/* A thread's scratch. */
struct dp_winograd_part {
    float *v;    /* [points, in_c / LANES, block, LANES], points v_gap apart */
    float *m;    /* [points, out_c / LANES, block, LANES], m_gap apart: of results, or of dy */
    float *sums; /* [points, out_c, in_c], u_gap apart: the gradient of transformed weights */
    float *bias; /* [out_c] */
};

struct dp_winograd_code {
    /* Transforms the weights of channels [begin, end) of in_c, multiples of DP_WINOGRAD_UNIT. */
    void (*weights)(const struct dp_winograd_plan *plan, size_t begin, size_t end);
    /* Computes the result of tiles [begin, end), a block at most. */
    void (*convolve)(const struct dp_winograd_plan *plan, const struct dp_winograd_part *part,
                     size_t begin, size_t end);
    /* Adds those of tiles [begin, end), a block at most, to the part's sums and bias. */
    void (*sum)(const struct dp_winograd_plan *plan, const struct dp_winograd_part *part,
                size_t begin, size_t end);
    /* Gradients of the weights of channels [begin, end) of out_c from the sums. */
    void (*gradients)(const struct dp_winograd_plan *plan, const float *sums, size_t begin,
                      size_t end);
};

extern const struct dp_winograd_code dp_winograd_avx2, dp_winograd_avx512;

#endif
