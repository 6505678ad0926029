/*
 * picture_files.h - for tests: PNG and JPEG files, and folders of them.
 */
#ifndef DP_TESTS_SUPPORT_FILES_PICTURE_FILES_H
#define DP_TESTS_SUPPORT_FILES_PICTURE_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { PICTURE_ROOM = 1 << 20 };

/* A file in memory. */
struct picture_bytes {
    uint8_t bytes[PICTURE_ROOM];
    size_t count;
};

/* What to make; channels 1 to 4: grey, grey and alpha, colour, colour and alpha. */
struct picture_spec {
    int width, height, channels;
    unsigned seed;  /* of the pixels, which are smooth: JPEG changes them little */
    int depth;      /* PNG: 16 bits a channel; else 8 */
    int interlaced; /* PNG */
    int palette;    /* PNG: 4 bits a pixel; channels 3 */
};

/* Pixel value `c` at (x, y) of the picture that a seed means. */
uint8_t picture_value(unsigned seed, int x, int y, int c);

void picture_png(const struct picture_spec *spec, struct picture_bytes *out);
void picture_jpeg(const struct picture_spec *spec, int cmyk, struct picture_bytes *out);

/* Puts a chunk in front of the chunk `before` of a PNG. */
void picture_add_chunk(struct picture_bytes *png, const char *before, const char *name,
                       const void *data, size_t bytes);

/* Gives the first chunk (the header) of a PNG its checksum, after it was changed. */
void picture_mend_header(struct picture_bytes *png);

/* Writes bytes to FOLDER/NAME, and the folders that the name has. */
void write_bytes(const char *folder, const char *name, const void *bytes, size_t count);

/* Deletes a file, if it is there. */
void remove_file(const char *folder, const char *name);

/* Writes a picture to FOLDER/NAME; its format is that of the ending. */
void picture_file(const char *folder, const char *name, int width, int height, int channels,
                  unsigned seed);

/* Deletes a folder in /tmp with all in it. */
void remove_tree(const char *folder);

#endif
