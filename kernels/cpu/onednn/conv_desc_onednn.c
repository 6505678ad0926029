#include "kernels/cpu/onednn/conv_desc_onednn.h"

#include <string.h>

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

/* What is described. */
struct conv {
    dnnl_engine_t engine;
    const struct sizes *sizes;
    const struct arrays *arrays;
    const_dnnl_primitive_attr_t attr;
    unsigned use;
    const_dnnl_primitive_desc_t forward; /* of a backward use */
};

static bool is_named(const_dnnl_primitive_desc_t desc, const char *name)
{
    return strncmp(dp_onednn_desc_code(desc), name, strlen(name)) == 0;
}

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

/* oneDNN's 1x1 kernels write beyond their scratchpad where they gather strided pixels of fewer
 * channels than a vector has, for gradients of weights (2.6.3, test_conv_bounds). The last
 * implementation, in plain C++, always is safe. */
static bool is_safe(const struct conv *c, const_dnnl_primitive_desc_t desc)
{
    const struct sizes *sizes = c->sizes;
    const bool gathers = (c->use & DP_CONV_BACKWARD_WEIGHTS) != 0 && sizes->strides[0] > 1 &&
                         sizes->weights[sizes->weight_dims - 3] < 16;

    return !gathers || (!is_named(desc, "jit_1x1") && !is_named(desc, "jit_bf16_1x1"));
}

#if DNNL_VERSION_MAJOR >= 3

static void forget(struct arrays *arrays)
{
    (void)dnnl_memory_desc_destroy(arrays->x);
    (void)dnnl_memory_desc_destroy(arrays->y);
    (void)dnnl_memory_desc_destroy(arrays->weights);
    (void)dnnl_memory_desc_destroy(arrays->bias);
    (void)dnnl_memory_desc_destroy(arrays->weights_grad);
    (void)dnnl_memory_desc_destroy(arrays->bias_grad);
}

static dnnl_status_t create(const struct conv *c, dnnl_primitive_desc_t *out)
{
    static const dnnl_dims_t no_dilation = {0, 0};
    const struct arrays *a = c->arrays;
    const struct sizes *sizes = c->sizes;
    const bool has_bias = (c->use & DP_CONV_BIAS) != 0;

    if ((c->use & DP_CONV_FORWARD) != 0) {
        return dnnl_convolution_forward_primitive_desc_create(
            out, c->engine, dnnl_forward_training, dnnl_convolution_direct, a->x, a->weights,
            has_bias ? a->bias : NULL, a->y, sizes->strides, no_dilation, sizes->padding,
            sizes->padding, c->attr);
    }
    if ((c->use & DP_CONV_BACKWARD_DATA) != 0) {
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, c->engine, dnnl_convolution_direct, a->x, a->weights, a->y, sizes->strides,
            no_dilation, sizes->padding, sizes->padding, c->forward, c->attr);
    }
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, c->engine, dnnl_convolution_direct, a->x, a->weights_grad,
        has_bias ? a->bias_grad : NULL, a->y, sizes->strides, no_dilation, sizes->padding,
        sizes->padding, c->forward, c->attr);
}

/* Visits the safe implementations in oneDNN's order. */
static dnnl_status_t walk(const struct conv *c, dp_onednn_visit_fn *visit, void *context)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t next = create(c, &desc);

    if (next != dnnl_success) {
        return next;
    }
    while (next == dnnl_success && (!is_safe(c, desc) || !visit(context, desc))) {
        next = dnnl_primitive_desc_next_impl(desc);
    }
    (void)dnnl_primitive_desc_destroy(desc);
    return dnnl_success;
}

#else

static void forget(struct arrays *arrays)
{
    (void)arrays; /* plain structs here */
}

static dnnl_status_t describe(const struct conv *c, dnnl_convolution_desc_t *out)
{
    const struct arrays *a = c->arrays;
    const struct sizes *sizes = c->sizes;
    const bool has_bias = (c->use & DP_CONV_BIAS) != 0;

    if ((c->use & DP_CONV_FORWARD) != 0) {
        return dnnl_convolution_forward_desc_init(
            out, dnnl_forward_training, dnnl_convolution_direct, &a->x, &a->weights,
            has_bias ? &a->bias : NULL, &a->y, sizes->strides, sizes->padding, sizes->padding);
    }
    if ((c->use & DP_CONV_BACKWARD_DATA) != 0) {
        return dnnl_convolution_backward_data_desc_init(out, dnnl_convolution_direct, &a->x,
                                                        &a->weights, &a->y, sizes->strides,
                                                        sizes->padding, sizes->padding);
    }
    return dnnl_convolution_backward_weights_desc_init(
        out, dnnl_convolution_direct, &a->x, &a->weights_grad, has_bias ? &a->bias_grad : NULL,
        &a->y, sizes->strides, sizes->padding, sizes->padding);
}

