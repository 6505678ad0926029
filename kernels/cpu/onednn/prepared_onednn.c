#include "kernels/cpu/onednn/prepared_onednn.h"

#include <string.h>

#if DP_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/log.h"
#include "kernels/cpu/onednn/conv_desc_onednn.h"
#include "kernels/cpu/onednn/memory_onednn.h"
#include "kernels/op_path.h"

int dp_prepared_threads(int threads)
{
#if DP_HAVE_OPENMP
    const int before = omp_get_max_threads();

    if (before != threads) {
        omp_set_num_threads(threads);
    }
    return before;
#else
    return threads;
#endif
}

static void primitive_destroy(dnnl_primitive_t primitive)
{
    if (primitive != NULL) {
        (void)dnnl_primitive_destroy(primitive);
    }
}

void dp_prepared_conv_destroy(struct dp_prepared_conv *conv)
{
    if (conv == NULL) {
        return;
    }
    primitive_destroy(conv->primitive);
    primitive_destroy(conv->reorder);
    dp_onednn_memory_destroy(conv->x);
    dp_onednn_memory_destroy(conv->y);
    dp_onednn_memory_destroy(conv->weights);
    dp_onednn_memory_destroy(conv->bias);
    dp_onednn_memory_destroy(conv->scratchpad);
    dp_onednn_memory_destroy(conv->plain);
    dp_onednn_memory_destroy(conv->reorder_scratchpad);
    dp_free(conv);
}

static void prepared_destroy(struct dp_prepared *base)
{
    struct dp_prepared_onednn *all = (struct dp_prepared_onednn *)base;

    for (int i = 0; i < DP_PREPARED_LISTS; i++) {
        while (all->lists[i] != NULL) {
            struct dp_prepared_conv *first = all->lists[i];
            all->lists[i] = first->next;
            dp_prepared_conv_destroy(first);
        }
    }
    dp_products_destroy(all->products);
    dp_prepared_dense_destroy(all->dense);
    if (all->stream != NULL) {
        (void)dnnl_stream_destroy(all->stream);
    }
    if (all->engine != NULL) {
        (void)dnnl_engine_destroy(all->engine);
    }
    dp_free(all->arena);
    dp_free(all);
}

static dp_status engine_open(struct dp_prepared_onednn *all)
{
    DP_TRY_ONEDNN(dnnl_engine_create(&all->engine, dnnl_cpu, 0));
    DP_TRY_ONEDNN(dnnl_stream_create(&all->stream, all->engine, dnnl_stream_default_flags));
    return DP_OK;
}

dp_status dp_prepared_open(struct dp_stream *s, struct dp_prepared_onednn **out)
{
    struct dp_prepared_onednn *all = s->state;
    dp_status status;

    if (all == NULL) {
        all = dp_zalloc(1, sizeof(*all));
        if (all == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "prepared convolutions");
        }
        all->base.destroy = prepared_destroy;
        DP_TRY_GOTO(engine_open(all), status, fail);
        s->state = all;
    }
    *out = all;
    return DP_OK;

fail:
    prepared_destroy(&all->base);
    return status;
}

/* Windows have no padding bytes, but the end of a key may: so members are compared. */
static bool key_equal(const struct dp_prepared_key *a, const struct dp_prepared_key *b)
{
    return a->rows == b->rows && a->use == b->use && a->type == b->type &&
           memcmp(&a->window, &b->window, sizeof(a->window)) == 0;
}

static size_t key_list(const struct dp_prepared_key *key)
{
    const struct dp_window *w = &key->window;
    size_t hash = key->rows * 31 + key->use;

    hash = hash * 31 + w->in_h + w->in_c * 7;
    hash = hash * 31 + w->out_c + w->kernel_h * 5 + w->groups * 11;
    return (hash ^ hash >> 7) % DP_PREPARED_LISTS;
}

static struct dp_prepared_conv *find(const struct dp_prepared_onednn *all,
                                     const struct dp_prepared_key *key)
{
    struct dp_prepared_conv *conv = all->lists[key_list(key)];

    while (conv != NULL && !key_equal(&conv->key, key)) {
        conv = conv->next;
    }
    return conv;
}

