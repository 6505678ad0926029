#include "runtime/data/pictures/png.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

#include "base/mem.h"

enum {
    SIGNATURE = 8,
    HEADER_END = 33,      /* signature, then IHDR with its length, name and checksum */
    CHUNK_MOST = 8 << 20, /* bytes of what is not pixels, inflated */
    CHUNKS_MOST = 100
};

/* A file that is being decoded. libpng leaves by longjmp(), so what is changed meanwhile lies here
 * and not in variables of the function that calls it. */
struct decoding {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    bool no_memory;
    const uint8_t *bytes;
    size_t count, at;
    png_bytep *rows; /* owned; [height] */
    struct dp_picture picture;
    struct dp_problem *problem;
};

bool dp_png_is(const uint8_t *bytes, size_t count)
{
    return count >= SIGNATURE && png_sig_cmp(bytes, 0, SIGNATURE) == 0;
}

/* ---- what libpng calls ---- */

static PNG_FUNCTION(void, on_error, (png_structp png, png_const_charp why), PNG_NORETURN)
{
    struct decoding *d = png_get_error_ptr(png);

    (void)dp_problem_refuse(d->problem, DP_ERR_DATA, "is damaged (libpng: %s): replace it", why);
    longjmp(d->failed, 1);
}

static void on_warning(png_structp png, png_const_charp why)
{
    (void)png;
    (void)why;
}

static png_voidp take_memory(png_structp png, png_alloc_size_t bytes)
{
    struct decoding *d = png_get_mem_ptr(png);
    void *memory = dp_zalloc(1, bytes);

    d->no_memory = d->no_memory || memory == NULL;
    return memory;
}

static void give_memory(png_structp png, png_voidp memory)
{
    (void)png;
    dp_free(memory);
}

static void read_bytes(png_structp png, png_bytep out, size_t bytes)
{
    struct decoding *d = png_get_io_ptr(png);

    if (bytes > d->count - d->at) {
        png_error(png, "the file ends too early");
    }
    memcpy(out, d->bytes + d->at, bytes);
    d->at += bytes;
}

/* ---- before libpng is asked ---- */

static unsigned big_endian(const uint8_t *bytes)
{
    return (unsigned)bytes[0] << 24 | (unsigned)bytes[1] << 16 | (unsigned)bytes[2] << 8 | bytes[3];
}

/* Whether a chunk that says so stands before the pixels: what libpng would not tell. */
static bool is_animated(const uint8_t *bytes, size_t count)
{
    size_t at = SIGNATURE;

    while (at + 8 <= count && memcmp(bytes + at + 4, "IDAT", 4) != 0) {
        const size_t length = big_endian(bytes + at);
        if (memcmp(bytes + at + 4, "acTL", 4) == 0) {
            return true;
        }
        at += length + 12; /* length, name, checksum; below 2^33, so it does not overflow */
    }
    return false;
}

static dp_status check_header(const uint8_t *bytes, size_t count, struct dp_problem *problem)
{
    if (count < HEADER_END || memcmp(bytes + SIGNATURE + 4, "IHDR", 4) != 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is a PNG without a header: replace it");
    }
    DP_TRY(dp_picture_check_size(big_endian(bytes + 16), big_endian(bytes + 20), problem));
    if (bytes[24] == 16) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "has 16 bits a channel: convert it to 8 bits");
    }
    if (is_animated(bytes, count)) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is animated: keep one of its pictures");
    }
    return DP_OK;
}

/* ---- decoding ---- */

static void read_header(struct decoding *d)
{
    png_set_read_fn(d->png, d, read_bytes);
    png_set_chunk_malloc_max(d->png, CHUNK_MOST);
    png_set_chunk_cache_max(d->png, CHUNKS_MOST);
    png_read_info(d->png, d->info);
    png_set_expand(d->png); /* palettes, and fewer than 8 bits */
    png_set_strip_alpha(d->png);
    (void)png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    d->picture.height = (int)png_get_image_height(d->png, d->info);
    d->picture.width = (int)png_get_image_width(d->png, d->info);
    d->picture.channels = png_get_channels(d->png, d->info);
    if (png_get_bit_depth(d->png, d->info) != 8 ||
        (d->picture.channels != 1 && d->picture.channels != 3)) {
        png_error(d->png, "neither grey nor colour of 8 bits");
    }
}

static void read_pixels(struct decoding *d)
{
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL); /* which finds what is cut off */
}

/* Calls a function that libpng may leave. */
static dp_status attempt(struct decoding *d, void (*part)(struct decoding *))
{
    if (setjmp(d->failed) != 0) {
        return d->no_memory ? dp_problem_refuse(d->problem, DP_ERR_NOMEM, "decoding") : DP_ERR_DATA;
    }
    part(d);
    return DP_OK;
}

static dp_status place_rows(struct decoding *d, struct dp_buffer *memory)
{
    const size_t height = (size_t)d->picture.height;
    const size_t row = (size_t)d->picture.width * (size_t)d->picture.channels;

    d->rows = dp_zalloc(height, sizeof(*d->rows));
    if (d->rows == NULL || !dp_buffer_reserve(memory, height * row)) {
        return dp_problem_refuse(d->problem, DP_ERR_NOMEM, "%d x %d pixels", d->picture.width,
                                 d->picture.height);
    }
    d->picture.pixels = memory->data;
    for (size_t i = 0; i < height; i++) {
        d->rows[i] = d->picture.pixels + i * row;
    }
    return DP_OK;
}

static dp_status decode(struct decoding *d, struct dp_buffer *memory)
{
    d->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, d, on_error, on_warning, d,
                                      take_memory, give_memory);
    d->info = d->png == NULL ? NULL : png_create_info_struct(d->png);
    if (d->info == NULL) {
        return dp_problem_refuse(d->problem, DP_ERR_NOMEM, "decoder of PNG");
    }
    DP_TRY(attempt(d, read_header));
    DP_TRY(place_rows(d, memory));
    return attempt(d, read_pixels);
}

dp_status dp_png_decode(const uint8_t *bytes, size_t count, int channels, struct dp_buffer *memory,
                        struct dp_picture *out, struct dp_problem *problem)
{
    struct decoding d = {.bytes = bytes, .count = count, .problem = problem};
    dp_status status;

    DP_TRY(check_header(bytes, count, problem));
    status = decode(&d, memory);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    dp_free(d.rows);
    DP_TRY(status);
    if (channels == 1) {
        dp_picture_make_grey(&d.picture);
    }
    *out = d.picture;
    return DP_OK;
}

dp_status dp_png_encode(const struct dp_sample_shape *shape, const void *pixels,
                        struct dp_buffer *memory, size_t *bytes)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)shape->width,
                       .height = (png_uint_32)shape->height,
                       .format = shape->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);

    if (!dp_buffer_reserve(memory, room) ||
        png_image_write_to_memory(&image, memory->data, &room, 0, pixels, 0, NULL) == 0) {
        return DP_FAIL(DP_ERR_NOMEM, "%d x %d pixels as PNG: %s", shape->width, shape->height,
                       image.message);
    }
    *bytes = room;
    return DP_OK;
}
