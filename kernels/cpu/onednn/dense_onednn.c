#include "kernels/cpu/onednn/dense_onednn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/algo_choices.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/onednn/choose_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

enum {
    ROUNDS = 7, /* of measuring; the fastest counts */
    LEAST = 32  /* rows and columns of weights: smaller products are not worth measuring */
};

static const double MARGIN = 0.05; /* of sgemm's time */
static const char sgemm[] = "sgemm";

struct dp_prepared_dense {
    struct dp_prepared_dense *next;
    struct dp_dense_key key;
    bool own;
};

void dp_prepared_dense_destroy(struct dp_prepared_dense *dense)
{
    while (dense != NULL) {
        struct dp_prepared_dense *next = dense->next;
        dp_free(dense);
        dense = next;
    }
}

static const struct dp_prepared_dense *find(const struct dp_prepared_onednn *all,
                                            const struct dp_dense_key *key)
{
    const struct dp_prepared_dense *d = all != NULL ? all->dense : NULL;

    while (d != NULL && (d->key.rows != key->rows || d->key.in != key->in ||
                         d->key.out != key->out || d->key.use != key->use)) {
        d = d->next;
    }
    return d;
}

/* ---- measuring ---- */

static double time_ms(const struct dp_stream *s, const struct dp_gemm *gemm, bool own)
{
    const double begin = dp_onednn_now_ms(s);

    if (own) {
        dp_gemm(gemm, s->threads);
    } else {
        dp_matmul_onednn(s->threads, &gemm->product);
    }
    return dp_onednn_now_ms(s) - begin;
}

/* In turns; the first time of each is not counted, since its memory is new. */
static void time_both(const struct dp_stream *s, const struct dp_gemm *gemm, double ms[2])
{
    ms[0] = ms[1] = HUGE_VAL;
    for (int round = -1; round < ROUNDS; round++) {
        for (int own = 0; own < 2; own++) {
            const double taken = time_ms(s, gemm, own != 0);
            ms[own] = round < 0 ? HUGE_VAL : fmin(ms[own], taken);
        }
    }
}

static dp_status measure(const struct dp_stream *s, const struct dp_dense_key *key, double ms[2])
{
    struct dp_gemm gemm = {.product = dp_dense_product(key, NULL, NULL, NULL, 0.0f)};
    const size_t x = dp_round_up(key->rows * key->in, DP_MEM_ALIGN);
    const size_t y = dp_round_up(key->rows * key->out, DP_MEM_ALIGN);
    const size_t w = dp_round_up(key->in * key->out, DP_MEM_ALIGN);
    const size_t scratch = dp_gemm_bytes(&gemm.product, s->threads) / sizeof(float);
    float *block = dp_mem_arena(DP_MEM_LIBRARY, (x + y + w + scratch) * sizeof(float));

    if (block == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "memory to measure a dense layer with");
    }
    float *const at[3] = {block, block + x, block + x + y}; /* x, y, w */
    for (size_t i = 0; i < x + y + w; i++) {
        block[i] = 0.5f;
    }
    gemm.product.c = at[key->use == DP_DENSE_FORWARD         ? 1
                        : key->use == DP_DENSE_BACKWARD_DATA ? 0
                                                             : 2];
    gemm.product.a = at[key->use == DP_DENSE_FORWARD ? 0 : 1];
    gemm.product.b = at[key->use == DP_DENSE_BACKWARD_WEIGHTS ? 0 : 2];
    gemm.scratch = block + x + y + w;
    time_both(s, &gemm, ms);
    dp_free(block);
    return DP_OK;
}

/* ---- choosing ---- */

static void choice_name(const struct dp_stream *s, const struct dp_dense_key *key,
                        char name[DP_ALGO_CHOICE_KEY])
{
    (void)snprintf(name, DP_ALGO_CHOICE_KEY,
                   "dense %zu -> %zu%s of up to %zu rows, float32, %d thread%s", key->in, key->out,
                   key->use == DP_DENSE_FORWARD         ? ""
                   : key->use == DP_DENSE_BACKWARD_DATA ? " back to data"
                                                        : " back to weights",
                   dp_onednn_power_of_two_from(key->rows), s->threads, dp_plural(s->threads));
}

static dp_status choose(struct dp_stream *s, const struct dp_dense_key *key, bool *own)
{
    const bool follows = dp_algo_choices_follows(s->algo_choices);
    char name[DP_ALGO_CHOICE_KEY];
    double ms[2] = {0.0, 0.0};
    const char *code;

    choice_name(s, key, name);
    DP_TRY(dp_algo_choices_ask(s->algo_choices, name, &code));
    if (code != NULL || !dp_algo_choices_open(s->algo_choices)) {
        *own = code != NULL && strcmp(code, DP_PREPARED_GEMM) == 0;
        return DP_OK;
    }
    DP_TRY(follows ? DP_OK : measure(s, key, ms));
    *own = ms[1] < (1.0 - MARGIN) * ms[0];
    DP_DEBUG("%s: sgemm takes %.4f ms, ours %.4f", name, ms[0], ms[1]);
    return dp_algo_choices_note(s->algo_choices, name, *own ? DP_PREPARED_GEMM : sgemm, ms[*own]);
}

static dp_status add(struct dp_stream *s, struct dp_prepared_onednn *all,
                     const struct dp_dense_key *key)
{
    const struct dp_matmul product = dp_dense_product(key, NULL, NULL, NULL, 0.0f);
    struct dp_prepared_dense *dense;
    bool own = false;

    if (find(all, key) != NULL) {
        return DP_OK;
    }
    DP_TRY(choose(s, key, &own));
    DP_TRY(own ? dp_prepared_grow(all, dp_gemm_bytes(&product, s->threads)) : DP_OK);
    dense = dp_zalloc(1, sizeof(*dense));
    if (dense == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "prepared dense layer");
    }
    *dense = (struct dp_prepared_dense){all->dense, *key, own};
    all->dense = dense;
    return DP_OK;
}

dp_status dp_dense_choose(struct dp_stream *s, size_t rows, size_t in, size_t out, unsigned uses)
{
    static const unsigned each[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                    DP_DENSE_BACKWARD_WEIGHTS};
    struct dp_prepared_onednn *all = NULL;

    if (s->algo_choices == NULL || rows == 0 || in < LEAST || out < LEAST) {
        return DP_OK;
    }
    DP_TRY(dp_prepared_open(s, &all));
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        const struct dp_dense_key key = {rows, in, out, each[i]};
        const struct dp_matmul product = dp_dense_product(&key, NULL, NULL, NULL, 0.0f);
        DP_TRY((uses & each[i]) != 0 && dp_gemm_can(&product) ? add(s, all, &key) : DP_OK);
    }
    return DP_OK;
}

bool dp_dense_run_own(const struct dp_stream *s, const struct dp_dense_key *key,
                      const struct dp_matmul *product, const float *bias, bool relu)
{
    const struct dp_prepared_onednn *all = s->state;
    const struct dp_prepared_dense *dense = find(all, key);

    if (dense == NULL || !dense->own) {
        return false;
    }
    dp_op_path_note(s, "own", DP_PREPARED_GEMM);
    dp_gemm(&(struct dp_gemm){.product = *product,
                              .bias = bias,
                              .relu = relu,
                              .scratch = (float *)(void *)all->arena},
            s->threads);
    return true;
}
