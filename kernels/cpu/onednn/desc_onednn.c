#include "kernels/cpu/onednn/desc_onednn.h"

#include <string.h>

dp_status dp_onednn_fail(const char *file, int line, dnnl_status_t status, const char *call)
{
    const dp_status result = status == dnnl_out_of_memory   ? DP_ERR_NOMEM
                             : status == dnnl_unimplemented ? DP_ERR_UNAVAILABLE
                                                            : DP_ERR_INTERNAL;

    return dp_fail(file, line, result, "oneDNN status %d from %s", (int)status, call);
}

/* Sizes in oneDNN's order, which does not depend on the layout in memory. */
struct sizes {
    dnnl_dims_t x, y, weights, bias, strides, padding;
    int weight_dims; /* of several groups: [groups, out, in, height, width] */
};

static struct sizes sizes_of(const struct dp_window *w, size_t rows)
{
    const dnnl_dim_t groups = (dnnl_dim_t)dp_window_groups(w), fan = (dnnl_dim_t)dp_window_fan(w);
    struct sizes sizes = {
        .x = {(dnnl_dim_t)rows, (dnnl_dim_t)w->in_c, (dnnl_dim_t)w->in_h, (dnnl_dim_t)w->in_w},
        .y = {(dnnl_dim_t)rows, (dnnl_dim_t)w->out_c, (dnnl_dim_t)w->out_h, (dnnl_dim_t)w->out_w},
        .weights = {groups, (dnnl_dim_t)w->out_c / groups, fan, (dnnl_dim_t)w->kernel_h,
                    (dnnl_dim_t)w->kernel_w},
        .bias = {(dnnl_dim_t)w->out_c},
        .strides = {(dnnl_dim_t)w->stride, (dnnl_dim_t)w->stride},
        .padding = {(dnnl_dim_t)w->padding, (dnnl_dim_t)w->padding},
        .weight_dims = 5,
    };
    if (groups == 1) {
        memmove(sizes.weights, sizes.weights + 1, 4 * sizeof(sizes.weights[0]));
        sizes.weight_dims = 4;
    }
    return sizes;
}

/* The arrays of a convolution; gradients of weights and bias are float32. */
struct arrays {
    dnnl_memory_desc_t x, y, weights, bias, weights_grad, bias_grad;
};

/* The arrays of c = a b + bias. */
struct factors {
    dnnl_memory_desc_t a, b, c, bias;
    bool with_bias;
};

static dnnl_data_type_t type_of(enum dp_type type)
{
    return type == DP_TYPE_F32 ? dnnl_f32 : type == DP_TYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* Whether the implementation's name begins with `name`. */
static bool is_named(const_dnnl_primitive_desc_t desc, const char *name)
{
    const char *text = NULL;

    return desc != NULL &&
           dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&text) ==
               dnnl_success &&
           strncmp(text, name, strlen(name)) == 0;
}

/* Which implementations are taken: choose() in both versions of oneDNN. */
typedef bool wanted_fn(const_dnnl_primitive_desc_t desc);

static bool is_jit(const_dnnl_primitive_desc_t desc)
{
    return is_named(desc, "jit:") || is_named(desc, "jit_bf16:");
}

/* By its names in oneDNN 2 and 3. */
static bool is_blocked(const_dnnl_primitive_desc_t desc)
{
    return is_named(desc, "brgconv:") || is_named(desc, "brg_conv_fwd:") ||
           is_named(desc, "brgconv_1x1:");
}

static bool is_not_jit_1x1(const_dnnl_primitive_desc_t desc)
{
    return desc != NULL && !is_named(desc, "jit_1x1") && !is_named(desc, "jit_bf16_1x1");
}

/* What to take instead of `chosen` for a forward convolution; NULL: keep it. With our layouts "jit"
 * is up to three times as fast as "brgconv" under AVX-512, but not from 64 channels on. */
static wanted_fn *better_forward(const_dnnl_primitive_desc_t chosen, const struct sizes *sizes)
{
    const dnnl_dim_t *weights = sizes->weights + sizes->weight_dims - 4; /* [out, in, ...] */

    return is_blocked(chosen) && (weights[0] < 64 || weights[1] < 64) ? is_jit : NULL;
}

