/*
 * transport_local.c - ranks as threads of one process: for tests, and for a rank on its own.
 *
 * Each pair of ranks has a box in each direction. Of sender and receiver, the first to come leaves
 * a pointer in it and the second copies, so that no rank waits for one that is computing. One mutex
 * guards everything: this transport need not be fast.
 */
#include "collectives/core/group.h"
#include "collectives/core/transport.h"

#include <pthread.h>
#include <string.h>

enum { LOCAL_REGIONS = 64 };

/* One end of a message whose other end has not come yet. */
struct half {
    const void *out; /* the sender came first */
    void *in;        /* the receiver came first */
    size_t bytes;
};

/* Both sides number their messages; those below both numbers have been copied. */
struct box {
    struct half waiting[2 * DP_TRANSFERS_MAX]; /* half of them are checksums */
    uint64_t sent, wanted; /* messages started by the sender and by the receiver */
};

/* Memory that all ranks allocated together: one piece for each. */
struct region_piece {
    char *base; /* owned by its rank; by the hub if that rank left before the others */
    size_t bytes;
    bool unshared; /* only its rank reaches it */
};

struct region {
    struct region_piece *pieces; /* [size] */
};

struct dp_local_hub {
    int size;
    pthread_mutex_t mutex;
    pthread_cond_t *changed;     /* owned; [size]: a message from or to that rank was copied */
    struct box *boxes;           /* [size * size], from * size + to */
    struct region_piece *pieces; /* owned; [LOCAL_REGIONS * size] */
    struct region regions[LOCAL_REGIONS];
    int *nodes;    /* [size] */
    int shareable; /* allocations that are shared; later ones are private. -1: all */
    atomic_int cancel;
};

struct local_link {
    struct dp_local_hub *hub; /* borrowed, or owned when alone */
    bool alone;
    int asked; /* allocations so far */
};

dp_status dp_local_hub_create(int size, struct dp_local_hub **out)
{
    struct dp_local_hub *hub = dp_zalloc(1, sizeof(*hub));

    if (hub == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d local ranks", size);
    }
    hub->size = size;
    hub->shareable = -1;
    hub->boxes = dp_zalloc((size_t)size * (size_t)size, sizeof(*hub->boxes));
    hub->nodes = dp_zalloc((size_t)size, sizeof(*hub->nodes));
    hub->pieces = dp_zalloc((size_t)size * LOCAL_REGIONS, sizeof(*hub->pieces));
    hub->changed = dp_zalloc((size_t)size, sizeof(*hub->changed));
    for (int i = 0; hub->changed != NULL && i < size; i++) {
        (void)pthread_cond_init(&hub->changed[i], NULL);
    }
    (void)pthread_mutex_init(&hub->mutex, NULL);
    if (hub->boxes == NULL || hub->nodes == NULL || hub->pieces == NULL || hub->changed == NULL) {
        dp_local_hub_destroy(hub);
        return DP_FAIL(DP_ERR_NOMEM, "%d local ranks", size);
    }
    for (int i = 0; i < LOCAL_REGIONS; i++) {
        hub->regions[i].pieces = hub->pieces + (size_t)i * (size_t)size;
    }
    *out = hub;
    return DP_OK;
}

void dp_local_hub_destroy(struct dp_local_hub *hub)
{
    if (hub == NULL) {
        return;
    }
    for (int i = 0; hub->pieces != NULL && i < LOCAL_REGIONS * hub->size; i++) {
        dp_free(hub->pieces[i].base);
    }
    for (int i = 0; hub->changed != NULL && i < hub->size; i++) {
        (void)pthread_cond_destroy(&hub->changed[i]);
    }
    (void)pthread_mutex_destroy(&hub->mutex);
    dp_free(hub->changed);
    dp_free(hub->pieces);
    dp_free(hub->nodes);
    dp_free(hub->boxes);
    dp_free(hub);
}

void dp_local_hub_place(struct dp_local_hub *hub, const int *node_of)
{
    memcpy(hub->nodes, node_of, (size_t)hub->size * sizeof(*node_of));
}

void dp_local_hub_crowd(struct dp_local_hub *hub, int requests)
{
    hub->shareable = requests;
}

static void cancel_all(struct dp_local_hub *hub)
{
    atomic_store(&hub->cancel, 1);
    for (int i = 0; i < hub->size; i++) {
        (void)pthread_cond_broadcast(&hub->changed[i]);
    }
}

void dp_local_cancel(struct dp_local_hub *hub)
{
    (void)pthread_mutex_lock(&hub->mutex);
    cancel_all(hub);
    (void)pthread_mutex_unlock(&hub->mutex);
}

/* Both ends are there: copies, under the mutex, and wakes the rank that came first. A rank that
 * fails cancels all. After that no rank reads a box again, since its pointers may be invalid. */
