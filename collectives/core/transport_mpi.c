/*
 * transport_mpi.c - messages by MPI_Isend and MPI_Irecv, shared memory by MPI windows.
 *
 * We wait with MPI_Testall and sleeps (backoff.h): a blocking MPI call spins, which takes the core
 * from computing. Open MPI moves bytes only inside its calls, so the sleeps are short.
 */
#include "collectives/core/transport_mpi.h"

#include "base/log.h"
#include "collectives/core/backoff.h"
#include "collectives/core/left_memory.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/open_transfers_mpi.h"
#include "collectives/core/pieces_mpi.h"
#include "collectives/core/shrink_mpi.h"
#include "collectives/core/transport.h"
#include "collectives/core/window_fits_mpi.h"

enum { TAG = 7, MPI_REGIONS = 64 };

/* Memory that the ranks of a node allocated together, or private memory (window null). */
struct window {
    char *base;
    size_t bytes;
    MPI_Win window;
    char **pieces; /* [size]: address of each rank's piece here; NULL: not reachable */
    void *mapped;  /* the memory of the whole node, `length` bytes */
    size_t length;
    enum dp_purpose purpose;
};

struct mpi_link {
    MPI_Comm comm, node;            /* owned */
    struct dp_open_transfers *open; /* owned; NULL: a rank that is lost ends the job */
    int *node_of;                   /* [size] */
    int *local_rank_of;             /* [size]: rank within its node */
    struct window windows[MPI_REGIONS];
    bool warned;
    struct dp_wire_pace pace; /* of the wire */
};

/* Bytes of a message to or from a rank on another node, else 0. */
static size_t far_bytes(const struct dp_group *group, struct dp_slice slice, int peer)
{
    return peer >= 0 && group->node_of[peer] != group->node_of[group->rank] ? dp_slice_bytes(slice)
                                                                            : 0;
}

static dp_status mpi_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                           struct dp_transfer *transfer)
{
    const struct mpi_link *link = group->link;
    const size_t out_bytes = far_bytes(group, out, transfer->to);
    const size_t in_bytes = far_bytes(group, in, transfer->from);

    transfer->far_bytes = out_bytes > in_bytes ? out_bytes : in_bytes;
    if (transfer->from >= 0) {
        DP_TRY(dp_pieces_start(link->comm, in, transfer->from, in_bytes > 0, DP_RECEIVE,
                               transfer->in));
    }
    if (transfer->to >= 0) {
        DP_TRY(
            dp_pieces_start(link->comm, out, transfer->to, out_bytes > 0, DP_SEND, transfer->out));
    }
    dp_open_transfers_add(link->open, transfer);
    return DP_OK;
}

static dp_status mpi_finish(struct dp_group *group, struct dp_transfer *transfer)
{
    struct mpi_link *link = group->link;
    struct dp_requests requests = dp_pieces_requests(transfer);
    struct dp_backoff backoff = {
        .cancel = group->cancel,
        .spin_ns = group->spin_ns,
        .expect_ns = dp_wire_pace_expect(&link->pace, transfer->far_bytes),
    };

    const dp_status status = dp_pieces_wait(&backoff, requests.all, requests.count);
    dp_open_transfers_end(link->open, transfer, status == DP_OK ? NULL : &requests);
    DP_TRY(status);
    if (transfer->far_bytes > 0) {
        dp_wire_pace_note(&link->pace, transfer->far_bytes, backoff.begin_ns);
    }
    return DP_OK;
}

static dp_status mpi_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    const struct mpi_link *link = group->link;
    struct dp_requests requests = dp_pieces_requests(transfer);
    int all = 0;
    const dp_status status =
        DP_MPI(MPI_Testall(requests.count, requests.all, &all, MPI_STATUSES_IGNORE));

    *done = status == DP_OK && all != 0; /* until then requests stay unchanged */
    if (status != DP_OK || all != 0) {
        dp_open_transfers_end(link->open, transfer, status == DP_OK ? NULL : &requests);
    }
    return status;
}

static struct window *window_of(const struct dp_group *group, const void *place)
{
    struct mpi_link *link = group->link;
    const char *p = place;

    for (int i = 0; i < MPI_REGIONS; i++) {
        struct window *w = &link->windows[i];
        if (w->base != NULL && p >= w->base && p < w->base + (w->bytes == 0 ? 1 : w->bytes)) {
            return w;
        }
    }
    return NULL;
}

