/*
 * product_onednn.c - dense layers of bfloat16: matrix products by oneDNN, prepared for each shape,
 * or by tiles of our own, as choose_dense.h says; summed in float32 and rounded once, after the
 * bias.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/dense_amx.h"
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/onednn/choose_dense.h"
#include "kernels/cpu/onednn/conv_desc_onednn.h"
#include "kernels/cpu/onednn/memory_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

struct dp_prepared_product {
    struct dp_prepared_product *next;
    struct dp_onednn_product what;
    dnnl_primitive_t primitive;
    const char *code;                        /* dp_prepared_code() */
    dnnl_memory_t a, b, c, bias, scratchpad; /* bias: NULL if there is none */
};

static void product_destroy(struct dp_prepared_product *p)
{
    if (p->primitive != NULL) {
        (void)dnnl_primitive_destroy(p->primitive);
    }
    dp_onednn_memory_destroy(p->a);
    dp_onednn_memory_destroy(p->b);
    dp_onednn_memory_destroy(p->c);
    dp_onednn_memory_destroy(p->bias);
    dp_onednn_memory_destroy(p->scratchpad);
    dp_free(p);
}

void dp_products_destroy(struct dp_prepared_product *products)
{
    while (products != NULL) {
        struct dp_prepared_product *next = products->next;
        product_destroy(products);
        products = next;
    }
}

static bool is_equal(const struct dp_onednn_product *a, const struct dp_onednn_product *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->order_a == b->order_a &&
           a->order_b == b->order_b && a->bias == b->bias && a->wide == b->wide &&
           a->adds == b->adds;
}

static struct dp_prepared_product *find(const struct dp_prepared_onednn *all,
                                        const struct dp_onednn_product *what)
{
    struct dp_prepared_product *p = all->products;

    while (p != NULL && !is_equal(&p->what, what)) {
        p = p->next;
    }
    return p;
}

static dp_status bias_open(struct dp_prepared_product *p, dnnl_engine_t engine,
                           const_dnnl_primitive_desc_t desc)
{
    DP_ONEDNN_MD wanted = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1);

    DP_TRY_ONEDNN(dnnl_memory_create(&p->bias, wanted, engine, DNNL_MEMORY_NONE));
    return DP_OK;
}

static dp_status arguments_open(struct dp_prepared_product *p, dnnl_engine_t engine,
                                const_dnnl_primitive_desc_t desc)
{
    DP_TRY(dp_onednn_argument(engine, desc, dnnl_query_src_md, &p->a));
    DP_TRY(dp_onednn_argument(engine, desc, dnnl_query_weights_md, &p->b));
    DP_TRY(dp_onednn_argument(engine, desc, dnnl_query_dst_md, &p->c));
    DP_TRY(dp_onednn_argument(engine, desc, dnnl_query_scratchpad_md, &p->scratchpad));
    DP_TRY(p->what.bias ? bias_open(p, engine, desc) : DP_OK);
    DP_TRY_ONEDNN(dnnl_primitive_create(&p->primitive, desc));
    p->code = dp_prepared_code(p->primitive);
    DP_DEBUG("product %zux%zux%zu of bfloats: %s", p->what.m, p->what.n, p->what.k, p->code);
    return DP_OK;
}

static dp_status product_open(struct dp_prepared_product *p, struct dp_prepared_onednn *all)
{
    dnnl_primitive_desc_t desc = NULL;
    dp_status status;

    DP_TRY(dp_onednn_product_desc(all->engine, &p->what, &desc));
    status = arguments_open(p, all->engine, desc);
    (void)dnnl_primitive_desc_destroy(desc);
    DP_TRY(status);
    return dp_prepared_grow(all, dp_prepared_bytes(p->scratchpad));
}

static dp_status add(struct dp_stream *s, const struct dp_onednn_product *what)
{
    struct dp_prepared_onednn *all = NULL;
    struct dp_prepared_product *p;
    dp_status status;
    int before;

    DP_TRY(dp_prepared_open(s, &all));
    if (find(all, what) != NULL) {
        return DP_OK;
    }
    p = dp_zalloc(1, sizeof(*p));
    if (p == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "prepared product");
    }
    p->what = *what;
    before = dp_prepared_threads(s->threads);
    status = product_open(p, all);
    (void)dp_prepared_threads(before);
    if (status != DP_OK) {
        product_destroy(p);
        return status;
    }
    p->next = all->products;
    all->products = p;
    return DP_OK;
}

