#include "runtime/checkpoint/snapshot.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/exchange/exchange_calls.h"

/* Bytes of a row in the snapshot. */
static size_t whole_bytes(const struct dp_state_entry *row, const struct dp_flat *flat, int ranks)
{
    const size_t trained = flat->trained * sizeof(float);

    switch (row->spread) {
    case DP_SPREAD_OWNED:
        return trained;
    case DP_SPREAD_RANK:
    case DP_SPREAD_OWNER:
        return (size_t)ranks * trained;
    default:
        return row->bytes;
    }
}

static int slots_of(const struct dp_state_entry *row, int ranks)
{
    if (row->kind != DP_STATE_SLOT && row->kind != DP_STATE_ARRAY) {
        return 0;
    }
    return dp_state_is_own(row) ? ranks : 1;
}

static void name_slots(struct dp_snapshot *s)
{
    for (int i = 0; i < s->rows.count; i++) {
        const struct dp_state_entry *row = &s->rows.rows[i];
        const int count = slots_of(row, s->ranks);

        for (int k = 0; k < count; k++) {
            char *name = s->names[s->slot_count];
            if (dp_state_is_own(row)) {
                (void)snprintf(name, DP_SNAPSHOT_NAME, "%s.rank%d", row->name, k);
            } else {
                (void)snprintf(name, DP_SNAPSHOT_NAME, "%s", row->name);
            }
            s->slots[s->slot_count++] =
                (struct dp_slot){name, (float *)row->data + (size_t)k * s->trained,
                                 row->kind == DP_STATE_ARRAY ? row->bytes / sizeof(float) : 0};
        }
    }
}

/* Sets everything but the rows' memory, whose size is *bytes. */
static struct dp_snapshot *create(const struct dp_state_dict *state_dict,
                                  const struct dp_flat *flat, int ranks, size_t *bytes)
{
    struct dp_snapshot *s = dp_zalloc(1, sizeof(*s));
    size_t slots = 0;

    *bytes = 0;
    for (int i = 0; i < state_dict->count; i++) {
        *bytes += dp_round_up(whole_bytes(&state_dict->rows[i], flat, ranks), DP_MEM_ALIGN);
        slots += (size_t)slots_of(&state_dict->rows[i], ranks);
    }
    if (s == NULL) {
        return NULL;
    }
    s->slots = dp_zalloc(slots, sizeof(*s->slots));
    s->names = dp_zalloc(slots, sizeof(*s->names));
    if (s->slots == NULL || s->names == NULL) {
        dp_snapshot_destroy(s);
        return NULL;
    }
    s->rows = *state_dict;
    s->ranks = ranks;
    s->trained = flat->trained;
    for (int i = 0; i < state_dict->count; i++) {
        s->rows.rows[i].bytes = whole_bytes(&state_dict->rows[i], flat, ranks);
        s->rows.rows[i].data = NULL;
    }
    return s;
}

static void place_rows(struct dp_snapshot *s, char *memory)
{
    for (int i = 0; i < s->rows.count; i++) {
        s->rows.rows[i].data = memory;
        memory += dp_round_up(s->rows.rows[i].bytes, DP_MEM_ALIGN);
    }
    name_slots(s);
}

static dp_status no_memory(size_t bytes)
{
    return DP_FAIL(DP_ERR_NOMEM, "checkpoints need %zu MB", bytes >> 20);
}

dp_status dp_snapshot_create(const struct dp_state_dict *state_dict, const struct dp_flat *flat,
                             int ranks, struct dp_snapshot **out)
{
    size_t bytes;
    struct dp_snapshot *s = create(state_dict, flat, ranks, &bytes);

    if (s != NULL) {
        s->memory = dp_mem_arena(DP_MEM_CHECKPOINT, bytes);
    }
    if (s == NULL || s->memory == NULL) {
        dp_snapshot_destroy(s);
        return no_memory(bytes);
    }
    s->peers = 1;
    place_rows(s, s->memory);
    *out = s;
    return DP_OK;
}

/* The arguments of a job that allocates memory for all ranks. */
struct share_request {
    struct dp_snapshot *snapshot;
    size_t bytes;
};

/* Finds the ranks that copy: those of rank 0's node, in order. Rank 0 knows how many reach its
 * memory. */
static dp_status find_peers(struct dp_snapshot *s, bool reaches)
{
    struct dp_group *group = s->group;

    s->place = reaches ? 0 : -1;
    for (int i = 0; i < group->size; i++) {
        s->peers += dp_group_peer(group, s->window, i) != NULL;
        s->place += reaches && i < group->rank && group->node_of[i] == group->node_of[0];
    }
    return dp_group_broadcast(group, &s->peers, sizeof(s->peers), 0);
}

