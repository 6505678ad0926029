#include "kernels/cuda/ops_cuda.h"

#define CUDA(name) .name = dp_cuda_##name,

const struct dp_ops dp_cuda_ops = {DP_OPS_CUDA(CUDA)};
