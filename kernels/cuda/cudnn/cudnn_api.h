/*
 * cudnn_api.h - as much of cuDNN's backend interface as conv_cudnn.c uses, and where to get it.
 *
 * The library is opened at run time: a program that was built without cuDNN's headers computes with
 * it wherever it is installed. Versions 8 and 9 have these functions and numbers alike; the numbers
 * are compared with NVIDIA's headers where those are (tests/unit/kernels/test_cudnn.c).
 *
 * Everything is a descriptor: created of a kind, given attributes, finalized, used, destroyed. What
 * is computed is a graph of operations on tensors; heuristics propose engines for it, one of them
 * becomes a plan, and a plan is executed with a pack of pointers.
 *
 * Source: NVIDIA cuDNN, "Graph API", backend descriptor types.
 */
#ifndef DP_KERNELS_CUDA_CUDNN_CUDNN_API_H
#define DP_KERNELS_CUDA_CUDNN_CUDNN_API_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(name, value): each is CUDNN_<name> there. */
#define DP_CUDNN_NUMBERS(X)                                         \
    X(DATA_FLOAT, 0)                                                \
    X(DATA_HALF, 2)                                                 \
    X(DATA_BFLOAT16, 9)                                             \
    X(CROSS_CORRELATION, 1)                                         \
    X(POINTWISE_ADD, 0)                                             \
    X(POINTWISE_RELU_FWD, 100)                                      \
    X(PROPAGATE_NAN, 1)                                             \
    X(HEUR_MODE_INSTANT, 0)                                         \
    X(HEUR_MODE_FALLBACK, 2)                                        \
    X(NUMERICAL_NOTE_TENSOR_CORE, 0)                                \
    X(NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                        \
    X(NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                \
    X(NUMERICAL_NOTE_NONDETERMINISTIC, 4)                           \
    X(NUMERICAL_NOTE_WINOGRAD_TILE_6x6, 7)                          \
    X(NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8)                        \
    X(TYPE_HANDLE, 0)                                               \
    X(TYPE_DATA_TYPE, 1)                                            \
    X(TYPE_BOOLEAN, 2)                                              \
    X(TYPE_INT64, 3)                                                \
    X(TYPE_FLOAT, 4)                                                \
    X(TYPE_VOID_PTR, 6)                                             \
    X(TYPE_CONVOLUTION_MODE, 7)                                     \
    X(TYPE_HEUR_MODE, 8)                                            \
    X(TYPE_NAN_PROPOGATION, 10)                                     \
    X(TYPE_NUMERICAL_NOTE, 11)                                      \
    X(TYPE_POINTWISE_MODE, 14)                                      \
    X(TYPE_BACKEND_DESCRIPTOR, 15)                                  \
    X(BACKEND_POINTWISE_DESCRIPTOR, 0)                              \
    X(BACKEND_CONVOLUTION_DESCRIPTOR, 1)                            \
    X(BACKEND_ENGINE_DESCRIPTOR, 2)                                 \
    X(BACKEND_ENGINECFG_DESCRIPTOR, 3)                              \
    X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                             \
    X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                         \
    X(BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)         \
    X(BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11) \
    X(BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)   \
    X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                   \
    X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                        \
    X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                          \
    X(BACKEND_TENSOR_DESCRIPTOR, 17)                                \
    X(ATTR_POINTWISE_MODE, 0)                                       \
    X(ATTR_POINTWISE_MATH_PREC, 1)                                  \
    X(ATTR_POINTWISE_NAN_PROPAGATION, 2)                            \
    X(ATTR_CONVOLUTION_COMP_TYPE, 100)                              \
    X(ATTR_CONVOLUTION_CONV_MODE, 101)                              \
    X(ATTR_CONVOLUTION_DILATIONS, 102)                              \
    X(ATTR_CONVOLUTION_FILTER_STRIDES, 103)                         \
    X(ATTR_CONVOLUTION_POST_PADDINGS, 104)                          \
    X(ATTR_CONVOLUTION_PRE_PADDINGS, 105)                           \
    X(ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                           \
    X(ATTR_ENGINEHEUR_MODE, 200)                                    \
    X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                         \
    X(ATTR_ENGINEHEUR_RESULTS, 202)                                 \
    X(ATTR_ENGINECFG_ENGINE, 300)                                   \
    X(ATTR_EXECUTION_PLAN_HANDLE, 400)                              \
    X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                       \
    X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                      \
    X(ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                \
    X(ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                 \
    X(ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)            \
    X(ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                    \
    X(ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                    \
    X(ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                    \
    X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)               \
    X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                \
    X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)           \
    X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                   \
    X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                  \
    X(ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                  \
    X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)             \
    X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)              \
    X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)         \
    X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                \
    X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                 \
    X(ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                \
    X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                  \
    X(ATTR_OPERATION_POINTWISE_XDESC, 751)                          \
    X(ATTR_OPERATION_POINTWISE_BDESC, 752)                          \
    X(ATTR_OPERATION_POINTWISE_YDESC, 753)                          \
    X(ATTR_OPERATIONGRAPH_HANDLE, 800)                              \
    X(ATTR_OPERATIONGRAPH_OPS, 801)                                 \
    X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)                              \
    X(ATTR_TENSOR_DATA_TYPE, 901)                                   \
    X(ATTR_TENSOR_DIMENSIONS, 902)                                  \
    X(ATTR_TENSOR_STRIDES, 903)                                     \
    X(ATTR_TENSOR_UNIQUE_ID, 906)                                   \
    X(ATTR_TENSOR_IS_VIRTUAL, 907)                                  \
    X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                           \
    X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                        \
    X(ATTR_VARIANT_PACK_WORKSPACE, 1003)                            \
    X(ATTR_ENGINE_GLOBAL_INDEX, 1301)                               \
    X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)

enum dp_cudnn_number {
#define X(name, value) DP_CUDNN_##name = (value),
    DP_CUDNN_NUMBERS(X)
#undef X
};

/* The functions, by what NVIDIA calls them. A result is 0 for success; kinds, attributes and types
 * are numbers of above. */
struct dp_cudnn {
    size_t (*version)(void);                               /* cudnnGetVersion */
    size_t (*runtime)(void);                               /* cudnnGetCudartVersion */
    const char *(*error_text)(int result);                 /* cudnnGetErrorString */
    int (*create)(void **handle);                          /* cudnnCreate */
    int (*destroy)(void *handle);                          /* cudnnDestroy */
    int (*set_stream)(void *handle, cudaStream_t queue);   /* cudnnSetStream */
    int (*descriptor_create)(int kind, void **descriptor); /* cudnnBackend... */
    int (*descriptor_destroy)(void *descriptor);
    int (*set)(void *descriptor, int attribute, int type, int64_t count, const void *elements);
    int (*get)(void *descriptor, int attribute, int type, int64_t wanted, int64_t *count,
               void *elements);
    int (*finalize)(void *descriptor);
    int (*execute)(void *handle, void *plan, void *pack);
};

/* The library, opened at the first call; NULL: it is not here, or does not work, and why_not says
 * so in a few words. The same answer every time. */
const struct dp_cudnn *dp_cudnn_library(const char **why_not);

/* Opens the libraries with which cuDNN compiles some engines. Warns, once, if they are missing.
 * Called before the first plan. */
void dp_cudnn_open_compiler(void);

/* As DP_CUDA(). Errors: DP_ERR_CUDA. */
DP_CHECKED dp_status dp_from_cudnn(const char *file, int line, const char *call, int code);

#define DP_CUDNN(call) dp_from_cudnn(__FILE__, __LINE__, #call, (call))

#endif
