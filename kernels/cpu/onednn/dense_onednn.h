/*
 * dense_onednn.h - products of float32 dense layers: oneDNN's sgemm or ours (kernels/cpu/gemm), as
 * choose_dense.h says.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_DENSE_ONEDNN_H
#define DP_KERNELS_CPU_ONEDNN_DENSE_ONEDNN_H

#include "base/status.h"
#include "kernels/cpu/matmul.h"
#include "kernels/device.h"

/* Chooses for each of `uses`. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_dense_choose(struct dp_stream *s, size_t rows, size_t in, size_t out,
                                     unsigned uses);

/* Whether ours was chosen; its product may be of some of the layer's columns. It then computes, and
 * notes its path. */
bool dp_dense_run_own(const struct dp_stream *s, const struct dp_dense_key *key,
                      const struct dp_matmul *product, const float *bias, bool relu);

#endif