static dp_status run(struct dp_stream *s, const struct dp_onednn_product *what, void *c,
                     const void *a, const void *b, const void *bias)
{
    struct dp_prepared_onednn *all = s->state;
    struct dp_prepared_product *p = all != NULL ? find(all, what) : NULL;
    dnnl_status_t status;
    int before;

    if (p == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "product %zux%zux%zu was not prepared", what->m, what->n,
                       what->k);
    }
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->a},     {DNNL_ARG_WEIGHTS, p->b},
        {DNNL_ARG_DST, p->c},     {DNNL_ARG_SCRATCHPAD, p->scratchpad},
        {DNNL_ARG_BIAS, p->bias},
    };
    dp_op_path_note(s, "oneDNN", p->code);
    DP_TRY(dp_prepared_point(p->a, a));
    DP_TRY(dp_prepared_point(p->b, b));
    DP_TRY(dp_prepared_point(p->c, c));
    DP_TRY(dp_prepared_point(p->scratchpad, all->arena));
    DP_TRY(bias != NULL ? dp_prepared_point(p->bias, bias) : DP_OK);
    before = dp_prepared_threads(s->threads);
    status = dnnl_primitive_execute(p->primitive, all->stream, bias != NULL ? 5 : 4, args);
    (void)dp_prepared_threads(before);
    DP_TRY_ONEDNN(status);
    return DP_OK;
}

/* ---- the three products of a dense layer ---- */

static struct dp_onednn_product forward_of(size_t rows, size_t in, size_t out, bool bias)
{
    return (struct dp_onednn_product){
        .m = rows, .n = out, .k = in, .order_b = DP_TRANSPOSED, .bias = bias};
}

static struct dp_onednn_product data_of(size_t rows, size_t in, size_t out)
{
    return (struct dp_onednn_product){.m = rows, .n = in, .k = out};
}

static struct dp_onednn_product weights_of(size_t rows, size_t in, size_t out, bool adds)
{
    return (struct dp_onednn_product){
        .m = out, .n = in, .k = rows, .order_a = DP_TRANSPOSED, .wide = true, .adds = adds};
}

/* The prepared one, with a bias where that is. */
static struct dp_onednn_product product_of(const struct dp_prepared_onednn *all,
                                           const struct dp_dense_key *key)
{
    struct dp_onednn_product product = forward_of(key->rows, key->in, key->out, true);

    if (key->use == DP_DENSE_FORWARD) {
        product.bias = find(all, &product) != NULL;
        return product;
    }
    return key->use == DP_DENSE_BACKWARD_DATA ? data_of(key->rows, key->in, key->out)
                                              : weights_of(key->rows, key->in, key->out, false);
}

/* The weights are as good as a bias: it is measured, what it is does not matter. */
static dp_status run_way(struct dp_stream *s, const struct dp_dense_key *key,
                         const struct dp_dense_arrays *arrays, int way)
{
    const struct dp_onednn_product what = product_of(s->state, key);
    const void *bias = what.bias ? arrays->b : NULL;

    if (way == 0) {
        return run(s, &what, arrays->c, arrays->a, arrays->b, bias);
    }
    dp_dense_amx(&(struct dp_dense_amx){.key = *key,
                                        .c = arrays->c,
                                        .a = arrays->a,
                                        .b = arrays->b,
                                        .bias = bias,
                                        .scratch = arrays->scratch},
                 s->threads);
    return DP_OK;
}

/* oneDNN's product of that use is prepared. */
static dp_status choose(struct dp_stream *s, const struct dp_dense_key *key)
{
    const struct dp_prepared_onednn *all = s->state;
    const struct dp_onednn_product what = product_of(all, key);
    const struct dp_dense_ways ways = {
        .count = 2,
        .way = {{find(all, &what)->code, 0},
                {DP_PREPARED_DENSE_AMX, dp_dense_amx_bytes(key, s->threads)}},
        .run = run_way,
    };

    return dp_dense_decide(s, key, &ways);
}

dp_status dp_cpu_bf16_dense_prepare(struct dp_stream *s, size_t rows, size_t in, size_t out,
                                    unsigned uses)
{
    const struct dp_onednn_product all[] = {
        forward_of(rows, in, out, (uses & DP_DENSE_BIAS) != 0),
        data_of(rows, in, out),
        weights_of(rows, in, out, true),
        weights_of(rows, in, out, false),
    };
    static const unsigned use[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                   DP_DENSE_BACKWARD_WEIGHTS, DP_DENSE_BACKWARD_WEIGHTS};
    const bool open = dp_amx_has() && dp_dense_is_open(s, rows, in, out);

    for (size_t i = 0; rows > 0 && i < sizeof(all) / sizeof(all[0]); i++) {
        const struct dp_dense_key key = {rows, in, out, use[i], DP_TYPE_BF16};
        if ((uses & use[i]) != 0) {
            DP_TRY(add(s, &all[i]));
            DP_TRY(open && !all[i].adds ? choose(s, &key) : DP_OK);
        }
    }
    return DP_OK;
}

