/*
 * strategy_nccl.c - sums by NVIDIA's library, which knows the links between GPUs and between nodes,
 * and adds on the GPUs. One rank per GPU: the library would hang with two or refuse them, so they
 * are refused here.
 *
 * A sum is queued on the stream of group->gpus, and the host does not wait for it. The communicator
 * does not block: unfinished calls and later errors are polled for. After an error, here or on
 * another rank, the communicator is aborted, which ends kernels that wait for absent ranks.
 *
 * The order of adding is the library's and not our tree; it gives the same bits to all ranks.
 *
 * Source: NVIDIA NCCL user guide, "Fault tolerance" and "Group calls".
 */
#include <stdio.h>
#include <string.h>

#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/gpu/nccl_api.h"
#include "collectives/strategies/strategy.h"

struct nccl {
    struct dp_group *group; /* borrowed */
    const struct dp_nccl *api;
    struct dp_nccl_comm *comm; /* NCCL's; owned */
    bool failed;
};

static bool nccl_supports(const struct dp_group *group, const char **why_not)
{
    if (group->gpus == NULL) {
        *why_not = "the gradients are not on GPUs";
        return false;
    }
    if (group->gpus->most > 1) {
        *why_not = "ranks share a GPU, and NCCL wants one rank a GPU";
        return false;
    }
    return dp_nccl_find(NULL, why_not) != NULL;
}

static dp_status fail(struct nccl *nccl, const char *call, int result)
{
    const char *more = nccl->api->GetLastError(nccl->comm);

    nccl->failed = true;
    return DP_FAIL(DP_ERR_CUDA, "nccl%s: %s%s%.160s; NCCL_DEBUG=WARN prints more", call,
                   nccl->api->GetErrorString(result), more != NULL && *more != '\0' ? ": " : "",
                   more != NULL ? more : "");
}

/* Waits on the host until a call of the communicator has finished; returns its result. */
static dp_status await(struct nccl *nccl, const char *call, int result)
{
    DP_AWAIT_RANKS();
    struct dp_backoff backoff = {.cancel = nccl->group->cancel, .spin_ns = nccl->group->spin_ns};

    while (result == DP_NCCL_IN_PROGRESS) {
        const int asked = nccl->api->CommGetAsyncError(nccl->comm, &result);
        result = asked != DP_NCCL_SUCCESS ? asked : result;
        if (result == DP_NCCL_IN_PROGRESS && !dp_backoff_wait(&backoff)) {
            nccl->failed = true;
            return DP_ERR_CANCELLED;
        }
    }
    return result == DP_NCCL_SUCCESS ? DP_OK : fail(nccl, call, result);
}

static dp_status nccl_poll(void *state)
{
    struct nccl *nccl = state;
    int result = DP_NCCL_SUCCESS, asked = DP_NCCL_SUCCESS;

    if (nccl->comm != NULL) { /* a group of one rank has none */
        asked = nccl->api->CommGetAsyncError(nccl->comm, &result);
    }
    result = asked != DP_NCCL_SUCCESS ? asked : result;
    return result == DP_NCCL_SUCCESS || result == DP_NCCL_IN_PROGRESS
               ? DP_OK
               : fail(nccl, "CommGetAsyncError", result);
}

/* Ranks that left the others do not wait for them. */
static void nccl_close(void *state)
{
    struct nccl *nccl = state;
    const bool together = !nccl->failed && atomic_load(nccl->group->cancel) == 0;

    if (nccl->comm == NULL) {
        return;
    }
    if (together && await(nccl, "CommFinalize", nccl->api->CommFinalize(nccl->comm)) == DP_OK) {
        (void)nccl->api->CommDestroy(nccl->comm);
    } else {
        (void)nccl->api->CommAbort(nccl->comm);
    }
    nccl->comm = NULL;
}

