#define _GNU_SOURCE /* dl_iterate_phdr */
#include "collectives/core/fabric_mpi.h"

#include <ctype.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96, COMPONENTS_MAX = 32 };

/* Each open component of Open MPI has a variable of this name. */
static const char ending[] = "_major_version";

static bool has(const char *const *components, const char *name)
{
    for (; *components != NULL; components++) {
        if (strcmp(*components, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Open MPI's own protocol, over a component for each kind of peer. */
static void describe_ob1(const char *const *components, int nodes, char text[DP_FABRIC_BYTES])
{
    const bool shared = has(components, "btl_vader") || has(components, "btl_sm");
    const char *wire = has(components, "btl_openib") ? "InfiniBand verbs"
                       : has(components, "btl_tcp")  ? "TCP"
                                                     : NULL;

    if (nodes == 1) {
        (void)snprintf(text, DP_FABRIC_BYTES, "%s",
                       shared         ? "shared memory"
                       : wire == NULL ? ""
                                      : wire);
    } else if (wire != NULL) {
        (void)snprintf(text, DP_FABRIC_BYTES, "%s%s between nodes",
                       shared ? "shared memory on a node, " : "", wire);
    }
}

/* A library that matches messages itself. */
static void describe_cm(const char *const *components, const char *provider,
                        char text[DP_FABRIC_BYTES])
{
    if (has(components, "mtl_ofi")) {
        (void)snprintf(text, DP_FABRIC_BYTES,
                       provider == NULL ? "libfabric" : "libfabric, provider %s", provider);
    } else if (has(components, "mtl_psm2") || has(components, "mtl_psm")) {
        (void)snprintf(text, DP_FABRIC_BYTES, has(components, "mtl_psm2") ? "PSM2" : "PSM");
    }
}

void dp_fabric_text(const char *const *components, int nodes, struct dp_fabric_settings settings,
                    char text[DP_FABRIC_BYTES])
{
    const bool ob1 = has(components, "pml_ob1"), ucx = has(components, "pml_ucx");
    const bool cm = has(components, "pml_cm");

    text[0] = '\0'; /* as with another library, or a version that closes nothing */
    if (ob1 && !ucx && !cm) {
        describe_ob1(components, nodes, text);
    } else if (ucx && !ob1 && !cm) {
        (void)snprintf(text, DP_FABRIC_BYTES, settings.ucx == NULL ? "UCX" : "UCX (UCX_TLS=%s)",
                       settings.ucx);
    } else if (cm && !ob1 && !ucx) {
        describe_cm(components, settings.libfabric, text);
    }
}

bool dp_fabric_is_tcp(const char *text)
{
    return strstr(text, "TCP between nodes") != NULL;
}

/* Names of open components. */
struct open_components {
    char names[COMPONENTS_MAX][NAME_BYTES];
    const char *all[COMPONENTS_MAX + 1]; /* NULL ends it */
    int count;
    bool protocol; /* one of them is a PML */
};

static void add(struct open_components *open, const char *name, size_t length)
{
    if (open->count < COMPONENTS_MAX && length < NAME_BYTES &&
        (strncmp(name, "pml_", 4) == 0 || strncmp(name, "btl_", 4) == 0 ||
         strncmp(name, "mtl_", 4) == 0)) {
        memcpy(open->names[open->count], name, length);
        open->names[open->count][length] = '\0';
        open->all[open->count] = open->names[open->count];
        open->count++;
        open->protocol = open->protocol || name[0] == 'p';
    }
}

/* Components that are files: mca_pml_ob1.so. Those that were not chosen have been unloaded. */
static int add_loaded(struct dl_phdr_info *info, size_t size, void *context)
{
    static const char prefix[] = "/mca_";
    const char *name = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');

    (void)size;
    if (name != NULL && strncmp(name, prefix, sizeof(prefix) - 1) == 0) {
        name += sizeof(prefix) - 1;
        add(context, name, strcspn(name, "."));
    }
    return 0;
}

/* Components that are parts of the library. Where they are files MPI_T_init_thread() would load all
 * of them again. */
static void add_registered(struct open_components *open)
{
    char name[NAME_BYTES];
    int provided, variables = 0;

    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) {
        return;
    }
    if (MPI_T_cvar_get_num(&variables) != MPI_SUCCESS) {
        variables = 0;
    }
    for (int i = 0; i < variables; i++) {
        int length = NAME_BYTES, none = 0, verbosity, bind, scope;
        MPI_Datatype type;
        MPI_T_enum kinds;
        if (MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, &kinds, NULL, &none, &bind,
                                &scope) == MPI_SUCCESS) { /* else its component is closed */
            const char *end = strstr(name, ending);
            add(open, name, end == NULL ? NAME_BYTES : (size_t)(end - name));
        }
    }
    (void)MPI_T_finalize();
}

void dp_mpi_fabric(int nodes, char text[DP_FABRIC_BYTES])
{
    const struct dp_fabric_settings settings = {getenv("UCX_TLS"), getenv("FI_PROVIDER")};
    struct open_components open = {.count = 0};

    (void)dl_iterate_phdr(add_loaded, &open);
    if (!open.protocol) {
        open.count = 0;
        add_registered(&open);
    }
    open.all[open.count] = NULL;
    dp_fabric_text(open.all, nodes, settings, text);
}

/* Each run of white space becomes one space. */
static void squeeze(char *text)
{
    char *to = text;

    for (; *text != '\0'; text++) {
        const bool space = isspace((unsigned char)*text) != 0;
        if (!space || isspace((unsigned char)text[1]) == 0) {
            *to++ = (char)(space ? ' ' : *text);
        }
    }
    *to = '\0';
}

void dp_mpi_library(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    (void)MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    squeeze(version); /* MPICH has tabs in it */
    (void)snprintf(text, size, "%.*s", (int)size - 1, version);
}
