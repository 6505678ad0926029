#include "kernels/cpu/onednn/desc_onednn.h"

dp_status dp_onednn_fail(const char *file, int line, dnnl_status_t status, const char *call)
{
    const dp_status result = status == dnnl_out_of_memory   ? DP_ERR_NOMEM
                             : status == dnnl_unimplemented ? DP_ERR_UNAVAILABLE
                                                            : DP_ERR_INTERNAL;

    return dp_fail(file, line, result, "oneDNN status %d from %s", (int)status, call);
}

const char *dp_onednn_desc_code(const_dnnl_primitive_desc_t desc)
{
    const char *code = NULL;

    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&code) ==
                       dnnl_success &&
                   code != NULL
               ? code
               : "?";
}

/* The arrays of c = a b + bias. */
struct factors {
    dnnl_memory_desc_t a, b, c, bias;
    bool with_bias;
};

static dnnl_data_type_t type_of(enum dp_type type)
{
    return type == DP_TYPE_F32 ? dnnl_f32 : type == DP_TYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t dp_onednn_describe(dnnl_memory_desc_t *out, int count, const dnnl_dims_t sizes,
                                 enum dp_type type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(out, count, sizes, type_of(type), tag);
}

static dnnl_status_t describe_product(dnnl_engine_t engine, const struct factors *f,
                                      const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    return dnnl_matmul_primitive_desc_create(out, engine, f->a, f->b, f->with_bias ? f->bias : NULL,
                                             f->c, attr);
}

static void forget_factors(struct factors *f)
{
    (void)dnnl_memory_desc_destroy(f->a);
    (void)dnnl_memory_desc_destroy(f->b);
    (void)dnnl_memory_desc_destroy(f->c);
    (void)dnnl_memory_desc_destroy(f->bias);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t dp_onednn_memory(dnnl_memory_t *out, dnnl_memory_desc_t desc, dnnl_engine_t engine)
{
    const dnnl_status_t status = dnnl_memory_create(out, desc, engine, DNNL_MEMORY_NONE);

    (void)dnnl_memory_desc_destroy(desc);
    return status;
}

#else

dnnl_status_t dp_onednn_describe(dnnl_memory_desc_t *out, int count, const dnnl_dims_t sizes,
                                 enum dp_type type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(out, count, sizes, type_of(type), tag);
}

static dnnl_status_t describe_product(dnnl_engine_t engine, const struct factors *f,
                                      const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t desc;
    const dnnl_status_t status =
        dnnl_matmul_desc_init(&desc, &f->a, &f->b, f->with_bias ? &f->bias : NULL, &f->c);

    return status != dnnl_success ? status
                                  : dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
}

static void forget_factors(struct factors *f)
{
    (void)f; /* plain structs here */
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

dnnl_status_t dp_onednn_memory(dnnl_memory_t *out, dnnl_memory_desc_t desc, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, &desc, engine, DNNL_MEMORY_NONE);
}

#endif

dnnl_status_t dp_onednn_own_scratchpad(dnnl_primitive_attr_t *out)
{
    dnnl_status_t status = dnnl_primitive_attr_create(out);

    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    }
    return status;
}

dp_status dp_onednn_reorder_desc(dnnl_engine_t engine, const_dnnl_memory_t from,
                                 const_dnnl_memory_t to, dnnl_primitive_desc_t *out)
{
    DP_ONEDNN_MD source;
    DP_ONEDNN_MD target;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status;

    DP_TRY_ONEDNN(dnnl_memory_get_memory_desc(from, &source));
    DP_TRY_ONEDNN(dnnl_memory_get_memory_desc(to, &target));
    status = dp_onednn_own_scratchpad(&attr);
    if (status == dnnl_success) {
        status = dnnl_reorder_primitive_desc_create(out, source, engine, target, engine, attr);
    }
    if (attr != NULL) {
        (void)dnnl_primitive_attr_destroy(attr);
    }
    DP_TRY_ONEDNN(status);
    return DP_OK;
}

static dnnl_status_t describe_factors(struct factors *f, const struct dp_onednn_product *p)
{
    const dnnl_dims_t a = {(dnnl_dim_t)p->m, (dnnl_dim_t)p->k};
    const dnnl_dims_t b = {(dnnl_dim_t)p->k, (dnnl_dim_t)p->n};
    const dnnl_dims_t c = {(dnnl_dim_t)p->m, (dnnl_dim_t)p->n}, bias = {1, (dnnl_dim_t)p->n};
    const enum dp_type out = p->wide ? DP_TYPE_F32 : DP_TYPE_BF16;
    dnnl_status_t status =
        dp_onednn_describe(&f->a, 2, a, DP_TYPE_BF16, p->order_a == DP_PLAIN ? dnnl_ab : dnnl_ba);

    f->with_bias = p->bias;
    if (status == dnnl_success) {
        status = dp_onednn_describe(&f->b, 2, b, DP_TYPE_BF16,
                                    p->order_b == DP_PLAIN ? dnnl_ab : dnnl_ba);
    }
    if (status == dnnl_success) {
        status = dp_onednn_describe(&f->c, 2, c, out, dnnl_ab);
    }
    return status != dnnl_success ? status
                                  : dp_onednn_describe(&f->bias, 2, bias, DP_TYPE_BF16, dnnl_ab);
}

/* c += instead of c =. */
static dnnl_status_t set_sum(dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t ops;
    dnnl_status_t status = dnnl_post_ops_create(&ops);

    if (status == dnnl_success) {
        status = append_sum(ops);
        if (status == dnnl_success) {
            status = dnnl_primitive_attr_set_post_ops(attr, ops);
        }
        (void)dnnl_post_ops_destroy(ops);
    }
    return status;
}

dnnl_status_t dp_onednn_try_product(dnnl_engine_t engine, const struct dp_onednn_product *product,
                                    dnnl_primitive_desc_t *out)
{
    struct factors factors = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = describe_factors(&factors, product);

    if (status == dnnl_success) {
        status = dp_onednn_own_scratchpad(&attr);
    }
    if (status == dnnl_success && product->adds) {
        status = set_sum(attr);
    }
    if (status == dnnl_success) {
        status = describe_product(engine, &factors, attr, out);
    }
    if (attr != NULL) {
        (void)dnnl_primitive_attr_destroy(attr);
    }
    forget_factors(&factors);
    return status;
}

dp_status dp_onednn_product_desc(dnnl_engine_t engine, const struct dp_onednn_product *product,
                                 dnnl_primitive_desc_t *out)
{
    DP_TRY_ONEDNN(dp_onednn_try_product(engine, product, out));
    return DP_OK;
}
