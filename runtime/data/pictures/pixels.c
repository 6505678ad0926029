#include "runtime/data/pictures/pixels.h"

dp_status dp_picture_check_size(unsigned width, unsigned height, struct dp_problem *problem)
{
    if (width == 0 || height == 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "has no pixels: it is damaged");
    }
    if (width > DP_PICTURE_SIDE || height > DP_PICTURE_SIDE ||
        (uint64_t)width * height > DP_PICTURE_PIXELS) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "is %u x %u pixels; at most %d x %d are taken, and %d million in "
                                 "all: make it smaller",
                                 width, height, DP_PICTURE_SIDE, DP_PICTURE_SIDE,
                                 DP_PICTURE_PIXELS / 1000000);
    }
    return DP_OK;
}

void dp_picture_make_grey(struct dp_picture *picture)
{
    const size_t count = (size_t)picture->height * (size_t)picture->width;
    uint8_t *pixels = picture->pixels;

    for (size_t i = 0; picture->channels == 3 && i < count; i++) {
        const uint8_t *rgb = pixels + 3 * i;
        pixels[i] = (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
    }
    picture->channels = 1;
}
