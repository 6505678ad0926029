/*
 * gpu_peers.c - seats (which rank uses which GPU) and links (memory that several ranks use).
 */
#include "collectives/gpu/gpu_peers.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/system/process.h"
#include "kernels/stream_trace.h"

enum { LINKS = 8 };

/* What each rank sends to the others. */
struct seat {
    char name[DP_UNIT_NAME];
    int unit;
    struct dp_process process;
};

/* Memory that all ranks allocated together. */
struct link {
    char *base; /* this rank's */
    size_t bytes;
    char **pieces;  /* [size]; owned array; address of each rank's piece here; NULL: not
                     * reachable */
    bool *attached; /* [size]; owned array */
};

struct offer {
    struct dp_unit_handle handle; /* for other processes; undefined with why_not */
    uint64_t address;             /* in its own process */
    char why_not[128];            /* why it cannot be shared with them; empty: it can */
};

struct dp_gpu_peers_links {
    struct seat *seats;   /* [size] */
    struct offer *offers; /* [size] */
    struct link links[LINKS];
};

static bool same_process(struct dp_process a, struct dp_process b)
{
    return a.space == b.space && a.id == b.id;
}

/* ---- links ---- */

static void link_close(const struct dp_gpu_peers *gpus, struct link *link, int size)
{
    for (int i = 0; link->attached != NULL && i < size; i++) {
        if (link->attached[i]) {
            gpus->device->units->detach(link->pieces[i]);
        }
    }
    dp_free(link->attached);
    dp_free(link->pieces);
    *link = (struct link){.base = NULL};
}

/* Makes the piece of rank `i` usable here. */
static bool attach(const struct dp_group *group, struct link *link, int i, const char **why_not)
{
    const struct dp_gpu_peers *gpus = group->gpus;
    const struct seat *seats = gpus->links->seats;
    const struct offer *offer = &gpus->links->offers[i];

    if (i == group->rank) {
        link->pieces[i] = link->base;
    } else if (same_process(seats[i].process, seats[group->rank].process)) {
        if (gpus->device->units->join(seats[i].unit, why_not)) {
            link->pieces[i] = (char *)(uintptr_t)offer->address; /* NOLINT: a rank as a thread */
        }
    } else if (offer->why_not[0] != '\0') {
        *why_not = offer->why_not;
    } else {
        link->pieces[i] = gpus->device->units->attach(&offer->handle, why_not);
        link->attached[i] = link->pieces[i] != NULL;
    }
    return link->pieces[i] != NULL;
}

/* The address of this rank's piece, and a handle for other processes if there can be one. */
static struct offer make_offer(const struct dp_gpu_peers *gpus, void *memory)
{
    struct offer mine;
    const char *why_not = NULL;

    memset(&mine, 0, sizeof(mine));
    mine.address = (uint64_t)(uintptr_t)memory;
    if (!gpus->device->units->share(memory, &mine.handle, &why_not)) {
        (void)snprintf(mine.why_not, sizeof(mine.why_not),
                       "memory cannot be shared with other processes: %.50s", why_not);
    }
    return mine;
}

/* All ranks exchange the addresses of their pieces and attach all pieces. *why_not: NULL where all
 * could be attached; else valid until the next link_open(). */
static dp_status link_open(struct dp_group *group, struct link *link, const char **why_not)
{
    const size_t size = (size_t)group->size;
    struct dp_gpu_peers *gpus = group->gpus;
    const struct offer mine = make_offer(gpus, link->base);
    dp_status status = DP_OK;

    *why_not = NULL;
    link->pieces = dp_zalloc(size, sizeof(*link->pieces));
    link->attached = dp_zalloc(size, sizeof(*link->attached));
    if (link->pieces == NULL || link->attached == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "GPU memory of %d ranks", group->size);
    }
    status = dp_group_agree(group, status);
    if (status != DP_OK || link->pieces == NULL || link->attached == NULL) {
        return status;
    }
    DP_TRY(dp_group_allgather(group, &mine, sizeof(mine), gpus->links->offers));
    for (int i = 0; i < group->size; i++) {
        if (!attach(group, link, i, why_not)) {
            break;
        }
    }
    return DP_OK;
}

dp_status dp_gpu_peers_object(struct dp_group *group, const char *mine,
                              char why_not[DP_GPU_PEERS_WHY])
{
    char *all = dp_zalloc((size_t)group->size, DP_GPU_PEERS_WHY), text[DP_GPU_PEERS_WHY] = "";
    dp_status status = dp_group_agree(group, all == NULL ? DP_ERR_NOMEM : DP_OK);

    if (mine != NULL) {
        (void)snprintf(text, sizeof(text), "%s", mine);
    }
    status = status == DP_OK ? dp_group_allgather(group, text, sizeof(text), all) : status;
    why_not[0] = '\0';
    for (int i = 0; status == DP_OK && all != NULL && i < group->size && why_not[0] == '\0'; i++) {
        const char *theirs = all + (size_t)i * DP_GPU_PEERS_WHY;
        if (theirs[0] != '\0') {
            (void)snprintf(why_not, DP_GPU_PEERS_WHY, "%.130s%s", theirs,
                           i > 0 ? " (not on rank 0)" : "");
        }
    }
    dp_free(all);
    return status;
}