size_t dp_prepared_bytes(dnnl_memory_t memory)
{
    DP_ONEDNN_MD desc;

    if (memory == NULL || dnnl_memory_get_memory_desc(memory, &desc) != dnnl_success) {
        return 0;
    }
    return dnnl_memory_desc_get_size(desc);
}

const char *dp_prepared_code(const_dnnl_primitive_t primitive)
{
    const_dnnl_primitive_desc_t desc = NULL;

    return dnnl_primitive_get_primitive_desc(primitive, &desc) == dnnl_success
               ? dp_onednn_desc_code(desc)
               : "?";
}

static void add_arg(struct dp_prepared_conv *conv, int arg, dnnl_memory_t memory)
{
    conv->args[conv->arg_count++] = (dnnl_exec_arg_t){.arg = arg, .memory = memory};
}

/* The names of a use's arguments, and the queries for their layouts. */
static const struct argument_names {
    unsigned use;
    int x, y, weights, bias;
    dnnl_query_t x_desc, y_desc, weights_desc;
} argument_names[] = {
    {DP_CONV_FORWARD, DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
     dnnl_query_src_md, dnnl_query_dst_md, dnnl_query_weights_md},
    {DP_CONV_BACKWARD_DATA, DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, 0,
     dnnl_query_diff_src_md, dnnl_query_diff_dst_md, dnnl_query_weights_md},
    {DP_CONV_BACKWARD_WEIGHTS, DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
     DNNL_ARG_DIFF_BIAS, dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md},
};

static dp_status bias_open(struct dp_prepared_conv *conv, dnnl_engine_t engine,
                           const_dnnl_primitive_desc_t desc)
{
    DP_ONEDNN_MD wanted = dnnl_primitive_desc_query_md(
        desc,
        (conv->key.use & DP_CONV_FORWARD) != 0 ? dnnl_query_weights_md : dnnl_query_diff_weights_md,
        1);

    DP_TRY_ONEDNN(dnnl_memory_create(&conv->bias, wanted, engine, DNNL_MEMORY_NONE));
    return DP_OK;
}

static dp_status arguments_open(struct dp_prepared_conv *conv, dnnl_engine_t engine,
                                const_dnnl_primitive_desc_t desc)
{
    const struct argument_names *names = argument_names;

    while ((names->use & conv->key.use) == 0) {
        names++;
    }
    DP_TRY(dp_onednn_argument(engine, desc, names->x_desc, &conv->x));
    DP_TRY(dp_onednn_argument(engine, desc, names->y_desc, &conv->y));
    DP_TRY(dp_onednn_argument(engine, desc, names->weights_desc, &conv->weights));
    DP_TRY(dp_onednn_argument(engine, desc, dnnl_query_scratchpad_md, &conv->scratchpad));
    DP_TRY(dp_onednn_weights(engine, &conv->key.window,
                             (conv->key.use & DP_CONV_BACKWARD_WEIGHTS) != 0 ? DP_TYPE_F32
                                                                             : conv->key.type,
                             &conv->plain));
    add_arg(conv, names->x, conv->x);
    add_arg(conv, names->y, conv->y);
    add_arg(conv, names->weights, conv->weights);
    add_arg(conv, DNNL_ARG_SCRATCHPAD, conv->scratchpad);
    if ((conv->key.use & DP_CONV_BIAS) != 0) {
        DP_TRY(bias_open(conv, engine, desc));
        add_arg(conv, names->bias, conv->bias);
    }
    return DP_OK;
}

static dp_status reorder_made(struct dp_prepared_conv *conv, dnnl_engine_t engine,
                              dnnl_primitive_desc_t desc)
{
    DP_TRY(dp_onednn_argument(engine, desc, dnnl_query_scratchpad_md, &conv->reorder_scratchpad));
    DP_TRY_ONEDNN(dnnl_primitive_create(&conv->reorder, desc));
    return DP_OK;
}

