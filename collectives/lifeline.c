#include "collectives/lifeline.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "collectives/rendezvous.h"

enum {
    PROBE_S = 1, /* of a silent connection */
    PROBES = 3,  /* unanswered: its host is gone */
    UNANSWERED_MS = 4000
};

void dp_lifeline_init(struct dp_lifeline *line)
{
    *line = (struct dp_lifeline){.watched = -1, .theirs = -1, .mine = -1};
}

static void shut(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* Has the kernel ask for signs of life. Where it cannot, a closed connection is still seen. */
static void probe(int fd)
{
    const int on = 1, idle = PROBE_S, count = PROBES, most = UNANSWERED_MS;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof(most));
}

/* Whether a rank is alone on its node. */
static bool alone(const struct dp_group *group, int rank)
{
    int ranks = 0;

    for (int i = 0; i < group->size; i++) {
        ranks += group->node_of[i] == group->node_of[rank];
    }
    return ranks == 1;
}

/* Connects and accepts; both ends must know that both have. */
static dp_status connect_all(struct dp_group *group, const struct dp_contact *contacts,
                             const struct dp_listener *listener, struct dp_lifeline *line)
{
    const int node = group->node_of[group->rank], nodes = group->nodes;
    const int before = dp_group_leader(group, (node + nodes - 1) % nodes);
    const bool watches = dp_group_leader(group, node) == group->rank && alone(group, before);
    const int to = watches ? before : -1;
    const int from = alone(group, group->rank) ? dp_group_leader(group, (node + 1) % nodes) : -1;
    bool made = false, taken = false, heard = false;

    if (watches) {
        line->theirs = dp_contact_connect(&contacts[before], contacts[group->rank].host);
        made = line->theirs >= 0;
    }
    DP_TRY(dp_group_exchange(group, to, (struct dp_slice){&made, sizeof(made), 1}, from,
                             (struct dp_slice){&heard, sizeof(heard), 1}));
    if (heard) {
        line->mine = dp_listener_accept(listener);
        taken = line->mine >= 0;
    }
    heard = false;
    DP_TRY(dp_group_exchange(group, from, (struct dp_slice){&taken, sizeof(taken), 1}, to,
                             (struct dp_slice){&heard, sizeof(heard), 1}));
    if (heard) {
        line->watched = before;
        memcpy(line->host, contacts[before].host, sizeof(line->host));
        probe(line->theirs);
    } else if (watches) {
        shut(&line->theirs);
        dp_log(DP_LOG_DEBUG, __FILE__, __LINE__, "no connection to rank %d (%s): not watched",
               before, contacts[before].host);
    }
    if (taken) {
        probe(line->mine);
    }
    return DP_OK;
}

dp_status dp_lifeline_open(struct dp_group *group, struct dp_lifeline *line)
{
    struct dp_contact *contacts, mine;
    struct dp_listener listener;
    dp_status status;

    if (group->nodes == 1) {
        return DP_OK;
    }
    contacts = dp_zalloc((size_t)group->size, sizeof(*contacts));
    if (contacts == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "hosts of %d ranks", group->size);
    }
    dp_contact_init(&mine);
    dp_listener_init(&listener);
    if (alone(group, group->rank)) {
        dp_listener_open(&listener, &mine);
    }
    status = dp_group_allgather(group, &mine, sizeof(mine), contacts);
    if (status == DP_OK) {
        status = connect_all(group, contacts, &listener, line);
    }
    dp_listener_close(&listener);
    dp_free(contacts);
    if (status != DP_OK) {
        dp_lifeline_close(line);
    }
    return status;
}

bool dp_lifeline_lost(struct dp_lifeline *line)
{
    char farewell;

    if (line->theirs < 0) {
        return false;
    }
    if (!line->gone) {
        const ssize_t got = recv(line->theirs, &farewell, 1, MSG_DONTWAIT);
        if (got > 0) {
            shut(&line->theirs);
        } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            line->gone = true;
        }
    }
    return line->gone;
}

void dp_lifeline_leave(const struct dp_lifeline *line)
{
    if (line->mine >= 0) {
        (void)send(line->mine, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

void dp_lifeline_close(struct dp_lifeline *line)
{
    dp_lifeline_leave(line);
    shut(&line->mine);
    shut(&line->theirs);
    dp_lifeline_init(line);
}
