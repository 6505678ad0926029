/*
 * nccl_api.h - the part of NCCL that strategy_nccl.c uses, with the names and values of its binary
 * interface. So neither building nor starting this program needs NCCL: the library is loaded when
 * it is first needed.
 *
 * Source: NVIDIA NCCL user guide, "API", versions 2.18 to 2.30. The struct of settings is that of
 * 2.18; it holds its size and version, so newer libraries accept it.
 */
#ifndef DP_COLLECTIVES_GPU_NCCL_API_H
#define DP_COLLECTIVES_GPU_NCCL_API_H

#include <limits.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DP_NCCL_SUCCESS = 0,
    DP_NCCL_IN_PROGRESS = 7,
    DP_NCCL_INT8 = 0,
    DP_NCCL_FLOAT32 = 7,
    DP_NCCL_SUM = 0,
    DP_NCCL_VERSION = 21800, /* the oldest supported, 2.18.0 */
    DP_NCCL_UNDEFINED = INT_MIN
};

#define DP_NCCL_MAGIC 0xcafebeefU

struct dp_nccl_id {
    char bytes[128];
};

struct dp_nccl_settings {
    size_t size;
    unsigned int magic, version;
    int blocking, cluster_size, least_blocks, most_blocks;
    const char *network;
    int share_split;
};

struct dp_nccl_comm; /* NCCL's own */

/* X(result, name, parameters): the functions, whose names in the library begin with "nccl". Those
 * that return an int return one of the results above; the last argument of sums is a
 * cudaStream_t. */
#define DP_NCCL_FUNCTIONS(X)                                                                    \
    X(int, GetVersion, (int *version))                                                          \
    X(int, GetUniqueId, (struct dp_nccl_id * id))                                               \
    X(const char *, GetErrorString, (int result))                                               \
    X(const char *, GetLastError, (struct dp_nccl_comm * comm))                                 \
    X(int, CommInitRankConfig,                                                                  \
      (struct dp_nccl_comm * *comm, int ranks, struct dp_nccl_id id, int rank,                  \
       struct dp_nccl_settings *settings))                                                      \
    X(int, CommGetAsyncError, (struct dp_nccl_comm * comm, int *result))                        \
    X(int, CommFinalize, (struct dp_nccl_comm * comm))                                          \
    X(int, CommDestroy, (struct dp_nccl_comm * comm))                                           \
    X(int, CommAbort, (struct dp_nccl_comm * comm))                                             \
    X(int, GroupStart, (void))                                                                  \
    X(int, GroupEnd, (void))                                                                    \
    X(int, AllReduce,                                                                           \
      (const void *from, void *to, size_t count, int type, int op, struct dp_nccl_comm *comm,   \
       void *stream))                                                                           \
    X(int, Reduce,                                                                              \
      (const void *from, void *to, size_t count, int type, int op, int root,                    \
       struct dp_nccl_comm *comm, void *stream))                                                \
    X(int, ReduceScatter,                                                                       \
      (const void *from, void *to, size_t each, int type, int op, struct dp_nccl_comm *comm,    \
       void *stream))                                                                           \
    X(int, AllGather,                                                                           \
      (const void *from, void *to, size_t each, int type, struct dp_nccl_comm *comm,            \
       void *stream))                                                                           \
    X(int, Broadcast,                                                                           \
      (const void *from, void *to, size_t count, int type, int root, struct dp_nccl_comm *comm, \
       void *stream))

struct dp_nccl {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a type, and a list of parameters */
#define X(result, name, parameters) result(*name) parameters;
    DP_NCCL_FUNCTIONS(X)
#undef X
    int version; /* 22809: 2.28.9 */
};

/*
 * Loads the library once and keeps it. `file` is its name; NULL means the usual one. Returns NULL
 * where there is no suitable library, with the reason in *why_not. Not thread-safe.
 */
const struct dp_nccl *dp_nccl_find(const char *file, const char **why_not);

#ifdef __cplusplus
}
#endif

#endif
