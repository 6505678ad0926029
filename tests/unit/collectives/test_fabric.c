/*
 * test_fabric.c - what Open MPI's open components mean for messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/core/fabric_mpi.h"

static const struct dp_fabric_settings none;

static void expect(const char *const *components, int nodes, struct dp_fabric_settings settings,
                   const char *wanted, bool tcp)
{
    char text[DP_FABRIC_BYTES];

    dp_fabric_text(components, nodes, settings, text);
    assert_string_equal(text, wanted);
    assert_int_equal(dp_fabric_is_tcp(text), tcp);
}

static void the_chosen_components_are_named(void **state)
{
    static const char *const ob1[] = {"btl_tcp", "btl_vader", "btl_self", "pml_ob1",
                                      "mtl_ofi", "mtl_psm2",  NULL};
    static const char *const newer[] = {"btl_sm", "btl_tcp", "btl_uct", "pml_ob1", "mtl_ofi", NULL};
    static const char *const verbs[] = {"btl_openib", "btl_tcp", "btl_self", "pml_ob1", NULL};
    static const char *const ucx[] = {"btl_tcp", "btl_vader", "pml_ucx", "mtl_ofi", NULL};
    static const char *const cm[] = {"btl_tcp", "btl_vader", "pml_cm", "mtl_ofi", NULL};
    static const char *const psm[] = {"pml_cm", "mtl_psm2", NULL};
    (void)state;

    expect(ob1, 1, none, "shared memory", false);
    expect(ob1, 2, none, "shared memory on a node, TCP between nodes", true);
    expect(newer, 4, none, "shared memory on a node, TCP between nodes", true);
    expect(verbs, 2, none, "InfiniBand verbs between nodes", false);
    expect(ucx, 2, none, "UCX", false);
    expect(ucx, 1, (struct dp_fabric_settings){"shm,self", NULL}, "UCX (UCX_TLS=shm,self)", false);
    expect(cm, 2, none, "libfabric", false);
    expect(cm, 2, (struct dp_fabric_settings){"shm", "efa"}, "libfabric, provider efa", false);
    expect(psm, 2, (struct dp_fabric_settings){NULL, "efa"}, "PSM2", false);
}

static void what_is_not_known_has_no_name(void **state)
{
    static const char *const nothing[] = {NULL};
    static const char *const both[] = {"pml_ob1", "pml_ucx", "btl_tcp", NULL};
    static const char *const alone[] = {"pml_ob1", "btl_self", NULL};
    (void)state;

    expect(nothing, 2, none, "", false);
    expect(both, 2, none, "", false);
    expect(alone, 1, none, "", false);
    expect(alone, 2, none, "", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chosen_components_are_named),
        cmocka_unit_test(what_is_not_known_has_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
