#include "runtime/data/remote/curl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DP_CURL_LIBRARY "libcurl.so.4"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dp_curl library;
static bool usable;
static char problem[200];

static bool take(void *opened, const char *name, void *function, size_t bytes)
{
    void *symbol = dlsym(opened, name);

    if (symbol == NULL) {
        (void)snprintf(problem, sizeof(problem), "it has no %s", name);
        return false;
    }
    memcpy(function, &symbol, bytes); /* as POSIX makes a function of a pointer to data */
    return true;
}

static void load(void)
{
    void *opened = dlopen(DP_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    usable = opened != NULL;
    if (!usable) {
        (void)snprintf(problem, sizeof(problem), "%.180s", dlerror());
        return;
    }
#define X(name) \
    usable = usable && take(opened, "curl_" #name, (void *)&library.name, sizeof(library.name));
    DP_CURL_FUNCTIONS(X)
#undef X
    if (usable) {
        (void)library.global_init(CURL_GLOBAL_DEFAULT);
    }
}

dp_status dp_curl_find(const struct dp_curl **out)
{
    (void)pthread_once(&once, load);
    if (!usable) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "records from a server need " DP_CURL_LIBRARY ", which cannot be used: %s",
                       problem);
    }
    *out = &library;
    return DP_OK;
}
