/*
 * cudnn_graph.h - what cuDNN on the host keeps of a graph of operations.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_CUDNN_GRAPH_H
#define DP_TESTS_CUDA_ON_HOST_CUDNN_GRAPH_H

#include <map>
#include <stddef.h>
#include <stdint.h>
#include <vector>

#include "cuda_runtime.h"
extern "C" {
#include "kernels/cuda/cudnn/cudnn_api.h"
}

/* Bytes that plans want, but for those of GREEDY. */
enum { CUDNN_WORKSPACE = 4096, CUDNN_MUCH = 8 << 20, CUDNN_MORE = 48 << 20 };

/* Engines, in the order in which they are proposed. GREEDY wants more memory than there is. TENSOR
 * rounds factors of float32, and so does SILENT, of gradients of weights, without a note; PLAIN
 * knows float32 alone. Those before must not be taken. HUNGRY is
 * there on request, and wants CUDNN_MORE; FAILING wants CUDNN_MUCH, and fails when it is run. */
enum engine {
    NONDETERMINISTIC,
    REDUCED,
    DOWN_CONVERTING,
    BROKEN,
    GREEDY,
    HUNGRY,
    TENSOR,
    SILENT,
    PLAIN,
    FAILING,
    ENGINES
};

/* What a graph computes. */
struct cudnn_geometry {
    int kind;                 /* of the convolution's operation */
    int64_t x[4], w[4], y[4]; /* dimensions: rows, channels, height, width */
    int64_t stride, padding;
    int64_t x_uid, w_uid, y_uid, bias_uid; /* bias 0: none */
    int x_type, w_type, y_type;
    int64_t x_alignment, w_alignment, y_alignment;
    bool relu, loses_nan; /* of x, which relu makes 0 */
    bool last;            /* an engine of the last resort computes it */
};

struct cudnn_attribute {
    int type;
    int64_t count;
    std::vector<char> bytes;
};

struct cudnn_descriptor {
    int kind;
    bool final;
    std::map<int, cudnn_attribute> attributes;
    cudnn_geometry graph; /* of a graph, and of all that was made from it */
    int engine;           /* of an engine, its configuration and its plan */
};

/* `count` elements of that very type, or NULL; count -1: however many. */
template <typename V>
static inline const V *values(const cudnn_descriptor *d, int name, int type, int64_t count)
{
    const auto found = d->attributes.find(name);

    if (found == d->attributes.end() || found->second.type != type ||
        (count >= 0 && found->second.count != count)) {
        return nullptr;
    }
    return reinterpret_cast<const V *>(found->second.bytes.data());
}

int cudnn_host_create(int kind, void **made);
int cudnn_host_destroy(void *made);
int cudnn_host_set(void *made, int name, int type, int64_t count, const void *elements);
int cudnn_host_get(void *made, int name, int type, int64_t wanted, int64_t *count, void *elements);
int cudnn_host_finalize(void *made);

#endif
