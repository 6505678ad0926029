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

void dp_local_peers_add(struct dp_local_peers *peers, int rank, struct dp_process process,
                        struct dp_local_sign *sign)
{
    struct dp_local_peer *peer = &peers->peers[rank];

    if (process.space == dp_process_self().space && process.id > 0) {
        peer->id = process.id;
        peer->sign = sign;
    }
}

static bool has_left(const struct dp_local_peer *peer)
{
    return peer->sign != NULL && atomic_load(&peer->sign->left) != 0;
}

/* Follows the circle of ranks from this one until it watches enough of them. Returns a rank that
 * has died before it could be watched, or -1. */
static int watch_more(struct dp_local_peers *peers)
{
    int watched = 0;

    for (int i = 1; i < peers->size && watched < DP_LOCAL_PEERS_WATCHED; i++) {
        const int rank = (peers->self + i) % peers->size;
        struct dp_local_peer *peer = &peers->peers[rank];

        if (peer->id == 0 || peer->over || peer->sign == NULL) {
            continue;
        }
        peer->watched = peer->watched || dp_process_watch(&peer->watch, peer->id);
        watched += peer->watched;
        if (!peer->watched && !has_left(peer)) {
            return rank;
        }
        peer->over = !peer->watched;
    }
    return -1;
}

void dp_local_peers_watch(struct dp_local_peers *peers)
{
    for (int i = 0; i < peers->size; i++) {
        struct dp_local_peer *peer = &peers->peers[i];
        if (i != peers->self && peer->id != 0 && peer->sign == NULL) {
            peer->watched = dp_process_watch(&peer->watch, peer->id);
        }
    }
    (void)watch_more(peers); /* one that is dead already is found again */
}

/* The first one that has died, as this rank sees it, or -1. */
static int look(struct dp_local_peers *peers)
{
    for (int i = 0; i < peers->size; i++) {
        struct dp_local_peer *peer = &peers->peers[i];
        if (!peer->watched || !dp_process_ended(&peer->watch)) {
            continue;
        }
        if (!has_left(peer)) {
            return i;
        }
        dp_process_unwatch(&peer->watch);
        peer->watched = false;
        peer->over = true;
    }
    return watch_more(peers);
}

int dp_local_peers_lost(struct dp_local_peers *peers)
{
    const struct dp_local_sign *mine = peers->peers == NULL ? NULL : peers->peers[peers->self].sign;
    int lost = -1;

    if (mine != NULL && atomic_load(&mine->found) != 0) {
        return atomic_load(&mine->found) - 1;
    }
    lost = peers->peers == NULL ? -1 : look(peers);
    for (int i = 0; i < peers->size && lost >= 0; i++) {
        if (peers->peers[i].sign != NULL) {
            int nobody = 0;
            (void)atomic_compare_exchange_strong(&peers->peers[i].sign->found, &nobody, lost + 1);
        }
    }
    return lost;
}

static bool lives(const struct dp_local_peer *peer)
{
    struct dp_process_watch watch;

    if (peer->watched) {
        return !dp_process_ended(&peer->watch);
    }
    if (peer->id == 0 || peer->over || !dp_process_watch(&watch, peer->id)) {
        return false;
    }
    dp_process_unwatch(&watch);
    return true;
}

bool dp_local_peers_reports(const struct dp_local_peers *peers)
{
    for (int i = 0; i < peers->self; i++) {
        if (lives(&peers->peers[i])) {
            return false;
        }
    }
    return true;
}
