#include "runtime/run/fault_hang.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

enum { PAGE = 4096, PAGES = 1024 };

static void spin(void)
{
    static atomic_int ends;

    while (atomic_load_explicit(&ends, memory_order_relaxed) == 0) {
    }
}

/* In the C library. */
static void lock_twice(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&lock);
    (void)pthread_mutex_lock(&lock);
}

/* A file of some pages, which nothing but this process has; -1: none could be made. */
static int make_file(void)
{
    static const unsigned char zeros[PAGE];
    const char *folder = getenv("TMPDIR");
    char path[4096];
    int file;

    (void)snprintf(path, sizeof(path), "%s/lockstep-swap-XXXXXX", folder != NULL ? folder : "/tmp");
    file = mkstemp(path);
    if (file < 0) {
        return -1;
    }
    (void)unlink(path);
    for (int i = 0; i < PAGES; i++) {
        if (write(file, zeros, sizeof(zeros)) != (ssize_t)sizeof(zeros)) {
            (void)close(file);
            return -1;
        }
    }
    (void)fdatasync(file); /* pages that are not written yet stay */
    return file;
}

/* Each round takes the pages away and reads them again from the disk. */
static void swap(void)
{
    const int file = make_file();
    void *pages;
    unsigned sum = 0;

    if (file < 0) {
        DP_WARN(DP_FAULT_VARIABLE ": swap: no file can be made in TMPDIR");
        return;
    }
    for (;; sum++) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
        pages = mmap(NULL, (size_t)PAGE * PAGES, PROT_READ, MAP_PRIVATE, file, 0);
        if (pages == MAP_FAILED) {
            break;
        }
        (void)posix_madvise(pages, (size_t)PAGE * PAGES, POSIX_MADV_RANDOM);
        for (size_t i = 0; i < PAGES; i++) {
            sum += ((volatile unsigned char *)pages)[i * PAGE];
        }
        (void)munmap(pages, (size_t)PAGE * PAGES);
    }
    (void)close(file);
}

void dp_fault_hang_apply(const struct dp_fault *fault, struct dp_trainer *trainer)
{
    (void)trainer;
    if (fault->kind == &dp_fault_spin) {
        spin();
    } else if (fault->kind == &dp_fault_lock) {
        lock_twice();
    } else {
        swap();
    }
}
