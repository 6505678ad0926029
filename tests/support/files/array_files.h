/*
 * array_files.h - for tests: files of the sources npy, csv and cifar10.
 */
#ifndef DP_TESTS_SUPPORT_FILES_ARRAY_FILES_H
#define DP_TESTS_SUPPORT_FILES_ARRAY_FILES_H

#include <stddef.h>

/* Writes a .npy of version 1 to `out` [room]: its header, padded as numpy pads it, and `bytes`
 * bytes of elements. Returns its length. shape: "(3, 4)". */
size_t npy_bytes(unsigned char *out, size_t room, const char *descr, int fortran, const char *shape,
                 const void *elements, size_t bytes);

/* The same as a file FOLDER/NAME. */
void npy_file(const char *folder, const char *name, const char *descr, const char *shape,
              const void *elements, size_t bytes);

/* Writes `count` records of CIFAR-10, of images `first`, first + 1, ... with labels 0 to 9 in turn.
 */
void cifar10_file(const char *folder, const char *name, int count, int first);

/* A byte of an image: of a plane (0: red), at a pixel. */
unsigned char cifar10_value(int image, int plane, int pixel);

#endif
