#include "runtime/trainer/state/replica_check.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"

/* One tensor of weights or optimizer state, with the gap after it, or a running statistic. */
struct dp_piece {
    const struct dp_tensor *tensor;
    const char *slot; /* of the optimizer; NULL: the tensor itself */
    float *data;
    size_t count;
    int bucket;
    uint64_t hash;
};

/* How this rank's piece differs from that of another rank. */
struct dp_rank_look {
    size_t differ, first; /* number of elements, and the first of them */
    float mine, other;    /* the first one's values */
};

/* What follows from the hashes of all ranks. */
struct verdict {
    bool split;
    int agreeing; /* ranks that are in the majority; 0: there is none */
    int good;     /* the lowest rank of the majority; without one rank 0 */
    int bad;      /* the lowest rank that differs from `good` */
    int others;   /* number of further ranks that differ */
};

/* What was found, to be reported. */
struct finding {
    const struct dp_piece *piece; /* the first that differs, or has no majority; or NULL */
    struct verdict verdict;
    struct dp_rank_look look;
    int pieces;
};

/* ---- what is compared ---- */

static bool is_shared(const struct dp_replica_check *r)
{
    const struct dp_exchange *e = r->config.exchange;

    return dp_exchange_group(e)->size > 1 && dp_exchange_sums(e);
}

static void add_piece(struct dp_replica_check *r, const struct dp_piece *piece)
{
    r->pieces[r->piece_count++] = *piece;
}

/* Adds an array in flat order, if there is one, cut into its tensors. */
static void add_flat(struct dp_replica_check *r, float *data, const char *slot)
{
    const struct dp_flat *f = r->config.flat;

    for (int i = 0; data != NULL && i < f->tensor_count; i++) {
        const size_t begin = f->tensors[i].begin;
        const size_t end = i + 1 < f->tensor_count ? f->tensors[i + 1].begin : f->trained;
        const struct dp_piece piece = {.tensor = &f->tensors[i],
                                       .slot = slot,
                                       .data = data + begin,
                                       .count = end - begin,
                                       .bucket =
                                           dp_exchange_plan(r->config.exchange)->bucket_of[i]};
        add_piece(r, &piece);
    }
}

/* Whether this rank has its own copy of all master weights. In every step narrow weights are
 * rounded from them, or published again where ranks own parts of them. */
static bool has_masters(const struct dp_replica_check *r)
{
    const struct dp_exchange *e = r->config.exchange;

    return r->config.flat->type == DP_TYPE_F32 ? !dp_exchange_has_one_copy(e)
                                               : !dp_exchange_is_sharded(e);
}

static void add_pieces(struct dp_replica_check *r)
{
    const struct dp_replica_check_config *c = &r->config;

    if (has_masters(r)) {
        add_flat(r, c->flat->master, NULL);
    }
    for (int i = 0; i < 3 && !dp_exchange_is_sharded(c->exchange); i++) {
        add_flat(r, i < 2 ? c->flat->slots[i] : c->flat->average,
                 i < 2 ? c->slots[i] : DP_AVERAGE_NAME);
    }
    for (int i = 0; i < c->model->buffer_count; i++) {
        const struct dp_tensor *buffer = &c->model->buffers[i];
        const struct dp_piece piece = {.tensor = buffer,
                                       .data = c->flat->running + buffer->begin,
                                       .count = buffer->count,
                                       .bucket = dp_exchange_plan(c->exchange)->count - 1};
        add_piece(r, &piece);
    }
}

dp_status dp_replica_check_create(const struct dp_replica_check_config *config,
                                  struct dp_replica_check **out)
{
    const size_t ranks = (size_t)dp_exchange_group(config->exchange)->size;
    const size_t most =
        4 * (size_t)config->flat->tensor_count + (size_t)config->model->buffer_count;
    struct dp_replica_check *r = dp_zalloc(1, sizeof(*r));

    if (r == NULL) {
        goto no_memory;
    }
    r->config = *config;
    r->pieces = dp_zalloc(most, sizeof(*r->pieces));
    r->looks = dp_zalloc(ranks, sizeof(*r->looks));
    r->hashes = dp_zalloc(ranks, sizeof(*r->hashes));
    r->hosts = dp_zalloc(ranks, sizeof(*r->hosts));
    r->block = dp_zalloc(DP_SLICE, sizeof(*r->block));
    if (r->pieces == NULL || r->looks == NULL || r->hashes == NULL || r->hosts == NULL ||
        r->block == NULL) {
        goto no_memory;
    }
    add_pieces(r);
    *out = r;
    return DP_OK;

no_memory:
    dp_replica_check_destroy(r);
    return DP_FAIL(DP_ERR_NOMEM, "comparison of %zu ranks", ranks);
}

