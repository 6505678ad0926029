/*
 * test_wire.c - a wire between hosts is identified by its interfaces and settings.
 *
 * Each host is a folder with the files that Linux would have in /sys/class/net.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/system/wire.h"
#include "tests/support/scratch.h"

static char *no_settings[] = {NULL};

/* A file of an interface; `text` NULL: a folder. */
static void put(const char *interface, const char *file, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", interface, file);
    (void)mkdir(scratch_path(interface), 0700);
    if (text != NULL) {
        scratch_write(scratch_path(path), text, strlen(text));
    } else {
        (void)mkdir(scratch_path(path), 0700);
    }
}

static void put_interface(const char *name, const char *speed, const char *mtu, const char *state)
{
    put(name, "speed", speed);
    put(name, "mtu", mtu);
    put(name, "operstate", state);
    put(name, "ifindex", "1000000007\n"); /* none of this machine's */
}

static uint64_t wire(void)
{
    return dp_wire_hash(scratch_folder, no_settings);
}

static int create_host(void **state)
{
    if (scratch_create(state) != 0) {
        return -1;
    }
    put_interface("eth0", "1000\n", "1500\n", "up\n");
    put_interface("lo", "", "65536\n", "unknown\n");
    return 0;
}

static void the_same_host_has_the_same_wire(void **state)
{
    (void)state;
    assert_true(wire() == wire());
}

static void another_speed_mtu_or_name_is_another_wire(void **state)
{
    const uint64_t before = wire();
    uint64_t fast, large;
    (void)state;

    put_interface("eth0", "10000\n", "1500\n", "up\n");
    fast = wire();
    put_interface("eth0", "10000\n", "9000\n", "up\n");
    large = wire();
    assert_true(fast != before && large != before && large != fast);
    put_interface("eth0", "1000\n", "1500\n", "up\n");
    assert_true(wire() == before);
    scratch_remove(scratch_path("eth0"));
    put_interface("eth1", "1000\n", "1500\n", "up\n");
    assert_true(wire() != before);
}

static void one_more_interface_is_another_wire(void **state)
{
    const uint64_t before = wire();
    (void)state;

    put_interface("ib0", "100000\n", "2044\n", "up\n");
    assert_true(wire() != before);
}

static void interfaces_without_messages_do_not_count(void **state)
{
    const uint64_t before = wire();
    (void)state;

    put_interface("eth1", "10000\n", "1500\n", "down\n");
    put_interface("veth7", "10000\n", "1500\n", "up\n");
    put("veth7", "master", NULL); /* of a container: a port of a bridge */
    put_interface("lo", "", "1500\n", "unknown\n");
    assert_true(wire() == before);
}

static void transport_settings_count_in_any_order(void **state)
{
    static char interface[] = "OMPI_MCA_btl_tcp_if_include=eth0", none[] = "OMPI_MCA_btl=^openib",
                other[] = "OMPI_MCA_btl_tcp_if_include=eth1", job[] = "OMPI_MCA_orte_jobid=7",
                path[] = "PATH=/bin", devices[] = "UCX_NET_DEVICES=mlx5_0:1";
    static char *const set[] = {interface, none, NULL},
                       *const turned[] = {none, path, job, interface, NULL},
                       *const another[] = {other, none, NULL}, *const ucx[] = {devices, NULL};
    const uint64_t before = dp_wire_hash(scratch_folder, set);
    (void)state;

    assert_true(before != wire());
    assert_true(dp_wire_hash(scratch_folder, turned) == before);
    assert_true(dp_wire_hash(scratch_folder, another) != before);
    assert_true(dp_wire_hash(scratch_folder, ucx) != wire());
}

static void a_host_with_hidden_interfaces_has_a_wire(void **state)
{
    (void)state;
    assert_true(dp_wire_hash("/nowhere", no_settings) == dp_wire_hash("/nowhere", no_settings));
    assert_true(dp_wire_hash("/nowhere", no_settings) != wire());
    assert_true(dp_wire_hash(DP_WIRE_FOLDER, no_settings) ==
                dp_wire_hash(DP_WIRE_FOLDER, no_settings));
}

static void a_device_for_direct_access_is_named_if_its_port_is_active(void **state)
{
    char text[64] = "?", small[8];
    (void)state;

    dp_wire_rdma(scratch_path("nowhere"), text, sizeof(text));
    assert_string_equal(text, "");
    (void)mkdir(scratch_path("rdma"), 0700);
    put("rdma/mlx5_1", "ports", NULL);
    put("rdma/mlx5_1/ports", "1", NULL);
    put("rdma/mlx5_1/ports/1", "state", "1: DOWN\n");
    put("rdma/mlx5_1/ports/1", "rate", "40 Gb/sec (4X QDR)\n");
    dp_wire_rdma(scratch_path("rdma"), text, sizeof(text));
    assert_string_equal(text, "");
    put("rdma/mlx5_1/ports/1", "state", "4: ACTIVE\n");
    dp_wire_rdma(scratch_path("rdma"), text, sizeof(text));
    assert_string_equal(text, "mlx5_1, 40 Gb/sec");
    dp_wire_rdma(scratch_path("rdma"), small, sizeof(small));
    assert_string_equal(small, "mlx5_1,");
    put("rdma/efa_0", "ports", NULL);
    put("rdma/efa_0/ports", "1", NULL);
    put("rdma/efa_0/ports/1", "state", "4: ACTIVE\n");
    dp_wire_rdma(scratch_path("rdma"), text, sizeof(text));
    assert_string_equal(text, "efa_0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_host_has_the_same_wire, create_host,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(another_speed_mtu_or_name_is_another_wire, create_host,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(one_more_interface_is_another_wire, create_host,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(interfaces_without_messages_do_not_count, create_host,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(transport_settings_count_in_any_order, create_host,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_device_for_direct_access_is_named_if_its_port_is_active,
                                        create_host, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_host_with_hidden_interfaces_has_a_wire, create_host,
                                        scratch_destroy),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
