/*
 * socket_share.h - gives sockets of the first rank of each host to its other ranks, which can use
 * them where the first one is stopped: they are the same connections, by descriptors of their own.
 *
 * They go by messages between sockets of the host (unix(7), SCM_RIGHTS) with a random token, which
 * the group's messages carry, so that nobody else's are taken.
 */
#ifndef DP_COLLECTIVES_WORLD_SOCKET_SHARE_H
#define DP_COLLECTIVES_WORLD_SOCKET_SHARE_H

#include "collectives/core/group.h"

enum { DP_SOCKETS_SHARED = 2 };

/* `mine` are those of a rank that is the first of its node, -1 where it has none, and else unused.
 * Other ranks get theirs in `out`, which they close; -1 where there is none, or where it cannot be
 * had (other namespaces, no descriptors left), and for the first rank. Collective. Errors:
 * DP_ERR_NOMEM, those of messages. */
DP_CHECKED dp_status dp_socket_share(struct dp_group *group, const int mine[DP_SOCKETS_SHARED],
                                     int out[DP_SOCKETS_SHARED]);

#endif