void dp_replica_check_destroy(struct dp_replica_check *r)
{
    if (r == NULL) {
        return;
    }
    dp_free(r->block);
    dp_free(r->hosts);
    dp_free(r->hashes);
    dp_free(r->looks);
    dp_free(r->pieces);
    dp_free(r);
}

/* ---- hashes ---- */

/* On a GPU the host waits here for the slice, once a step: after the scalars of the last step, when
 * nothing is queued. */
static dp_status hash_slice(const struct dp_replica_check *r, uint64_t step, uint64_t *hash)
{
    const struct dp_flat *f = r->config.flat;
    const size_t slices = (f->trained + DP_SLICE - 1) / DP_SLICE;
    const size_t begin = (size_t)(step % slices) * DP_SLICE;
    const size_t left = f->trained - begin, count = left < DP_SLICE ? left : DP_SLICE;
    const size_t width = dp_type_bytes(f->type);

    DP_TRY(dp_host_state_fetch_weights(r->config.host_state, (struct dp_range){begin, count}));
    *hash = XXH3_64bits((const char *)f->weights + begin * width, count * width);
    return DP_OK;
}

static void hash_pieces(struct dp_replica_check *r)
{
    for (int i = 0; i < r->piece_count; i++) {
        struct dp_piece *p = &r->pieces[i];
        p->hash = XXH3_64bits(p->data, p->count * sizeof(float));
    }
}

/* Compares the pieces in bucket b, whose hashes have been gathered. */
static uint64_t bucket_hash(const struct dp_replica_check *r, int b)
{
    uint64_t hash = 0;

    for (int i = 0; i < r->piece_count; i++) {
        if (r->pieces[i].bucket == b) {
            hash = XXH3_64bits_withSeed(&r->pieces[i].hash, sizeof(hash), hash);
        }
    }
    return hash;
}

/* The hash of what the host state holds now. */
/* narrow: also of narrow weights, which are no piece, since each update rounds them anew. */
static uint64_t hash_all(struct dp_replica_check *r, bool narrow)
{
    const struct dp_flat *f = r->config.flat;
    const size_t bytes = narrow ? f->trained * dp_type_bytes(f->type) : 0;
    uint64_t hash = f->type != DP_TYPE_F32 ? XXH3_64bits(f->weights, bytes) : 0;

    hash_pieces(r);
    for (int b = 0; b < dp_exchange_plan(r->config.exchange)->count; b++) {
        const uint64_t of_bucket = bucket_hash(r, b);
        hash = XXH3_64bits_withSeed(&of_bucket, sizeof(of_bucket), hash);
    }
    return hash;
}

bool dp_replica_check_due(const struct dp_replica_check *r, uint64_t step, bool local)
{
    return is_shared(r) && !local && r->config.every > 0 && step >= r->next;
}

dp_status dp_replica_check_hash(struct dp_replica_check *r, uint64_t step, bool local,
                                uint64_t *hash)
{
    r->whole = dp_replica_check_due(r, step, local);
    if (r->whole) {
        r->next = (step / r->config.every + 1) * r->config.every;
    }
    *hash = 0;
    if (!is_shared(r) || local) {
        return DP_OK;
    }
    if (r->whole) {
        DP_TRY(dp_host_state_fetch(r->config.host_state));
        r->hash = hash_all(r, true);
    } else {
        DP_TRY(hash_slice(r, step, &r->hash));
    }
    *hash = r->hash;
    return DP_OK;
}

/* ---- which ranks are right ---- */

/* Boyer and Moore, "MJRTY - a fast majority vote algorithm", 1991. */
static struct verdict judge(const uint64_t *hashes, int ranks)
{
    struct verdict v = {.good = 0};
    int lead = 0;

    for (int i = 0; i < ranks; i++) {
        v.good = lead == 0 ? i : v.good;
        lead += hashes[i] == hashes[v.good] ? 1 : -1;
    }
    for (int i = 0; i < ranks; i++) {
        v.agreeing += hashes[i] == hashes[v.good];
    }
    if (2 * v.agreeing <= ranks) {
        v.agreeing = v.good = 0;
    }
    for (int i = ranks - 1; i >= 0; i--) {
        if (hashes[i] != hashes[v.good]) {
            v.others += v.split;
            v.split = true;
            v.bad = i;
        }
    }
    for (int i = v.good; i >= 0; i--) {
        v.good = hashes[i] == hashes[v.good] ? i : v.good;
    }
    return v;
}

