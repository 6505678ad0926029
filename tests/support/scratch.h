/*
 * scratch.h - a folder of its own for each test that writes files, removed afterwards.
 *
 * cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy). Header only, for tests.
 */
#ifndef DP_TESTS_SUPPORT_SCRATCH_H
#define DP_TESTS_SUPPORT_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_folder[64];

static inline int scratch_create(void **state)
{
    (void)state;
    (void)snprintf(scratch_folder, sizeof(scratch_folder), "/tmp/lockstep-test-XXXXXX");
    return mkdtemp(scratch_folder) == NULL;
}

/* In a memory file system if there is one, so that nothing waits for a disk. */
static inline int scratch_create_fast(void **state)
{
    (void)snprintf(scratch_folder, sizeof(scratch_folder), "/dev/shm/lockstep-test-XXXXXX");
    return mkdtemp(scratch_folder) == NULL ? scratch_create(state) : 0;
}

/* Lists a folder: the next name but "." and "..", or NULL. */
static inline const char *scratch_next(DIR *folder)
{
    const struct dirent *entry = readdir(folder);

    while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)) {
        entry = readdir(folder);
    }
    return entry == NULL ? NULL : entry->d_name;
}

static inline void scratch_remove(const char *path) /* NOLINT(misc-no-recursion) */
{
    struct stat info;
    char inside[512];
    const char *name;
    DIR *folder;

    if (lstat(path, &info) != 0) {
        return;
    }
    folder = S_ISDIR(info.st_mode) ? opendir(path) : NULL;
    while (folder != NULL && (name = scratch_next(folder)) != NULL) {
        if (snprintf(inside, sizeof(inside), "%s/%s", path, name) < (int)sizeof(inside)) {
            scratch_remove(inside);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    (void)remove(path);
}

static inline int scratch_destroy(void **state)
{
    (void)state;
    scratch_remove(scratch_folder);
    return 0;
}

/* "FOLDER/name"; one of four buffers, used in turn. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", scratch_folder, name);
    return path;
}

/* How many entries FOLDER/name has. */
static inline int scratch_count(const char *name)
{
    DIR *folder = opendir(scratch_path(name));
    int count = 0;

    while (folder != NULL && scratch_next(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

/* Reads a file into text[size]; returns its length, or -1. */
static inline long scratch_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t length;

    if (file == NULL) {
        return -1;
    }
    length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    (void)fclose(file);
    return (long)length;
}

static inline void scratch_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        (void)fprintf(stderr, "cannot prepare %s\n", path);
        exit(1);
    }
}

/* As on a full disk: no file may grow beyond `bytes`. SIGXFSZ must be ignored. */
static inline void scratch_limit(long bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) {
        exit(1);
    }
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        exit(1);
    }
}

#endif