static dp_status connect(struct nccl *nccl)
{
    struct dp_group *group = nccl->group;
    struct dp_nccl_settings settings = {
        .size = sizeof(settings),
        .magic = DP_NCCL_MAGIC,
        .version = DP_NCCL_VERSION,
        .blocking = 0,
        .cluster_size = DP_NCCL_UNDEFINED,
        .least_blocks = DP_NCCL_UNDEFINED,
        .most_blocks = DP_NCCL_UNDEFINED,
        .share_split = DP_NCCL_UNDEFINED,
    };
    struct {
        struct dp_nccl_id id;
        int result;
    } head;

    memset(&head, 0, sizeof(head));
    if (group->rank == 0) {
        head.result = nccl->api->GetUniqueId(&head.id);
    }
    DP_TRY(dp_group_broadcast(group, &head, sizeof(head), 0));
    if (head.result != DP_NCCL_SUCCESS) {
        return fail(nccl, "GetUniqueId", head.result);
    }
    return await(
        nccl, "CommInitRankConfig",
        nccl->api->CommInitRankConfig(&nccl->comm, group->size, head.id, group->rank, &settings));
}

static dp_status nccl_open(void *state, struct dp_group *group, size_t max_count)
{
    struct nccl *nccl = state;
    const char *why_not;
    dp_status status;

    (void)max_count;
    nccl->group = group;
    nccl->api = dp_nccl_find(NULL, &why_not);
    if (nccl->api == NULL) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "comm.strategy nccl: %s", why_not);
    }
    if (group->size == 1) {
        return DP_OK;
    }
    status = connect(nccl);
    if (status != DP_OK) {
        nccl->failed = true;
        dp_group_leave(group, status);
    }
    const dp_status worst = dp_group_agree(group, status);
    if (status == DP_OK && worst == DP_OK) {
        return DP_OK;
    }
    nccl->failed = true;
    nccl_close(nccl);
    return status != DP_OK ? status : worst;
}

/* Calls of a group give a result each, and one is told when it ends. */
static int inside(int result)
{
    return result == DP_NCCL_IN_PROGRESS ? DP_NCCL_SUCCESS : result;
}

/* ---- chunks, one after another ---- */

static int reduce_chunks(struct nccl *nccl, struct dp_slice data, void *queue)
{
    int result = DP_NCCL_SUCCESS;

    for (int i = 0; i < nccl->group->size && result == DP_NCCL_SUCCESS; i++) {
        const struct dp_slice part = dp_slice_chunk(data, nccl->group->size, i);
        if (part.count > 0) {
            result = inside(nccl->api->Reduce(part.data, part.data, part.count, DP_NCCL_FLOAT32,
                                              DP_NCCL_SUM, i, nccl->comm, queue));
        }
    }
    return result;
}

static int share_chunks(struct nccl *nccl, struct dp_slice data, void *queue)
{
    int result = DP_NCCL_SUCCESS;

    for (int i = 0; i < nccl->group->size && result == DP_NCCL_SUCCESS; i++) {
        const struct dp_slice part = dp_slice_chunk(data, nccl->group->size, i);
        if (part.count > 0) {
            result = inside(nccl->api->Broadcast(part.data, part.data, dp_slice_bytes(part),
                                                 DP_NCCL_INT8, i, nccl->comm, queue));
        }
    }
    return result;
}

/* ---- all chunks at once, and what the last one has beyond the others ---- */

/* Elements of each chunk where the first ones are equal and the last one is no shorter; 0: they are
 * not. */
static size_t even_chunks(const struct nccl *nccl, struct dp_slice data)
{
    const int ranks = nccl->group->size;
    const size_t each = dp_slice_chunk(data, ranks, 0).count;
    const struct dp_slice last = dp_slice_chunk(data, ranks, ranks - 1);
    const size_t before = (size_t)((char *)last.data - (char *)data.data) / data.width;

    return before == each * ((size_t)ranks - 1) && last.count >= each ? each : 0;
}

/* What is left after `each` elements of all chunks. */
static struct dp_slice rest_of(const struct nccl *nccl, struct dp_slice data, size_t each)
{
    const size_t at = each * (size_t)nccl->group->size;