static dp_status reorder_open(struct dp_prepared_conv *conv, dnnl_engine_t engine)
{
    const bool out = (conv->key.use & DP_CONV_BACKWARD_WEIGHTS) != 0;
    dnnl_primitive_desc_t desc = NULL;
    DP_ONEDNN_MD ours;
    DP_ONEDNN_MD theirs;
    dp_status status;

    DP_TRY_ONEDNN(dnnl_memory_get_memory_desc(conv->plain, &ours));
    DP_TRY_ONEDNN(dnnl_memory_get_memory_desc(conv->weights, &theirs));
    if (dnnl_memory_desc_equal(ours, theirs) != 0) {
        return DP_OK;
    }
    DP_TRY(dp_onednn_reorder_desc(engine, out ? conv->weights : conv->plain,
                                  out ? conv->plain : conv->weights, &desc));
    status = reorder_made(conv, engine, desc);
    (void)dnnl_primitive_desc_destroy(desc);
    return status;
}

/* Lays out one call's scratch. Scratchpads of the convolution and of its reorder share memory,
 * since one runs after the other. */
static void conv_place(struct dp_prepared_conv *conv)
{
    const size_t pad = dp_prepared_bytes(conv->scratchpad);
    const size_t reorder_pad = dp_prepared_bytes(conv->reorder_scratchpad);
    size_t at = 0;

    conv->weights_at = at;
    at += dp_round_up(dp_prepared_bytes(conv->weights), DP_MEM_ALIGN);
    conv->plain_at = at;
    at += dp_round_up(dp_prepared_bytes(conv->plain), DP_MEM_ALIGN);
    conv->bias_at = at;
    at += dp_round_up(dp_prepared_bytes(conv->bias), DP_MEM_ALIGN);
    conv->scratchpad_at = at;
    conv->arena_bytes = at + (pad > reorder_pad ? pad : reorder_pad);
}

static dp_status conv_open(struct dp_prepared_conv *conv, dnnl_engine_t engine,
                           const_dnnl_primitive_desc_t desc)
{
    DP_TRY(arguments_open(conv, engine, desc));
    DP_TRY_ONEDNN(dnnl_primitive_create(&conv->primitive, desc));
    conv->code = dp_prepared_code(conv->primitive);
    DP_TRY(reorder_open(conv, engine));
    conv_place(conv);
    return DP_OK;
}

dp_status dp_prepared_conv_create(dnnl_engine_t engine, const struct dp_prepared_key *key,
                                  const_dnnl_primitive_desc_t desc, struct dp_prepared_conv **out)
{
    struct dp_prepared_conv *conv = dp_zalloc(1, sizeof(*conv));
    dp_status status;

    if (conv == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "prepared convolution");
    }
    conv->key = *key;
    status = conv_open(conv, engine, desc);
    if (status != DP_OK) {
        dp_prepared_conv_destroy(conv);
        return status;
    }
    *out = conv;
    return DP_OK;
}

dp_status dp_prepared_grow(struct dp_prepared_onednn *all, size_t bytes)
{
    char *arena;

    if (bytes <= all->arena_bytes) {
        return DP_OK;
    }
    /* Not counted as workspace: no plan predicts it, since its size is known only after oneDNN has
     * chosen its code for this processor (with AMX a small product needs 23 KB, else nothing). */
    arena = dp_mem_arena(DP_MEM_LIBRARY, bytes);
    if (arena == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu bytes of scratch for oneDNN", bytes);
    }
    dp_free(all->arena);
    all->arena = arena;
    all->arena_bytes = bytes;
    return DP_OK;
}

dp_status dp_prepared_add(struct dp_prepared_onednn *all, struct dp_prepared_conv *conv)
{
    const struct dp_window *w = &conv->key.window;
    struct dp_prepared_conv **list = &all->lists[key_list(&conv->key)];
    const dp_status status = dp_prepared_grow(all, conv->arena_bytes);

    if (status != DP_OK) {
        dp_prepared_conv_destroy(conv);
        return status;
    }
    DP_DEBUG("convolution %zux%zux%zu -> %zux%zux%zu, kernel %zux%zu, rows %zu, use %u: %s",
             w->in_h, w->in_w, w->in_c, w->out_h, w->out_w, w->out_c, w->kernel_h, w->kernel_w,
             conv->key.rows, conv->key.use, conv->code);
    conv->next = *list;
    *list = conv;
    return DP_OK;
}

