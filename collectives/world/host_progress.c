#include "collectives/world/host_progress.h"

#include <sys/socket.h>

enum { MORE_MOST = 255 - DP_HOST_LINK_PROGRESS };

static const uint64_t period_ns = 1000000000;

/* Takes the bytes that have come; the most hosts that are to have one after this one. -1: none
 * came. */
static int take(const struct dp_host_link *link)
{
    unsigned char byte = 0;
    int more = -1;

    while (link->theirs >= 0 && recv(link->theirs, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1 &&
           byte >= DP_HOST_LINK_PROGRESS && recv(link->theirs, &byte, 1, MSG_DONTWAIT) == 1) {
        more = byte - DP_HOST_LINK_PROGRESS > more ? byte - DP_HOST_LINK_PROGRESS : more;
    }
    return more;
}

bool dp_host_progress_share(struct dp_host_progress *p, const struct dp_host_link *link, int hosts,
                            bool moves, uint64_t now_ns)
{
    const int heard = take(link);
    int more = heard - 1; /* after the one that it is sent to */

    p->moved = p->moved || moves;
    if (p->moved && (p->told_ns == 0 || now_ns - p->told_ns >= period_ns)) {
        more = hosts - 2 < MORE_MOST ? hosts - 2 : MORE_MOST;
        p->told_ns = now_ns;
        p->moved = false;
    }
    if (more >= 0 && link->mine >= 0) {
        const unsigned char byte = (unsigned char)(DP_HOST_LINK_PROGRESS + more);
        (void)send(link->mine, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return heard >= 0;
}