    return (struct dp_slice){(char *)data.data + at * data.width, data.count - at, data.width};
}

/* This rank's chunk, as long as all others. */
static char *own_chunk(const struct nccl *nccl, struct dp_slice data, size_t each)
{
    return (char *)data.data + (size_t)nccl->group->rank * each * data.width;
}

static int reduce_even(struct nccl *nccl, struct dp_slice data, void *queue)
{
    const size_t each = even_chunks(nccl, data);
    const struct dp_slice rest = rest_of(nccl, data, each);
    const int result =
        inside(nccl->api->ReduceScatter(data.data, own_chunk(nccl, data, each), each,
                                        DP_NCCL_FLOAT32, DP_NCCL_SUM, nccl->comm, queue));

    return result != DP_NCCL_SUCCESS || rest.count == 0
               ? result
               : inside(nccl->api->Reduce(rest.data, rest.data, rest.count, DP_NCCL_FLOAT32,
                                          DP_NCCL_SUM, nccl->group->size - 1, nccl->comm, queue));
}

static int share_even(struct nccl *nccl, struct dp_slice data, void *queue)
{
    const size_t each = even_chunks(nccl, data);
    const struct dp_slice rest = rest_of(nccl, data, each);
    const int result =
        inside(nccl->api->AllGather(own_chunk(nccl, data, each), data.data, each * data.width,
                                    DP_NCCL_INT8, nccl->comm, queue));

    return result != DP_NCCL_SUCCESS || rest.count == 0
               ? result
               : inside(nccl->api->Broadcast(rest.data, rest.data, dp_slice_bytes(rest),
                                             DP_NCCL_INT8, nccl->group->size - 1, nccl->comm,
                                             queue));
}

/* All chunks of a slice, each to or from its owner, as one call. */
static dp_status grouped(struct nccl *nccl, struct dp_slice data,
                         int (*run)(struct nccl *nccl, struct dp_slice data, void *queue))
{
    const struct dp_gpu_peers *gpus = nccl->group->gpus;
    void *queue = gpus->device->units->queue(gpus->stream);
    int result = nccl->api->GroupStart(), ended;

    if (result == DP_NCCL_SUCCESS) {
        result = run(nccl, data, queue);
        ended = nccl->api->GroupEnd();
        result = result == DP_NCCL_SUCCESS ? ended : result;
    }
    return await(nccl, "GroupEnd", result);
}

static dp_status nccl_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    struct nccl *nccl = state;
    const struct dp_gpu_peers *gpus = nccl->group->gpus;

    if (nccl->group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    if (keep == DP_KEEP_CHUNK) {
        nccl->group->wire_bytes += dp_slice_passes(data, nccl->group->size, 1);
        return grouped(nccl, data, even_chunks(nccl, data) > 0 ? reduce_even : reduce_chunks);
    }
    nccl->group->wire_bytes += dp_slice_passes(data, nccl->group->size, 2);
    return await(nccl, "AllReduce",
                 nccl->api->AllReduce(data.data, data.data, data.count, DP_NCCL_FLOAT32,
                                      DP_NCCL_SUM, nccl->comm,
                                      gpus->device->units->queue(gpus->stream)));
}

static dp_status nccl_gather(void *state, struct dp_slice data)
{
    struct nccl *nccl = state;

    if (nccl->group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    nccl->group->wire_bytes += dp_slice_passes(data, nccl->group->size, 1);
    return grouped(nccl, data, even_chunks(nccl, data) > 0 ? share_even : share_chunks);
}

const struct dp_strategy dp_strategy_nccl = {
    .plugin = {.name = "nccl",
               .help = "sum by NCCL (libnccl.so.2); one rank a GPU",
               .state_bytes = sizeof(struct nccl)},
    .gpus = true,
    .on_gpus = true,
    .supports = nccl_supports,
    .open = nccl_open,
    .sum = nccl_sum,
    .gather = nccl_gather,
    .poll = nccl_poll,
    .close = nccl_close,
};
