/*
 * rendezvous.h - how two ranks make a TCP connection. One listens at the addresses of its host, and
 * sends its contact to the other by messages of a group. The other connects, and proves by a random
 * token that it is the right process.
 *
 * A listener exists only while ranks start: it is bound to the addresses in the contact, and closed
 * when the connection is made.
 */
#ifndef DP_COLLECTIVES_WORLD_RENDEZVOUS_H
#define DP_COLLECTIVES_WORLD_RENDEZVOUS_H

#include <stdint.h>

enum { DP_ENDPOINTS = 8, DP_TOKEN = 16 };

/* The address at which a listener listens. */
struct dp_endpoint {
    uint32_t address; /* IPv4, in network order */
    uint16_t port;    /* in network order; 0: no more endpoints */
    uint16_t pad;
};

/* How to reach a rank: plain bytes, which ranks of one architecture exchange. */
struct dp_contact {
    char host[64];
    uint8_t token[DP_TOKEN];                   /* random; the caller must send it */
    struct dp_endpoint endpoint[DP_ENDPOINTS]; /* loopback last; none: the rank cannot be reached */
};

struct dp_listener {
    int socket[DP_ENDPOINTS]; /* one for each endpoint; -1: none */
    uint8_t token[DP_TOKEN];
};

/* Fills in only the host: for a rank that does not listen. */
void dp_contact_init(struct dp_contact *contact);

/* Makes a listener without sockets. */
void dp_listener_init(struct dp_listener *listener);

/* Listens at every IPv4 address of this host, at ports that the kernel chooses. Adds these and a
 * new token to the contact; where listening is impossible, no endpoints. Call it after
 * dp_listener_init(). Local. */
void dp_listener_open(struct dp_listener *listener, struct dp_contact *contact);

/* Waits at most a second for a caller with the right token. Returns the socket, which the caller
 * closes, or -1. Local. */
int dp_listener_accept(const struct dp_listener *listener);

/* Local; also on a listener without sockets. */
void dp_listener_close(struct dp_listener *listener);

/* Connects to a rank, trying each of its endpoints in turn; loopback only if it is on own_host.
 * Returns the socket, which the caller closes, or -1. Local; at most 250 ms per endpoint. */
int dp_contact_connect(const struct dp_contact *contact, const char *own_host);

#endif