static bool is_one_process(const struct dp_group *group)
{
    const struct seat *seats = group->gpus->links->seats;
    bool one = true;

    for (int i = 0; i < group->size; i++) {
        one = one && same_process(seats[i].process, seats[group->rank].process);
    }
    return one;
}

/* Frees memory, unless ranks have left each other: then another process may not have detached it,
 * and CUDA does not say what becomes of it there. It goes with this process, which ends soon. */
static void let_go(const struct dp_group *group, const struct dp_device *device, void *memory)
{
    if (atomic_load(group->cancel) == 0 || is_one_process(group)) {
        device->release(memory);
    } else if (memory != NULL) {
        DP_DEBUG("GPU memory that others may use is left to the end of the process");
    }
}

/* Finds out by trying whether ranks reach each other's memory. */
static dp_status try_links(struct dp_group *group)
{
    struct dp_gpu_peers *gpus = group->gpus;
    struct link probe = {.base = gpus->device->alloc(DP_MEM_COMM, DP_UNIT_PIECE)};
    void *memory = probe.base;
    const char *why_not = NULL;
    dp_status status = memory == NULL ? DP_FAIL(DP_ERR_NOMEM, "GPU memory to be shared") : DP_OK;

    status = dp_group_agree(group, status);
    status = status == DP_OK ? link_open(group, &probe, &why_not) : status;
    status = status == DP_OK ? dp_gpu_peers_object(group, why_not, gpus->why_unreachable) : status;
    gpus->reach = status == DP_OK && gpus->why_unreachable[0] == '\0';
    link_close(gpus, &probe, group->size);
    status = status == DP_OK ? dp_group_barrier(group) : status;
    let_go(group, gpus->device, memory);
    return status;
}

void *dp_gpu_peers_memory(struct dp_group *group, const struct dp_device *device,
                          enum dp_purpose purpose, size_t bytes)
{
    struct dp_gpu_peers *gpus = group->gpus;
    const bool linked = gpus != NULL && gpus->reach;
    const size_t pieces = (bytes + DP_UNIT_PIECE - 1) / DP_UNIT_PIECE;
    void *memory =
        device->alloc(purpose, linked ? (pieces > 0 ? pieces : 1) * DP_UNIT_PIECE : bytes);
    struct link *link = NULL;
    const char *why_not = NULL;

    if (gpus == NULL) {
        return memory;
    }
    for (int i = 0; linked && i < LINKS && link == NULL; i++) {
        link = gpus->links->links[i].base == NULL ? &gpus->links->links[i] : NULL;
    }
    if (dp_group_agree(group, memory == NULL || (linked && link == NULL) ? DP_ERR_NOMEM : DP_OK) !=
        DP_OK) {
        device->release(memory);
        return NULL;
    }
    if (linked) {
        *link = (struct link){.base = memory, .bytes = bytes};
        dp_status status = link_open(group, link, &why_not);
        if (status == DP_OK) { /* attaching has just worked, and no link is in use yet */
            status = dp_gpu_peers_object(group, why_not, gpus->why_unreachable);
            gpus->reach = gpus->why_unreachable[0] == '\0';
        }
        if (status != DP_OK) {
            link_close(gpus, link, group->size);
            let_go(group, device, memory);
            return NULL;
        }
    }
    return memory;
}

/* The link that contains a place. */
static struct link *link_of(const struct dp_group *group, const void *place)
{
    const char *p = place;

    for (int i = 0; group->gpus != NULL && i < LINKS; i++) {
        struct link *link = &group->gpus->links->links[i];
        if (link->base != NULL && p >= link->base && p < link->base + link->bytes + 1) {
            return link;
        }
    }
    return NULL;
}

/* All ranks detach before the owner frees the memory. A rank that has left the others ends its
 * process soon and does not wait. */
void dp_gpu_peers_release(struct dp_group *group, const struct dp_device *device, void *memory)
{
    struct link *link = memory != NULL ? link_of(group, memory) : NULL;

    if (link == NULL) {
        device->release(memory);
        return;
    }
    link_close(group->gpus, link, group->size);
    if (dp_group_barrier(group) != DP_OK) {
        DP_DEBUG("ranks have left each other");
    }
    let_go(group, device, memory);
}

