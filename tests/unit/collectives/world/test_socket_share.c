/* test_socket_share.c - ranks of a host get the sockets of its first one, and of no other. */
#define _DEFAULT_SOURCE /* syscall */
#include "tests/support/arrays.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/world/socket_share.h"
#include "tests/support/local_world.h"

enum { RANKS = 6, TIMES = 30 };

static atomic_bool no_token;
static atomic_int letters; /* that were sent */

/* The linker takes these two, and not libc's. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    return atomic_load(&no_token) ? -1 : syscall(SYS_getrandom, buffer, length, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    (void)atomic_fetch_add(&letters, 1);
    return syscall(SYS_sendmsg, fd, message, flags);
}

/* Of this process. */
static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    assert_int_equal(closedir(folder), 0);
    return count;
}

/* Three ranks of each of two hosts, in turns. */
static const int node_of[RANKS] = {0, 1, 0, 1, 0, 1};

/* What is read from the other end of a pair; -1: nothing. */
static int read_from(int fd)
{
    char byte = -1;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 1 ? byte : -1;
}

/* Each rank has a socket of its own, which all but the first ones must keep; the other one that
 * could be shared is there on the second host only. */
static size_t share(struct dp_group *group, int round)
{
    const int node = group->node_of[group->rank];
    const bool first = dp_group_leader(group, node) == group->rank;
    int pair[2] = {-1, -1}, out[DP_SOCKETS_SHARED];
    size_t wrong = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0;
    const int mine[DP_SOCKETS_SHARED] = {pair[0], node == 1 ? pair[0] : -1};

    wrong += dp_socket_share(group, mine, out) != DP_OK;
    for (int i = 0; i < DP_SOCKETS_SHARED; i++) {
        const char byte = (char)(round + node);
        wrong += (out[i] >= 0) != (!first && (i == 0 || node == 1));
        wrong += out[i] >= 0 && send(out[i], &byte, 1, MSG_NOSIGNAL) != 1;
        if (out[i] >= 0) {
            (void)close(out[i]);
        }
    }
    wrong += dp_group_barrier(group) != DP_OK;
    for (int i = 0; i < 2 * (1 + node); i++) { /* of two ranks, over one or both */
        wrong += read_from(pair[1]) != (first ? round + node : -1);
    }
    wrong += read_from(pair[1]) != -1;
    (void)close(pair[0]);
    (void)close(pair[1]);
    return wrong;
}

static size_t share_often(struct dp_group *group, const void *unused)
{
    size_t wrong = 0;
    (void)unused;

    for (int round = 0; round < TIMES && wrong == 0; round++) {
        wrong += share(group, round);
    }
    return wrong;
}

static void all_ranks_of_a_host_get_the_sockets_of_its_first_one(void **state)
{
    const int before = open_files();
    (void)state;

    atomic_store(&letters, 0);
    assert_int_equal(on_local_nodes(RANKS, node_of, share_often, NULL), 0);
    assert_int_equal(atomic_load(&letters), TIMES * 4); /* two on each host */
    assert_int_equal(open_files(), before);
}

/* Every rank has a socket, for which only the first one of its host has a use. */
static size_t share_in_vain(struct dp_group *group, const void *unused)
{
    int pair[2] = {-1, -1}, out[DP_SOCKETS_SHARED];
    size_t wrong = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0;
    (void)unused;

    wrong += dp_socket_share(group, pair, out) != DP_OK;
    wrong += out[0] != -1 || out[1] != -1;
    (void)close(pair[0]);
    (void)close(pair[1]);
    return wrong;
}

/* Its name may be another program's by then. */
static void a_rank_without_a_token_is_sent_nothing(void **state)
{
    const int before = open_files();
    (void)state;

    atomic_store(&no_token, true);
    atomic_store(&letters, 0);
    assert_int_equal(on_local_nodes(RANKS, node_of, share_in_vain, NULL), 0);
    atomic_store(&no_token, false);
    assert_int_equal(atomic_load(&letters), 0);
    assert_int_equal(open_files(), before);
}

static size_t share_once(struct dp_group *group, const void *unused)
{
    static const int none[DP_SOCKETS_SHARED] = {-1, -1};
    int out[DP_SOCKETS_SHARED];
    const dp_status status = dp_socket_share(group, none, out);
    (void)unused;

    return status != DP_OK || out[0] != -1 || out[1] != -1;
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    (void)state;
    check_failing_allocations(RANKS, node_of, share_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_of_a_host_get_the_sockets_of_its_first_one),
        cmocka_unit_test(a_rank_without_a_token_is_sent_nothing),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_and_blocks_no_rank),
    };

    return cmocka_run_group_tests_name("socket_share", tests, NULL, NULL);
}
