/*
 * bench_ahead.c - how a large file is read that is not in the page cache: one line of JSON, GB/s.
 *
 *   bench_ahead FILE [ROUNDS]    in pieces of 64 KB, each way once a round, medians of 5 rounds
 *
 * By pread of one thread and of four, by io_uring with 32 requests under way (where liburing was
 * found when this was built, and the system allows it), and by pread that asks for what is 4 MB
 * ahead (POSIX_FADV_WILLNEED). The file is taken out of the page cache before each pass.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef DP_LIBURING
#include <liburing.h>
#endif

#include "base/mem.h"
#include "base/statistics.h"
#include "base/trace.h"

enum { PIECE = 1 << 16, DEPTH = 32, AHEAD = 4 << 20, THREADS = 4, ROUNDS_MOST = 99, WAYS = 4 };

static const char *const names[WAYS] = {"pread_1", "pread_4", "io_uring_32", "willneed"};

struct file {
    int fd;
    size_t pieces;
    atomic_size_t next; /* piece that no thread has taken */
    bool advise;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- pread ---- */

static void *read_along(void *arg)
{
    struct file *file = arg;
    char *piece = dp_mem_arena(DP_MEM_DATA, PIECE);
    size_t i;

    while (piece != NULL && (i = atomic_fetch_add(&file->next, 1)) < file->pieces) {
        if (file->advise) {
            (void)posix_fadvise(file->fd, (off_t)(i * PIECE + AHEAD), PIECE, POSIX_FADV_WILLNEED);
        }
        if (pread(file->fd, piece, PIECE, (off_t)(i * PIECE)) < 0) {
            fail("pread");
        }
    }
    dp_free(piece);
    return NULL;
}

static void read_by(struct file *file, int threads)
{
    pthread_t others[THREADS];

    atomic_store(&file->next, 0);
    for (int i = 1; i < threads; i++) {
        if (pthread_create(&others[i], NULL, read_along, file) != 0) {
            fail("thread");
        }
    }
    (void)read_along(file);
    for (int i = 1; i < threads; i++) {
        (void)pthread_join(others[i], NULL);
    }
}

/* ---- io_uring ---- */

#ifdef DP_LIBURING
static void ask(struct io_uring *ring, const struct file *file, size_t piece, char *memory,
                unsigned slot)
{
    struct io_uring_sqe *request = io_uring_get_sqe(ring);

    io_uring_prep_read(request, file->fd, memory + (size_t)slot * PIECE, PIECE, piece * PIECE);
    io_uring_sqe_set_data64(request, slot);
}

static bool read_by_ring(struct file *file)
{
    char *memory = dp_mem_arena(DP_MEM_DATA, (size_t)DEPTH * PIECE);
    struct io_uring ring;
    struct io_uring_cqe *done;
    size_t asked = 0;

    if (memory == NULL || io_uring_queue_init(DEPTH, &ring, 0) != 0) {
        dp_free(memory);
        return false;
    }
    for (; asked < DEPTH && asked < file->pieces; asked++) {
        ask(&ring, file, asked, memory, (unsigned)asked);
    }
    for (size_t got = 0; got < file->pieces; got++) {
        (void)io_uring_submit(&ring);
        if (io_uring_wait_cqe(&ring, &done) != 0 || done->res < 0) {
            fail("io_uring");
        }
        const unsigned slot = (unsigned)io_uring_cqe_get_data64(done);
        io_uring_cqe_seen(&ring, done);
        if (asked < file->pieces) {
            ask(&ring, file, asked++, memory, slot);
        }
    }
    io_uring_queue_exit(&ring);
    dp_free(memory);
    return true;
}
#else
static bool read_by_ring(struct file *file)
{
    (void)file;
    return false;
}
#endif

/* GB/s of a pass; 0: it cannot be. */
static double read_once(struct file *file, int way)
{
    uint64_t begin_ns;
    bool read = true;

    if (posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        fail("fadvise");
    }
    begin_ns = dp_now_ns();
    file->advise = way == 3;
    if (way == 2) {
        read = read_by_ring(file);
    } else {
        read_by(file, way == 1 ? THREADS : 1);
    }
    return read ? (double)(file->pieces * PIECE) / (double)(dp_now_ns() - begin_ns) : 0.0;
}

int main(int count, char **words)
{
    const long rounds = count == 3 ? strtol(words[2], NULL, 10) : 5;
    double found[WAYS][ROUNDS_MOST];
    struct file file = {.fd = -1};
    struct stat info;

    if (count < 2 || count > 3 || rounds < 1 || rounds > ROUNDS_MOST) {
        (void)fprintf(stderr, "usage: bench_ahead FILE [ROUNDS]\n");
        return 64;
    }
    file.fd = open(words[1], O_RDONLY | O_CLOEXEC);
    if (file.fd < 0 || fsync(file.fd) != 0 || fstat(file.fd, &info) != 0) {
        fail(words[1]);
    }
    file.pieces = (size_t)info.st_size / PIECE;
    for (long i = 0; i < rounds; i++) {
        for (int way = 0; way < WAYS; way++) {
            found[way][i] = read_once(&file, way);
        }
    }
    for (int way = 0; way < WAYS; way++) {
        dp_sort(found[way], (size_t)rounds);
        (void)printf("%s\"%s\": %.3f", way == 0 ? "{" : ", ", names[way],
                     dp_median(found[way], (size_t)rounds));
    }
    (void)printf("}\n");
    (void)close(file.fd);
    return 0;
}