/* Aligns a piece; MPI aligns to 8 bytes only. Mappings differ by whole pages, so every rank
 * computes the same address for a piece. */
static char *align_piece(char *base)
{
    return base + (DP_MEM_ALIGN - (uintptr_t)base % DP_MEM_ALIGN) % DP_MEM_ALIGN;
}

/* Bytes that a rank requests from MPI: space to align its piece, in whole pages. */
static size_t piece_length(size_t bytes)
{
    return dp_round_up(bytes + DP_MEM_ALIGN, 4096);
}

/* MPI maps all pieces together, whole pages each. */
static void note_mapped(struct window *w, char *piece, size_t length)
{
    char *const known = w->mapped != NULL ? w->mapped : piece;
    char *const known_end = known + w->length, *const piece_end = piece + length;
    char *const begin = piece < known ? piece : known;
    const char *const end = piece_end > known_end ? piece_end : known_end;

    w->mapped = begin;
    w->length = (size_t)(end - begin);
}

/* Maps the pieces of all ranks of this node. Every rank touches its own first, so that the pages
 * are on its own NUMA node. */
static dp_status window_open(const struct dp_group *group, struct window *w, size_t bytes)
{
    const struct mpi_link *link = group->link;
    MPI_Info info;
    MPI_Aint length;
    int unit;

    DP_TRY(DP_MPI(MPI_Info_create(&info)));
    (void)MPI_Info_set(info, "alloc_shared_noncontig", "true");
    if (MPI_Win_allocate_shared((MPI_Aint)piece_length(bytes), 1, info, link->node, &w->base,
                                &w->window) != MPI_SUCCESS) {
        w->base = NULL;
        w->window = MPI_WIN_NULL;
    }
    (void)MPI_Info_free(&info);
    if (w->base == NULL) {
        return DP_ERR_NOMEM;
    }
    w->base = align_piece(w->base);
    if (!dp_mem_clear(w->base, bytes)) {
        return DP_ERR_NOMEM; /* another job has taken the space since the check */
    }
    for (int i = 0; i < group->size; i++) {
        if (link->node_of[i] == link->node_of[group->rank]) {
            DP_TRY(DP_MPI(MPI_Win_shared_query(w->window, link->local_rank_of[i], &length, &unit,
                                               &w->pieces[i])));
            note_mapped(w, w->pieces[i], (size_t)length);
            w->pieces[i] = align_piece(w->pieces[i]);
        }
    }
    return DP_OK;
}

/* Allocates private memory with the same interface: no peer can reach it. A node without space for
 * shared memory logs a warning. */
static void window_private(struct dp_group *group, struct window *w, size_t bytes, bool room)
{
    struct mpi_link *link = group->link;

    group->unshared = true;
    w->base = dp_mem_arena(w->purpose, bytes);
    for (int i = 0; w->pieces != NULL && i < group->size; i++) {
        w->pieces[i] = i == group->rank ? w->base : NULL;
    }
    if (w->purpose == DP_MEM_CHECKPOINT) {
        return; /* rank 0 then copies for all: nothing to report */
    }
    if (!link->warned && !room && link->local_rank_of[group->rank] == 0) {
        DP_WARN("no room for shared memory of %zu KB a rank in %s (is it missing, full or "
                "read-only, or ulimit -f, -n or -v small?): ranks of this node keep copies, and "
                "strategies over shared memory may not run; in a container, raise --shm-size",
                (bytes >> 10) + 1, dp_mpi_window_folder());
    }
    link->warned = true;
}

/* MPI frees windows and communicators collectively. A rank that has left the others must not wait
 * for them, since they may never come (dp_group_leave). */
static bool left(const struct dp_group *group)
{
    return atomic_load(group->cancel) != 0;
}

static void window_close(const struct dp_group *group, struct window *w)
{
    if (w->window != MPI_WIN_NULL) {
        if (!left(group)) {
            (void)MPI_Win_free(&w->window);
        } else {
            dp_left_memory_add(w->mapped, w->length);
        }
        dp_mem_count(w->purpose, -(long long)w->bytes);
    } else {
        dp_free(w->base);
    }
    dp_free(w->pieces);
    *w = (struct window){.window = MPI_WIN_NULL};
}

