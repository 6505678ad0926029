/*
 * nccl.cpp - as much of NCCL as collectives/gpu/nccl_api.h names, between threads and between
 * processes of one host, by a file in memory that all ranks map.
 *
 * What is queued waits in its stream until all ranks have come so far, as kernels of NCCL do.
 * Nothing blocks: calls give "in progress" whenever NCCL may. Sums are made in order of ranks, not
 * in that of the tree, so that a test which relies on the order finds out.
 *
 *   DP_CUDA_NCCL=fail:N     the N-th operation of rank 0 fails, some time after it was queued
 *   DP_CUDA_NCCL=init:R     rank R cannot join
 *   DP_CUDA_NCCL=old        its version is 2.16
 */
#include "collectives/gpu/nccl_api.h"
#include "cuda_runtime.h"

#include <atomic>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

static const size_t PIECE = size_t(1) << 20;

enum { RANKS = 64, SYSTEM_ERROR = 2, INVALID_USAGE = 5, REMOTE_ERROR = 6 };

#define X(result, name, parameters) extern "C" result nccl##name parameters;
DP_NCCL_FUNCTIONS(X)
#undef X

struct place {
    std::atomic<uint64_t> arrived, left; /* turns */
    char device[32];
};

/* In the file; zeroed at first. */
struct lane_sync {
    std::atomic<int> joined, finished, failed;
    place places[RANKS];
    char data[RANKS][PIECE];
};

struct ticket {
    int process, file;
};

struct dp_nccl_comm {
    int rank, size, file; /* rank 0's, or -1 */
    uint64_t turn;
    lane_sync *all;
    std::shared_ptr<std::atomic<bool>> aborted;
    bool finishing;
};

enum operation { ALL_REDUCE, REDUCE, BROADCAST };

struct task {
    operation what;
    const char *from;
    char *to;
    size_t bytes;
    int root;
    dp_nccl_comm *comm;
    cudaStream_t stream;
};

static thread_local bool grouping;
static thread_local std::vector<task> group;

/* ---- one piece of an operation ---- */

static bool all_have(const dp_nccl_comm *comm, std::atomic<uint64_t> place::*count, uint64_t turn)
{
    for (int i = 0; i < comm->size; i++) {
        if ((comm->all->places[i].*count).load() < turn) {
            return false;
        }
    }
    return true;
}

static void add_all(const task &t, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(float)) {
        float sum = 0, value;
        for (int r = 0; r < t.comm->size; r++) {
            memcpy(&value, &t.comm->all->data[r][i], sizeof(value));
            sum = r == 0 ? value : sum + value;
        }
        memcpy(t.to + at + i, &sum, sizeof(sum));
    }
}

static void finish_piece(const task &t, size_t at, size_t bytes)
{
    if (t.what == BROADCAST) {
        memcpy(t.to + at, t.comm->all->data[t.root], bytes);
    } else if (t.what == ALL_REDUCE || t.root == t.comm->rank) {
        add_all(t, at, bytes);
    }
}

static bool is_to_fail(const dp_nccl_comm *comm, uint64_t turn)
{
    const char *text = getenv("DP_CUDA_NCCL");

    return comm->rank == 0 && text != nullptr && strncmp(text, "fail:", 5) == 0 &&
           turn >= strtoull(text + 5, nullptr, 10);
}

static void queue_piece(const task &t, size_t at, size_t bytes)
{
    const uint64_t turn = ++t.comm->turn;
    const auto aborted = t.comm->aborted;
    dp_nccl_comm *comm = t.comm;
    place *mine = &comm->all->places[comm->rank];

    cuda_on_host_queue_when(
        t.stream,
        [aborted, comm, turn]() {
            if (*aborted) {
                return true;
            }
            if (is_to_fail(comm, turn)) {
                comm->all->failed = 1;
            }
            return comm->all->failed == 0 && all_have(comm, &place::left, turn - 1);
        },
        [aborted, t, at, bytes, mine, turn]() {
            if (!*aborted) {
                memcpy(t.comm->all->data[t.comm->rank], t.from + at, bytes);
                mine->arrived = turn;
            }
        });
    cuda_on_host_queue_when(
        t.stream,
        [aborted, comm, turn]() { return *aborted || all_have(comm, &place::arrived, turn); },
        [aborted, t, at, bytes, mine, turn]() {
            if (!*aborted) {
                finish_piece(t, at, bytes);
                mine->left = turn;
            }
        });
}

static int start(const task &t)
{
    for (size_t at = 0; at < t.bytes; at += PIECE) {
        queue_piece(t, at, t.bytes - at < PIECE ? t.bytes - at : PIECE);
    }
    return DP_NCCL_IN_PROGRESS;
}

