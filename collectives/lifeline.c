#include "collectives/lifeline.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/trace.h"

enum {
    ADDRESSES = 8,    /* of a host, at most */
    CONNECT_MS = 250, /* for one of them */
    ACCEPT_MS = 1000, /* for all who knock */
    STRANGERS = 16,   /* of them, at most */
    PROBE_S = 1,      /* of a silent connection */
    PROBES = 3,       /* unanswered: its host is gone */
    UNANSWERED_MS = 4000
};

/* How to call a rank: what each tells all others. */
struct call {
    char host[64];
    uint64_t word;               /* tells the caller from a stranger */
    uint32_t address[ADDRESSES]; /* IPv4, in network order; 0: no more. Loopback last */
    uint16_t port;               /* in network order; 0: nobody listens */
    char pad[6];
};

void dp_lifeline_init(struct dp_lifeline *line)
{
    *line = (struct dp_lifeline){.watched = -1, .theirs = -1, .mine = -1};
}

static bool is_loopback(uint32_t address)
{
    return ntohl(address) >> 24 == 127;
}

static void shut(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

static int make_socket(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd >= 0 && (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* The addresses of this host. */
static void list_addresses(struct call *call)
{
    struct ifaddrs *all;
    int count = 0;

    if (getifaddrs(&all) != 0) {
        return;
    }
    for (int loopback = 0; loopback <= 1; loopback++) {
        for (const struct ifaddrs *one = all; one != NULL && count < ADDRESSES;
             one = one->ifa_next) {
            struct sockaddr_in in;
            if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET) {
                continue;
            }
            memcpy(&in, one->ifa_addr, sizeof(in));
            if (is_loopback(in.sin_addr.s_addr) == (loopback == 1)) {
                call->address[count++] = in.sin_addr.s_addr;
            }
        }
    }
    freeifaddrs(all);
}

/* Waits for a call at a port that the kernel chooses. Returns the socket, or -1. */
static int listen_for(struct call *call)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof(in);
    const uint64_t seed[2] = {dp_now_ns(), (uint64_t)getpid()};
    int fd = make_socket();

    if (fd < 0 || bind(fd, (const struct sockaddr *)&in, sizeof(in)) != 0 ||
        listen(fd, STRANGERS) != 0 || getsockname(fd, (struct sockaddr *)&in, &length) != 0) {
        shut(&fd);
        return -1;
    }
    list_addresses(call);
    call->word = XXH3_64bits(seed, sizeof(seed));
    call->port = in.sin_port;
    return fd;
}

static bool wait_for(int fd, short events, int timeout_ms)
{
    struct pollfd wanted = {.fd = fd, .events = events};
    int found;

    do {
        found = poll(&wanted, 1, timeout_ms);
    } while (found < 0 && errno == EINTR);
    return found > 0;
}

static int call_address(const struct call *call, uint32_t address)
{
    const struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_addr.s_addr = address, .sin_port = call->port};
    int fd = make_socket(), error = 0;
    socklen_t length = sizeof(error);

    if (fd < 0) {
        return -1;
    }
    if ((connect(fd, (const struct sockaddr *)&in, sizeof(in)) != 0 && errno != EINPROGRESS) ||
        !wait_for(fd, POLLOUT, CONNECT_MS) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0 ||
        send(fd, &call->word, sizeof(call->word), MSG_NOSIGNAL) != sizeof(call->word)) {
        shut(&fd);
    }
    return fd;
}

/* Calls a rank at each of its addresses in turn. */
static int call_rank(const struct call *call, const char *own_host)
{
    int fd = -1;

    for (int i = 0; i < ADDRESSES && call->address[i] != 0 && call->port != 0 && fd < 0; i++) {
        if (!is_loopback(call->address[i]) || strcmp(call->host, own_host) == 0) {
            fd = call_address(call, call->address[i]);
        }
    }
    return fd;
}

/* The call of the one who knows the word. */
static int take_call(int listener, uint64_t word)
{
    const uint64_t end_ns = dp_now_ns() + (uint64_t)ACCEPT_MS * 1000000;

    for (uint64_t now_ns; (now_ns = dp_now_ns()) < end_ns;) {
        uint64_t said = 0;
        int fd;
        if (!wait_for(listener, POLLIN, (int)((end_ns - now_ns) / 1000000) + 1)) {
            break;
        }
        fd = accept(listener, NULL, NULL);
        if (fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && wait_for(fd, POLLIN, CONNECT_MS) &&
            recv(fd, &said, sizeof(said), MSG_DONTWAIT) == sizeof(said) && said == word) {
            return fd;
        }
        shut(&fd);
    }
    return -1;
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

/* Calls and takes calls; both ends must know that both have. */
static dp_status connect_all(struct dp_group *group, const struct call *calls, int listener,
                             struct dp_lifeline *line)
{
    const int node = group->node_of[group->rank], nodes = group->nodes;
    const int before = dp_group_leader(group, (node + nodes - 1) % nodes);
    const bool watches = dp_group_leader(group, node) == group->rank && alone(group, before);
    const int to = watches ? before : -1;
    const int from = alone(group, group->rank) ? dp_group_leader(group, (node + 1) % nodes) : -1;
    bool made = false, taken = false, heard = false;

    if (watches) {
        line->theirs = call_rank(&calls[before], calls[group->rank].host);
        made = line->theirs >= 0;
    }
    DP_TRY(dp_group_exchange(group, to, (struct dp_slice){&made, sizeof(made), 1}, from,
                             (struct dp_slice){&heard, sizeof(heard), 1}));
    if (heard) {
        line->mine = take_call(listener, calls[group->rank].word);
        taken = line->mine >= 0;
    }
    heard = false;
    DP_TRY(dp_group_exchange(group, from, (struct dp_slice){&taken, sizeof(taken), 1}, to,
                             (struct dp_slice){&heard, sizeof(heard), 1}));
    if (heard) {
        line->watched = before;
        memcpy(line->host, calls[before].host, sizeof(line->host));
        probe(line->theirs);
    } else if (watches) {
        shut(&line->theirs);
        dp_log(DP_LOG_DEBUG, __FILE__, __LINE__, "no connection to rank %d (%s): not watched",
               before, calls[before].host);
    }
    if (taken) {
        probe(line->mine);
    }
    return DP_OK;
}

dp_status dp_lifeline_open(struct dp_group *group, struct dp_lifeline *line)
{
    struct call *calls, mine;
    int listener = -1;
    dp_status status;

    if (group->nodes == 1) {
        return DP_OK;
    }
    calls = dp_zalloc((size_t)group->size, sizeof(*calls));
    if (calls == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "hosts of %d ranks", group->size);
    }
    memset(&mine, 0, sizeof(mine));
    (void)gethostname(mine.host, sizeof(mine.host) - 1);
    if (alone(group, group->rank)) {
        listener = listen_for(&mine);
    }
    status = dp_group_allgather(group, &mine, sizeof(mine), calls);
    if (status == DP_OK) {
        status = connect_all(group, calls, listener, line);
    }
    shut(&listener);
    dp_free(calls);
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
