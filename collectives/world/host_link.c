#include "collectives/world/host_link.h"

#include <errno.h>
#include <limits.h>
#include <linux/tcp.h> /* netinet/tcp.h hides struct tcp_info from POSIX programs */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "collectives/world/rendezvous.h"

enum {
    PROBE_S = 1,   /* of a silent connection */
    PROBES = 127,  /* unanswered probes that the kernel allows, at most */
    QUIET_S = 5,   /* silence of a host before a warning */
    ANSWERS_S = 3, /* a host that answers does so at least this often */
    MS = 1000
};

/* What is sent when a host is given up. */
struct loss {
    char kind; /* DP_HOST_LINK_LOSS */
    char host[64];
    int rank, silent_s;
};

void dp_host_link_init(struct dp_host_link *line)
{
    *line = (struct dp_host_link){.watched = -1, .theirs = -1, .mine = -1};
}

static void shut(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* Makes the kernel send probes and never give up: we decide how long to wait. Where that is
 * impossible, a closed connection is still seen. */
static void probe(int fd)
{
    const int on = 1, idle = PROBE_S, count = PROBES, most = INT_MAX;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof(most)); /* ms */
}

/* Seconds since the other host last answered a probe; 0 where the kernel does not report it. */
static int quiet_s(int fd)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
               ? (int)(info.tcpi_last_ack_recv / MS)
               : 0;
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

static bool leads(const struct dp_group *group)
{
    return dp_group_leader(group, group->node_of[group->rank]) == group->rank;
}

/* Connects and accepts. Each end must learn whether the other end succeeded. */
static dp_status connect_all(struct dp_group *group, struct dp_contact *mine,
                             const struct dp_listener *listener, struct dp_host_link *line)
{
    const int node = group->node_of[group->rank], nodes = group->nodes;
    const int before = dp_group_leader(group, (node + nodes - 1) % nodes);
    const int to = leads(group) ? before : -1;
    const int from = leads(group) ? dp_group_leader(group, (node + 1) % nodes) : -1;
    struct dp_contact contact = {.host = ""};
    bool made = false, taken = false, heard = false;

    DP_TRY(dp_group_exchange(group, from, (struct dp_slice){mine, sizeof(*mine), 1}, to,
                             (struct dp_slice){&contact, sizeof(contact), 1}));
    if (to >= 0) {
        line->theirs = dp_contact_connect(&contact, mine->host);
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
        line->alone = alone(group, before);
        memcpy(line->host, contact.host, sizeof(line->host));
        probe(line->theirs);
    } else if (to >= 0) {
        shut(&line->theirs);
        DP_DEBUG("no connection to rank %d (%s): not watched", before, contact.host);
    }
    if (taken) {
        probe(line->mine);
    }
    return DP_OK;
}

dp_status dp_host_link_open(struct dp_group *group, struct dp_host_link *line)
{
    struct dp_contact mine;
    struct dp_listener listener;
    dp_status status;

    if (group->nodes == 1) {
        return DP_OK;
    }
    dp_contact_init(&mine);
    dp_listener_init(&listener);
    if (leads(group)) {
        dp_listener_open(&listener, &mine);
    }
    status = connect_all(group, &mine, &listener, line);
    dp_listener_close(&listener);
    if (status != DP_OK) {
        dp_host_link_close(line);
    }
    return status;
}

/* The watched process has ended. If it has local peers, they report it. */
static void note_end(struct dp_host_link *line)
{
    line->died = line->alone;
    if (!line->alone) {
        shut(&line->theirs);
    }
}

/* A host is given up: those that wait for it on other hosts must end, too. The lost one does not
 * answer, so this ends there. */
static void give_up(struct dp_host_link *line, int silent_s)
{
    struct loss loss = {.kind = DP_HOST_LINK_LOSS, .rank = line->watched, .silent_s = silent_s};

    line->silent_s = silent_s;
    memcpy(loss.host, line->host, sizeof(loss.host));
    if (line->mine >= 0) {
        (void)send(line->mine, &loss, sizeof(loss), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Another host has given one up. */
static void take_loss(struct dp_host_link *line)
{
    struct loss loss;

    if (recv(line->theirs, &loss, sizeof(loss), MSG_PEEK | MSG_DONTWAIT) != sizeof(loss) ||
        loss.silent_s <= 0) {
        return;
    }
    line->told = true;
    line->watched = loss.rank;
    memcpy(line->host, loss.host, sizeof(line->host));
    line->host[sizeof(line->host) - 1] = '\0';
    give_up(line, loss.silent_s);
}

/* The connection broke for another reason than the end of the process. If the host was silent
 * before, it has been restarted or has lost the process. */
static void note_break(struct dp_host_link *line, int error)
{
    if (line->warned) {
        give_up(line, line->quiet_s);
        return;
    }
    shut(&line->theirs);
    DP_WARN("the connection that monitors host %s (rank %d) is broken (%s): the host is no "
            "longer monitored",
            line->host, line->watched, strerror(error));
}

static void note_silence(struct dp_host_link *line, int outage_s)
{
    const int quiet = quiet_s(line->theirs);

    if (line->warned && quiet < ANSWERS_S) {
        line->warned = false;
        DP_WARN("host %s (rank %d) responds again after %d s", line->host, line->watched,
                line->quiet_s);
    }
    line->quiet_s = quiet;
    if (quiet >= outage_s) {
        give_up(line, quiet);
    } else if (quiet >= QUIET_S && !line->warned) {
        line->warned = true;
        DP_WARN("no sign of life from host %s (rank %d) for %d s: waiting up to %d s", line->host,
                line->watched, quiet, outage_s);
    }
}

bool dp_host_link_lost(struct dp_host_link *line, int outage_s)
{
    unsigned char first = DP_HOST_LINK_FAREWELL;
    ssize_t got;

    if (line->theirs < 0 || line->died || line->silent_s > 0 || line->talks) {
        return line->died || line->silent_s > 0;
    }
    got = recv(line->theirs, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 && first == DP_HOST_LINK_ROW) {
        return false;
    }
    if (got < 0 ? errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR
                : got > 0 && first >= DP_HOST_LINK_PROGRESS) {
        note_silence(line, outage_s);
    } else if (got > 0 && first == DP_HOST_LINK_LOSS) {
        take_loss(line);
    } else if (got > 0) {
        shut(&line->theirs);
    } else if (got == 0) {
        note_end(line);
    } else {
        note_break(line, errno);
    }
    return line->died || line->silent_s > 0;
}

void dp_host_link_leave(const struct dp_host_link *line)
{
    const char farewell = DP_HOST_LINK_FAREWELL;

    if (line->mine >= 0 && !line->talks) {
        (void)send(line->mine, &farewell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

void dp_host_link_close(struct dp_host_link *line)
{
    dp_host_link_leave(line);
    shut(&line->mine);
    shut(&line->theirs);
    dp_host_link_init(line);
}