void *dp_gpu_peers_peer(const struct dp_group *group, const void *mine, int peer)
{
    const struct link *link = link_of(group, mine);

    return link == NULL || link->pieces[peer] == NULL
               ? NULL
               : link->pieces[peer] + ((const char *)mine - link->base);
}

/* ---- seats ---- */

/* This rank's number among those of its node. */
static int local_number(const struct dp_group *group)
{
    int number = 0;

    for (int i = 0; i < group->rank; i++) {
        number += group->node_of[i] == group->node_of[group->rank];
    }
    return number;
}

static dp_status take_seat(const struct dp_group *group, const struct dp_units *units,
                           struct seat *seat)
{
    const int count = units->count();

    if (count < 1) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "rank %d sees no GPU: is CUDA_VISIBLE_DEVICES set?",
                       group->rank);
    }
    memset(seat, 0, sizeof(*seat));
    seat->unit = local_number(group) % count;
    seat->process = dp_process_self();
    if (group->size > 1) { /* a group of one rank uses that rank's current GPU */
        DP_TRY(units->choose(seat->unit));
    }
    return units->name(seat->name);
}

/* Counts the GPUs, and the ranks that share one. */
static void count_seats(struct dp_group *group)
{
    struct dp_gpu_peers *gpus = group->gpus;
    const struct seat *seats = gpus->links->seats;

    for (int i = 0; i < group->size; i++) {
        int before = 0, all = 0;
        for (int k = 0; k < group->size; k++) {
            const bool same =
                group->node_of[i] == group->node_of[k] && strcmp(seats[i].name, seats[k].name) == 0;
            before += same && k < i;
            all += same;
        }
        gpus->count += before == 0;
        gpus->most = all > gpus->most ? all : gpus->most;
        gpus->here = i == group->rank ? all : gpus->here;
    }
}

static dp_status gpus_open(struct dp_group *group)
{
    struct dp_gpu_peers *gpus = group->gpus;
    struct seat mine;
    dp_status status;

    gpus->links = dp_zalloc(1, sizeof(*gpus->links));
    if (gpus->links != NULL) {
        gpus->links->seats = dp_zalloc((size_t)group->size, sizeof(*gpus->links->seats));
        gpus->links->offers = dp_zalloc((size_t)group->size, sizeof(*gpus->links->offers));
    }
    status = gpus->links == NULL || gpus->links->seats == NULL || gpus->links->offers == NULL
                 ? DP_FAIL(DP_ERR_NOMEM, "GPUs of %d ranks", group->size)
                 : take_seat(group, gpus->device->units, &mine);
    if (status == DP_OK) {
        status = gpus->device->stream_create(gpus->device, 1, &gpus->stream);
    }
    if (status == DP_OK) {
        dp_stream_set_lane(gpus->stream, DP_LANE_GPU_COMMUNICATION, 0);
    }
    DP_TRY(dp_group_agree(group, status));
    DP_TRY(dp_group_allgather(group, &mine, sizeof(mine), gpus->links->seats));
    count_seats(group);
    if (!dp_group_one_node(group)) {
        (void)snprintf(gpus->why_unreachable, sizeof(gpus->why_unreachable),
                       "the ranks do not live on one node");
        return DP_OK;
    }
    return group->size > 1 ? try_links(group) : DP_OK;
}

static void destroy_gpus(struct dp_group *group)
{
    struct dp_gpu_peers *gpus = group->gpus;

    if (gpus == NULL) {
        return;
    }
    if (gpus->stream != NULL) {
        gpus->device->stream_destroy(gpus->stream);
    }
    if (gpus->links != NULL) {
        dp_free(gpus->links->offers);
        dp_free(gpus->links->seats);
    }
    dp_free(gpus->links);
    dp_free(gpus);
    group->gpus = NULL;
}

dp_status dp_gpu_peers_create(struct dp_group *group, const struct dp_device *device)
{
    dp_status status;

    if (group->gpus != NULL || device->units == NULL) {
        return DP_OK;
    }
    group->gpus = dp_zalloc(1, sizeof(*group->gpus));
    if (group->gpus == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "GPUs of %d ranks", group->size);
    }
    group->destroy_gpus = destroy_gpus;
    group->gpus->device = device;
    status = gpus_open(group);
    if (status != DP_OK) {
        destroy_gpus(group);
    }
    return status;
}

void dp_gpu_peers_describe(const struct dp_group *group, char *text, size_t size)
{
    const struct dp_gpu_peers *gpus = group->gpus;

    text[0] = '\0';
    if (gpus != NULL && gpus->most > 1) {
        (void)snprintf(text, size, "%d ranks share %d GPU%s, up to %d on each", group->size,
                       gpus->count, dp_plural(gpus->count), gpus->most);
    }
}