static dp_status box_copy(struct dp_local_hub *hub, int first, const void *out, size_t sent,
                          void *in, size_t wanted)
{
    if (sent != wanted) {
        cancel_all(hub);
        return DP_FAIL(DP_ERR_INTERNAL, "a message of %zu bytes where %zu are expected", sent,
                       wanted);
    }
    if (sent > 0) {
        memcpy(in, out, sent);
    }
    (void)pthread_cond_broadcast(&hub->changed[first]);
    return DP_OK;
}

/* Checksums go beside the messages. */
static uint64_t most_of(const struct dp_group *group)
{
    return (group->checks != NULL ? 2 : 1) * (uint64_t)DP_TRANSFERS_MAX;
}

static dp_status box_send(const struct dp_group *group, struct dp_local_hub *hub, struct box *box,
                          int to, struct dp_slice out)
{
    struct half *half = &box->waiting[box->sent % (2 * (uint64_t)DP_TRANSFERS_MAX)];
    const bool second = box->sent < box->wanted;

    if (!second && box->sent - box->wanted >= most_of(group)) {
        return DP_FAIL(DP_ERR_INTERNAL, "more than %d messages under way", DP_TRANSFERS_MAX);
    }
    box->sent++;
    if (second) {
        return box_copy(hub, to, out.data, dp_slice_bytes(out), half->in, half->bytes);
    }
    *half = (struct half){.out = out.data, .bytes = dp_slice_bytes(out)};
    return DP_OK;
}

static dp_status box_want(const struct dp_group *group, struct dp_local_hub *hub, struct box *box,
                          int from, struct dp_slice in)
{
    struct half *half = &box->waiting[box->wanted % (2 * (uint64_t)DP_TRANSFERS_MAX)];
    const bool second = box->wanted < box->sent;

    if (!second && box->wanted - box->sent >= most_of(group)) {
        return DP_FAIL(DP_ERR_INTERNAL, "more than %d messages under way", DP_TRANSFERS_MAX);
    }
    box->wanted++;
    if (second) {
        return box_copy(hub, from, half->out, half->bytes, in.data, dp_slice_bytes(in));
    }
    *half = (struct half){.in = in.data, .bytes = dp_slice_bytes(in)};
    return DP_OK;
}

static bool box_copied(const struct box *box, uint64_t number)
{
    return box->sent > number && box->wanted > number;
}

/* Rank `self` waits, under the mutex, until message `number` has been copied. */
static bool box_wait(struct dp_local_hub *hub, int self, const struct box *box, uint64_t number)
{
    while (atomic_load(&hub->cancel) == 0) {
        if (box_copied(box, number)) {
            return true;
        }
        (void)pthread_cond_wait(&hub->changed[self], &hub->mutex);
    }
    return false;
}

static struct box *box_of(struct dp_local_hub *hub, int from, int to)
{
    return &hub->boxes[from * hub->size + to];
}

static dp_status local_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                             struct dp_transfer *t)
{
    struct dp_local_hub *hub = ((struct local_link *)group->link)->hub;
    dp_status status = DP_OK;

    (void)pthread_mutex_lock(&hub->mutex);
    if (atomic_load(&hub->cancel) != 0) {
        status = DP_ERR_CANCELLED;
    }
    if (status == DP_OK && t->from >= 0) {
        struct box *box = box_of(hub, t->from, group->rank);
        t->in[0] = box->wanted;
        status = box_want(group, hub, box, t->from, in);
    }
    if (status == DP_OK && t->to >= 0) {
        struct box *box = box_of(hub, group->rank, t->to);
        t->out[0] = box->sent;
        status = box_send(group, hub, box, t->to, out);
    }
    (void)pthread_mutex_unlock(&hub->mutex);
    return status;
}

static dp_status local_finish(struct dp_group *group, struct dp_transfer *t)
{
    struct dp_local_hub *hub = ((struct local_link *)group->link)->hub;
    bool done = true;

    (void)pthread_mutex_lock(&hub->mutex);
    if (t->from >= 0) {
        done = box_wait(hub, group->rank, box_of(hub, t->from, group->rank), t->in[0]);
    }
    if (done && t->to >= 0) {
        done = box_wait(hub, group->rank, box_of(hub, group->rank, t->to), t->out[0]);
    }
    (void)pthread_mutex_unlock(&hub->mutex);
    return done ? DP_OK : DP_ERR_CANCELLED;
}

static dp_status local_test(struct dp_group *group, struct dp_transfer *t, bool *done)
{
    struct dp_local_hub *hub = ((struct local_link *)group->link)->hub;
    dp_status status = DP_OK;

    (void)pthread_mutex_lock(&hub->mutex);
    if (atomic_load(&hub->cancel) != 0) {
        status = DP_ERR_CANCELLED;
    }
    *done = (t->from < 0 || box_copied(box_of(hub, t->from, group->rank), t->in[0])) &&
            (t->to < 0 || box_copied(box_of(hub, group->rank, t->to), t->out[0]));
    (void)pthread_mutex_unlock(&hub->mutex);
    return status;
}

/* All ranks put their piece into the first region that has none of theirs. It is the same region on
 * all, since they call in the same order. */
