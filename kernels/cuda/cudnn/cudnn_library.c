#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cudnn/cudnn_api.h"

#define SYMBOL(name, member)                    \
    {                                           \
        name, offsetof(struct dp_cudnn, member) \
    }

static const struct {
    const char *name;
    size_t at; /* in struct dp_cudnn */
} symbols[] = {
    SYMBOL("cudnnGetVersion", version),
    SYMBOL("cudnnGetCudartVersion", runtime),
    SYMBOL("cudnnGetErrorString", error_text),
    SYMBOL("cudnnCreate", create),
    SYMBOL("cudnnDestroy", destroy),
    SYMBOL("cudnnSetStream", set_stream),
    SYMBOL("cudnnBackendCreateDescriptor", descriptor_create),
    SYMBOL("cudnnBackendDestroyDescriptor", descriptor_destroy),
    SYMBOL("cudnnBackendSetAttribute", set),
    SYMBOL("cudnnBackendGetAttribute", get),
    SYMBOL("cudnnBackendFinalize", finalize),
    SYMBOL("cudnnBackendExecute", execute),
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dp_cudnn library;
static bool works;
static char reason[320];

static bool take_symbols(void *opened, const char *name)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(opened, symbols[i].name);
        if (symbol == NULL) {
            (void)snprintf(reason, sizeof(reason), "%s has no %s", name, symbols[i].name);
            return false;
        }
        /* ISO C has no conversion of a pointer to data into one to a function. */
        memcpy((char *)&library + symbols[i].at, &symbol, sizeof(symbol));
    }
    return true;
}

/* A library that is too new for the driver, or whose other parts are missing, opens well enough,
 * but makes no handle. */
static bool makes_handles(void)
{
    void *handle = NULL;
    const int result = library.create(&handle);

    if (result != 0) {
        (void)snprintf(reason, sizeof(reason), "cuDNN %zu does not start: %s", library.version(),
                       library.error_text(result));
        return false;
    }
    (void)library.destroy(handle);
    return true;
}

/* The loader begins with what it misses: that library itself, or one that it needs. */
static void keep_reason(const char *name)
{
    const char *text = dlerror();

    if (text != NULL && strncmp(text, name, strlen(name)) != 0) {
        (void)snprintf(reason, sizeof(reason), "%s does not open: %s", name, text);
    }
}

/* It stays open: what it has loaded cannot be unloaded safely. */
static void open_library(void)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8"};
    void *opened = NULL;
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]) && opened == NULL; i++) {
        opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (opened == NULL) {
            keep_reason(names[i]);
        }
    }
    if (opened == NULL) {
        if (reason[0] == '\0') {
            (void)snprintf(reason, sizeof(reason), "no libcudnn.so.9 or .8 in LD_LIBRARY_PATH");
        }
        return;
    }
    works = take_symbols(opened, names[i - 1]) && makes_handles();
}

const struct dp_cudnn *dp_cudnn_library(const char **why_not)
{
    (void)pthread_once(&once, open_library);
    *why_not = works ? NULL : reason;
    return works ? &library : NULL;
}

dp_status dp_from_cudnn(const char *file, int line, const char *call, int code)
{
    return code == 0 ? DP_OK
                     : dp_fail(file, line, DP_ERR_CUDA, "%s: %s", call, library.error_text(code));
}
