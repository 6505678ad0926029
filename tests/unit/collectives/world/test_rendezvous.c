/* test_rendezvous.c - only callers with a random token connect, and only at the published
 * addresses. */
#define _GNU_SOURCE /* ppoll */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "collectives/world/rendezvous.h"

/* The kernel's random source, simulated: its result and number of bytes. */
static uint8_t drawn;
static ssize_t drawn_length;

/* The linker takes this one, and not libc's. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    (void)flags;
    memset(buffer, drawn, length);
    return drawn_length < 0 ? drawn_length : (ssize_t)length;
}

static struct dp_contact open_one(struct dp_listener *listener, uint8_t random)
{
    struct dp_contact contact;

    drawn = random;
    drawn_length = 0;
    dp_contact_init(&contact);
    dp_listener_init(listener);
    dp_listener_open(listener, &contact);
    return contact;
}

static void a_token_comes_only_from_the_kernels_random_source(void **state)
{
    struct dp_listener listener;
    (void)state;

    for (int random = 1; random < 256; random += 127) {
        const struct dp_contact contact = open_one(&listener, (uint8_t)random);

        for (int i = 0; i < DP_TOKEN; i++) {
            assert_int_equal(contact.token[i], random);
        }
        assert_int_not_equal(contact.endpoint[0].port, 0);
        dp_listener_close(&listener);
    }
}

/* Whether time is up at once for whoever waits for a caller. */
static bool no_time;

/* As getrandom(). */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    const struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000l};

    return no_time ? 0 : ppoll(fds, count, &limit, NULL);
}

static void without_a_random_source_nobody_listens(void **state)
{
    struct dp_listener listener;
    struct dp_contact contact;
    (void)state;

    drawn_length = -1;
    dp_contact_init(&contact);
    dp_listener_init(&listener);
    dp_listener_open(&listener, &contact);
    assert_int_equal(contact.endpoint[0].port, 0);
    assert_int_equal(listener.socket[0], -1);
    assert_int_equal(dp_contact_connect(&contact, contact.host), -1);
    dp_listener_close(&listener);
}

/* A connection is file 0 where nothing else is; the next address is not tried then. */
static void a_connection_may_be_file_0(void **state)
{
    struct dp_listener listener;
    struct dp_contact contact = open_one(&listener, 3);
    const int kept = dup(STDIN_FILENO);
    (void)state;

    assert_true(kept >= 0);
    contact.endpoint[1] = contact.endpoint[0];
    assert_int_equal(close(STDIN_FILENO), 0);
    const int fd = dp_contact_connect(&contact, contact.host);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO); /* closes the connection */
    assert_int_equal(close(kept), 0);
    assert_int_equal(fd, STDIN_FILENO);
    dp_listener_close(&listener);
}

/* So may the socket at which a rank listens, the first one of its host. */
static void a_listener_may_be_file_0(void **state)
{
    const int kept = dup(STDIN_FILENO);
    struct dp_listener listener;
    struct dp_contact contact;
    int caller, taken;
    (void)state;

    assert_true(kept >= 0);
    assert_int_equal(close(STDIN_FILENO), 0);
    contact = open_one(&listener, 3);
    caller = dp_contact_connect(&contact, contact.host);
    taken = dp_listener_accept(&listener);
    const int first = listener.socket[0];
    dp_listener_close(&listener);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(close(kept), 0);
    assert_int_equal(first, STDIN_FILENO);
    assert_true(caller >= 0 && taken >= 0);
    (void)close(caller);
    (void)close(taken);
}

static void a_rendezvous_listens_only_at_its_contacts_addresses(void **state)
{
    struct dp_listener listener;
    const struct dp_contact contact = open_one(&listener, 3);
    int count = 0;
    (void)state;

    for (int i = 0; i < DP_ENDPOINTS && listener.socket[i] >= 0; i++, count++) {
        struct sockaddr_in in = {.sin_port = 0};
        socklen_t length = sizeof(in);

        assert_int_equal(getsockname(listener.socket[i], (struct sockaddr *)&in, &length), 0);
        assert_int_not_equal(in.sin_addr.s_addr, htonl(INADDR_ANY));
        assert_int_equal(in.sin_addr.s_addr, contact.endpoint[i].address);
        assert_int_equal(in.sin_port, contact.endpoint[i].port);
    }
    assert_true(count > 0);
    dp_listener_close(&listener);
    assert_int_equal(dp_contact_connect(&contact, contact.host), -1); /* nobody listens any more */
}

/* Another host's loopback address is ours, where somebody else may listen. */
static void a_loopback_address_is_called_on_its_own_host_only(void **state)
{
    struct dp_listener listener;
    const struct dp_contact contact = open_one(&listener, 7);
    struct dp_contact local = contact;
    int caller;
    (void)state;

    memset(local.endpoint, 0, sizeof(local.endpoint));
    for (int i = 0; i < DP_ENDPOINTS; i++) {
        if (ntohl(contact.endpoint[i].address) >> 24 == 127) {
            local.endpoint[0] = contact.endpoint[i];
        }
    }
    assert_int_not_equal(local.endpoint[0].port, 0);
    assert_int_equal(dp_contact_connect(&local, "elsewhere"), -1);
    caller = dp_contact_connect(&local, contact.host);
    assert_true(caller >= 0);
    (void)close(caller);
    dp_listener_close(&listener);
}

static void callers_without_the_token_are_ignored(void **state)
{
    struct dp_listener listener;
    const struct dp_contact contact = open_one(&listener, 5);
    struct dp_contact guess = contact;
    int stranger, caller, taken;
    char byte = 0;
    (void)state;

    guess.token[DP_TOKEN - 1] ^= 1;
    stranger = dp_contact_connect(&guess, contact.host);
    caller = dp_contact_connect(&contact, contact.host);
    assert_true(stranger >= 0 && caller >= 0);
    taken = dp_listener_accept(&listener);
    assert_true(taken >= 0);
    assert_true((fcntl(taken, F_GETFD) & FD_CLOEXEC) != 0); /* programs that are started lack it */
    assert_int_equal(send(taken, "!", 1, 0), 1);
    while (recv(caller, &byte, 1, 0) < 0) { /* it does not block */
    }
    assert_int_equal(byte, '!');
    (void)close(taken);
    (void)close(stranger);
    (void)close(caller);
    dp_listener_close(&listener);
}

static void without_a_caller_there_is_no_socket(void **state)
{
    struct dp_listener listener;
    (void)state;

    (void)open_one(&listener, 9);
    no_time = true;
    assert_int_equal(dp_listener_accept(&listener), -1);
    no_time = false;
    dp_listener_close(&listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_comes_only_from_the_kernels_random_source),
        cmocka_unit_test(without_a_random_source_nobody_listens),
        cmocka_unit_test(a_connection_may_be_file_0),
        cmocka_unit_test(a_listener_may_be_file_0),
        cmocka_unit_test(a_rendezvous_listens_only_at_its_contacts_addresses),
        cmocka_unit_test(a_loopback_address_is_called_on_its_own_host_only),
        cmocka_unit_test(callers_without_the_token_are_ignored),
        cmocka_unit_test(without_a_caller_there_is_no_socket),
    };

    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
