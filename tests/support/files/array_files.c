#include "tests/support/files/array_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/files/picture_files.h"

enum { PREAMBLE = 10, ALIGN = 64 };

size_t npy_bytes(unsigned char *out, size_t room, const char *descr, int fortran, const char *shape,
                 const void *elements, size_t bytes)
{
    static const unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char text[512];
    int length = snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                          descr, fortran ? "True" : "False", shape);

    assert_in_range(length, 1, sizeof(text) - ALIGN - 1);
    while ((PREAMBLE + length + 1) % ALIGN != 0) {
        text[length++] = ' ';
    }
    text[length++] = '\n';
    assert_true((size_t)PREAMBLE + (size_t)length + bytes <= room);
    memcpy(out, magic, sizeof(magic));
    out[8] = (unsigned char)(length & 255);
    out[9] = (unsigned char)(length >> 8);
    memcpy(out + PREAMBLE, text, (size_t)length);
    if (bytes > 0) {
        memcpy(out + PREAMBLE + length, elements, bytes);
    }
    return (size_t)PREAMBLE + (size_t)length + bytes;
}

void npy_file(const char *folder, const char *name, const char *descr, const char *shape,
              const void *elements, size_t bytes)
{
    const size_t room = bytes + 1024;
    unsigned char *file = malloc(room);

    assert_non_null(file);
    write_bytes(folder, name, file, npy_bytes(file, room, descr, 0, shape, elements, bytes));
    free(file);
}

/* ---- CIFAR-10 ---- */

enum { CIFAR10_PIXELS = 1024, CIFAR10_RECORD = 1 + 3 * CIFAR10_PIXELS };

unsigned char cifar10_value(int image, int plane, int pixel)
{
    return (unsigned char)(image * 31 + plane * 100 + pixel * 7);
}

void cifar10_file(const char *folder, const char *name, int count, int first)
{
    unsigned char *file = malloc((size_t)count * CIFAR10_RECORD), *at = file;

    if (file == NULL) {
        abort();
    }
    for (int image = first; image < first + count; image++) {
        *at++ = (unsigned char)(image % 10);
        for (int i = 0; i < 3 * CIFAR10_PIXELS; i++) {
            *at++ = cifar10_value(image, i / CIFAR10_PIXELS, i % CIFAR10_PIXELS);
        }
    }
    write_bytes(folder, name, file, (size_t)count * CIFAR10_RECORD);
    free(file);
}
