#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC */

#include "collectives/world/socket_share.h"

#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "collectives/world/rendezvous.h"

enum { STRANGERS = 16 }; /* messages of others, at most */

/* Where a rank takes sockets: plain bytes, which ranks of a host show each other. */
struct box {
    struct sockaddr_un name; /* the kernel chose it */
    socklen_t length;        /* of the name; 0: there is no box */
    uint8_t token[DP_TOKEN];
};

/* What is sent beside sockets: which they are. */
struct letter {
    uint8_t token[DP_TOKEN];
    uint8_t is[DP_SOCKETS_SHARED]; /* whether it is among them */
};

/* Room for the descriptors of a message. */
union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(DP_SOCKETS_SHARED * sizeof(int))];
};

/* The socket; -1: there is none, and the box is empty. */
static int open_box(struct box *box)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    *box = (struct box){.length = sizeof(box->name)};
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any.sun_family)) == 0 &&
        getsockname(fd, (struct sockaddr *)&box->name, &box->length) == 0 &&
        getrandom(box->token, DP_TOKEN, 0) == DP_TOKEN) {
        return fd;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    box->length = 0;
    return -1;
}

/* A socket that cannot be sent is one that the other has not. */
static void put(int from, const struct box *box, const int mine[DP_SOCKETS_SHARED])
{
    struct letter letter = {.is = {0}};
    struct iovec text = {&letter, sizeof(letter)};
    union control control = {.bytes = {0}};
    struct sockaddr_un name = box->name;
    struct msghdr message = {.msg_name = &name,
                             .msg_namelen = box->length,
                             .msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes};
    int sockets[DP_SOCKETS_SHARED], count = 0;

    memcpy(letter.token, box->token, DP_TOKEN);
    for (int i = 0; i < DP_SOCKETS_SHARED; i++) {
        letter.is[i] = mine[i] >= 0;
        if (mine[i] >= 0) {
            sockets[count++] = mine[i];
        }
    }
    if (count == 0 || box->length == 0) {
        return;
    }
    message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)),
                                                .cmsg_level = SOL_SOCKET,
                                                .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), sockets, (size_t)count * sizeof(int));
    (void)sendmsg(from, &message, MSG_NOSIGNAL);
}

/* The descriptors of a message, which are this process's from now on. */
static int descriptors(struct msghdr *message, int sockets[DP_SOCKETS_SHARED])
{
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    size_t bytes;

    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
        return 0;
    }
    bytes = header->cmsg_len - CMSG_LEN(0);
    memcpy(sockets, CMSG_DATA(header), bytes);
    return (int)(bytes / sizeof(int));
}

/* Takes one message. Returns whether it was the one with the token. */
static bool take_one(int fd, const uint8_t token[DP_TOKEN], int out[DP_SOCKETS_SHARED], bool *more)
{
    struct letter letter = {.is = {0}};
    struct iovec text = {&letter, sizeof(letter)};
    union control control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int sockets[DP_SOCKETS_SHARED], count, used = 0;
    bool ours;

    *more = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) >= 0;
    count = *more ? descriptors(&message, sockets) : 0;
    ours = *more && memcmp(letter.token, token, DP_TOKEN) == 0;
    for (int i = 0; i < DP_SOCKETS_SHARED && ours; i++) {
        out[i] = letter.is[i] != 0 && used < count ? sockets[used++] : -1;
    }
    for (; used < count; used++) {
        (void)close(sockets[used]);
    }
    return ours;
}

/* Where there is no box, nothing comes. */
static void take(int fd, const uint8_t token[DP_TOKEN], int out[DP_SOCKETS_SHARED])
{
    bool more = true;

    for (int i = 0; i < STRANGERS && more; i++) {
        if (take_one(fd, token, out, &more)) {
            return;
        }
    }
}

/* Sends them to all other ranks of this node. */
static void put_all(const struct dp_group *group, const struct box *boxes,
                    const int mine[DP_SOCKETS_SHARED])
{
    const int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    for (int i = 0; i < group->size && from >= 0; i++) {
        if (i != group->rank && group->node_of[i] == group->node_of[group->rank]) {
            put(from, &boxes[i], mine);
        }
    }
    if (from >= 0) {
        (void)close(from);
    }
}

dp_status dp_socket_share(struct dp_group *group, const int mine[DP_SOCKETS_SHARED],
                          int out[DP_SOCKETS_SHARED])
{
    const bool first = dp_group_leader(group, group->node_of[group->rank]) == group->rank;
    struct box box = {.length = 0}, *boxes = dp_zalloc((size_t)group->size, sizeof(*boxes));
    dp_status status;
    int fd = -1;

    for (int i = 0; i < DP_SOCKETS_SHARED; i++) {
        out[i] = -1;
    }
    if (boxes == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "sockets of %d ranks", group->size);
    }
    fd = first ? -1 : open_box(&box);
    status = dp_group_gather_node(group, &box, sizeof(box), boxes);
    if (status == DP_OK && first) {
        put_all(group, boxes, mine);
    }
    status = status == DP_OK ? dp_group_barrier(group) : status;
    if (status == DP_OK) {
        take(fd, box.token, out);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    dp_free(boxes);
    return status;
}