static dp_status compare(struct dp_replica_check *r, uint64_t mine, struct verdict *verdict)
{
    DP_TRY(dp_exchange_gather(r->config.exchange, &mine, sizeof(mine), r->hashes));
    *verdict = judge(r->hashes, dp_exchange_group(r->config.exchange)->size);
    return DP_OK;
}

/* ---- where they differ ---- */

/* Compared as bits, so that a NaN equals itself. */
static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void look_at(struct dp_rank_look *look, const float *mine, const float *other, size_t begin,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bits_of(mine[i]) != bits_of(other[i]) && look->differ++ == 0) {
            look->first = begin + i;
            look->mine = mine[i];
            look->other = other[i];
        }
    }
}

/* Rank `good` broadcasts its piece, block by block; each rank compares its own, and copies what
 * differs if it is to be restored. */
static dp_status examine(struct dp_replica_check *r, const struct dp_piece *piece,
                         const struct verdict *v, struct finding *found)
{
    struct dp_exchange *e = r->config.exchange;
    const bool restore = r->config.restore && v->agreeing > 0;
    struct dp_rank_look look;

    memset(&look, 0, sizeof(look));
    for (size_t begin = 0; begin < piece->count; begin += DP_SLICE) {
        const size_t left = piece->count - begin, count = left < DP_SLICE ? left : DP_SLICE;
        if (dp_exchange_group(e)->rank == v->good) {
            memcpy(r->block, piece->data + begin, count * sizeof(float));
        }
        DP_TRY(dp_exchange_broadcast(e, r->block, count * sizeof(float), v->good));
        look_at(&look, piece->data + begin, r->block, begin, count);
        if (restore) {
            memcpy(piece->data + begin, r->block, count * sizeof(float));
        }
    }
    DP_TRY(dp_exchange_gather(e, &look, sizeof(look), r->looks));
    found->pieces++;
    if (found->piece == NULL || (v->agreeing == 0 && found->verdict.agreeing > 0)) {
        found->piece = piece;
        found->verdict = *v;
        found->look = r->looks[v->bad];
    }
    return DP_OK;
}

static dp_status search_bucket(struct dp_replica_check *r, int b, struct finding *found)
{
    struct verdict verdict;

    for (int i = 0; i < r->piece_count; i++) {
        if (r->pieces[i].bucket != b) {
            continue;
        }
        DP_TRY(compare(r, r->pieces[i].hash, &verdict));
        DP_TRY(verdict.split ? examine(r, &r->pieces[i], &verdict, found) : DP_OK);
    }
    return DP_OK;
}

static dp_status search(struct dp_replica_check *r, struct finding *found)
{
    struct verdict verdict;

    if (!r->whole) { /* slices were hashed before this step's update */
        DP_TRY(dp_host_state_fetch(r->config.host_state));
        hash_pieces(r);
    }
    for (int b = 0; b < dp_exchange_plan(r->config.exchange)->count; b++) {
        DP_TRY(compare(r, bucket_hash(r, b), &verdict));
        DP_TRY(verdict.split ? search_bucket(r, b, found) : DP_OK);
    }
    return DP_OK;
}

/* ---- what is reported ---- */

/* "rank 1 (node7) and 2 more differ from the other 5 ranks" */
static void say_who(const struct dp_replica_check *r, const struct verdict *v, char *text,
                    size_t size)
{
    const int ranks = dp_exchange_group(r->config.exchange)->size;
    char more[32] = "";

    if (v->agreeing == 0) {
        (void)snprintf(text, size,
                       "rank %d (%s) and rank %d (%s) differ, and no majority of %d "
                       "ranks shows which is right",
                       v->good, r->hosts[v->good], v->bad, r->hosts[v->bad], ranks);
        return;
    }
    if (v->others > 0) {
        (void)snprintf(more, sizeof(more), " and %d more", v->others);
    }
    (void)snprintf(text, size, "rank %d (%s)%s %s from the other %d rank%s", v->bad,
                   r->hosts[v->bad], more, v->others > 0 ? "differ" : "differs", v->agreeing,
                   dp_plural(v->agreeing));
}

/* The index of an element in model.safetensors; in the gap after a tensor its offset. */
static size_t element_of(const struct dp_tensor *tensor, size_t i)
{
    const size_t inner = tensor->spatial * tensor->channels;

    if (i >= tensor->count) {
        return i;
    }
    return i / inner * inner + i % tensor->channels * tensor->spatial +
           i % inner / tensor->channels;
}

