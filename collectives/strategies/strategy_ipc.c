/*
 * strategy_ipc.c - sums in GPU memory: ranks of one node reach each other's gradients in place, on
 * one GPU or on several with peer access.
 *
 * It is `shm` (strategy_shm.c) with kernels: rank r reads chunk r of every rank, adds in tree order
 * in float32, and writes the sum into chunk r of every rank; so it gives the same bits. Barriers
 * are on the host: a rank raises its flag when an event shows that its GPU is done, since an event
 * of another process can only be waited for once it is known to be recorded. No kernel waits for
 * another rank, since it would occupy a GPU which that rank may need.
 *
 * Bytes moved per rank: n read and n written, as by shm; between GPUs, (p-1)/p of each.
 */
#include "collectives/core/backoff.h"
#include "collectives/core/shm_barrier.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/strategy.h"

enum { IPC_RANKS = 64 }; /* the most that one kernel adds */

struct ipc {
    struct dp_group *group; /* borrowed */
    struct dp_shm_barrier flags;
    struct dp_event *there; /* owned; this rank's GPU has reached the barrier */
    float **ys;             /* [size]; owned: where sums are written */
};

static bool ipc_supports(const struct dp_group *group, const char **why_not)
{
    const struct dp_gpu_peers *gpus = group->gpus;

    if (gpus == NULL) {
        *why_not = "the gradients are not on GPUs";
        return false;
    }
    if (group->size > IPC_RANKS) {
        *why_not = "it serves 64 ranks at most";
        return false;
    }
    if (group->size > 1 && !gpus->reach) {
        *why_not = gpus->why_unreachable;
        return false;
    }
    if (group->unshared) {
        *why_not = dp_group_why_unshared(group);
        return false;
    }
    return true;
}

static void ipc_close(void *state)
{
    struct ipc *ipc = state;

    dp_shm_barrier_close(&ipc->flags);
    ipc->group->gpus->device->event_destroy(ipc->there);
    dp_free(ipc->ys);
}

static dp_status ipc_open(void *state, struct dp_group *group, size_t max_count)
{
    struct ipc *ipc = state;
    dp_status status;

    (void)max_count;
    ipc->group = group;
    ipc->ys = dp_zalloc((size_t)group->size, sizeof(*ipc->ys));
    status = ipc->ys == NULL ? DP_FAIL(DP_ERR_NOMEM, "ipc: places of %d ranks", group->size)
                             : group->gpus->device->event_create(&ipc->there);
    dp_group_leave(group, status);
    if (status == DP_OK) {
        status = dp_shm_barrier_open(&ipc->flags, group, "ipc");
    }
    if (status != DP_OK) {
        group->gpus->device->event_destroy(ipc->there);
        dp_free(ipc->ys);
    }
    return status;
}

/* Returns when all work that every rank has queued so far is done. */
static dp_status ipc_barrier(void *state)
{
    struct ipc *ipc = state;
    const struct dp_gpu_peers *gpus = ipc->group->gpus;
    struct dp_backoff backoff = {.cancel = ipc->group->cancel, .spin_ns = ipc->group->spin_ns};
    bool done = false;

    DP_TRY(gpus->device->event_record(ipc->there, gpus->stream));
    for (;;) {
        DP_TRY(gpus->device->event_query(ipc->there, &done));
        if (done) {
            return dp_shm_barrier_wait(&ipc->flags);
        }
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}

/* Finds this rank's part in every rank's memory. */
static dp_status find_parts(struct ipc *ipc, struct dp_slice part)
{
    for (int i = 0; i < ipc->group->size && part.count > 0; i++) {
        ipc->ys[i] = dp_gpu_peers_peer(ipc->group, part.data, i);
        if (ipc->ys[i] == NULL) {
            return DP_FAIL(DP_ERR_INTERNAL, "ipc: the data is not in shared memory of GPUs");
        }
    }
    return DP_OK;
}

static dp_status ipc_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    struct ipc *ipc = state;
    struct dp_group *group = ipc->group;
    struct dp_stream *stream = group->gpus->stream;
    const struct dp_slice part = dp_slice_chunk(data, group->size, group->rank);
    const bool all = keep == DP_KEEP_ALL;

    if (group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    DP_TRY(find_parts(ipc, part));
    DP_TRY(ipc_barrier(ipc));
    if (part.count > 0) {
        DP_TRY(stream->ops->sum_tree(stream, all ? ipc->ys : &ipc->ys[group->rank],
                                     all ? group->size : 1, (const float *const *)ipc->ys,
                                     group->size, part.count));
        group->wire_bytes += (uint64_t)(group->size - 1) * dp_slice_bytes(part);
    }
    return ipc_barrier(ipc);
}

/* Every rank writes its own chunk into every rank's memory, between two barriers. */
static dp_status ipc_gather(void *state, struct dp_slice data)
{
    struct ipc *ipc = state;
    struct dp_group *group = ipc->group;
    struct dp_stream *stream = group->gpus->stream;
    const struct dp_slice part = dp_slice_chunk(data, group->size, group->rank);

    if (group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    DP_TRY(find_parts(ipc, part));
    DP_TRY(ipc_barrier(ipc));
    for (int i = 0; i < group->size && part.count > 0; i++) {
        DP_TRY(stream->ops->copy(stream, ipc->ys[i], part.data, dp_slice_bytes(part)));
    }
    group->wire_bytes += (uint64_t)(group->size - 1) * dp_slice_bytes(part);
    return ipc_barrier(ipc);
}

const struct dp_strategy dp_strategy_ipc = {
    .plugin = {.name = "ipc",
               .help = "sum in memory of GPUs, in tree order; ranks of one node only",
               .state_bytes = sizeof(struct ipc)},
    .ordered = true,
    .gpus = true,
    .on_gpus = true,
    .supports = ipc_supports,
    .open = ipc_open,
    .sum = ipc_sum,
    .gather = ipc_gather,
    .barrier = ipc_barrier,
    .close = ipc_close,
};