/* Rank 0's piece has the number of copies, then the rows; the others' pieces are minimal. */
static dp_status share_job(void *arg, int index)
{
    const struct share_request *r = arg;
    struct dp_snapshot *s = r->snapshot;
    struct dp_group *group = s->group;
    char *memory;

    (void)index;
    s->window =
        dp_group_memory(group, DP_MEM_CHECKPOINT, DP_MEM_ALIGN + (group->rank == 0 ? r->bytes : 0));
    if (s->window == NULL) {
        return DP_OK; /* the same on all ranks; a failing job would be the engine's last */
    }
    memory = group->rank == 0 ? s->window : dp_group_peer(group, s->window, 0);
    if (memory != NULL) {
        s->copied = (atomic_ullong *)memory;
        place_rows(s, memory + DP_MEM_ALIGN);
    }
    return find_peers(s, memory != NULL);
}

dp_status dp_snapshot_share(const struct dp_state_dict *state_dict, const struct dp_flat *flat,
                            struct dp_exchange *exchange, int threads, struct dp_snapshot **out)
{
    struct share_request r;
    dp_status status;

    r.snapshot = create(state_dict, flat, dp_exchange_group(exchange)->size, &r.bytes);
    status = r.snapshot == NULL
                 ? no_memory(r.bytes)
                 : dp_async_copy_create(state_dict->count * dp_exchange_plan(exchange)->count,
                                        threads, &r.snapshot->async_copy);
    status = dp_exchange_agree(exchange, status);
    if (r.snapshot != NULL && status == DP_OK) {
        r.snapshot->group = dp_exchange_group(exchange);
        r.snapshot->exchange = exchange;
        status = dp_exchange_call(exchange, share_job, &r, 0);
        if (status == DP_OK && r.snapshot->window == NULL) { /* on all ranks */
            status = r.snapshot->group->rank == 0 ? no_memory(r.bytes) : DP_ERR_NOMEM;
        }
    }
    if (r.snapshot == NULL || status != DP_OK) {
        dp_snapshot_destroy(r.snapshot);
        return status;
    }
    *out = r.snapshot;
    return DP_OK;
}

static dp_status release_job(void *arg, int index)
{
    const struct dp_snapshot *s = arg;

    (void)index;
    dp_group_release(s->group, s->window);
    return DP_OK;
}

void dp_snapshot_destroy(struct dp_snapshot *s)
{
    if (s == NULL) {
        return;
    }
    dp_async_copy_destroy(s->async_copy);
    if (s->window != NULL) { /* after an error of the engine, the group releases it when it ends */
        (void)!dp_exchange_call(s->exchange, release_job, s, 0);
    }
    dp_free(s->names);
    dp_free(s->slots);
    dp_free(s->memory);
    dp_free(s);
}

void dp_snapshot_fill(struct dp_snapshot *s, const struct dp_state_dict *state_dict)
{
    for (int i = 0; i < state_dict->count; i++) {
        const struct dp_state_entry *row = &state_dict->rows[i];
        if (!dp_state_is_array(row) || row->kind == DP_STATE_ARRAY) {
            memcpy(s->rows.rows[i].data, row->data, row->bytes);
        }
    }
}

/* ---- from all ranks ---- */

/* Sends every rank's array in turn to rank 0, through the gradient's memory. */
static dp_status take_ranks(float *whole, const struct dp_state_entry *row, struct dp_exchange *e)
{
    const struct dp_group *group = dp_exchange_group(e);
    const size_t trained = row->bytes / sizeof(float);
    float *gradient = dp_exchange_host_gradient(e);

    for (int rank = 0; rank < group->size; rank++) {
        if (rank == group->rank) {
            memcpy(gradient, row->data, row->bytes);
        }
        DP_TRY(dp_exchange_broadcast(e, gradient, row->bytes, rank));
        if (whole != NULL) {
            memcpy(whole + (size_t)rank * trained, gradient, row->bytes);
        }
    }
    return DP_OK;
}

/* Copies now. */
static void copy_at_once(struct dp_snapshot *s, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    s->copied_bytes += bytes;
}

static void copy(struct dp_snapshot *s, float *to, const float *from, size_t count)
{
    if (s->async_copy != NULL) {
        dp_async_copy_add(s->async_copy, to, from, count * sizeof(float));
        s->copied_bytes += count * sizeof(float);
    } else {
        copy_at_once(s, to, from, count * sizeof(float));
    }
}

/* Copies this rank's parts of all buckets to their places. `whole_too`: the source array is whole
 * as well, not [owned]. */
