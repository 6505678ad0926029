#include "kernels/cpu/onednn/choose_dense.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/statistics.h"
#include "kernels/algo_choices.h"
#include "kernels/cpu/onednn/choose_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"

enum {
    ROUNDS = 15, /* of measuring; the median counts */
    LEAST = 32   /* rows and columns of weights: smaller products are not worth measuring */
};

static const double MARGIN = 0.05; /* of the time of theirs */

struct dp_prepared_dense {
    struct dp_prepared_dense *next;
    struct dp_dense_key key;
    int way;
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

    while (d != NULL &&
           (d->key.rows != key->rows || d->key.in != key->in || d->key.out != key->out ||
            d->key.use != key->use || d->key.type != key->type)) {
        d = d->next;
    }
    return d;
}

/* ---- measuring ---- */

/* In turns; the first time of each is not counted, since its memory is new. The fastest time would
 * be that of a unit for tiles which nobody else used just then. */
static dp_status time_ways(struct dp_stream *s, const struct dp_dense_key *key,
                           const struct dp_dense_ways *ways, const struct dp_dense_arrays *arrays,
                           double ms[DP_DENSE_WAYS])
{
    double times[DP_DENSE_WAYS][ROUNDS];

    for (int round = -1; round < ROUNDS; round++) {
        for (int way = 0; way < ways->count; way++) {
            const double begin = dp_onednn_now_ms(s);
            DP_TRY(ways->run(s, key, arrays, way));
            times[way][round < 0 ? 0 : round] = dp_onednn_now_ms(s) - begin;
        }
    }
    for (int way = 0; way < ways->count; way++) {
        dp_sort(times[way], ROUNDS);
        ms[way] = dp_median(times[way], ROUNDS);
    }
    return DP_OK;
}

static size_t most_bytes(const struct dp_dense_ways *ways)
{
    size_t most = 0;

    for (int way = 0; way < ways->count; way++) {
        most = ways->way[way].bytes > most ? ways->way[way].bytes : most;
    }
    return most;
}

/* Arrays have room for float32 each. */
static dp_status measure(struct dp_stream *s, const struct dp_dense_key *key,
                         const struct dp_dense_ways *ways, double ms[DP_DENSE_WAYS])
{
    const size_t x = dp_round_up(key->rows * key->in * sizeof(float), DP_MEM_ALIGN);
    const size_t y = dp_round_up(key->rows * key->out * sizeof(float), DP_MEM_ALIGN);
    const size_t w = dp_round_up(key->in * key->out * sizeof(float), DP_MEM_ALIGN);
    char *block = dp_mem_arena(DP_MEM_LIBRARY, x + y + w + most_bytes(ways));
    dp_status status;

    if (block == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "memory to measure a dense layer with");
    }
    char *const at[3] = {block, block + x, block + x + y}; /* x, y, w */
    dp_onednn_fill((uint16_t *)(void *)block, (x + y + w) / sizeof(uint16_t));
    const struct dp_dense_arrays arrays = {
        .c = at[key->use == DP_DENSE_FORWARD         ? 1
                : key->use == DP_DENSE_BACKWARD_DATA ? 0
                                                     : 2],
        .a = at[key->use == DP_DENSE_FORWARD ? 0 : 1],
        .b = at[key->use == DP_DENSE_BACKWARD_WEIGHTS ? 0 : 2],
        .scratch = block + x + y + w,
    };
    status = time_ways(s, key, ways, &arrays, ms);
    dp_free(block);
    return status;
}

/* ---- choosing ---- */

static void choice_name(const struct dp_stream *s, const struct dp_dense_key *key,
                        char name[DP_ALGO_CHOICE_KEY])
{
    (void)snprintf(name, DP_ALGO_CHOICE_KEY,
                   "dense %zu -> %zu%s of up to %zu rows, %s, %d thread%s", key->in, key->out,
                   key->use == DP_DENSE_FORWARD         ? ""
                   : key->use == DP_DENSE_BACKWARD_DATA ? " back to data"
                                                        : " back to weights",
                   dp_onednn_power_of_two_from(key->rows),
                   key->type == DP_TYPE_F32 ? "float32" : "bfloat16", s->threads,
                   dp_plural(s->threads));
}

/* The way of that name; theirs where there is none. */
static int way_called(const struct dp_dense_ways *ways, const char *name)
{
    int way = ways->count - 1;

    while (way > 0 && (name == NULL || strcmp(name, ways->way[way].name) != 0)) {
        way--;
    }
    return way;
}

static int fastest(const struct dp_dense_ways *ways, const double ms[DP_DENSE_WAYS])
{
    int best = 1;

    for (int way = 2; way < ways->count; way++) {
        best = ms[way] < ms[best] ? way : best;
    }
    return ms[best] < (1.0 - MARGIN) * ms[0] ? best : 0;
}

static dp_status choose(struct dp_stream *s, const struct dp_dense_key *key,
                        const struct dp_dense_ways *ways, int *way)
{
    const bool follows = dp_algo_choices_follows(s->algo_choices);
    char name[DP_ALGO_CHOICE_KEY];
    double ms[DP_DENSE_WAYS] = {0};
    const char *code;

    choice_name(s, key, name);
    DP_TRY(dp_algo_choices_ask(s->algo_choices, name, &code));
    if (code != NULL || !dp_algo_choices_open(s->algo_choices)) {
        *way = way_called(ways, code);
        return DP_OK;
    }
    if (follows && !ways->by_all) {
        *way = 0;
        return dp_algo_choices_note(s->algo_choices, name, ways->way[0].name, 0.0);
    }
    DP_TRY(measure(s, key, ways, ms));
    *way = fastest(ways, ms);
    for (int i = 0; i < ways->count; i++) {
        DP_DEBUG("%s: %s takes %.4f ms", name, ways->way[i].name, ms[i]);
    }
    return dp_algo_choices_note(s->algo_choices, name, ways->way[*way].name, ms[*way]);
}

bool dp_dense_is_open(const struct dp_stream *s, size_t rows, size_t in, size_t out)
{
    return s->algo_choices != NULL && rows > 0 && in >= LEAST && out >= LEAST;
}

dp_status dp_dense_decide(struct dp_stream *s, const struct dp_dense_key *key,
                          const struct dp_dense_ways *ways)
{
    struct dp_prepared_onednn *all = NULL;
    struct dp_prepared_dense *dense;
    int way = 0;

    DP_TRY(dp_prepared_open(s, &all));
    if (find(all, key) != NULL) {
        return DP_OK;
    }
    DP_TRY(choose(s, key, ways, &way));
    DP_TRY(way > 0 ? dp_prepared_grow(all, ways->way[way].bytes) : DP_OK);
    dense = dp_zalloc(1, sizeof(*dense));
    if (dense == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "prepared dense layer");
    }
    *dense = (struct dp_prepared_dense){all->dense, *key, way};
    all->dense = dense;
    return DP_OK;
}

int dp_dense_way(const struct dp_stream *s, const struct dp_dense_key *key)
{
    const struct dp_prepared_dense *dense = find(s->state, key);

    return dense != NULL ? dense->way : 0;
}
