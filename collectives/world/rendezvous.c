#include "collectives/world/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/trace.h"

enum {
    CONNECT_MS = 250, /* for one endpoint */
    ACCEPT_MS = 1000, /* for all that connect */
    STRANGERS = 16    /* accepted callers with a wrong token, at most */
};

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

void dp_contact_init(struct dp_contact *contact)
{
    memset(contact, 0, sizeof(*contact));
    (void)gethostname(contact->host, sizeof(contact->host) - 1);
}

void dp_listener_init(struct dp_listener *listener)
{
    for (int i = 0; i < DP_ENDPOINTS; i++) {
        listener->socket[i] = -1;
    }
}

/* Listens at one address and fills in its endpoint. Returns the socket, or -1. */
static int listen_at(uint32_t address, struct dp_endpoint *endpoint)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = address};
    socklen_t length = sizeof(in);
    int fd = make_socket();

    if (fd < 0 || bind(fd, (const struct sockaddr *)&in, sizeof(in)) != 0 ||
        listen(fd, STRANGERS) != 0 || getsockname(fd, (struct sockaddr *)&in, &length) != 0) {
        shut(&fd);
        return -1;
    }
    *endpoint = (struct dp_endpoint){.address = address, .port = in.sin_port};
    return fd;
}

void dp_listener_open(struct dp_listener *listener, struct dp_contact *contact)
{
    struct ifaddrs *all;
    int count = 0;

    if (getrandom(listener->token, DP_TOKEN, 0) != DP_TOKEN || getifaddrs(&all) != 0) {
        return;
    }
    memcpy(contact->token, listener->token, DP_TOKEN);
    for (int loopback = 0; loopback <= 1; loopback++) {
        for (const struct ifaddrs *one = all; one != NULL && count < DP_ENDPOINTS;
             one = one->ifa_next) {
            struct sockaddr_in in;
            if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET) {
                continue;
            }
            memcpy(&in, one->ifa_addr, sizeof(in));
            if (is_loopback(in.sin_addr.s_addr) == (loopback == 1)) {
                listener->socket[count] = listen_at(in.sin_addr.s_addr, &contact->endpoint[count]);
                count += listener->socket[count] >= 0;
            }
        }
    }
    freeifaddrs(all);
}

/* Returns the first of some sockets that is ready within the timeout, or -1. */
static int wait_for(const int *sockets, int count, short events, int timeout_ms)
{
    struct pollfd wanted[DP_ENDPOINTS];
    int found;

    for (int i = 0; i < count; i++) {
        wanted[i] = (struct pollfd){.fd = sockets[i], .events = events};
    }
    do {
        found = poll(wanted, (nfds_t)count, timeout_ms);
    } while (found < 0 && errno == EINTR);
    for (int i = 0; i < count && found > 0; i++) {
        if (wanted[i].revents != 0) {
            return sockets[i];
        }
    }
    return -1;
}

int dp_listener_accept(const struct dp_listener *listener)
{
    const uint64_t end_ns = dp_now_ns() + (uint64_t)ACCEPT_MS * 1000000;

    for (uint64_t now_ns; (now_ns = dp_now_ns()) < end_ns;) {
        const int left_ms = (int)((end_ns - now_ns) / 1000000) + 1;
        const int ready = wait_for(listener->socket, DP_ENDPOINTS, POLLIN, left_ms);
        uint8_t token[DP_TOKEN];
        int fd;

        if (ready < 0) {
            break;
        }
        fd = accept(ready, NULL, NULL);
        if (fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
            wait_for(&fd, 1, POLLIN, CONNECT_MS) == fd &&
            recv(fd, token, DP_TOKEN, MSG_DONTWAIT) == DP_TOKEN &&
            memcmp(token, listener->token, DP_TOKEN) == 0) {
            return fd;
        }
        shut(&fd);
    }
    return -1;
}

void dp_listener_close(struct dp_listener *listener)
{
    for (int i = 0; i < DP_ENDPOINTS; i++) {
        shut(&listener->socket[i]);
    }
}

static int connect_to(const struct dp_contact *contact, const struct dp_endpoint *endpoint)
{
    const struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_addr.s_addr = endpoint->address, .sin_port = endpoint->port};
    int fd = make_socket(), error = 0;
    socklen_t length = sizeof(error);

    if (fd < 0) {
        return -1;
    }
    if ((connect(fd, (const struct sockaddr *)&in, sizeof(in)) != 0 && errno != EINPROGRESS) ||
        wait_for(&fd, 1, POLLOUT, CONNECT_MS) != fd ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0 ||
        send(fd, contact->token, DP_TOKEN, MSG_NOSIGNAL) != DP_TOKEN) {
        shut(&fd);
    }
    return fd;
}

int dp_contact_connect(const struct dp_contact *contact, const char *own_host)
{
    int fd = -1;

    for (int i = 0; i < DP_ENDPOINTS && contact->endpoint[i].port != 0 && fd < 0; i++) {
        const struct dp_endpoint *endpoint = &contact->endpoint[i];

        if (!is_loopback(endpoint->address) || strcmp(contact->host, own_host) == 0) {
            fd = connect_to(contact, endpoint);
        }
    }
    return fd;
}