/* Whether `mine` is true on all ranks. */
static bool all_agree(MPI_Comm comm, bool mine)
{
    int in = mine, out = 0;
    const int code = MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_LAND, comm);

    if (dp_mpi_is_loss(code)) {
        dp_mpi_revoke(comm); /* others may wait for this rank */
    }
    return code == MPI_SUCCESS && out != 0;
}

static void *mpi_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    struct mpi_link *link = group->link;
    struct window *w = NULL;
    bool room;

    for (int i = 0; i < MPI_REGIONS && w == NULL; i++) {
        w = link->windows[i].base == NULL ? &link->windows[i] : NULL;
    }
    if (w == NULL) {
        return NULL;
    }
    *w = (struct window){.window = MPI_WIN_NULL, .bytes = bytes, .purpose = purpose};
    w->pieces = dp_zalloc((size_t)group->size, sizeof(*w->pieces));
    if (!all_agree(link->comm, w->pieces != NULL)) {
        window_close(group, w);
        return NULL;
    }
    room = all_agree(link->node, dp_mpi_window_fits(link->node, piece_length(bytes)));
    if (all_agree(link->comm, room)) {
        room = all_agree(link->node, window_open(group, w, bytes) == DP_OK);
    }
    if (all_agree(link->comm, room)) {
        dp_mem_count(purpose, (long long)bytes);
    } else {
        /* Freeing a window that some ranks of the node do not have would wait for them: it is
         * kept. */
        if (all_agree(link->node, w->window != MPI_WIN_NULL)) {
            (void)MPI_Win_free(&w->window);
        }
        w->window = MPI_WIN_NULL;
        window_private(group, w, bytes, room);
    }
    if (!all_agree(link->comm, w->base != NULL)) {
        window_close(group, w);
        return NULL;
    }
    return w->base;
}

static void mpi_release(struct dp_group *group, void *memory)
{
    struct window *w = window_of(group, memory);

    if (w != NULL) {
        window_close(group, w);
    }
}

static void *mpi_peer(const struct dp_group *group, const void *mine, int peer)
{
    const struct window *w = window_of(group, mine);

    if (w == NULL || w->pieces[peer] == NULL) {
        return NULL;
    }
    return w->pieces[peer] + ((const char *)mine - w->base);
}

static void mpi_close(struct dp_group *group)
{
    struct mpi_link *link = group->link;

    for (int i = 0; i < MPI_REGIONS; i++) {
        if (link->windows[i].base != NULL) {
            window_close(group, &link->windows[i]);
        }
    }
    if (link->node != MPI_COMM_NULL && !left(group)) {
        (void)MPI_Comm_free(&link->node);
    }
    if (link->comm != MPI_COMM_NULL && !left(group)) {
        (void)MPI_Comm_free(&link->comm);
    }
    dp_open_transfers_destroy(link->open);
    dp_free(link->local_rank_of);
    dp_free(link->node_of);
    dp_free(link);
    dp_free(group);
}

static const struct dp_transport mpi_transport = {
    .name = "mpi",
    .start = mpi_start,
    .finish = mpi_finish,
    .test = mpi_test,
    .memory = mpi_memory,
    .release = mpi_release,
    .peer = mpi_peer,
    .close = mpi_close,
};

/* Numbers the nodes by their first rank, and the ranks within each. */
static dp_status find_nodes(struct dp_group *group)
{
    struct mpi_link *link = group->link;
    int leader = group->rank, local_rank;

    DP_TRY(DP_MPI(MPI_Comm_split_type(link->comm, MPI_COMM_TYPE_SHARED, group->rank, MPI_INFO_NULL,
                                      &link->node)));
    DP_TRY(DP_MPI(MPI_Comm_rank(link->node, &local_rank)));
    DP_TRY(DP_MPI(MPI_Comm_size(link->node, &group->local_size)));
    DP_TRY(DP_MPI(MPI_Bcast(&leader, 1, MPI_INT, 0, link->node)));
    DP_TRY(DP_MPI(MPI_Allgather(&leader, 1, MPI_INT, link->node_of, 1, MPI_INT, link->comm)));
    DP_TRY(DP_MPI(
        MPI_Allgather(&local_rank, 1, MPI_INT, link->local_rank_of, 1, MPI_INT, link->comm)));
    group->nodes = 0;
    for (int i = 0; i < group->size; i++) {
        /* Leaders come first in rank order, so their number is known when members need it. */
        link->node_of[i] = link->node_of[i] == i ? group->nodes++ : link->node_of[link->node_of[i]];
    }
    return DP_OK;
}

