#include "kernels/cpu/op_table_cpu.h"

#include "kernels/cpu/mixed.h"

/* Without oneDNN convolutions are the plain loops of `ref`: right for all types, but slow. */
#if DP_HAVE_ONEDNN
#define CONV(name) .name = dp_cpu_##name,
#else
#define CONV(name) .name = dp_ref_##name,
#endif
#define REF(name) .name = dp_ref_##name,
#define CPU(name) .name = dp_cpu_##name,

const struct dp_ops dp_cpu_ops = {DP_OPS_FLAT(CPU) DP_OPS_SMALL(REF) DP_OPS_CODE(CPU) DP_OPS_FEW(
    REF) DP_OPS_CONV(CONV) DP_OPS_POOL(CPU) CPU(dense_forward_part)};

#define MIXED(name) ops->name = dp_cpu_mixed_##name;
#define BFLOAT(name) ops->name = dp_cpu_bfloat_##name;
#define BF16(name) ops->name = dp_cpu_bf16_##name;

#if DP_HAVE_ONEDNN
static void onednn_ops(struct dp_ops *ops, enum dp_type type, bool own)
{
    DP_OPS_MIXED_CONV(MIXED)
    if (type == DP_TYPE_BF16 && own) {
        DP_OPS_BF16(BF16)
    }
}
#else
bool dp_cpu_has_bf16(void)
{
    return false;
}

bool dp_cpu_prefers_bf16(void)
{
    return false;
}

static void onednn_ops(struct dp_ops *ops, enum dp_type type, bool own)
{
    (void)ops;
    (void)type;
    (void)own;
}
#endif

void dp_mixed_ops(struct dp_ops *ops, enum dp_type type, bool own)
{
    DP_OPS_MIXED(MIXED)
    if (type == DP_TYPE_BF16) {
        DP_OPS_BFLOAT(BFLOAT)
    }
    ops->dense_forward_part = NULL;
    onednn_ops(ops, type, own);
}
