#include "runtime/data/pictures/picture.h"

#include <string.h>

#include "runtime/data/pictures/png.h"

/* How files of other kinds begin. */
static const struct {
    const char *begin;
    size_t bytes, at;
    const char *kind;
} others[] = {
    {"GIF8", 4, 0, "a GIF"},
    {"WEBP", 4, 8, "a WebP picture"},
    {"BM", 2, 0, "a BMP"},
    {"II*\0", 4, 0, "a TIFF"},
    {"MM\0*", 4, 0, "a TIFF"},
    {"ftyp", 4, 4, "a HEIF, an AVIF or a video"},
    {"\x8aMNG", 4, 0, "an MNG"},
    {"\xff\x0a", 2, 0, "a JPEG XL picture"},
    {"JXL ", 4, 4, "a JPEG XL picture"},
    {"jP  ", 4, 4, "a JPEG 2000 picture"},
    {"\0\0\1\0", 4, 0, "an icon"},
    {"<", 1, 0, "a web page"},
    {"%PDF", 4, 0, "a PDF"},
    {"\x1f\x8b", 2, 0, "a gzip file"},
    {"PK\3\4", 4, 0, "a zip file"},
    {"version https://git-lfs", 23, 0, "a pointer of Git LFS (git lfs pull fetches the file)"},
};

static dp_status refuse_format(const uint8_t *bytes, size_t count, struct dp_problem *problem)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (count >= others[i].at + others[i].bytes &&
            memcmp(bytes + others[i].at, others[i].begin, others[i].bytes) == 0) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "is %s, not a PNG or JPEG: convert it, or take it out",
                                     others[i].kind);
        }
    }
    return dp_problem_refuse(problem, DP_ERR_DATA, "%s: put a PNG or JPEG in its place",
                             count == 0 ? "is empty" : "is no PNG and no JPEG");
}

dp_status dp_picture_decode(struct dp_jpeg *jpeg, const uint8_t *bytes, size_t count, int channels,
                            struct dp_buffer *memory, struct dp_picture *out,
                            struct dp_problem *problem)
{
    if (dp_jpeg_is(bytes, count)) {
        return dp_jpeg_decode(jpeg, bytes, count, channels, memory, out, problem);
    }
    if (dp_png_is(bytes, count)) {
        return dp_png_decode(bytes, count, channels, memory, out, problem);
    }
    return refuse_format(bytes, count, problem);
}