bool dp_prepared_has(const struct dp_prepared_onednn *all, const struct dp_prepared_key *key)
{
    return find(all, key) != NULL;
}

dp_status dp_prepared_find(struct dp_stream *s, const struct dp_prepared_key *key,
                           struct dp_prepared_conv **out)
{
    const struct dp_prepared_onednn *all = s->state;

    *out = all != NULL ? find(all, key) : NULL;
    if (*out == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "convolution of %zu rows, use %u, was not prepared",
                       key->rows, key->use);
    }
    return DP_OK;
}

dp_status dp_prepared_point(dnnl_memory_t memory, const void *data)
{
    /* oneDNN's arguments are not const; it does not write to inputs. */
    union {
        const void *in;
        void *out;
    } pointer = {.in = data};
    void *before = NULL;

    DP_TRY_ONEDNN(dnnl_memory_get_data_handle(memory, &before));
    if (before != pointer.out) {
        DP_TRY_ONEDNN(dnnl_memory_set_data_handle(memory, pointer.out));
    }
    return DP_OK;
}

static dp_status execute(struct dp_prepared_onednn *all, struct dp_prepared_conv *conv)
{
    DP_TRY(dp_prepared_point(conv->scratchpad, all->arena + conv->scratchpad_at));
    DP_TRY_ONEDNN(
        dnnl_primitive_execute(conv->primitive, all->stream, conv->arg_count, conv->args));
    return DP_OK;
}

/* From our layout of the weights, at `plain`, to the primitive's, or back for a gradient. */
static dp_status reorder(struct dp_prepared_onednn *all, struct dp_prepared_conv *conv,
                         const void *plain)
{
    const bool out = (conv->key.use & DP_CONV_BACKWARD_WEIGHTS) != 0;
    const dnnl_exec_arg_t args[] = {
        {.arg = DNNL_ARG_FROM, .memory = out ? conv->weights : conv->plain},
        {.arg = DNNL_ARG_TO, .memory = out ? conv->plain : conv->weights},
        {.arg = DNNL_ARG_SCRATCHPAD, .memory = conv->reorder_scratchpad},
    };

    DP_TRY(dp_prepared_point(conv->plain, plain));
    DP_TRY(dp_prepared_point(conv->reorder_scratchpad, all->arena + conv->scratchpad_at));
    DP_TRY_ONEDNN(dnnl_primitive_execute(conv->reorder, all->stream, 3, args));
    return DP_OK;
}

static dp_status run(struct dp_prepared_onednn *all, struct dp_prepared_conv *conv,
                     const struct dp_prepared_arrays *a)
{
    const bool out = (conv->key.use & DP_CONV_BACKWARD_WEIGHTS) != 0;
    const bool moves = conv->reorder != NULL;

    DP_TRY(dp_prepared_point(conv->x, a->x));
    DP_TRY(dp_prepared_point(conv->y, a->y));
    DP_TRY(dp_prepared_point(conv->weights, moves ? all->arena + conv->weights_at : a->weights));
    if (conv->bias != NULL) {
        DP_TRY(dp_prepared_point(conv->bias, a->bias));
    }
    if (moves && !out) {
        DP_TRY(reorder(all, conv, a->weights));
    }
    DP_TRY(execute(all, conv));
    return moves && out ? reorder(all, conv, a->weights) : DP_OK;
}

dp_status dp_prepared_run(struct dp_stream *s, struct dp_prepared_conv *conv,
                          const struct dp_prepared_arrays *arrays)
{
    dp_status status;
    int before;

    if (conv->primitive == NULL) {
        dp_prepared_run_own(s, conv, arrays);
        return DP_OK;
    }
    before = dp_prepared_threads(s->threads);
    dp_op_path_note(s, "oneDNN", conv->code);
    status = run(s->state, conv, arrays);
    (void)dp_prepared_threads(before);
    return status;
}
