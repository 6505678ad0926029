/*
 * gpu_peers.h - the GPUs of a group: which rank has which, and memory of theirs that ranks can use
 * across processes. Of two words that mean the same elsewhere, `unit` is a number that CUDA gives
 * in one process, and a GPU's name is the same for all processes of a node.
 */
#ifndef DP_COLLECTIVES_GPU_GPU_PEERS_H
#define DP_COLLECTIVES_GPU_GPU_PEERS_H

#include "collectives/core/group.h"

enum { DP_GPU_PEERS_WHY = 160 };

struct dp_gpu_peers {
    const struct dp_device *device;
    struct dp_stream *stream;               /* owned; strategies on GPUs queue here */
    int count;                              /* GPUs that are used, on all nodes */
    int most;                               /* ranks on the one with most of them */
    int here;                               /* ranks on this rank's */
    bool reach;                             /* every rank can use memory of every other one's GPU */
    char why_unreachable[DP_GPU_PEERS_WHY]; /* if not: why */
    struct dp_gpu_peers_links *links;       /* owned; memory of other ranks */
};

/*
 * Every rank takes a GPU, its number among the ranks of its node modulo the GPUs that it sees, and
 * all learn who has which; then whether they reach each other's memory is tried. Sets group->gpus,
 * which goes with the group; does nothing where it is set, or where the device has no units.
 *
 * Collective. Errors: DP_ERR_UNAVAILABLE (a rank sees none), DP_ERR_NOMEM, those of the device.
 */
DP_CHECKED dp_status dp_gpu_peers_create(struct dp_group *group, const struct dp_device *device);

/* "4 ranks share 2 GPUs, 2 on each at most"; "" where nobody shares. */
void dp_gpu_peers_describe(const struct dp_group *group, char *text, size_t size);

/* Ranks may see different machines: what the first rank has against something (`mine` of each:
 * NULL, or a reason) is why_not on all; "" where none has anything. Collective. */
DP_CHECKED dp_status dp_gpu_peers_object(struct dp_group *group, const char *mine,
                                         char why_not[DP_GPU_PEERS_WHY]);

/* Zeroed memory of this rank's GPU; where ranks reach each other, they can use it. Collective where
 * group->gpus is set, else local. NULL: there is none left, on some rank. */
void *dp_gpu_peers_memory(struct dp_group *group, const struct dp_device *device,
                          enum dp_purpose purpose, size_t bytes);
void dp_gpu_peers_release(struct dp_group *group, const struct dp_device *device, void *memory);

/* The place in rank `peer`'s memory that corresponds to `mine`, which points into something that
 * dp_gpu_peers_memory() gave; NULL when it cannot be reached from here. Local. */
void *dp_gpu_peers_peer(const struct dp_group *group, const void *mine, int peer);

#endif
