/*
 * resize.h - pictures of any size into pictures of one size.
 *
 * Each pixel is a weighted mean over a triangle: as wide as two pixels of the larger of both
 * pictures, so that nothing is lost between the pixels of a smaller one. That is what PIL's
 * BILINEAR is, and torchvision's resize with antialias. It goes by rows, then by columns, with
 * integers alone, so that every machine gets the same bytes.
 *
 * Source: Turkowski, "Filters for common resampling tasks", Graphics Gems I, 1990: tent filter,
 * widened for decimation.
 */
#ifndef DP_RUNTIME_DATA_PICTURES_RESIZE_H
#define DP_RUNTIME_DATA_PICTURES_RESIZE_H

#include "runtime/data/pictures/pixels.h"
#include "runtime/data/sample.h"

/* Memory of one thread that resizes. Begins with zeros. */
struct dp_resizer {
    struct dp_buffer rows, columns; /* weights of each direction */
    struct dp_buffer pairs, last;   /* those of columns once more; lines with space after them */
    struct dp_buffer between;       /* the picture after the first one */
};

void dp_resizer_release(struct dp_resizer *resizer);

/* Some of a picture's rows, or columns: not always whole ones. */
struct dp_stretch {
    double begin, length;
    bool backwards; /* the last one becomes the first */
};

/*
 * Writes `in` as [height, width, channels]; its channels must be 1, or as many. Grey is repeated.
 *
 *   how  DP_RESIZE_CROP: the largest part in the middle with the proportions of the result;
 *        otherwise all of it
 *
 * False: there is no memory.
 */
bool dp_resize(struct dp_resizer *resizer, const struct dp_picture *in, enum dp_resize how,
               int height, int width, int channels, uint8_t *out);

/* The same of these rows and columns. */
bool dp_resize_part(struct dp_resizer *resizer, const struct dp_picture *in, struct dp_stretch rows,
                    struct dp_stretch columns, int height, int width, int channels, uint8_t *out);

#endif