/* The same for gradients of weights. oneDNN's 1x1 kernels write beyond their scratchpad where they
 * gather strided pixels of fewer channels than a vector has (2.6.3, test_conv_bounds). */
static wanted_fn *safe_backward(const_dnnl_primitive_desc_t chosen, const struct sizes *sizes)
{
    const bool gathers = sizes->strides[0] > 1 && sizes->weights[sizes->weight_dims - 3] < 16;

    return gathers && !is_not_jit_1x1(chosen) ? is_not_jit_1x1 : NULL;
}

#if DNNL_VERSION_MAJOR >= 3

static const dnnl_dims_t no_dilation = {0, 0};

static dnnl_status_t describe(dnnl_memory_desc_t *out, int count, const dnnl_dims_t sizes,
                              enum dp_type type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(out, count, sizes, type_of(type), tag);
}

static void forget(struct arrays *arrays)
{
    (void)dnnl_memory_desc_destroy(arrays->x);
    (void)dnnl_memory_desc_destroy(arrays->y);
    (void)dnnl_memory_desc_destroy(arrays->weights);
    (void)dnnl_memory_desc_destroy(arrays->bias);
    (void)dnnl_memory_desc_destroy(arrays->weights_grad);
    (void)dnnl_memory_desc_destroy(arrays->bias_grad);
}

static dnnl_status_t create_forward(dnnl_engine_t engine, const struct arrays *a,
                                    const struct sizes *sizes, const_dnnl_memory_desc_t bias,
                                    const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, dnnl_forward_training, dnnl_convolution_direct, a->x, a->weights, bias, a->y,
        sizes->strides, no_dilation, sizes->padding, sizes->padding, attr);
}

static dnnl_status_t choose_forward(dnnl_engine_t engine, const struct arrays *a,
                                    const struct sizes *sizes, const_dnnl_memory_desc_t bias,
                                    const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t other = NULL;
    dnnl_status_t status = create_forward(engine, a, sizes, bias, attr, out);
    wanted_fn *wanted = status == dnnl_success ? better_forward(*out, sizes) : NULL;

    if (wanted == NULL) {
        return status;
    }
    status = create_forward(engine, a, sizes, bias, attr, &other);
    while (status == dnnl_success && !wanted(other)) {
        status = dnnl_primitive_desc_next_impl(other);
    }
    (void)dnnl_primitive_desc_destroy(status == dnnl_success ? *out : other);
    *out = status == dnnl_success ? other : *out;
    return dnnl_success;
}

/* Moves away from an implementation that is not safe. The last one, in plain C++, always is. */
static dnnl_status_t move_on(dnnl_primitive_desc_t desc, const struct sizes *sizes)
{
    wanted_fn *wanted = safe_backward(desc, sizes);
    dnnl_status_t status = dnnl_success;

    while (wanted != NULL && status == dnnl_success && !wanted(desc)) {
        status = dnnl_primitive_desc_next_impl(desc);
    }
    return status;
}

static dnnl_status_t describe_conv(dnnl_engine_t engine, const struct arrays *a,
                                   const struct sizes *sizes, unsigned use,
                                   const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    const dnnl_memory_desc_t bias = (use & DP_CONV_BIAS) != 0 ? a->bias : NULL;
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t status;

    status = choose_forward(engine, a, sizes, bias, attr, &forward);
    if (status != dnnl_success || (use & DP_CONV_FORWARD) != 0) {
        *out = forward;
        return status;
    }
    if ((use & DP_CONV_BACKWARD_DATA) != 0) {
        status = dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, dnnl_convolution_direct, a->x, a->weights, a->y, sizes->strides,
            no_dilation, sizes->padding, sizes->padding, forward, attr);
    } else {
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            out, engine, dnnl_convolution_direct, a->x, a->weights_grad,
            bias == NULL ? NULL : a->bias_grad, a->y, sizes->strides, no_dilation, sizes->padding,
            sizes->padding, forward, attr);
        if (status == dnnl_success) {
            status = move_on(*out, sizes);
        }
    }
    (void)dnnl_primitive_desc_destroy(forward);
    return status;
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

