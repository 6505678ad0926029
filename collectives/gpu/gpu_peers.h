/*
 * gpu_peers.h - the GPUs of a group: which rank has which, and GPU memory that ranks can use across
 * processes. Here a `unit` is a number that CUDA gives in one process; a GPU's name is the same for
 * all processes of a node.
 */
#ifndef DP_COLLECTIVES_GPU_GPU_PEERS_H
#define DP_COLLECTIVES_GPU_GPU_PEERS_H

#include "collectives/core/group.h"

enum { DP_GPU_PEERS_WHY = 160 };

struct dp_gpu_peers {
    const struct dp_device *device;
    struct dp_stream *stream;               /* owned; strategies on GPUs queue here */
    int count;                              /* GPUs in use, on all nodes */
    int most;                               /* the largest number of ranks that share a GPU */
    int here;                               /* ranks on this rank's GPU */
    bool reach;                             /* every rank can use memory of every other rank's
                                             * GPU */
    char why_unreachable[DP_GPU_PEERS_WHY]; /* if not: why */
    struct dp_gpu_peers_links *links;       /* owned; memory of other ranks */
};

/*
 * Every rank takes a GPU: its number among the ranks of its node modulo the GPUs that it sees. All
 * learn which rank has which, then try whether they reach each other's memory. Sets group->gpus,
 * which is destroyed with the group. Does nothing where that is set, or where the device has no
 * units.
 *
 * Collective. Errors: DP_ERR_UNAVAILABLE (a rank sees no GPU), DP_ERR_NOMEM, those of the device.
 */
DP_CHECKED dp_status dp_gpu_peers_create(struct dp_group *group, const struct dp_device *device);

/* "4 ranks share 2 GPUs, 2 on each at most"; "" where no rank shares. */
void dp_gpu_peers_describe(const struct dp_group *group, char *text, size_t size);

/* Agrees on whether ranks object to something; they may see different machines. `mine` is each
 * rank's reason, or NULL. why_not becomes the first rank's reason on all ranks; "" if there is
 * none. Collective. */
DP_CHECKED dp_status dp_gpu_peers_object(struct dp_group *group, const char *mine,
                                         char why_not[DP_GPU_PEERS_WHY]);

/* Allocates zeroed memory on this rank's GPU, which all ranks that reach each other can use.
 * Collective where group->gpus is set, else local. NULL: some rank has no memory left. */
void *dp_gpu_peers_memory(struct dp_group *group, const struct dp_device *device,
                          enum dp_purpose purpose, size_t bytes);
void dp_gpu_peers_release(struct dp_group *group, const struct dp_device *device, void *memory);

/* Returns the address in rank `peer`'s memory that corresponds to `mine`, which points into memory
 * from dp_gpu_peers_memory(). NULL when this rank cannot reach it. Local. */
void *dp_gpu_peers_peer(const struct dp_group *group, const void *mine, int peer);

#endif
