#include "kernels/ref/ops_ref.h"

const struct dp_ops dp_ref_ops = {
#define X(name) .name = dp_ref_##name,
    DP_OPS_LIST(X)
#undef X
};
