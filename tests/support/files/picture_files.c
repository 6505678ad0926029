#define _XOPEN_SOURCE 700 /* nftw */

#include "tests/support/files/picture_files.h"

#include <ftw.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

uint8_t picture_value(unsigned seed, int x, int y, int c)
{
    return (uint8_t)(30 + (seed * 29 + (unsigned)c * 60) % 120 + (unsigned)(x + y) % 80);
}

/* ---- PNG ---- */

static void append(png_structp png, png_bytep bytes, size_t count)
{
    struct picture_bytes *out = png_get_io_ptr(png);

    assert_true(out->count + count <= sizeof(out->bytes));
    memcpy(out->bytes + out->count, bytes, count);
    out->count += count;
}

static void flush(png_structp png)
{
    (void)png;
}

static size_t fill_row(const struct picture_spec *s, int y, uint8_t *row)
{
    size_t at = 0;

    for (int x = 0; x < s->width; x++) {
        if (s->palette) {
            row[at++] = (uint8_t)((unsigned)(x + y) % 16);
            continue;
        }
        for (int c = 0; c < s->channels; c++) {
            const int alpha = s->channels % 2 == 0 && c == s->channels - 1;
            row[at++] = alpha ? 128 : picture_value(s->seed, x, y, c);
            if (s->depth == 16) {
                row[at++] = 0;
            }
        }
    }
    return at;
}

/* Entry i of the palette is (i, 2 i, 3 i). */
static void set_palette(png_structp png, png_infop info)
{
    png_color palette[16];

    for (int i = 0; i < 16; i++) {
        palette[i] = (png_color){(png_byte)i, (png_byte)(2 * i), (png_byte)(3 * i)};
    }
    png_set_PLTE(png, info, palette, 16);
}

void picture_png(const struct picture_spec *s, struct picture_bytes *out)
{
    static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                PNG_COLOR_TYPE_RGB_ALPHA};
    const size_t row = (size_t)s->width * 8;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    uint8_t *pixels = calloc((size_t)s->height, row);
    png_bytep *rows = calloc((size_t)s->height, sizeof(*rows));

    if (png == NULL || info == NULL || pixels == NULL || rows == NULL) {
        abort();
    }
    out->count = 0;
    png_set_write_fn(png, out, append, flush);
    png_set_IHDR(png, info, (png_uint_32)s->width, (png_uint_32)s->height, s->depth == 16 ? 16 : 8,
                 s->palette ? PNG_COLOR_TYPE_PALETTE : types[s->channels - 1],
                 s->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (s->palette) {
        set_palette(png, info);
    }
    png_write_info(png, info);
    for (int y = 0; y < s->height; y++) {
        rows[y] = pixels + (size_t)y * row;
        (void)fill_row(s, y, rows[y]);
    }
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(rows);
    free(pixels);
}

static void put_number(uint8_t *at, uint32_t number)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(number >> (24 - 8 * i));
    }
}

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void picture_add_chunk(struct picture_bytes *png, const char *before, const char *name,
                       const void *data, size_t bytes)
{
    size_t at = 8;
    uint8_t *p;

    while (memcmp(png->bytes + at + 4, before, 4) != 0) {
        at += number_at(png->bytes + at) + 12;
        assert_true(at < png->count);
    }
    assert_true(png->count + bytes + 12 <= sizeof(png->bytes));
    p = png->bytes + at;
    memmove(p + bytes + 12, p, png->count - at);
    put_number(p, (uint32_t)bytes);
    memcpy(p + 4, name, 4);
    memcpy(p + 8, data, bytes);
    put_number(p + 8 + bytes, (uint32_t)crc32(0, p + 4, (uInt)bytes + 4));
    png->count += bytes + 12;
}

void picture_mend_header(struct picture_bytes *png)
{
    put_number(png->bytes + 29, (uint32_t)crc32(0, png->bytes + 12, 17));
}

/* ---- JPEG ---- */

void picture_jpeg(const struct picture_spec *s, int cmyk, struct picture_bytes *out)
{
    const int channels = cmyk ? 4 : s->channels;
    tjhandle handle = tjInitCompress();
    uint8_t *pixels = calloc((size_t)s->width * (size_t)s->height, (size_t)channels);
    unsigned char *file = out->bytes;
    unsigned long bytes = sizeof(out->bytes);
    size_t at = 0;

    if (handle == NULL || pixels == NULL) {
        abort();
    }
    for (int y = 0; y < s->height; y++) {
        for (int x = 0; x < s->width; x++) {
            for (int c = 0; c < channels; c++) {
                pixels[at++] = picture_value(s->seed, x, y, c);
            }
        }
    }
    assert_int_equal(tjCompress2(handle, pixels, s->width, 0, s->height,
                                 cmyk            ? TJPF_CMYK
                                 : channels == 1 ? TJPF_GRAY
                                                 : TJPF_RGB,
                                 &file, &bytes, channels == 1 ? TJSAMP_GRAY : TJSAMP_444, 95,
                                 TJFLAG_NOREALLOC),
                     0);
    out->count = bytes;
    (void)tjDestroy(handle);
    free(pixels);
}

/* ---- folders ---- */

void write_bytes(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[4096];
    FILE *out;

    assert_true(snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path));
    for (char *slash = path + strlen(folder); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    out = fopen(path, "wb");
    assert_non_null(out);
    assert_true(count == 0 || fwrite(bytes, count, 1, out) == 1);
    assert_int_equal(fclose(out), 0);
}

void remove_file(const char *folder, const char *name)
{
    char path[4096];

    assert_true(snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path));
    (void)unlink(path);
}

void picture_file(const char *folder, const char *name, int width, int height, int channels,
                  unsigned seed)
{
    static struct picture_bytes file;
    const struct picture_spec spec = {
        .width = width, .height = height, .channels = channels, .seed = seed};

    if (strstr(name, ".png") != NULL) {
        picture_png(&spec, &file);
    } else {
        picture_jpeg(&spec, 0, &file);
    }
    write_bytes(folder, name, file.bytes, file.count);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

void remove_tree(const char *folder)
{
    assert_true(strncmp(folder, "/tmp/", 5) == 0);
    assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}
