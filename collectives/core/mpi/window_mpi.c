#include "collectives/core/mpi/window_mpi.h"

#include <stdatomic.h>
#include <stdint.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/core/mpi/left_memory.h"
#include "collectives/core/mpi/window_fits_mpi.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/shrink_mpi.h"

/* The longest piece that counts as small, and room for all of them: four pages of a rank. What is
 * released there is not used again, so that nobody can still see what others then write. */
enum { SMALL_MOST = 4096, SMALL_ALL = 16384 - DP_MEM_ALIGN };

static struct dp_mpi_window *window_of(const struct dp_group *group, const void *place)
{
    struct dp_mpi_link *link = group->link;
    const char *p = place;

    for (int i = 0; i < DP_MPI_WINDOWS; i++) {
        struct dp_mpi_window *w = &link->windows[i];
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
static void note_mapped(struct dp_mpi_window *w, char *piece, size_t length)
{
    char *const known = w->mapped != NULL ? w->mapped : piece;
    char *const known_end = known + w->length, *const piece_end = piece + length;
    char *const begin = piece < known ? piece : known;
    const char *const end = piece_end > known_end ? piece_end : known_end;

    w->mapped = begin;
    w->length = (size_t)(end - begin);
}

/* MPI waits for all ranks of this node. */
static bool allocate(MPI_Comm node, size_t bytes, MPI_Info info, struct dp_mpi_window *w)
{
    DP_AWAIT_RANKS();

    return MPI_Win_allocate_shared((MPI_Aint)piece_length(bytes), 1, info, node, &w->base,
                                   &w->window) == MPI_SUCCESS;
}

/* Maps the pieces of all ranks of this node. Every rank touches its own first, so that the pages
 * are on its own NUMA node. */
static dp_status window_open(const struct dp_group *group, struct dp_mpi_window *w, size_t bytes)
{
    const struct dp_mpi_link *link = group->link;
    MPI_Info info;
    MPI_Aint length;
    int unit;

    DP_TRY(DP_MPI(MPI_Info_create(&info)));
    (void)MPI_Info_set(info, "alloc_shared_noncontig", "true");
    if (!allocate(link->node, bytes, info, w)) {
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
static void window_private(struct dp_group *group, struct dp_mpi_window *w, size_t bytes, bool room)
{
    struct dp_mpi_link *link = group->link;

    group->unshared = true;
    w->base = dp_mem_arena(w->purpose, bytes);
    for (int i = 0; w->pieces != NULL && i < group->size; i++) {
        w->pieces[i] = i == group->rank ? w->base : NULL;
    }
    if (w->purpose == DP_MEM_CHECKPOINT) {
        return; /* rank 0 then copies for all: nothing to report */
    }
    if (!link->warned && !room && link->local_rank_of[group->rank] == 0) {
        const char *folder = dp_mpi_window_folder();
        DP_WARN("no room for shared memory of %zu KB a rank in %s (is it missing, full or "
                "read-only, or ulimit -f, -n or -v small?): ranks of this node keep copies, and "
                "strategies over shared memory may not run; in a container, raise --shm-size",
                (bytes >> 10) + 1, folder[0] != '\0' ? folder : "osc_sm_backing_directory");
    }
    link->warned = true;
}

bool dp_mpi_left(const struct dp_group *group)
{
    return atomic_load(group->cancel) != 0;
}

static void free_together(MPI_Win *window)
{
    DP_AWAIT_RANKS();

    (void)MPI_Win_free(window);
}

static void free_window(const struct dp_group *group, struct dp_mpi_window *w)
{
    if (!dp_mpi_left(group)) {
        free_together(&w->window);
    } else {
        dp_left_memory_add(w->mapped, w->length);
    }
}

static void window_close(const struct dp_group *group, struct dp_mpi_window *w)
{
    if (w->window != MPI_WIN_NULL || w->cut) {
        dp_mem_count(w->purpose, -(long long)w->bytes);
    } else {
        dp_free(w->base);
    }
    if (w->window != MPI_WIN_NULL) {
        free_window(group, w);
    }
    dp_free(w->pieces);
    *w = (struct dp_mpi_window){.window = MPI_WIN_NULL};
}

/* Whether `mine` is true on all ranks. */
static bool all_agree(MPI_Comm comm, bool mine)
{
    DP_AWAIT_RANKS();
    int in = mine, out = 0;
    const int code = MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_LAND, comm);

    if (dp_mpi_is_loss(code)) {
        dp_mpi_revoke(comm); /* others may wait for this rank */
    }
    return code == MPI_SUCCESS && out != 0;
}

/* The most bytes that a rank wants; false where one cannot note what it gets. */
static bool find_most(MPI_Comm comm, bool can, size_t bytes, size_t *most)
{
    DP_AWAIT_RANKS();
    const unsigned long long mine[] = {!can, bytes};
    unsigned long long all[] = {1, 0};
    const int code = MPI_Allreduce(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_MAX, comm);

    if (dp_mpi_is_loss(code)) {
        dp_mpi_revoke(comm);
    }
    *most = (size_t)all[1];
    return code == MPI_SUCCESS && all[0] == 0;
}

/* Shares memory of this size on all nodes. False: some node has no room for it, and no rank has
 * any; *room: whether this one has. */
static bool share(const struct dp_group *group, struct dp_mpi_window *w, size_t bytes, bool *room)
{
    const struct dp_mpi_link *link = group->link;

    *room = dp_mpi_window_fits(link->node, piece_length(bytes));
    if (all_agree(link->comm, *room)) {
        *room = window_open(group, w, bytes) == DP_OK;
        if (all_agree(link->comm, *room)) {
            return true;
        }
    }
    *room = all_agree(link->node, *room);
    /* Freeing a window that some ranks of the node do not have would wait for them: it is kept. */
    if (all_agree(link->node, w->window != MPI_WIN_NULL)) {
        free_together(&w->window);
    }
    w->window = MPI_WIN_NULL;
    return false;
}

/* Cuts a piece from the window for small ones. `most`: the longest that any rank wants. False: that
 * has no room, and cannot be made. */
static bool cut(struct dp_group *group, struct dp_mpi_window *w, size_t most)
{
    struct dp_mpi_link *link = group->link;
    struct dp_mpi_window *small = &link->small;
    const size_t length = dp_round_up(most, DP_MEM_ALIGN);
    bool room;

    if (small->base == NULL) {
        small->bytes = SMALL_ALL;
        small->pieces = dp_zalloc((size_t)group->size, sizeof(*small->pieces));
        if (!all_agree(link->comm, small->pieces != NULL) ||
            !share(group, small, SMALL_ALL, &room)) {
            dp_free(small->pieces);
            *small = (struct dp_mpi_window){.window = MPI_WIN_NULL};
        }
    }
    if (small->base == NULL || link->small_used + length > SMALL_ALL) {
        return false;
    }
    w->cut = true;
    w->base = small->base + link->small_used;
    for (int i = 0; i < group->size; i++) {
        w->pieces[i] = small->pieces[i] != NULL ? small->pieces[i] + link->small_used : NULL;
    }
    link->small_used += length;
    return true;
}

void *dp_mpi_window_alloc(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    struct dp_mpi_link *link = group->link;
    struct dp_mpi_window *w = NULL;
    size_t most;
    bool room = true;

    for (int i = 0; i < DP_MPI_WINDOWS && w == NULL; i++) {
        w = link->windows[i].base == NULL ? &link->windows[i] : NULL;
    }
    if (w == NULL) {
        return NULL;
    }
    *w = (struct dp_mpi_window){.window = MPI_WIN_NULL, .bytes = bytes, .purpose = purpose};
    w->pieces = dp_zalloc((size_t)group->size, sizeof(*w->pieces));
    if (!find_most(link->comm, w->pieces != NULL, bytes, &most) || w->pieces == NULL) {
        window_close(group, w);
        return NULL;
    }
    if ((most <= SMALL_MOST && cut(group, w, most)) || share(group, w, bytes, &room)) {
        dp_mem_count(purpose, (long long)bytes);
        return w->base;
    }
    window_private(group, w, bytes, room);
    if (!all_agree(link->comm, w->base != NULL)) {
        window_close(group, w);
        return NULL;
    }
    return w->base;
}

void dp_mpi_window_release(struct dp_group *group, void *memory)
{
    struct dp_mpi_window *w = window_of(group, memory);

    if (w != NULL) {
        window_close(group, w);
    }
}

void *dp_mpi_window_peer(const struct dp_group *group, const void *mine, int peer)
{
    const struct dp_mpi_window *w = window_of(group, mine);

    if (w == NULL || w->pieces[peer] == NULL) {
        return NULL;
    }
    return w->pieces[peer] + ((const char *)mine - w->base);
}

void dp_mpi_windows_init(struct dp_mpi_link *link)
{
    for (int i = 0; i < DP_MPI_WINDOWS; i++) {
        link->windows[i].window = MPI_WIN_NULL;
    }
    link->small.window = MPI_WIN_NULL;
}

void dp_mpi_windows_close(struct dp_group *group)
{
    struct dp_mpi_link *link = group->link;

    for (int i = 0; i < DP_MPI_WINDOWS; i++) {
        if (link->windows[i].base != NULL) {
            window_close(group, &link->windows[i]);
        }
    }
    if (link->small.base != NULL) {
        free_window(group, &link->small);
        dp_free(link->small.pieces);
    }
}
