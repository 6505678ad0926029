/*
 * sample.h - samples on their way from a source to a model: raw, as the source has them, and as
 * the model takes them.
 */
#ifndef DP_RUNTIME_DATA_SAMPLE_H
#define DP_RUNTIME_DATA_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dp_set { DP_SET_TRAIN, DP_SET_TEST, DP_SETS };

/* Numbers are bytes, which mean 0 to 255, or float32. */
enum dp_element { DP_ELEMENT_BYTE, DP_ELEMENT_FLOAT };

static inline size_t dp_element_bytes(enum dp_element element)
{
    return element == DP_ELEMENT_FLOAT ? sizeof(float) : 1;
}

struct dp_sample_shape {
    int height, width, channels; /* height 0: flat, `count` features */
    size_t count;                /* elements; 0: pictures, each of a size of its own */
    enum dp_element element;
};

static inline size_t dp_shape_bytes(const struct dp_sample_shape *shape)
{
    return shape->count * dp_element_bytes(shape->element);
}

/* Part of an image, in pixels. */
struct dp_part {
    int top, left, height, width;
    bool mirrored; /* left and right change places */
};

/* How images get the size that a model takes. */
enum dp_resize {
    DP_RESIZE_AUTO,     /* pictures as by bilinear; arrays must have it */
    DP_RESIZE_BILINEAR, /* scaled in each direction by itself */
    DP_RESIZE_CROP      /* the largest part in the middle with the right proportions, scaled */
};

enum dp_raw_kind {
    DP_RAW_ARRAY,  /* numbers, row-major: [height, width, channels], or flat */
    DP_RAW_PICTURE /* a PNG or JPEG file */
};

/* A sample as its source has it. */
struct dp_raw {
    enum dp_raw_kind kind;
    const void *data; /* borrowed */
    size_t bytes;
    struct dp_sample_shape shape; /* of an array */
    double label;                 /* as it was found: a class is a whole number from 0 up */
    const double *targets;        /* borrowed; of a label of several numbers; NULL: `label` is it */
};

#endif
