/*
 * curl_library.h - the functions of libcurl that http.c uses, found when a run first needs them:
 * libcurl and what it brings along take each start 5 ms, and few runs read from a server.
 */
#ifndef DP_RUNTIME_DATA_REMOTE_CURL_LIBRARY_H
#define DP_RUNTIME_DATA_REMOTE_CURL_LIBRARY_H

#include <curl/curl.h>

#include "base/status.h"

#define DP_CURL_FUNCTIONS(X) \
    X(global_init)           \
    X(easy_init)             \
    X(easy_setopt)           \
    X(easy_perform)          \
    X(easy_getinfo)          \
    X(easy_strerror)         \
    X(easy_cleanup)          \
    X(slist_append)          \
    X(slist_free_all)

/* Members are named and called as the library's functions, without "curl_". */
struct dp_curl {
#define X(name) __typeof__(curl_##name) *(name);
    DP_CURL_FUNCTIONS(X)
#undef X
};

/* Loads the library once for the process, which keeps it. Any thread may call it. Errors:
 * DP_ERR_UNAVAILABLE. */
DP_CHECKED dp_status dp_curl_find(const struct dp_curl **out);

#endif
