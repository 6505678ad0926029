/*
 * pixels.h - a decoded picture, and which sizes are taken.
 *
 * Sizes are limited, so that a small file cannot ask for much memory; they are known from the first
 * bytes of a file, before any memory is taken.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_PIXELS_H
#define DP_RUNTIME_DATA_PICTURES_PIXELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/data/buffer.h"
#include "runtime/data/problem.h"

enum {
    DP_PICTURE_SIDE = 16384,              /* largest width and height */
    DP_PICTURE_PIXELS = 64 * 1024 * 1024, /* most pixels */
    DP_PICTURE_FILE = 256 * 1024 * 1024   /* longest file, in bytes */
};

struct dp_picture {
    int height, width, channels; /* channels: 1, grey, or 3: red, green, blue */
    uint8_t *pixels;             /* borrowed; [height, width, channels] */
    size_t line;                 /* bytes from line to line; 0: they follow one another */
};

static inline size_t dp_picture_line(const struct dp_picture *picture)
{
    return picture->line > 0 ? picture->line : (size_t)picture->width * (size_t)picture->channels;
}

/* Whether a picture may have that size. Errors: DP_ERR_DATA. */
DP_CHECKED dp_status dp_picture_check_size(unsigned width, unsigned height,
                                           struct dp_problem *problem);

/* In place; luma of ITU-R BT.601, which is also what JPEG files hold. */
void dp_picture_make_grey(struct dp_picture *picture);

#endif