/* "bucket 0, tensor 4.weight, element 7 is 1.5 instead of 0.5 (1 of 80 elements differs)" */
static void say_where(const struct finding *f, char *text, size_t size)
{
    const struct dp_piece *p = f->piece;
    const bool known = f->verdict.agreeing > 0;
    char more[48] = "";

    if (f->pieces > 1) {
        (void)snprintf(more, sizeof(more), ", and %d more tensor%s", f->pieces - 1,
                       f->pieces > 2 ? "s" : "");
    }
    (void)snprintf(text, size,
                   "bucket %d, tensor %s%s%s, element %zu is %.9g %s %.9g (%zu of %zu elements "
                   "differ%s%s)",
                   p->bucket, p->tensor->name, p->slot == NULL ? "" : ".",
                   p->slot == NULL ? "" : p->slot, element_of(p->tensor, f->look.first),
                   (double)(known ? f->look.mine : f->look.other), known ? "instead of" : "and",
                   (double)(known ? f->look.other : f->look.mine), f->look.differ, p->tensor->count,
                   f->look.differ == 1 ? "s" : "", more);
}

static dp_status gather_hosts(struct dp_replica_check *r)
{
    char mine[sizeof(r->hosts[0])] = "";

    (void)snprintf(mine, sizeof(mine), "%s", dp_log_host());
    return dp_exchange_gather(r->config.exchange, mine, sizeof(mine), r->hosts);
}

/* Rank 0 reports, since all ranks know the same; none leaves before that. */
static dp_status refuse(const struct dp_replica_check *r, uint64_t step, const char *who,
                        const char *where)
{
    dp_status status = DP_ERR_DISAGREE;

    if (dp_exchange_group(r->config.exchange)->rank == 0) {
        status = DP_FAIL(status, "after step %llu %s: %s", (unsigned long long)step, who, where);
    }
    return dp_exchange_barrier(r->config.exchange) == DP_OK ? status : DP_ERR_DISAGREE;
}

static void warn(const struct dp_replica_check *r, uint64_t step, const char *who,
                 const char *where)
{
    if (dp_exchange_group(r->config.exchange)->rank == 0) {
        DP_WARN("after step %llu %s: %s", (unsigned long long)step, who, where);
    }
}

/* Hashes differed, but the state no longer does: weights have been published over it since then. */
static dp_status resolve_healed(struct dp_replica_check *r, uint64_t step)
{
    static const char where[] = "in weights that were published anew since then";
    struct verdict verdict;
    char who[256];

    DP_TRY(compare(r, r->hash, &verdict));
    say_who(r, &verdict, who, sizeof(who));
    if (!r->config.restore) {
        return refuse(r, step, who, where);
    }
    warn(r, step, who, where);
    return DP_OK;
}

dp_status dp_replica_check_resolve(struct dp_replica_check *r, uint64_t step)
{
    struct finding found = {.piece = NULL};
    struct verdict verdict;
    char who[256], where[400];
    size_t length;

    DP_TRY(gather_hosts(r));
    DP_TRY(search(r, &found));
    if (found.piece == NULL) {
        return resolve_healed(r, step);
    }
    say_who(r, &found.verdict, who, sizeof(who));
    say_where(&found, where, sizeof(where));
    length = strlen(where);
    if (!r->config.restore || found.verdict.agreeing == 0) {
        (void)snprintf(where + length, sizeof(where) - length, "; test the memory of %s",
                       found.verdict.agreeing == 0
                           ? "these hosts"
                           : "that host, or set train.on_divergence=restore");
        return refuse(r, step, who, where);
    }
    DP_TRY(dp_host_state_put(r->config.host_state));
    DP_TRY(compare(r, hash_all(r, false), &verdict));
    if (verdict.split) {
        return refuse(r, step, who, "restored, and they differ again");
    }
    (void)snprintf(where + length, sizeof(where) - length, "; restored from rank %d",
                   found.verdict.good);
    warn(r, step, who, where);
    r->restored++;
    return DP_OK;
}

dp_status dp_replica_check_all(struct dp_replica_check *r, bool *split)
{
    struct verdict verdict;

    *split = false;
    if (!is_shared(r) || r->config.every == 0) {
        return DP_OK;
    }
    r->whole = true;
    DP_TRY(dp_host_state_fetch(r->config.host_state));
    r->hash = hash_all(r, false);
    DP_TRY(compare(r, r->hash, &verdict));
    *split = verdict.split;
    return DP_OK;
}