static void copy_owned(struct dp_snapshot *s, float *whole, const float *array, bool whole_too,
                       const struct dp_exchange *e)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(e);

    for (int b = 0; b < plan->count; b++) {
        const struct dp_bucket *bucket = &plan->buckets[b];
        const struct dp_range mine = dp_exchange_mine(e, b);
        if (!bucket->exact) {
            copy(s, whole + mine.begin, array + (whole_too ? mine.begin : bucket->owned_at),
                 mine.count);
        }
    }
}

/* Copies an array that is equal on all ranks. If steps update it, each local peer copies its
 * share. */
static void copy_same(struct dp_snapshot *s, void *whole, const struct dp_state_entry *row)
{
    const struct dp_slice all = {whole, row->bytes / sizeof(float), sizeof(float)};

    if (row->kind == DP_STATE_WEIGHTS || row->kind == DP_STATE_SLOT) {
        const struct dp_slice part = dp_slice_chunk(all, s->peers, s->place);
        const size_t at = (size_t)((float *)part.data - (float *)whole);
        copy(s, part.data, (const float *)row->data + at, part.count);
    } else if (s->place == 0) {
        copy_at_once(s, whole, row->data, row->bytes);
    }
}

/* `whole` is NULL on ranks that do not reach it; `direct`: all ranks reach it. */
static dp_status take_row(struct dp_snapshot *s, float *whole, const struct dp_state_entry *row,
                          struct dp_exchange *e, bool direct)
{
    const size_t trained = row->bytes / sizeof(float), rank = (size_t)dp_exchange_group(e)->rank;

    if (row->spread == DP_SPREAD_OWNED && dp_exchange_is_sharded(e)) {
        if (!direct) {
            return dp_exchange_collect(e, row->data, rank == 0 ? whole : NULL);
        }
        copy_owned(s, whole, row->data, false, e);
    } else if (dp_state_is_own(row)) { /* compressors': sums change them, updates do not */
        if (!direct) {
            return take_ranks(rank == 0 ? whole : NULL, row, e);
        }
        copy_at_once(s, whole + rank * trained, row->data, row->bytes);
    } else if (row->kind == DP_STATE_WEIGHTS && dp_exchange_is_sharded(e) && direct) {
        copy_owned(s, whole, row->data, true, e);
    } else if (whole != NULL) {
        copy_same(s, whole, row);
    }
    return DP_OK;
}

/* Whether rank 0 copies the node's only copy of the weights alone: the other ranks would update it
 * during the copy. */
static bool others_change_it(const struct dp_snapshot *s, const struct dp_exchange *e)
{
    return s != NULL && s->async_copy != NULL && dp_exchange_has_one_copy(e) &&
           s->peers < dp_exchange_group(e)->size;
}

dp_status dp_snapshot_take(struct dp_snapshot *s, const struct dp_state_dict *state_dict,
                           struct dp_exchange *e)
{
    const bool direct = s != NULL && s->peers == dp_exchange_group(e)->size;

    if (s != NULL) {
        dp_async_copy_finish(s->async_copy);
    }
    if (s != NULL && s->peers > 1) { /* readers on rank 0 are done */
        DP_TRY(dp_exchange_barrier(e));
    }
    for (int i = 0; i < state_dict->count; i++) {
        float *whole = s != NULL ? s->rows.rows[i].data : NULL;
        DP_TRY(take_row(s, whole, &state_dict->rows[i], e, direct));
    }
    if (s != NULL && s->copied != NULL) {
        s->takes++;
        dp_async_copy_start(s->async_copy, s->copied);
    }
    if (others_change_it(s, e)) {
        dp_async_copy_finish(s->async_copy);
        return dp_exchange_barrier(e);
    }
    return DP_OK;
}

dp_status dp_snapshot_wait(const struct dp_snapshot *s)
{
    DP_AWAIT_RANKS();
    struct dp_backoff backoff = {.cancel = s->group != NULL ? s->group->cancel : NULL};

    while (s->copied != NULL && atomic_load_explicit(s->copied, memory_order_acquire) <
                                    s->takes * (unsigned long long)s->peers) {
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
    return DP_OK;
}

/* ---- to all ranks ---- */

/* Sends rank 0's array [trained], NULL elsewhere, to the gradient's memory of all ranks. */
static dp_status spread(const float *whole, const struct dp_flat *flat, struct dp_exchange *e)
{
    const size_t bytes = flat->trained * sizeof(float);
    float *gradient = dp_exchange_host_gradient(e);

    if (whole != NULL) {
        memcpy(gradient, whole, bytes);
    }
    return dp_exchange_broadcast(e, gradient, bytes, 0);
}

/* One of the ranks that share a copy writes it, before any rank reads it. */
static dp_status restore_weights(const struct dp_state_entry *row, const float *whole,
                                 const struct dp_flat *flat, struct dp_exchange *e)
{
    DP_TRY(spread(whole, flat, e));
    if (dp_exchange_writes(e)) {
        memcpy(row->data, dp_exchange_host_gradient(e), row->bytes);
    }
    return dp_exchange_barrier(e);
}

static dp_status restore_owned(const struct dp_state_entry *row, const float *whole,
                               const struct dp_flat *flat, struct dp_exchange *e)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(e);
    const float *whole_here = dp_exchange_host_gradient(e);

    DP_TRY(spread(whole, flat, e));
    for (int b = 0; b < plan->count; b++) {
        const struct dp_bucket *bucket = &plan->buckets[b];
        const struct dp_range mine = dp_exchange_mine(e, b);
        if (!bucket->exact) {
            memcpy((float *)row->data + bucket->owned_at, whole_here + mine.begin,
                   mine.count * sizeof(float));
        }
    }
    return DP_OK;
}