dp_status dp_mpi_group_create(MPI_Comm comm, atomic_int *cancel, struct dp_group **out)
{
    struct dp_group *group = dp_zalloc(1, sizeof(*group));
    struct mpi_link *link = dp_zalloc(1, sizeof(*link));
    dp_status status = DP_ERR_NOMEM;

    if (group == NULL || link == NULL) {
        dp_free(group);
        dp_free(link);
        atomic_store(cancel, 1);
        return DP_FAIL(DP_ERR_NOMEM, "group");
    }
    group->transport = &mpi_transport;
    group->link = link;
    group->cancel = cancel;
    group->spin_ns = DP_SPIN_NS;
    link->comm = link->node = MPI_COMM_NULL;
    for (int i = 0; i < MPI_REGIONS; i++) {
        link->windows[i].window = MPI_WIN_NULL;
    }
    DP_TRY_GOTO(DP_MPI(MPI_Comm_dup(comm, &link->comm)), status, failed);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN)), status, failed);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_rank(link->comm, &group->rank)), status, failed);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_size(link->comm, &group->size)), status, failed);
    link->node_of = dp_zalloc((size_t)group->size, sizeof(int));
    link->local_rank_of = dp_zalloc((size_t)group->size, sizeof(int));
    if (link->node_of == NULL || link->local_rank_of == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "group of %d ranks", group->size);
        goto failed;
    }
    group->node_of = link->node_of;
    if (dp_mpi_why_no_shrink() == NULL) {
        DP_TRY_GOTO(dp_open_transfers_create(&link->open), status, failed);
    }
    DP_TRY_GOTO(find_nodes(group), status, failed);
    *out = group;
    return DP_OK;

failed:
    atomic_store(cancel, 1); /* the others may be in another collective: no wait for them */
    if (status == DP_ERR_CANCELLED && link->comm != MPI_COMM_NULL) {
        dp_mpi_revoke(link->comm);
    }
    mpi_close(group);
    return status;
}

/* Finds the root of a chain of groups, and the number of rank `rank` there. */
static const struct dp_group *bottom_of(const struct dp_group *group, int *rank)
{
    const struct dp_group *parent;

    while ((parent = dp_group_parent(group, *rank, rank)) != NULL) {
        group = parent;
    }
    return group;
}

bool dp_mpi_connects(const struct dp_group *group)
{
    int rank = 0;

    return bottom_of(group, &rank)->transport == &mpi_transport;
}

dp_status dp_mpi_comm_open(const struct dp_group *group, MPI_Comm *out)
{
    int rank = group->rank;
    const struct mpi_link *link = bottom_of(group, &rank)->link;
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    dp_status status;
    int *ranks;

    if (group->transport == &mpi_transport) {
        *out = link->comm;
        return DP_OK;
    }
    ranks = dp_zalloc((size_t)group->size, sizeof(*ranks));
    if (ranks == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a communicator of %d ranks", group->size);
    }
    for (int i = 0; i < group->size; i++) {
        ranks[i] = i;
        (void)bottom_of(group, &ranks[i]);
    }
    DP_TRY_GOTO(DP_MPI(MPI_Comm_group(link->comm, &all)), status, done);
    DP_TRY_GOTO(DP_MPI(MPI_Group_incl(all, group->size, ranks, &some)), status, done);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_create_group(link->comm, some, TAG, out)), status, done);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN)), status, done);

done:
    if (some != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&some);
    }
    if (all != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&all);
    }
    dp_free(ranks);
    return status;
}

void dp_mpi_comm_close(const struct dp_group *group, MPI_Comm comm)
{
    if (group->transport != &mpi_transport && comm != MPI_COMM_NULL && !left(group)) {
        (void)MPI_Comm_free(&comm);
    }
}

dp_status dp_mpi_wait(const struct dp_group *group, MPI_Request *request)
{
    struct dp_backoff backoff = {.cancel = group->cancel, .spin_ns = group->spin_ns};

    return dp_pieces_wait(&backoff, request, 1);
}

void dp_mpi_group_revoke(struct dp_group *group)
{
    const struct mpi_link *link = group->link;

    dp_mpi_revoke(link->comm);
    dp_mpi_revoke(link->node);
    dp_open_transfers_drain(link->open);
}