static void *local_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    struct local_link *link = group->link;
    struct dp_local_hub *hub = link->hub;
    char *piece = dp_mem_arena(purpose, bytes);
    const bool unshared = hub->shareable >= 0 && link->asked++ >= hub->shareable;
    struct region *region = NULL;

    if (dp_group_agree(group, piece == NULL ? DP_ERR_NOMEM : DP_OK) != DP_OK) {
        dp_free(piece);
        return NULL;
    }
    (void)pthread_mutex_lock(&hub->mutex);
    for (int i = 0; i < LOCAL_REGIONS && region == NULL; i++) {
        struct region *r = &hub->regions[i];
        region = r->pieces[group->rank].base == NULL ? r : NULL;
    }
    if (region != NULL) {
        region->pieces[group->rank] = (struct region_piece){piece, bytes, unshared};
    }
    (void)pthread_mutex_unlock(&hub->mutex);
    group->unshared = group->unshared || unshared;
    if (region == NULL) {
        dp_free(piece);
        piece = NULL;
    }
    /* cancelled: the hub keeps what is in a region */
    return dp_group_barrier(group) == DP_OK ? piece : NULL;
}

static struct region *region_of(struct dp_local_hub *hub, int rank, const void *place,
                                size_t *offset)
{
    const char *p = place;

    for (int i = 0; i < LOCAL_REGIONS; i++) {
        struct region *r = &hub->regions[i];
        const struct region_piece *piece = &r->pieces[rank];
        if (piece->base != NULL && p >= piece->base &&
            p < piece->base + (piece->bytes == 0 ? 1 : piece->bytes)) {
            *offset = (size_t)(p - piece->base);
            return r;
        }
    }
    return NULL;
}

static void local_release(struct dp_group *group, void *memory)
{
    struct dp_local_hub *hub = ((struct local_link *)group->link)->hub;
    const bool left = dp_group_barrier(group) != DP_OK; /* no rank uses it any more */
    struct region *region;
    size_t offset;

    (void)pthread_mutex_lock(&hub->mutex);
    region = region_of(hub, group->rank, memory, &offset);
    if (left) {
        memory = NULL; /* others may still use it: the hub keeps it to the end */
    } else if (region != NULL) {
        region->pieces[group->rank].base = NULL;
    }
    (void)pthread_mutex_unlock(&hub->mutex);
    dp_free(memory);
}

static void *local_peer(const struct dp_group *group, const void *mine, int peer)
{
    struct dp_local_hub *hub = ((struct local_link *)group->link)->hub;
    const struct region *region;
    size_t offset = 0;
    char *base = NULL;

    (void)pthread_mutex_lock(&hub->mutex);
    region = region_of(hub, group->rank, mine, &offset);
    if (region != NULL && hub->nodes[peer] == hub->nodes[group->rank] &&
        (peer == group->rank || !region->pieces[peer].unshared)) {
        base = region->pieces[peer].base;
    }
    (void)pthread_mutex_unlock(&hub->mutex);
    return base == NULL ? NULL : base + offset;
}

static void local_leave(struct dp_group *group)
{
    dp_local_cancel(((struct local_link *)group->link)->hub);
}

static void local_close(struct dp_group *group)
{
    struct local_link *link = group->link;

    if (link->alone) {
        dp_local_hub_destroy(link->hub);
    }
    dp_free(link);
    dp_free(group);
}

static const struct dp_transport local_transport = {
    .name = "local",
    .start = local_start,
    .finish = local_finish,
    .test = local_test,
    .memory = local_memory,
    .release = local_release,
    .peer = local_peer,
    .leave = local_leave,
    .close = local_close,
};

dp_status dp_local_join(struct dp_local_hub *hub, int rank, struct dp_group **out)
{
    struct dp_group *group = dp_zalloc(1, sizeof(*group));
    struct local_link *link = dp_zalloc(1, sizeof(*link));

    if (group == NULL || link == NULL) {
        dp_free(group);
        dp_free(link);
        return DP_FAIL(DP_ERR_NOMEM, "local rank %d", rank);
    }
    link->hub = hub;
    *group = (struct dp_group){.rank = rank,
                               .size = hub->size,
                               .transport = &local_transport,
                               .link = link,
                               .node_of = hub->nodes,
                               .cancel = &hub->cancel};
    for (int i = 0; i < hub->size; i++) {
        group->nodes = hub->nodes[i] >= group->nodes ? hub->nodes[i] + 1 : group->nodes;
        group->local_size += hub->nodes[i] == hub->nodes[rank];
    }
    *out = group;
    return DP_OK;
}

dp_status dp_local_alone(struct dp_group **out)
{
    struct dp_local_hub *hub;
    dp_status status;

    DP_TRY(dp_local_hub_create(1, &hub));
    status = dp_local_join(hub, 0, out);
    if (status != DP_OK) {
        dp_local_hub_destroy(hub);
        return status;
    }
    ((struct local_link *)(*out)->link)->alone = true;
    return DP_OK;
}