static int add_task(operation what, const void *from, void *to, size_t count, int type, int root,
                    dp_nccl_comm *comm, void *stream)
{
    const size_t bytes = count * (type == DP_NCCL_FLOAT32 ? sizeof(float) : 1);
    const task t = {what, static_cast<const char *>(from),  static_cast<char *>(to), bytes, root,
                    comm, static_cast<cudaStream_t>(stream)};

    cuda_on_host_must_reach(from);
    cuda_on_host_must_reach(to);
    if (grouping) {
        group.push_back(t);
        return DP_NCCL_SUCCESS;
    }
    return start(t);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                  struct dp_nccl_comm *comm, void *stream)
{
    (void)op;
    return add_task(ALL_REDUCE, from, to, count, type, 0, comm, stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root,
               struct dp_nccl_comm *comm, void *stream)
{
    (void)op;
    return add_task(REDUCE, from, to, count, type, root, comm, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  struct dp_nccl_comm *comm, void *stream)
{
    return add_task(BROADCAST, from, to, count, type, root, comm, stream);
}

int ncclGroupStart(void)
{
    grouping = true;
    return DP_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    grouping = false;
    for (const task &t : group) {
        start(t);
    }
    group.clear();
    return DP_NCCL_IN_PROGRESS;
}

/* ---- communicators ---- */

int ncclGetVersion(int *version)
{
    const char *text = getenv("DP_CUDA_NCCL");

    *version = text != nullptr && strcmp(text, "old") == 0 ? 21605 : 22809;
    return DP_NCCL_SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == REMOTE_ERROR ? "remote error" : "system error of the simulated library";
}

const char *ncclGetLastError(struct dp_nccl_comm *comm)
{
    (void)comm;
    return "";
}

int ncclGetUniqueId(struct dp_nccl_id *id)
{
    const ticket made = {getpid(), memfd_create("nccl_on_host", MFD_CLOEXEC)};

    if (made.file < 0 || ftruncate(made.file, static_cast<off_t>(sizeof(lane_sync))) != 0) {
        return SYSTEM_ERROR;
    }
    memset(id, 0, sizeof(*id));
    memcpy(id, &made, sizeof(made));
    return DP_NCCL_SUCCESS;
}

int ncclCommInitRankConfig(struct dp_nccl_comm **comm, int ranks, struct dp_nccl_id id, int rank,
                           struct dp_nccl_settings *settings)
{
    char path[64];
    ticket given;
    int device = 0;

    memcpy(&given, &id, sizeof(given));
    const char *text = getenv("DP_CUDA_NCCL");
    if (text != nullptr && strncmp(text, "init:", 5) == 0 &&
        strtol(text + 5, nullptr, 10) == rank) {
        return SYSTEM_ERROR;
    }
    if (ranks > RANKS || settings->magic != DP_NCCL_MAGIC || settings->blocking != 0) {
        return INVALID_USAGE;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", given.process, given.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    void *memory = mmap(nullptr, sizeof(lane_sync), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        return SYSTEM_ERROR;
    }
    *comm = new dp_nccl_comm{rank,
                             ranks,
                             rank == 0 ? given.file : -1,
                             0,
                             static_cast<lane_sync *>(memory),
                             std::make_shared<std::atomic<bool>>(false),
                             false};
    cudaGetDevice(&device);
    place *mine = &(*comm)->all->places[rank];
    cudaDeviceGetPCIBusId(mine->device, sizeof(mine->device), device);
    (*comm)->all->joined++;
    return DP_NCCL_IN_PROGRESS;
}

/* Two ranks of one host on one device. */
static bool has_duplicates(const dp_nccl_comm *comm)
{
    for (int i = 0; i < comm->size; i++) {
        for (int k = 0; k < i; k++) {
            if (strcmp(comm->all->places[i].device, comm->all->places[k].device) == 0) {
                return true;
            }
        }
    }
    return false;
}

int ncclCommGetAsyncError(struct dp_nccl_comm *comm, int *result)
{
    *result = DP_NCCL_SUCCESS;
    if (comm->all->joined < comm->size) {
        *result = DP_NCCL_IN_PROGRESS;
    } else if (has_duplicates(comm)) {
        *result = INVALID_USAGE;
    } else if (comm->all->failed != 0) {
        *result = comm->rank == 0 ? SYSTEM_ERROR : REMOTE_ERROR;
    } else if (comm->finishing && comm->all->finished < comm->size) {
        *result = DP_NCCL_IN_PROGRESS;
    }
    return DP_NCCL_SUCCESS;
}

int ncclCommFinalize(struct dp_nccl_comm *comm)
{
    comm->finishing = true;
    comm->all->finished++;
    return DP_NCCL_IN_PROGRESS;
}

/* What is queued may still look at the communicator, so it stays; the file goes with the ranks. */
int ncclCommAbort(struct dp_nccl_comm *comm)
{
    static std::mutex mutex;
    static std::vector<std::unique_ptr<dp_nccl_comm>> aborted;
    std::lock_guard<std::mutex> lock(mutex);

    *comm->aborted = true;
    aborted.emplace_back(comm);
    return DP_NCCL_SUCCESS;
}

int ncclCommDestroy(struct dp_nccl_comm *comm)
{
    (void)munmap(comm->all, sizeof(*comm->all));
    if (comm->file >= 0) {
        close(comm->file);
    }
    delete comm;
    return DP_NCCL_SUCCESS;
}