static dnnl_status_t memory_create(dnnl_memory_t *out, dnnl_memory_desc_t desc,
                                   dnnl_engine_t engine)
{
    const dnnl_status_t status = dnnl_memory_create(out, desc, engine, DNNL_MEMORY_NONE);

    (void)dnnl_memory_desc_destroy(desc);
    return status;
}

#else

static dnnl_status_t describe(dnnl_memory_desc_t *out, int count, const dnnl_dims_t sizes,
                              enum dp_type type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(out, count, sizes, type_of(type), tag);
}

static void forget(struct arrays *arrays)
{
    (void)arrays; /* plain structs here */
}

/* Replaces *out by the first implementation that is wanted; without one it stays. */
static void replace(dnnl_engine_t engine, const dnnl_convolution_desc_t *desc,
                    const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward,
                    wanted_fn *wanted, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t iterator = NULL;
    dnnl_primitive_desc_t found = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&iterator, desc, attr, engine, forward);
    bool good = false;

    while (status == dnnl_success && !good) {
        (void)dnnl_primitive_desc_destroy(found);
        found = dnnl_primitive_desc_iterator_fetch(iterator);
        good = wanted(found);
        status = good ? dnnl_success : dnnl_primitive_desc_iterator_next(iterator);
    }
    (void)dnnl_primitive_desc_iterator_destroy(iterator);
    (void)dnnl_primitive_desc_destroy(good ? *out : found);
    *out = good ? found : *out;
}

static dnnl_status_t choose_forward(dnnl_engine_t engine, const dnnl_convolution_desc_t *desc,
                                    const struct sizes *sizes, const_dnnl_primitive_attr_t attr,
                                    dnnl_primitive_desc_t *out)
{
    const dnnl_status_t status = dnnl_primitive_desc_create(out, desc, attr, engine, NULL);
    wanted_fn *wanted = status == dnnl_success ? better_forward(*out, sizes) : NULL;

    if (wanted != NULL) {
        replace(engine, desc, attr, NULL, wanted, out);
    }
    return status;
}

static dnnl_status_t describe_conv(dnnl_engine_t engine, const struct arrays *a,
                                   const struct sizes *sizes, unsigned use,
                                   const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    const dnnl_memory_desc_t *bias = (use & DP_CONV_BIAS) != 0 ? &a->bias : NULL;
    dnnl_primitive_desc_t forward = NULL;
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;

    status = dnnl_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &a->x, &a->weights, bias, &a->y,
        sizes->strides, sizes->padding, sizes->padding);
    if (status == dnnl_success) {
        status = choose_forward(engine, &desc, sizes, attr, &forward);
    }
    if (status != dnnl_success || (use & DP_CONV_FORWARD) != 0) {
        *out = forward;
        return status;
    }
    if ((use & DP_CONV_BACKWARD_DATA) != 0) {
        status = dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &a->x,
                                                          &a->weights, &a->y, sizes->strides,
                                                          sizes->padding, sizes->padding);
    } else {
        status = dnnl_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, &a->x, &a->weights_grad,
            bias == NULL ? NULL : &a->bias_grad, &a->y, sizes->strides, sizes->padding,
            sizes->padding);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_desc_create(out, &desc, attr, engine, forward);
    }
    if (status == dnnl_success && (use & DP_CONV_BACKWARD_WEIGHTS) != 0 &&
        safe_backward(*out, sizes) != NULL) {
        replace(engine, &desc, attr, forward, safe_backward(*out, sizes), out);
    }
    (void)dnnl_primitive_desc_destroy(forward);
    return status;
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

static dnnl_status_t memory_create(dnnl_memory_t *out, dnnl_memory_desc_t desc,
                                   dnnl_engine_t engine)
{
    return dnnl_memory_create(out, &desc, engine, DNNL_MEMORY_NONE);
}

#endif

