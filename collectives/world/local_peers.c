#include "collectives/world/local_peers.h"

#include "base/mem.h"

dp_status dp_local_peers_init(struct dp_local_peers *peers, int size, int self)
{
    peers->self = self;
    peers->size = size;
    peers->peers = dp_zalloc((size_t)size, sizeof(*peers->peers));
    return peers->peers != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "processes of %d ranks", size);
}

void dp_local_peers_fini(struct dp_local_peers *peers)
{
    for (int i = 0; peers->peers != NULL && i < peers->size; i++) {
        dp_process_unwatch(&peers->peers[i].watch);
    }
    dp_free(peers->peers);
    peers->peers = NULL;
}

void dp_local_peers_watch(struct dp_local_peers *peers, int rank, struct dp_process process,
                          const atomic_int *left)
{
    struct dp_local_peer *peer = &peers->peers[rank];

    if (rank != peers->self && process.space == dp_process_self().space && process.id > 0) {
        peer->watched = dp_process_watch(&peer->watch, process.id);
        peer->left = left;
    }
}

int dp_local_peers_lost(const struct dp_local_peers *peers)
{
    for (int i = 0; peers->peers != NULL && i < peers->size; i++) {
        const struct dp_local_peer *peer = &peers->peers[i];
        const bool gone = peer->watched && dp_process_ended(&peer->watch);
        if (gone && (peer->left == NULL || atomic_load(peer->left) == 0)) {
            return i;
        }
    }
    return -1;
}

bool dp_local_peers_reports(const struct dp_local_peers *peers)
{
    for (int i = 0; i < peers->self; i++) {
        if (peers->peers[i].watched && !dp_process_ended(&peers->peers[i].watch)) {
            return false;
        }
    }
    return true;
}
