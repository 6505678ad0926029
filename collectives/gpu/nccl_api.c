#include "collectives/gpu/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifndef DP_NCCL_LIBRARY
#define DP_NCCL_LIBRARY "libnccl.so.2"
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dp_nccl found;
static bool tried, usable;
static char problem[200];

/* Converts a pointer to an object into one to a function, in the way that POSIX requires. */
static bool take(void *library, const char *name, void *function, size_t bytes)
{
    void *symbol = dlsym(library, name);

    if (symbol == NULL) {
        (void)snprintf(problem, sizeof(problem), "libnccl.so.2 has no %s: it is too old", name);
        return false;
    }
    memcpy(function, &symbol, bytes);
    return true;
}

static bool load(const char *file, struct dp_nccl *nccl)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    bool whole = library != NULL;

    if (!whole) {
        (void)snprintf(problem, sizeof(problem), "NCCL was not found (%.100s)", dlerror());
        return false;
    }
#define X(result, name, parameters) \
    whole = whole && take(library, "nccl" #name, (void *)&nccl->name, sizeof(nccl->name));
    DP_NCCL_FUNCTIONS(X)
#undef X
    if (whole &&
        (nccl->GetVersion(&nccl->version) != DP_NCCL_SUCCESS || nccl->version < DP_NCCL_VERSION)) {
        (void)snprintf(problem, sizeof(problem), "NCCL is %d.%d; 2.18 or newer is needed",
                       nccl->version / 10000, nccl->version / 100 % 100);
        whole = false;
    }
    if (!whole) {
        (void)dlclose(library);
    }
    return whole;
}

const struct dp_nccl *dp_nccl_find(const char *file, const char **why_not)
{
    const struct dp_nccl *nccl;

    (void)pthread_mutex_lock(&mutex);
    if (!tried || file != NULL) {
        usable = load(file != NULL ? file : DP_NCCL_LIBRARY, &found);
        tried = file == NULL;
    }
    nccl = usable ? &found : NULL;
    *why_not = usable ? NULL : problem;
    (void)pthread_mutex_unlock(&mutex);
    return nccl;
}
