/*
 * nvrtc_library.c - opens libnvrtc and libnvrtc-builtins, with which cuDNN compiles some engines
 * when it makes a plan. Without them cuDNN reports nothing and uses slower engines.
 *
 * cuDNN looks for libnvrtc in the loader's search path and in folders next to itself, where
 * Python's wheels have it; a library that is open already is found by its name. So both are opened
 * here first, and stay open.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/cudnn/cudnn_api.h"

enum { NAME = 64, PATH = 4096 };

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The folder that a function's library lies in; "": unknown. */
static void folder_of(const void *function, char folder[PATH])
{
    Dl_info info = {.dli_fname = NULL};
    const char *slash;

    folder[0] = '\0';
    if (dladdr(function, &info) == 0 || info.dli_fname == NULL) {
        return;
    }
    slash = strrchr(info.dli_fname, '/');
    if (slash != NULL) {
        (void)snprintf(folder, PATH, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
    }
}

/* In the search path, else in folders next to cuDNN. */
static void *open_near(const char *folder, int major, const char *name)
{
    void *opened = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    char beside[2][NAME], path[PATH + 3 * NAME];

    (void)snprintf(beside[0], NAME, "/../../cuda_nvrtc/lib");
    (void)snprintf(beside[1], NAME, "/../../cu%d/lib", major);
    for (int i = -1; i < 2 && opened == NULL && folder[0] != '\0'; i++) {
        (void)snprintf(path, sizeof(path), "%s%s/%s", folder, i < 0 ? "" : beside[i], name);
        opened = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
    return opened;
}

/* The version of an open libnvrtc, as "13.0"; false: unknown. */
static bool version_of(void *nvrtc, char text[NAME])
{
    void *symbol = dlsym(nvrtc, "nvrtcVersion");
    int (*version)(int *major, int *minor), major = 0, minor = 0;

    memcpy(&version, &symbol, sizeof(symbol));
    if (symbol == NULL || version(&major, &minor) != 0) {
        return false;
    }
    (void)snprintf(text, NAME, "%d.%d", major, minor);
    return true;
}

/* Opens both libraries; false: the one called `name` was not found. */
static bool open_both(const struct dp_cudnn *library, char name[NAME])
{
    const int major = (int)(library->runtime() / 1000);
    const void *inside;
    char folder[PATH], version[NAME];
    void *nvrtc = NULL;

    memcpy(&inside, &library->version, sizeof(inside));
    folder_of(inside, folder);
    if (library->version() >= 90000) {
        (void)snprintf(name, NAME, "libnvrtc.so.%d", major);
        nvrtc = open_near(folder, major, name);
    }
    if (nvrtc == NULL) {
        nvrtc = open_near(folder, major, "libnvrtc.so");
    }
    if (nvrtc == NULL || !version_of(nvrtc, version)) {
        return false;
    }
    (void)snprintf(name, NAME, "libnvrtc-builtins.so.%.32s", version);
    return open_near(folder, major, name) != NULL;
}

static void open_once(void)
{
    char name[NAME] = "libnvrtc.so";
    const char *why_not;
    const struct dp_cudnn *library = dp_cudnn_library(&why_not);

    if (library != NULL && !open_both(library, name)) {
        DP_WARN("cuDNN cannot compile engines here, since %s is not in LD_LIBRARY_PATH: "
                "convolutions may "
                "be slower",
                name);
    }
}

void dp_cudnn_open_compiler(void)
{
    (void)pthread_once(&once, open_once);
}
