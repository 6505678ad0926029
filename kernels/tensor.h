/*
 * tensor.h - element types, shapes, and the description of one parameter tensor.
 */
#ifndef DP_KERNELS_TENSOR_H
#define DP_KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

/* Tensors of the flat order start at multiples of DP_BLOCK elements; buckets, chunks and norms are
 * cut only there. 64 floats are 256 bytes: whole cache lines, whole vectors, on every device. */
enum { DP_BLOCK = 64 };

static inline size_t dp_round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline size_t dp_div_up(size_t value, size_t by)
{
    return (value + by - 1) / by;
}

static inline size_t dp_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The compute type of weights and activations. Gradients, master weights and optimizer state are
 * always float32. */
enum dp_type { DP_TYPE_F32, DP_TYPE_BF16, DP_TYPE_F16 };

static inline size_t dp_type_bytes(enum dp_type type)
{
    return type == DP_TYPE_F32 ? 4 : 2;
}

/* Shape of one sample: [features], or [height, width, channels] (NHWC without the N). */
struct dp_shape {
    int dims; /* 1 or 3 */
    size_t dim[3];
};

static inline size_t dp_shape_count(const struct dp_shape *shape)
{
    size_t count = 1;

    for (int i = 0; i < shape->dims; i++) {
        count *= shape->dim[i];
    }
    return count;
}

static inline bool dp_shape_equal(const struct dp_shape *a, const struct dp_shape *b)
{
    bool equal = a->dims == b->dims;

    for (int i = 0; i < a->dims && equal; i++) {
        equal = a->dim[i] == b->dim[i];
    }
    return equal;
}

enum { DP_TENSOR_NAME = 128, DP_TENSOR_DIMS = 4 };

/*
 * One parameter. Here a conv2d weight is [out, kernel_h, kernel_w, in], and the columns of a dense
 * layer after a flatten are (row, column, channel); PyTorch has channels before space in both.
 * Either way the tensor is [outer, spatial, channels] here and [outer, channels, spatial] in
 * PyTorch, with outer = count / (spatial * channels). spatial 1 means equal layouts.
 */
struct dp_tensor {
    char name[DP_TENSOR_NAME]; /* PyTorch's state_dict key, "9.body.0.weight" */
    int dims;
    size_t shape[DP_TENSOR_DIMS]; /* PyTorch's */
    size_t count;                 /* elements */
    size_t begin;                 /* in the flat order; a multiple of DP_BLOCK */
    size_t spatial, channels;
    size_t fan_in; /* initial values uniform in +-1/sqrt(fan_in); 0: all `initial` */
    float initial;
};

/* The index in our layout of element `i` of PyTorch's layout. */
static inline size_t dp_tensor_index(const struct dp_tensor *tensor, size_t i)
{
    const size_t inner = tensor->spatial * tensor->channels;
    const size_t outer = i / inner, channel = i % inner / tensor->spatial;

    return outer * inner + i % tensor->spatial * tensor->channels + channel;
}

#endif
