/*
 * idx_files.h - for tests: makes small data sets of four IDX files in a folder of their own, whose
 * bytes a test can change before they are written.
 */
#ifndef DP_TESTS_SUPPORT_FILES_IDX_FILES_H
#define DP_TESTS_SUPPORT_FILES_IDX_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

enum { TRAIN = 50, TEST = 20, H = 4, W = 3, PIXELS = H * W, CLASSES = 10, FILE_MOST = 1 << 14 };

static char folder[64];

static const char *const file_names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

/* A file that is being made: bytes to write, then changed by a test to do damage. */
struct content {
    uint8_t bytes[FILE_MOST];
    size_t count;
};

static inline void put_byte(struct content *c, unsigned value)
{
    assert_true(c->count < FILE_MOST);
    c->bytes[c->count++] = (uint8_t)value;
}

static inline void put_header(struct content *c, unsigned magic, const unsigned *dim, int dims)
{
    c->count = 0;
    for (int i = -1; i < dims; i++) {
        const unsigned value = i < 0 ? magic : dim[i];
        for (int shift = 24; shift >= 0; shift -= 8) {
            put_byte(c, value >> shift & 255);
        }
    }
}

static inline uint8_t pixel(size_t row, size_t j, bool train)
{
    return (uint8_t)(row * 31 + j * 7 + (train ? 0 : 100));
}

static inline int32_t label(size_t row, bool train)
{
    return (int32_t)((row * 3 + (train ? 0 : 1)) % CLASSES);
}

static inline void make_images(struct content *c, bool train)
{
    const unsigned rows = train ? TRAIN : TEST, dim[] = {rows, H, W};

    put_header(c, 0x803, dim, 3);
    for (size_t row = 0; row < rows; row++) {
        for (size_t j = 0; j < PIXELS; j++) {
            put_byte(c, pixel(row, j, train));
        }
    }
}

static inline void make_labels(struct content *c, bool train)
{
    const unsigned rows = train ? TRAIN : TEST;

    put_header(c, 0x801, &rows, 1);
    for (size_t row = 0; row < rows; row++) {
        put_byte(c, (unsigned)label(row, train));
    }
}

static inline void make_file(struct content *c, int file)
{
    if (file % 2 == 0) {
        make_images(c, file < 2);
    } else {
        make_labels(c, file < 2);
    }
}

/* Replaces the content by its gzip form. */
static inline void compress_content(struct content *c)
{
    static uint8_t packed[FILE_MOST];
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = c->bytes;
    z.avail_in = (unsigned)c->count;
    z.next_out = packed;
    z.avail_out = FILE_MOST;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    c->count = z.total_out;
    memcpy(c->bytes, packed, c->count);
    assert_int_equal(deflateEnd(&z), Z_OK);
}

static inline void path_of(char *path, size_t size, const char *name, const char *suffix)
{
    assert_true(snprintf(path, size, "%s/%s%s", folder, name, suffix) < (int)size);
}

static inline void write_file(const char *name, const char *suffix, const struct content *c)
{
    char path[128];
    FILE *file;

    path_of(path, sizeof(path), name, suffix);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(c->bytes, 1, c->count, file), c->count);
    assert_int_equal(fclose(file), 0);
}

static inline void remove_file(const char *name, const char *suffix)
{
    char path[128];

    path_of(path, sizeof(path), name, suffix);
    (void)unlink(path);
}

static inline void remove_all(void)
{
    for (int i = 0; i < 4; i++) {
        remove_file(file_names[i], "");
        remove_file(file_names[i], ".gz");
    }
    remove_file("train-images-idx4-ubyte", "");
    remove_file("t10k-images-idx4-ubyte", "");
}

static inline void write_set(bool gzip)
{
    static struct content content;

    remove_all();
    for (int i = 0; i < 4; i++) {
        make_file(&content, i);
        if (gzip) {
            compress_content(&content);
        }
        write_file(file_names[i], gzip ? ".gz" : "", &content);
    }
}

static inline int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_source.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    remove_all();
    return rmdir(folder);
}

#endif
