/* test_endpoints.c - at which addresses of a host a rank listens, and in which order. */
#include <ifaddrs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "collectives/world/rendezvous.h"

enum { MOST = 12 };

/* This host's addresses, simulated. */
static struct sockaddr_in address_of[MOST];
static struct ifaddrs interfaces[MOST];

static void have(const char *const *addresses, int count)
{
    memset(interfaces, 0, sizeof(interfaces));
    for (int i = 0; i < count; i++) {
        address_of[i] = (struct sockaddr_in){.sin_family = AF_INET};
        interfaces[i].ifa_next = i + 1 < count ? &interfaces[i + 1] : NULL;
        if (addresses[i] != NULL) {
            assert_int_equal(inet_pton(AF_INET, addresses[i], &address_of[i].sin_addr), 1);
            interfaces[i].ifa_addr = (struct sockaddr *)&address_of[i];
        }
    }
}

/* The linker takes these three, and not libc's. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int getifaddrs(struct ifaddrs **all)
{
    *all = interfaces;
    return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
    assert_ptr_equal(all, interfaces);
}

/* The host need not have them: without this the kernel chooses a port. */
int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    (void)fd;
    (void)address;
    (void)length;
    return 0;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* Listens, and compares where. */
static void check_order(const char *const *wanted, int count)
{
    struct dp_listener listener;
    struct dp_contact contact;

    dp_contact_init(&contact);
    dp_listener_init(&listener);
    dp_listener_open(&listener, &contact);
    for (int i = 0; i < DP_ENDPOINTS; i++) {
        const struct in_addr address = {contact.endpoint[i].address};
        char text[INET_ADDRSTRLEN] = "";
        assert_non_null(inet_ntop(AF_INET, &address, text, sizeof(text)));
        assert_string_equal(text, i < count ? wanted[i] : "0.0.0.0");
        assert_int_equal(listener.socket[i] >= 0, i < count);
        assert_int_equal(contact.endpoint[i].port != 0, i < count);
    }
    dp_listener_close(&listener);
}

static void loopback_comes_last(void **state)
{
    static const char *const have_all[] = {"127.0.0.1", "192.0.2.1", NULL, "127.0.0.2",
                                           "192.0.2.2"};
    static const char *const wanted[] = {"192.0.2.1", "192.0.2.2", "127.0.0.1", "127.0.0.2"};
    (void)state;

    have(have_all, 5);
    check_order(wanted, 4);
    interfaces[1].ifa_addr->sa_family = AF_INET6; /* of another kind */
    check_order((const char *const[]){"192.0.2.2", "127.0.0.1", "127.0.0.2"}, 3);
}

static void of_many_addresses_the_first_ones_are_taken(void **state)
{
    static const char *const many[MOST] = {"127.0.0.1", "192.0.2.1", "192.0.2.2",  "192.0.2.3",
                                           "192.0.2.4", "192.0.2.5", "192.0.2.6",  "192.0.2.7",
                                           "192.0.2.8", "192.0.2.9", "192.0.2.10", "127.0.0.2"};
    (void)state;

    have(many, MOST);
    check_order(many + 1, DP_ENDPOINTS);
    have(many, DP_ENDPOINTS - 1);
    check_order((const char *const[]){"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4",
                                      "192.0.2.5", "192.0.2.6", "127.0.0.1"},
                DP_ENDPOINTS - 1);
}

/* Where nothing else is. */
static void a_socket_may_be_file_0(void **state)
{
    static const char *const all[] = {"192.0.2.1", "192.0.2.2"};
    const int kept = dup(STDIN_FILENO);
    (void)state;

    assert_true(kept >= 0);
    assert_int_equal(close(STDIN_FILENO), 0);
    have(all, 2);
    check_order(all, 2);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(close(kept), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_comes_last),
        cmocka_unit_test(of_many_addresses_the_first_ones_are_taken),
        cmocka_unit_test(a_socket_may_be_file_0),
    };

    return cmocka_run_group_tests_name("endpoints", tests, NULL, NULL);
}
