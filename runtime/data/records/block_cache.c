#include "runtime/data/records/block_cache.h"

#include <pthread.h>

#include "base/mem.h"

enum { PIECE = 4096, NONE = -1 };

/* Memory of one block. All that hold one are in a list, from the one used last to the one that was
 * not used for longest. */
struct slot {
    uint8_t *data; /* owned; NULL: none */
    size_t room, block;
    int users;
    bool filled;
    int newer, older; /* in the list */
};

struct dp_block_cache {
    size_t blocks, most, bytes;
    int *slot_of;       /* owned; [blocks]: NONE: not kept */
    struct slot *slots; /* owned; [most] */
    int *spare;         /* owned; [spares]: slots without memory */
    size_t spares;
    size_t used; /* bytes of all slots */
    int newest, oldest;
    pthread_mutex_t mutex; /* of all but the first line */
    pthread_cond_t filled; /* or could not be */
};

size_t dp_block_cache_room(size_t bytes)
{
    return (bytes + PIECE - 1) / PIECE * PIECE;
}

dp_status dp_block_cache_create(size_t blocks, size_t most, size_t bytes,
                                struct dp_block_cache **out)
{
    struct dp_block_cache *c = dp_zalloc(1, sizeof(*c));

    if (c != NULL) {
        *c = (struct dp_block_cache){
            .blocks = blocks, .most = most, .bytes = bytes, .newest = NONE, .oldest = NONE};
        (void)pthread_mutex_init(&c->mutex, NULL);
        (void)pthread_cond_init(&c->filled, NULL);
        c->slot_of = dp_zalloc(blocks, sizeof(*c->slot_of));
        c->slots = dp_zalloc(most, sizeof(*c->slots));
        c->spare = dp_zalloc(most, sizeof(*c->spare));
    }
    if (c == NULL || c->slot_of == NULL || c->slots == NULL || c->spare == NULL) {
        dp_block_cache_destroy(c);
        return DP_FAIL(DP_ERR_NOMEM, "list of %zu blocks that are kept", most);
    }
    for (size_t i = 0; i < blocks; i++) {
        c->slot_of[i] = NONE;
    }
    for (size_t i = 0; i < most; i++) {
        c->spare[i] = (int)i;
    }
    c->spares = most;
    *out = c;
    return DP_OK;
}

void dp_block_cache_destroy(struct dp_block_cache *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; c->slots != NULL && i < c->most; i++) {
        dp_free(c->slots[i].data);
    }
    dp_free(c->slot_of);
    dp_free(c->slots);
    dp_free(c->spare);
    (void)pthread_cond_destroy(&c->filled);
    (void)pthread_mutex_destroy(&c->mutex);
    dp_free(c);
}

/* ---- the list ---- */

static void unlink_slot(struct dp_block_cache *c, int i)
{
    const struct slot *slot = &c->slots[i];

    *(slot->newer == NONE ? &c->newest : &c->slots[slot->newer].older) = slot->older;
    *(slot->older == NONE ? &c->oldest : &c->slots[slot->older].newer) = slot->newer;
}

static void link_newest(struct dp_block_cache *c, int i)
{
    c->slots[i].newer = NONE;
    c->slots[i].older = c->newest;
    *(c->newest == NONE ? &c->oldest : &c->slots[c->newest].newer) = i;
    c->newest = i;
}

static void link_oldest(struct dp_block_cache *c, int i)
{
    c->slots[i].older = NONE;
    c->slots[i].newer = c->oldest;
    *(c->oldest == NONE ? &c->newest : &c->slots[c->oldest].older) = i;
    c->oldest = i;
}

/* ---- room ---- */

/* The slot holds no block any more, and no memory. */
static void empty_slot(struct dp_block_cache *c, int i)
{
    struct slot *slot = &c->slots[i];

    c->used -= slot->room;
    dp_free(slot->data);
    *slot = (struct slot){.data = NULL};
    c->spare[c->spares++] = i;
}

/* A slot with memory that fits; NONE: there is none. */
static int find_room(struct dp_block_cache *c, size_t room, bool passes)
{
    for (;;) {
        int i;
        if (c->spares > 0 && room <= c->bytes - c->used) {
            i = c->spare[c->spares - 1];
            c->slots[i].data = dp_mem_arena(DP_MEM_KEPT, room);
            if (c->slots[i].data == NULL) {
                return NONE;
            }
            c->spares--;
            c->slots[i].room = room;
            c->used += room;
            return i;
        }
        for (i = c->oldest; i != NONE && c->slots[i].users > 0; i = c->slots[i].newer) {
        }
        if (i == NONE || passes || room > c->bytes) {
            return NONE;
        }
        c->slot_of[c->slots[i].block] = NONE;
        unlink_slot(c, i);
        if (c->slots[i].room == room) {
            return i;
        }
        empty_slot(c, i);
    }
}

/* ---- the face ---- */

static enum dp_block_place take(struct dp_block_cache *c, size_t block, size_t bytes, bool passes,
                                uint8_t **data)
{
    struct slot *slot;
    int i;

    while ((i = c->slot_of[block]) != NONE && !c->slots[i].filled) {
        (void)pthread_cond_wait(&c->filled, &c->mutex);
    }
    if (i != NONE) {
        slot = &c->slots[i];
        slot->users++;
        if (!passes) {
            unlink_slot(c, i);
            link_newest(c, i);
        }
        *data = slot->data;
        return DP_BLOCK_KEPT;
    }
    i = find_room(c, dp_block_cache_room(bytes), passes);
    if (i == NONE) {
        *data = NULL;
        return DP_BLOCK_ELSEWHERE;
    }
    slot = &c->slots[i];
    slot->block = block;
    slot->users = 1;
    slot->filled = false;
    c->slot_of[block] = i;
    if (passes) {
        link_oldest(c, i);
    } else {
        link_newest(c, i);
    }
    *data = slot->data;
    return DP_BLOCK_NEW;
}

enum dp_block_place dp_block_cache_take(struct dp_block_cache *c, size_t block, size_t bytes,
                                        bool passes, uint8_t **data)
{
    enum dp_block_place place;

    (void)pthread_mutex_lock(&c->mutex);
    place = take(c, block, bytes, passes, data);
    (void)pthread_mutex_unlock(&c->mutex);
    return place;
}

void dp_block_cache_filled(struct dp_block_cache *c, size_t block, bool well)
{
    (void)pthread_mutex_lock(&c->mutex);
    if (well) {
        c->slots[c->slot_of[block]].filled = true;
    } else {
        const int i = c->slot_of[block];
        c->slot_of[block] = NONE;
        unlink_slot(c, i);
        empty_slot(c, i);
    }
    (void)pthread_cond_broadcast(&c->filled);
    (void)pthread_mutex_unlock(&c->mutex);
}

void dp_block_cache_give(struct dp_block_cache *c, size_t block)
{
    (void)pthread_mutex_lock(&c->mutex);
    c->slots[c->slot_of[block]].users--;
    (void)pthread_mutex_unlock(&c->mutex);
}