static float sum_over(const float *whole, size_t count, int ranks, size_t i)
{
    float sum = whole[i];

    for (int rank = 1; rank < ranks; rank++) {
        sum += whole[(size_t)rank * count + i];
    }
    return sum;
}

/* Sums the arrays of all ranks in rank order, and divides. `more`: the owners' arrays, or NULL. */
static void split_evenly(float *part, const float *whole, const float *more, size_t count, int from,
                         int to)
{
    for (size_t i = 0; i < count; i++) {
        const float owners = more != NULL ? sum_over(more, count, from, i) : 0.0f;
        part[i] = (sum_over(whole, count, from, i) + owners) / (float)to;
    }
}

/* Restores a row of ranks when their number, or the places that they own, have changed. */
static dp_status split_ranks(const struct dp_state_entry *row, const float *whole,
                             const float *more, int ranks, const struct dp_flat *flat,
                             struct dp_exchange *e)
{
    if (row->spread == DP_SPREAD_OWNER) {
        memset(row->data, 0, row->bytes);
        return DP_OK;
    }
    if (whole != NULL) {
        split_evenly(row->data, whole, more, flat->trained, ranks, dp_exchange_group(e)->size);
    }
    return dp_exchange_broadcast(e, row->data, row->bytes, 0);
}

static dp_status restore_ranks(const struct dp_state_entry *row, const float *whole,
                               const struct dp_flat *flat, struct dp_exchange *e)
{
    for (int rank = 0; rank < dp_exchange_group(e)->size; rank++) {
        DP_TRY(spread(whole != NULL ? whole + (size_t)rank * flat->trained : NULL, flat, e));
        if (rank == dp_exchange_group(e)->rank) {
            memcpy(row->data, dp_exchange_host_gradient(e), row->bytes);
        }
    }
    return DP_OK;
}

static dp_status restore_row(const struct dp_state_entry *row, const void *whole,
                             const struct dp_flat *flat, struct dp_exchange *e)
{
    if (row->kind == DP_STATE_WEIGHTS && row->spread == DP_SPREAD_SAME) {
        return restore_weights(row, whole, flat, e);
    }
    if (row->spread == DP_SPREAD_OWNED) {
        return restore_owned(row, whole, flat, e);
    }
    if (dp_state_is_own(row)) {
        return restore_ranks(row, whole, flat, e);
    }
    if (whole != NULL) {
        memcpy(row->data, whole, row->bytes);
    }
    return dp_exchange_broadcast(e, row->data, row->bytes, 0);
}

dp_status dp_snapshot_restore(const struct dp_snapshot *s, int ranks,
                              const struct dp_state_dict *state_dict, const struct dp_flat *flat,
                              struct dp_exchange *e)
{
    bool moved = s != NULL && s->moved;

    DP_TRY(dp_exchange_broadcast(e, &moved, sizeof(moved), 0));
    for (int i = 0; i < state_dict->count; i++) {
        const struct dp_state_entry *row = &state_dict->rows[i],
                                    *saved = s != NULL ? &s->rows.rows[i] : NULL;
        const void *whole = saved != NULL ? saved->data : NULL;
        const bool second = i > 0 && row[-1].spread == DP_SPREAD_OWNER;
        const bool owners = second || row->spread == DP_SPREAD_OWNER;

        if (dp_state_is_own(row) && (ranks != dp_exchange_group(e)->size || (moved && owners))) {
            DP_TRY(split_ranks(row, whole, saved != NULL && second ? saved[-1].data : NULL, ranks,
                               flat, e));
        } else {
            DP_TRY(restore_row(row, whole, flat, e));
        }
        dp_trace_beat();
    }
    return DP_OK;
}