static dnnl_status_t describe_arrays(struct arrays *a, const struct sizes *sizes, enum dp_type type)
{
    const struct {
        dnnl_memory_desc_t *out;
        int count;
        const dnnl_dim_t *sizes;
        enum dp_type type;
        dnnl_format_tag_t tag;
    } rows[] = {
        {&a->x, 4, sizes->x, type, dnnl_nhwc},
        {&a->y, 4, sizes->y, type, dnnl_nhwc},
        {&a->weights, sizes->weight_dims, sizes->weights, type, dnnl_format_tag_any},
        {&a->bias, 1, sizes->bias, type, dnnl_a},
        {&a->weights_grad, sizes->weight_dims, sizes->weights, DP_TYPE_F32, dnnl_format_tag_any},
        {&a->bias_grad, 1, sizes->bias, DP_TYPE_F32, dnnl_a},
    };
    dnnl_status_t status = dnnl_success;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && status == dnnl_success; i++) {
        status = describe(rows[i].out, rows[i].count, rows[i].sizes, rows[i].type, rows[i].tag);
    }
    return status;
}

static dnnl_status_t own_scratchpad(dnnl_primitive_attr_t *out)
{
    dnnl_status_t status = dnnl_primitive_attr_create(out);

    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    }
    return status;
}

dnnl_status_t dp_onednn_try_conv(dnnl_engine_t engine, const struct dp_window *w, size_t rows,
                                 unsigned use, enum dp_type type, dnnl_primitive_desc_t *out)
{
    const struct sizes sizes = sizes_of(w, rows);
    struct arrays arrays = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = describe_arrays(&arrays, &sizes, type);

    if (status == dnnl_success) {
        status = own_scratchpad(&attr);
    }
    if (status == dnnl_success) {
        status = describe_conv(engine, &arrays, &sizes, use, attr, out);
    }
    if (attr != NULL) {
        (void)dnnl_primitive_attr_destroy(attr);
    }
    forget(&arrays);
    return status;
}

dp_status dp_onednn_conv_desc(dnnl_engine_t engine, const struct dp_window *w, size_t rows,
                              unsigned use, enum dp_type type, dnnl_primitive_desc_t *out)
{
    DP_TRY_ONEDNN(dp_onednn_try_conv(engine, w, rows, use, type, out));
    return DP_OK;
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
    status = own_scratchpad(&attr);
    if (status == dnnl_success) {
        status = dnnl_reorder_primitive_desc_create(out, source, engine, target, engine, attr);
    }
    if (attr != NULL) {
        (void)dnnl_primitive_attr_destroy(attr);
    }
    DP_TRY_ONEDNN(status);
    return DP_OK;
}

dp_status dp_onednn_weights(dnnl_engine_t engine, const struct dp_window *w, enum dp_type type,
                            dnnl_memory_t *out)
{
    const struct sizes sizes = sizes_of(w, 1);
    dnnl_memory_desc_t desc;

    DP_TRY_ONEDNN(describe(&desc, sizes.weight_dims, sizes.weights, type,
                           sizes.weight_dims == 5 ? dnnl_gohwi : dnnl_ohwi));
    DP_TRY_ONEDNN(memory_create(out, desc, engine));
    return DP_OK;
}

static dnnl_status_t describe_factors(struct factors *f, const struct dp_onednn_product *p)
{
    const dnnl_dims_t a = {(dnnl_dim_t)p->m, (dnnl_dim_t)p->k};
    const dnnl_dims_t b = {(dnnl_dim_t)p->k, (dnnl_dim_t)p->n};
    const dnnl_dims_t c = {(dnnl_dim_t)p->m, (dnnl_dim_t)p->n}, bias = {1, (dnnl_dim_t)p->n};
    const enum dp_type out = p->wide ? DP_TYPE_F32 : DP_TYPE_BF16;
    dnnl_status_t status =
        describe(&f->a, 2, a, DP_TYPE_BF16, p->order_a == DP_PLAIN ? dnnl_ab : dnnl_ba);

    f->with_bias = p->bias;
    if (status == dnnl_success) {
        status = describe(&f->b, 2, b, DP_TYPE_BF16, p->order_b == DP_PLAIN ? dnnl_ab : dnnl_ba);
    }
    if (status == dnnl_success) {
        status = describe(&f->c, 2, c, out, dnnl_ab);
    }
    return status != dnnl_success ? status : describe(&f->bias, 2, bias, DP_TYPE_BF16, dnnl_ab);
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
        status = own_scratchpad(&attr);
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
