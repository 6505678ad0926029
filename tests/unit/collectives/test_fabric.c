/*
 * test_fabric.c - which components of Open MPI are found, and what they mean for messages.
 */
#define _GNU_SOURCE /* dl_iterate_phdr, RTLD_NEXT */
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/fabric_mpi.h"

/* ---- in the place of libc's and MPI's ---- */

static const char *const *files;     /* that are loaded, up to an empty name; NULL: as they are */
static const char *const *variables; /* of the library, up to NULL */
static int lists, lists_ended;       /* of variables that were begun */

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *context)
{
    int (*real)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    int result = 0;

    if (files == NULL) {
        void *const at = dlsym(RTLD_NEXT, "dl_iterate_phdr");
        memcpy(&real, &at, sizeof(real)); /* in the way that POSIX requires */
        return real(visit, context);
    }
    for (int i = 0; result == 0 && (i == 0 || files[i - 1] == NULL || files[i - 1][0] != '\0');
         i++) {
        struct dl_phdr_info info = {.dlpi_name = files[i]};
        result = visit(&info, sizeof(info), context);
    }
    return result;
}

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
    return MPI_SUCCESS;
}

int MPI_T_cvar_get_info(int index, char *name, int *name_bytes, int *verbosity, MPI_Datatype *type,
                        MPI_T_enum *kinds, char *text, int *text_bytes, int *bind, int *scope)
{
    (void)verbosity, (void)type, (void)kinds, (void)text, (void)text_bytes, (void)bind, (void)scope;
    if (variables[index][0] == '-') { /* of a component that is closed */
        return MPI_T_ERR_INVALID_INDEX;
    }
    (void)snprintf(name, (size_t)*name_bytes, "%s", variables[index]);
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
    static const char *const alone[] = {"pml_ob1", "btl_self", NULL};
    (void)state;

    expect(nothing, 2, none, "", false);
    expect(both, 2, none, "", false);
    expect(alone, 1, none, "", false);
    expect(alone, 2, none, "", false);
}

static void expect_found(const char *const *loaded, const char *const *registered,
                         const char *wanted)
{
    char text[DP_FABRIC_BYTES];

    files = loaded;
    variables = registered;
    lists = lists_ended = 0;
    dp_mpi_fabric(2, text);
    files = NULL;
    assert_string_equal(text, wanted);
    assert_int_equal(lists, registered != NULL);
    assert_int_equal(lists_ended, lists);
}

/* Those that were loaded are open; to list variables would load them all. */
static void components_are_files_or_parts_of_the_library(void **state)
{
    static const char *const ob1[] = {"/lib/libmpi.so.40", "/lib/openmpi3/mca_pml_ob1.so", NULL,
                                      "mca_btl_vader.so",  "/lib/mca_btl_tcp.so",          ""};
    static const char *const cm[] = {"/lib/mca_mtl_psm2.so", "/lib/mca_pml_cm.so", ""};
    static const char *const none_of_them[] = {"/lib/mca_mtl_ofi.so", "/lib/pml_ob1.so", ""};
    static const char *const parts[] = {"pml_cm_major_version",   "pml_cm_minor_version",
                                        "-pml_ob1_major_version", "mtl_psm_major_version",
                                        "mpi_show_handle_leaks",  NULL};
    static const char *const nothing[] = {NULL};
    (void)state;

    assert_int_equal(unsetenv("UCX_TLS") | unsetenv("FI_PROVIDER"), 0);
    expect_found(ob1, NULL, "TCP between nodes");
    expect_found(cm, NULL, "PSM2");
    expect_found(none_of_them, parts, "PSM");
    expect_found(none_of_them, nothing, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chosen_components_are_named),
        cmocka_unit_test(components_are_files_or_parts_of_the_library),
        cmocka_unit_test(what_is_not_known_has_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