/* Visits the safe implementations in oneDNN's order. */
static dnnl_status_t walk(const struct conv *c, dp_onednn_visit_fn *visit, void *context)
{
    dnnl_primitive_desc_iterator_t iterator = NULL;
    dnnl_convolution_desc_t described;
    dnnl_status_t status = describe(c, &described);
    bool stop;

    if (status == dnnl_success) {
        status = dnnl_primitive_desc_iterator_create(&iterator, &described, c->attr, c->engine,
                                                     c->forward);
    }
    if (status != dnnl_success) {
        return status;
    }
    do {
        const dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(iterator);
        stop = desc == NULL || (is_safe(c, desc) && visit(context, desc));
        (void)dnnl_primitive_desc_destroy(desc);
    } while (!stop && dnnl_primitive_desc_iterator_next(iterator) == dnnl_success);
    (void)dnnl_primitive_desc_iterator_destroy(iterator);
    return dnnl_success;
}

#endif

/* ---- which one is taken ---- */

struct pick {
    const struct conv *conv;
    dnnl_primitive_desc_t taken;
    dnnl_status_t status;
};

/* Whether "jit" is taken in the place of oneDNN's first implementation, if there is one: with our
 * layouts it is up to three times as fast as "brgconv" under AVX-512, but not from 64 channels on.
 */
static bool prefers_jit(const struct conv *c, const_dnnl_primitive_desc_t first)
{
    const dnnl_dim_t *weights = c->sizes->weights + c->sizes->weight_dims - 4; /* [out, in, ...] */

    return (c->use & DP_CONV_FORWARD) != 0 && is_blocked(first) &&
           (weights[0] < 64 || weights[1] < 64);
}

static bool pick_preferred(void *context, const_dnnl_primitive_desc_t desc)
{
    struct pick *p = context;

    if (p->taken != NULL && !is_jit(desc)) {
        return false;
    }
    const bool first = p->taken == NULL;

    (void)dnnl_primitive_desc_destroy(p->taken);
    p->taken = NULL;
    p->status = dnnl_primitive_desc_clone(&p->taken, desc);
    return p->status != dnnl_success || !first || !prefers_jit(p->conv, desc);
}

static dnnl_status_t prefer(const struct conv *c, dnnl_primitive_desc_t *out)
{
    struct pick pick = {.conv = c, .status = dnnl_unimplemented};
    const dnnl_status_t status = walk(c, pick_preferred, &pick);

    *out = pick.taken;
    return status != dnnl_success ? status : pick.status;
}

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
        status = dp_onednn_describe(rows[i].out, rows[i].count, rows[i].sizes, rows[i].type,
                                    rows[i].tag);
    }
    return status;
}

/* What is done with a convolution that has been described. */
typedef dnnl_status_t use_fn(const struct conv *conv, void *context);

/* Describes it, and its forward convolution where the use is another. */
static dnnl_status_t with_conv(const struct dp_onednn_conv *what, use_fn *use, void *context)
{
    const struct sizes sizes = sizes_of(what->window, what->rows);
    const unsigned bias = what->use & DP_CONV_BIAS;
    dnnl_primitive_desc_t forward = NULL;
    dnnl_primitive_attr_t attr = NULL;
    struct arrays arrays = {0};
    struct conv conv = {.engine = what->engine, .sizes = &sizes, .arrays = &arrays};
    dnnl_status_t status = describe_arrays(&arrays, &sizes, what->type);

    if (status == dnnl_success) {
        status = dp_onednn_own_scratchpad(&attr);
    }
    conv.attr = attr;
    if (status == dnnl_success && (what->use & DP_CONV_FORWARD) == 0) {
        conv.use = DP_CONV_FORWARD | bias;
        status = prefer(&conv, &forward);
    }
    conv.use = what->use;
    conv.forward = forward;
    if (status == dnnl_success) {
        status = use(&conv, context);
    }
    (void)dnnl_primitive_desc_destroy(forward);
    (void)dnnl_primitive_attr_destroy(attr);
    forget(&arrays);
    return status;
}

static dnnl_status_t take(const struct conv *conv, void *context)
{
    return prefer(conv, context);
}

dnnl_status_t dp_onednn_try_conv(const struct dp_onednn_conv *conv, dnnl_primitive_desc_t *out)
{
    return with_conv(conv, take, out);
}

dp_status dp_onednn_conv_desc(const struct dp_onednn_conv *conv, dnnl_primitive_desc_t *out)
{
    DP_TRY_ONEDNN(dp_onednn_try_conv(conv, out));
    return DP_OK;
}

struct visitor {
    dp_onednn_visit_fn *visit;
    void *context;
};

static dnnl_status_t visit_all(const struct conv *conv, void *context)
{
    const struct visitor *v = context;

    return walk(conv, v->visit, v->context);
}

dp_status dp_onednn_each_conv(const struct dp_onednn_conv *conv, dp_onednn_visit_fn *visit,
                              void *context)
{
    struct visitor visitor = {visit, context};

    DP_TRY_ONEDNN(with_conv(conv, visit_all, &visitor));
    return DP_OK;
}

dp_status dp_onednn_weights(dnnl_engine_t engine, const struct dp_window *w, enum dp_type type,
                            dnnl_memory_t *out)
{
    const struct sizes sizes = sizes_of(w, 1);
    dnnl_memory_desc_t desc;

    DP_TRY_ONEDNN(dp_onednn_describe(&desc, sizes.weight_dims, sizes.weights, type,
                                     sizes.weight_dims == 5 ? dnnl_gohwi : dnnl_ohwi));
    DP_TRY_ONEDNN(dp_onednn_memory(out, desc, engine));
    return DP_OK;
}