/* Whether ours was chosen: it then computes. The call lacks the scratch. */
static bool run_own(const struct dp_stream *s, struct dp_dense_amx call)
{
    const struct dp_prepared_onednn *all = s->state;

    if (dp_dense_way(s, &call.key) == 0) {
        return false;
    }
    call.scratch = all->arena;
    dp_op_path_note(s, "own", DP_PREPARED_DENSE_AMX);
    dp_dense_amx(&call, s->threads);
    return true;
}

dp_status dp_cpu_bf16_dense_forward(struct dp_stream *s, void *y, const void *x, const void *w,
                                    const void *b, size_t rows, size_t in, size_t out,
                                    enum dp_activation act)
{
    const struct dp_onednn_product what = forward_of(rows, in, out, b != NULL);
    const struct dp_dense_amx own = {.key = {rows, in, out, DP_DENSE_FORWARD, DP_TYPE_BF16},
                                     .c = y,
                                     .a = x,
                                     .b = w,
                                     .bias = b,
                                     .relu = act == DP_ACT_RELU};

    if (run_own(s, own)) {
        return DP_OK;
    }
    DP_TRY(rows > 0 ? run(s, &what, y, x, w, b) : DP_OK);
    return act == DP_ACT_RELU ? dp_cpu_bfloat_relu_forward(s, y, y, rows * out) : DP_OK;
}

dp_status dp_cpu_bf16_dense_backward_data(struct dp_stream *s, void *dx, const void *dy,
                                          const void *w, size_t rows, size_t in, size_t out)
{
    const struct dp_onednn_product what = data_of(rows, in, out);
    const struct dp_dense_amx own = {
        .key = {rows, in, out, DP_DENSE_BACKWARD_DATA, DP_TYPE_BF16}, .c = dx, .a = dy, .b = w};

    if (run_own(s, own)) {
        return DP_OK;
    }
    return rows > 0 ? run(s, &what, dx, dy, w, NULL) : DP_OK;
}

dp_status dp_cpu_bf16_dense_backward_weights(struct dp_stream *s, float *dw, const void *dy,
                                             const void *x, size_t rows, size_t in, size_t out,
                                             float keep)
{
    const struct dp_onednn_product what = weights_of(rows, in, out, keep != 0);
    const struct dp_dense_amx own = {
        .key = {rows, in, out, DP_DENSE_BACKWARD_WEIGHTS, DP_TYPE_BF16},
        .c = dw,
        .a = dy,
        .b = x,
        .adds = keep != 0};

    if (run_own(s, own)) {
        return DP_OK;
    }
    if (rows == 0) {
        return keep != 0 ? DP_OK : dp_cpu_zero(s, dw, in * out * sizeof(*dw));
    }
    return run(s, &what, dw, dy, x, NULL);
}

/* ---- whether there is bfloat16 arithmetic ---- */

#if defined(__x86_64__) && defined(__GNUC__)
static bool processor_has_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") != 0;
}

/* Vectors of Intel's processors multiply bfloats at half of the rate of float32, or at most at the
 * same: only their tiles are faster, which a virtual machine may hide. By name, not by a clock, so
 * that ranks agree, and a resumed run has the same bits. */
static bool is_faster(void)
{
    return __builtin_cpu_is("intel") == 0 || dp_amx_has();
}
#else
static bool processor_has_bf16(void)
{
    return false;
}

static bool is_faster(void)
{
    return false;
}
#endif

/* Finds out by describing one of each. */
static bool probe(void)
{
    static const struct dp_window window = {8, 8, 16, 8, 8, 16, 3, 3, 1, 1, 0};
    const struct dp_onednn_product product = forward_of(8, 16, 16, true);
    dnnl_primitive_desc_t desc = NULL;
    dnnl_engine_t engine = NULL;
    bool has;

    if (!processor_has_bf16() || dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) {
        return false;
    }
    has = dp_onednn_try_product(engine, &product, &desc) == dnnl_success;
    for (unsigned use = DP_CONV_FORWARD; has && use <= DP_CONV_BACKWARD_WEIGHTS; use *= 2) {
        (void)dnnl_primitive_desc_destroy(desc);
        desc = NULL;
        const struct dp_onednn_conv conv = {engine, &window, 2, use, DP_TYPE_BF16};
        has = dp_onednn_try_conv(&conv, &desc) == dnnl_success;
    }
    if (desc != NULL) {
        (void)dnnl_primitive_desc_destroy(desc);
    }
    (void)dnnl_engine_destroy(engine);
    return has;
}

bool dp_cpu_has_bf16(void)
{
    static atomic_int known; /* 0: not yet; 1: no; 2: yes. Concurrent callers find the same. */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);

    if (answer == 0) {
        answer = probe() ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

bool dp_cpu_prefers_bf16(void)
{
    return is_faster() && dp_cpu_has_bf16();
}
