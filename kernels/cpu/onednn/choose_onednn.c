#include "kernels/cpu/onednn/choose_onednn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/statistics.h"
#include "base/system/machine.h"
#include "base/trace.h"
#include "kernels/algo_choices.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/onednn/conv_desc_onednn.h"
#include "kernels/ref/window.h"

enum {
    MOST = 8,      /* implementations of one convolution that are measured */
    ROUNDS = 9,    /* of measuring; the median counts: the fastest time would be that of a unit for
                    * tiles, or of a memory, which nobody else used just then */
    LEAST = 3,     /* rounds */
    ENOUGH_MS = 60 /* no further round for one convolution after so long */
};

static const double MARGIN = 0.05; /* of the preferred one's time */
/* What counts of the time of float32 by tiles, where the other ways use vectors: it halves while
 * nobody else uses the core's tiles, which changes within seconds. */
static const double TILES = 0.9;
static const double FAR = 1.5; /* so many times the best: another one is not measured again */

/* One that is measured. */
struct candidate {
    struct dp_prepared_conv *conv;
    double times[ROUNDS];
    int rounds;
    double least, ms; /* the least and the median of them */
};

struct trial {
    struct dp_prepared_onednn *all;
    const struct dp_prepared_key *key;
    struct candidate list[MOST]; /* the preferred one is the first */
    int count;
    dp_status status;
};

/* ---- finding them ---- */

static struct dp_onednn_conv described(const struct dp_prepared_onednn *all,
                                       const struct dp_prepared_key *key)
{
    return (struct dp_onednn_conv){all->engine, &key->window, key->rows, key->use, key->type};
}

static dp_status make_preferred(const struct dp_prepared_onednn *all,
                                const struct dp_prepared_key *key, struct dp_prepared_conv **out)
{
    const struct dp_onednn_conv conv = described(all, key);
    dnnl_primitive_desc_t desc = NULL;
    dp_status status;

    DP_TRY(dp_onednn_conv_desc(&conv, &desc));
    status = dp_prepared_conv_create(all->engine, key, desc, out);
    (void)dnnl_primitive_desc_destroy(desc);
    return status;
}

static dp_status add_own(struct trial *t, int threads)
{
    for (int own = 0; own < DP_PREPARED_OWNS; own++) {
        if (dp_prepared_has_own(own, t->key)) {
            DP_TRY(dp_prepared_own_create(own, t->key, threads, &t->list[t->count].conv));
            t->count++;
        }
    }
    return DP_OK;
}

/* Adds an implementation, unless there is one of its name: choices know them by name. Plain C++ is
 * out of the question where there is anything else. */
static bool add_candidate(void *context, const_dnnl_primitive_desc_t desc)
{
    const char *code = dp_onednn_desc_code(desc);
    struct trial *t = context;

    for (int i = 0; i < t->count; i++) {
        if (strcmp(t->list[i].conv->code, code) == 0) {
            return false;
        }
    }
    if (strncmp(code, "ref", 3) == 0) {
        return false;
    }
    t->status = dp_prepared_conv_create(t->all->engine, t->key, desc, &t->list[t->count].conv);
    t->count += t->status == DP_OK ? 1 : 0;
    return t->status != DP_OK || t->count == MOST;
}

/* What a known choice names. */
struct recalled {
    const struct dp_prepared_onednn *all;
    const struct dp_prepared_key *key;
    const char *code;
    struct dp_prepared_conv *conv; /* NULL: there is none of that name */
    dp_status status;
};

static bool recall_named(void *context, const_dnnl_primitive_desc_t desc)
{
    struct recalled *r = context;

    if (strcmp(dp_onednn_desc_code(desc), r->code) != 0) {
        return false;
    }
    r->status = dp_prepared_conv_create(r->all->engine, r->key, desc, &r->conv);
    return true;
}

/* Replaces *conv by the implementation of that name. It stays where there is none, which is alike
 * in each run: the choice was made for another number of rows. */
static dp_status recall(const struct dp_stream *s, const struct dp_prepared_key *key,
                        const char *code, struct dp_prepared_conv **conv)
{
    const struct dp_onednn_conv what = described(s->state, key);
    struct recalled recalled = {s->state, key, code, NULL, DP_OK};
    int own = 0;

    if (strcmp((*conv)->code, code) == 0) {
        return DP_OK;
    }
    while (own < DP_PREPARED_OWNS &&
           (strcmp(code, dp_prepared_own_code(own)) != 0 || !dp_prepared_has_own(own, key))) {
        own++;
    }
    if (own < DP_PREPARED_OWNS) {
        DP_TRY(dp_prepared_own_create(own, key, s->threads, &recalled.conv));
    } else {
        DP_TRY(dp_onednn_each_conv(&what, recall_named, &recalled));
        DP_TRY(recalled.status);
    }
    if (recalled.conv != NULL) {
        dp_prepared_conv_destroy(*conv);
        *conv = recalled.conv;
    }
    return DP_OK;
}

/* ---- measuring ---- */

