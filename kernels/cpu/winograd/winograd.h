/*
 * winograd.h - convolutions of float32 with fewer multiplications, by minimal filtering (Lavin and
 * Gray, Fast Algorithms for Convolutional Neural Networks, 2016, sections 3 and 4): those of 3x3
 * and 5x5 kernels with stride 1, and both of their gradients.
 *
 * The image is cut into tiles of 6 x 6 pixels that overlap; each gives 4 x 4 pixels of the result
 * for a kernel of 3 x 3, 2 x 2 for one of 5 x 5. A tile d and a kernel g become
 *
 *   V = B' d B    U = G g G'    and the result  A' (sum over channels of U * V, by elements) A
 *
 * so each of the 36 elements is a product of matrices: tiles by channels with channels by outputs.
 * That is 36 multiplications in place of 144, or 100. The gradient of the kernel is the transpose:
 * G' (sum over tiles of V * (A dy A')) G. That of the image is a convolution of dy.
 *
 * The points of interpolation are 0, +-3/4, +-3/2 and infinity: with the usual 0, +-1, +-2 the
 * error is twice as large. As it is, it is 1.5 to 2.3 times that of adding one product after the
 * other (numbers of a normal distribution, 32 channels).
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_WINOGRAD_H
#define DP_KERNELS_CPU_WINOGRAD_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/winograd/call.h"

/* Whether it can be computed so here: the processor has AVX2 with FMA, or AVX-512; one group, and
 * channels in multiples of 16 up to 256. */
bool dp_winograd_can(const struct dp_window *w);

/* Bytes of scratch for one use on so many threads. */
size_t dp_winograd_bytes(const struct dp_window *w, unsigned use, int threads);

/* What part of the products of the definition is computed, transformations left out. */
double dp_winograd_share(const struct dp_window *w);

/* Computes on `threads` threads. Pixels do not depend on their number; gradients of weights are
 * summed in as many parts. */
void dp_winograd_run(const struct dp_winograd *call, int threads);

#endif
