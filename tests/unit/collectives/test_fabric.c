/*
 * test_fabric.c - which components of Open MPI are found, and what they mean for messages.
 */
#define _GNU_SOURCE /* dladdr, RTLD_DEFAULT */
#include <dlfcn.h>
#include <mpi.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/fabric_mpi.h"
#include "tests/support/scratch.h"

/* ---- in the place of MPI's ---- */

static const char *const *variables; /* of the library, up to NULL */
static bool uncounted;               /* nobody can say how many */
static int lists, lists_ended;       /* of variables that were begun */

int MPI_T_init_thread(int wanted, int *provided)
{
    *provided = wanted;
    lists++;
    return MPI_SUCCESS;
}

int MPI_T_finalize(void)
{
    lists_ended++;
    return MPI_SUCCESS;
}

int MPI_T_cvar_get_num(int *count)
{
    for (*count = 0; variables != NULL && variables[*count] != NULL;) {
        ++*count;
    }
    return uncounted ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int MPI_T_cvar_get_info(int index, char *name, int *name_bytes, int *verbosity, MPI_Datatype *type,
                        MPI_T_enum *kinds, char *text, int *text_bytes, int *bind, int *scope)
{
    (void)verbosity, (void)type, (void)kinds, (void)bind, (void)scope;
    assert_true(text == NULL && *text_bytes == 0);
    if (variables[index][0] == '-') { /* of a component that is closed */
        return MPI_T_ERR_INVALID_INDEX;
    }
    (void)snprintf(name, (size_t)*name_bytes, "%s", variables[index]);
    return MPI_SUCCESS;
}

static const char *full_version = "";

int MPI_Get_library_version(char *version, int *resultlen)
{
    *resultlen = snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "%s", full_version);
    return MPI_SUCCESS;
}

/* ---- */

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
    static const char *const with_ob1[] = {"pml_ob1", "pml_cm", "btl_tcp", "mtl_ofi", NULL};
    static const char *const with_ucx[] = {"pml_ucx", "pml_cm", "mtl_ofi", NULL};
    static const char *const without[] = {"btl_tcp", "mtl_ofi", NULL};
    static const char *const alone[] = {"pml_ob1", "btl_self", NULL};
    (void)state;

    expect(nothing, 2, none, "", false);
    expect(both, 2, none, "", false);
    expect(with_ob1, 2, none, "", false);
    expect(with_ucx, 2, none, "", false);
    expect(without, 2, none, "", false);
    expect(alone, 1, none, "", false);
    expect(alone, 2, none, "", false);
}

/* Any library under the name of a component. */
static void *load(const char *name)
{
    static char bytes[1 << 20];
    void *const inside = dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests"), *library;
    const char *path = scratch_path(name);
    Dl_info info;
    long count;

    assert_int_not_equal(dladdr(inside, &info), 0);
    count = scratch_read(info.dli_fname, bytes, sizeof(bytes));
    assert_in_range(count, 1, sizeof(bytes) - 2);
    scratch_write(path, bytes, (size_t)count);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    return library;
}

/* With two files loaded, and variables of the library unless they must not be listed. */
static void expect_found(const char *one, const char *other, const char *const *registered,
                         const char *wanted)
{
    void *const libraries[] = {load(one), load(other)};
    char text[DP_FABRIC_BYTES];

    variables = registered;
    lists = lists_ended = 0;
    dp_mpi_fabric(2, text);
    assert_string_equal(text, wanted);
    assert_int_equal(lists, registered != NULL);
    assert_int_equal(lists_ended, lists);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dlclose(libraries[i]), 0);
    }
}

/* Those that were loaded are open; to list variables would load them all. */
static void components_are_files_or_parts_of_the_library(void **state)
{
    static const char *const parts[] = {"pml_cm_major_version",   "pml_cm_minor_version",
                                        "-pml_ob1_major_version", "mtl_psm_major_version",
                                        "mpi_show_handle_leaks",  NULL};
    static const char *const cm_alone[] = {"pml_cm_major_version", NULL};
    static const char *const ucx[] = {"pml_ucx_major_version", NULL};
    (void)state;

    assert_int_equal(unsetenv("UCX_TLS") | unsetenv("FI_PROVIDER"), 0);
    expect_found("mca_pml_ob1.so", "mca_btl_tcp.so", NULL, "TCP between nodes");
    expect_found("mca_mtl_psm2.so", "mca_pml_cm.so", NULL, "PSM2");
    expect_found("mca_mtl_ofi.so", "mcaxpml_ob1.so", parts, "PSM");
    expect_found("mca_pmlxob1.so", "pml_ob1.so", ucx, "UCX");
    expect_found("mca_btl_tcp.so", "mca_mtl_ofi.so", cm_alone, "");
    uncounted = true;
    expect_found("mca_mtl_ofi.so", "mca_coll_tuned.so", ucx, "");
    uncounted = false;
}

/* The first line, up to a comma, as far as there is room. */
static void a_library_is_named_in_one_line(void **state)
{
    static const struct {
        const char *says, *name;
        size_t room;
    } cases[] = {
        {"Open MPI v4.1.4, package: Debian", "Open MPI v4.1.4", 64},
        {"MPICH Version:\t4.0.2\nMPICH Release date:", "MPICH Version: 4.0.2", 64},
        {"MPICH Version: \t  4.0.2 \t", "MPICH Version: 4.0.2 ", 64},
        {"Open MPI v4.1.4", "Open MPI v4.1.4", 16},
        {"Open MPI v4.1.4", "Open MPI v4.1.", 15},
        {"", "", 64},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64] = "of before";
        full_version = cases[i].says;
        dp_mpi_library(text, cases[i].room);
        assert_string_equal(text, cases[i].name);
    }
}

static void thirty_two_components_count(void **state)
{
    enum { COUNT = 36 }; /* all of them, three that are none, and one too many */
    static char names[COUNT][32];
    const char *parts[COUNT + 1];
    (void)state;

    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "btl_%d_major_version", i);
        parts[i] = names[i];
    }
    parts[0] = "mtl_psm_major_version";
    parts[1] = "btlx_tcp_major_version";
    parts[2] = "mtlx_ofi_major_version";
    parts[3] = "btl_tcp_minor_version";
    parts[COUNT - 2] = "pml_cm_major_version";
    parts[COUNT - 1] = "pml_ob1_major_version";
    parts[COUNT] = NULL;
    expect_found("mca_mtl_ofi.so", "mca_coll_tuned.so", parts, "PSM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chosen_components_are_named),
        cmocka_unit_test_setup_teardown(components_are_files_or_parts_of_the_library,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(thirty_two_components_count, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test(a_library_is_named_in_one_line),
        cmocka_unit_test(what_is_not_known_has_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