/* The arrays of all candidates lie in one block. */
static dp_status place(const struct dp_prepared_key *key, struct dp_prepared_arrays *arrays,
                       uint16_t **memory)
{
    const struct dp_window *w = &key->window;
    const size_t x = dp_round_up(key->rows * dp_window_in(w) * sizeof(float), DP_MEM_ALIGN);
    const size_t y = dp_round_up(key->rows * dp_window_out(w) * sizeof(float), DP_MEM_ALIGN);
    const size_t weights = dp_round_up(dp_window_weights(w) * sizeof(float), DP_MEM_ALIGN);
    const size_t bytes = x + y + weights + dp_round_up(w->out_c * sizeof(float), DP_MEM_ALIGN);
    char *block = dp_mem_arena(DP_MEM_LIBRARY, bytes);

    if (block == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu bytes to measure a convolution with", bytes);
    }
    *memory = (uint16_t *)(void *)block;
    dp_onednn_fill(*memory, bytes / sizeof(**memory));
    *arrays = (struct dp_prepared_arrays){block, block + x, block + x + y, block + x + y + weights,
                                          false};
    return DP_OK;
}

void dp_onednn_fill(uint16_t *numbers, size_t count)
{
    enum { HALF = 0x3f00, SIGN_AND_FRACTION = 0x807f };
    uint32_t state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (uint16_t)(HALF | (state >> 16 & SIGN_AND_FRACTION));
    }
}

double dp_onednn_now_ms(const struct dp_stream *s)
{
    struct timespec now = {0, 0};

    if (s->threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
        return (double)dp_now_ns() * 1e-6;
    }
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static dp_status time_one(struct dp_stream *s, struct candidate *candidate,
                          const struct dp_prepared_arrays *arrays)
{
    const double begin = dp_onednn_now_ms(s);

    DP_TRY(dp_prepared_run(s, candidate->conv, arrays));
    candidate->times[candidate->rounds++] = dp_onednn_now_ms(s) - begin;
    candidate->least = fmin(candidate->least, candidate->times[candidate->rounds - 1]);
    return DP_OK;
}

/* Runs each once. *best: the least time of any so far. */
static dp_status time_round(struct dp_stream *s, struct trial *t,
                            const struct dp_prepared_arrays *arrays, int round, double *best)
{
    const double far = FAR * *best;

    for (int i = 0; i < t->count; i++) {
        if (i == 0 || round < LEAST || t->list[i].least < far) {
            DP_TRY(time_one(s, &t->list[i], arrays));
        }
        *best = fmin(*best, t->list[i].least);
    }
    return DP_OK;
}

/* The first time of each is not counted, since its memory is new. */
static dp_status time_all(struct dp_stream *s, struct trial *t,
                          const struct dp_prepared_arrays *arrays)
{
    const double begin = dp_onednn_now_ms(s);
    double best = HUGE_VAL;

    for (int i = 0; i < t->count; i++) {
        DP_TRY(time_one(s, &t->list[i], arrays));
        t->list[i].least = HUGE_VAL;
        t->list[i].rounds = 0;
    }
    for (int round = 0;
         round < ROUNDS && (round < LEAST || dp_onednn_now_ms(s) - begin < ENOUGH_MS); round++) {
        DP_TRY(time_round(s, t, arrays, round, &best));
    }
    for (int i = 0; i < t->count; i++) {
        dp_sort(t->list[i].times, (size_t)t->list[i].rounds);
        t->list[i].ms = dp_median(t->list[i].times, (size_t)t->list[i].rounds);
    }
    return DP_OK;
}

/* With scratch of its own: the stream's has the size of what was chosen. */
static dp_status measure(struct dp_stream *s, struct trial *t)
{
    struct dp_prepared_arrays arrays;
    uint16_t *memory = NULL;
    char *before = t->all->arena, *arena;
    size_t most = 0;
    dp_status status;

    for (int i = 0; i < t->count; i++) {
        const size_t bytes = t->list[i].conv->arena_bytes;
        most = bytes > most ? bytes : most;
    }
    DP_TRY(place(t->key, &arrays, &memory));
    arena = dp_mem_arena(DP_MEM_LIBRARY, most);
    if (arena == NULL) {
        dp_free(memory);
        return DP_FAIL(DP_ERR_NOMEM, "%zu bytes of scratch to measure a convolution with", most);
    }
    t->all->arena = arena;
    status = time_all(s, t, &arrays);
    t->all->arena = before;
    dp_free(arena);
    dp_free(memory);
    return status;
}

/* ---- choosing ---- */

static double counted_ms(const struct candidate *c)
{
    const bool tiles = c->conv->primitive == NULL &&
                       (c->conv->own == DP_OWN_POINTWISE || c->conv->own == DP_OWN_CONV_SPLIT);

    return tiles ? TILES * c->ms : c->ms;
}

static int best_of(const struct trial *t)
{
    int best = 0;

    for (int i = 1; i < t->count; i++) {
        if (counted_ms(&t->list[i]) < counted_ms(&t->list[best])) {
            best = i;
        }
    }
    return counted_ms(&t->list[best]) < (1 - MARGIN) * counted_ms(&t->list[0]) ? best : 0;
}

/* Replaces *conv by what is fastest, and notes it. */
static dp_status choose(struct dp_stream *s, const char *name, struct dp_prepared_conv **conv)
{
    struct trial t = {.all = s->state, .key = &(*conv)->key, .list = {{.conv = *conv}}, .count = 1};
    const struct dp_onednn_conv what = described(t.all, t.key);
    int best = 0;
    dp_status status = add_own(&t, s->threads);

    if (status == DP_OK) {
        status = dp_onednn_each_conv(&what, add_candidate, &t);
    }
    status = status == DP_OK ? t.status : status;
    if (status == DP_OK) {
        status = measure(s, &t);
    }
    if (status == DP_OK) {
        best = best_of(&t);
        status =
            dp_algo_choices_note(s->algo_choices, name, t.list[best].conv->code, t.list[best].ms);
    }
    if (status == DP_OK && best != 0) {
        DP_DEBUG("%s: %s takes %.4f ms, %s %.4f", name, t.list[best].conv->code, t.list[best].ms,
                 t.list[0].conv->code, t.list[0].ms);
    }
    *conv = t.list[best].conv;
    for (int i = 0; i < t.count; i++) {
        if (i != best) {
            dp_prepared_conv_destroy(t.list[i].conv);
        }
    }
    return status;
}

size_t dp_onednn_power_of_two_from(size_t rows)
{
    size_t power = 1;

    while (power < rows) {
        power *= 2;
    }
    return power;
}

static void choice_name(const struct dp_stream *s, const struct dp_prepared_key *key,
                        char name[DP_ALGO_CHOICE_KEY])
{
    const struct dp_window *w = &key->window;

    (void)snprintf(name, DP_ALGO_CHOICE_KEY,
                   "%s %zux%zux%zu -> %zux%zux%zu by %zux%zu stride %zu padding %zu groups %zu of "
                   "up to %zu rows, %s, %d thread%s%s",
                   (key->use & DP_CONV_FORWARD) != 0         ? "convolution"
                   : (key->use & DP_CONV_BACKWARD_DATA) != 0 ? "convolution back to data"
                                                             : "convolution back to weights",
                   w->in_h, w->in_w, w->in_c, w->out_h, w->out_w, w->out_c, w->kernel_h,
                   w->kernel_w, w->stride, w->padding, dp_window_groups(w),
                   dp_onednn_power_of_two_from(key->rows),
                   key->type == DP_TYPE_F32 ? "float32" : "bfloat16", s->threads,
                   dp_plural(s->threads), (key->use & DP_CONV_BIAS) != 0 ? ", bias" : "");
}

static dp_status choose_or_recall(struct dp_stream *s, struct dp_prepared_conv **conv)
{
    char name[DP_ALGO_CHOICE_KEY];
    const char *code;

    choice_name(s, &(*conv)->key, name);
    DP_TRY(dp_algo_choices_ask(s->algo_choices, name, &code));
    if (code != NULL) {
        return recall(s, &(*conv)->key, code, conv);
    }
    if (!dp_algo_choices_open(s->algo_choices)) {
        return DP_OK;
    }
    /* Ranks that follow choose, too, and at the same time, where tiles may be taken: they, or other
     * users of the machine, may share a core's unit for tiles. */
    return dp_algo_choices_follows(s->algo_choices) && !dp_prepared_may_use_tiles(&(*conv)->key)
               ? dp_algo_choices_note(s->algo_choices, name, (*conv)->code, 0.0)
               : choose(s, name, conv);
}

dp_status dp_onednn_choose(struct dp_stream *s, const struct dp_prepared_key *key,
                           struct dp_prepared_conv **out)
{
    struct dp_prepared_conv *conv = NULL;
    dp_status status;

    DP_TRY(make_preferred(s->state, key, &conv));
    status = s->algo_choices != NULL ? choose_or_recall(s, &conv) : DP_OK;
    if (status != DP_OK) {
        dp_prepared_conv_destroy(conv);
        return status;
    }
    *out = conv;
    return DP_OK;
}

void dp_onednn_machine(char *text, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    char model[DP_MACHINE_MODEL];

    dp_machine_model(model, sizeof(model));
    /* What there is to choose from belongs to it: an older choice would hide what is new. */
    (void)snprintf(
        text, size, "%s, oneDNN %d.%d.%d, instruction set %#x%s, %s", model, version->major,
        version->minor, version->patch, (unsigned)dnnl_get_effective_cpu_isa(),
        dp_amx_has() ? ", " DP_PREPARED_AMX ", " DP_PREPARED_DENSE_AMX ", " DP_PREPARED_GEMM_AMX
                       ", " DP_PREPARED_POINTWISE ", " DP_PREPARED_CONV ", " DP_PREPARED_CONV_SPLIT
                     : "",
        DP_PREPARED_WINOGRAD ", " DP_PREPARED_GEMM);
}
