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
#include "streams.h"

#include <atomic>
#include <fcntl.h>
#include <map>
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

enum operation { ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER };

/* What a rank does in a turn. */
struct deed {
    operation called, what;
    int root, type;
    size_t at, bytes;
};

struct place {
    std::atomic<uint64_t> arrived, left; /* turns */
    deed does;                           /* in the turn at which it has arrived */
    char device[32];
};

/* In the file; zeroed at first. */
struct rendezvous {
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
    rendezvous *all;
    std::shared_ptr<std::atomic<bool>> aborted;
    bool finishing;
    int device;          /* the current one when it was made */
    cudaStream_t stream; /* the one that it has worked on; nullptr: none yet */
    bool pending;        /* nobody knows that the last call is through */
};

struct task {
    operation called, what; /* what: that it is made of */
    const char *from;
    char *to;
    size_t bytes;
    int root, type;
    dp_nccl_comm *comm;
    cudaStream_t stream;
};

static thread_local bool grouping;
static thread_local std::vector<task> group;

/* ---- what callers must keep to ---- */

static std::mutex at_work_mutex;
static std::map<int, dp_nccl_comm *> at_work; /* the last one that was, by device */

[[noreturn]] static void refuse(const char *name, const char *why)
{
    fprintf(stderr, "nccl%s: %s\n", name, why);
    abort();
}

/* Whether what was queued is done, as far as this rank is concerned. */
static bool is_through(const dp_nccl_comm *comm)
{
    return *comm->aborted || comm->all->places[comm->rank].left >= comm->turn;
}

/* One communicator at a time, on a device. */
static void take_device(const char *name, dp_nccl_comm *comm)
{
    std::lock_guard<std::mutex> lock(at_work_mutex);
    dp_nccl_comm *&last = at_work[comm->device];

    if (last != nullptr && last != comm && !is_through(last)) {
        refuse(name, "another communicator of the device is still at work");
    }
    last = comm;
}

static void leave_device(const dp_nccl_comm *comm)
{
    std::lock_guard<std::mutex> lock(at_work_mutex);

    if (at_work[comm->device] == comm) {
        at_work[comm->device] = nullptr;
    }
}

static void check_call(const char *name, const dp_nccl_comm *comm)
{
    if (comm->pending) {
        refuse(name, "nobody has asked whether the call before is through");
    }
    if (comm->finishing) {
        refuse(name, "the communicator was finalized before");
    }
}

static void check_operation(const char *name, dp_nccl_comm *comm, cudaStream_t stream)
{
    int device = 0;

    check_call(name, comm);
    cudaGetDevice(&device);
    if (device != comm->device || stream->device != comm->device) {
        refuse(name, "the current device, or the stream's, is not the communicator's");
    }
    if (comm->stream != nullptr && comm->stream != stream) {
        refuse(name, "the communicator has worked on another stream");
    }
    comm->stream = stream;
    take_device(name, comm);
}

/* All ranks do the same. */
static void check_deeds(const dp_nccl_comm *comm, const deed &mine)
{
    for (int i = 0; i < comm->size; i++) {
        const deed &other = comm->all->places[i].does;
        if (other.called != mine.called || other.what != mine.what || other.root != mine.root ||
            other.type != mine.type || other.at != mine.at || other.bytes != mine.bytes) {
            fprintf(stderr,
                    "nccl: ranks %d and %d do different things: operation %d to %d of %zu bytes, "
                    "operation %d to %d of %zu bytes\n",
                    comm->rank, i, mine.called, mine.root, mine.bytes, other.called, other.root,
                    other.bytes);
            abort();
        }
    }
}

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
    const deed mine_does = {t.called, t.what, t.root, t.type, at, bytes};
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
        [aborted, t, at, bytes, mine, mine_does, turn]() {
            if (!*aborted) {
                memcpy(t.comm->all->data[t.comm->rank], t.from + at, bytes);
                mine->does = mine_does;
                mine->arrived = turn;
            }
        });
    cuda_on_host_queue_when(
        t.stream,
        [aborted, comm, turn]() { return *aborted || all_have(comm, &place::arrived, turn); },
        [aborted, t, at, bytes, mine, mine_does, turn]() {
            if (!*aborted) {
                check_deeds(t.comm, mine_does);
                finish_piece(t, at, bytes);
                mine->left = turn;
            }
        });
}

static void queue_pieces(const task &t)
{
    for (size_t at = 0; at < t.bytes; at += PIECE) {
        queue_piece(t, at, t.bytes - at < PIECE ? t.bytes - at : PIECE);
    }
}

/* What each rank gets, or gives, after the others. */
static void queue_parts(const task &t)
{
    for (int r = 0; r < t.comm->size; r++) {
        const size_t at = static_cast<size_t>(r) * t.bytes;
        task part = t;
        part.root = r;
        if (t.called == REDUCE_SCATTER) {
            part.what = REDUCE;
            part.from += at;
        } else {
            part.what = BROADCAST;
            part.to += at;
            part.from = r == t.comm->rank ? t.from : part.to;
        }
        queue_pieces(part);
    }
}

static int start(const task &t)
{
    if (t.called == REDUCE_SCATTER || t.called == ALL_GATHER) {
        queue_parts(t);
    } else {
        queue_pieces(t);
    }
    t.comm->pending = true;
    cuda_host_count_work({SUM, "nccl", nullptr, WITHIN, 0});
    return DP_NCCL_IN_PROGRESS;
}

static int add_task(operation what, const void *from, void *to, size_t count, int type, int root,
                    dp_nccl_comm *comm, void *stream)
{
    static const char *const names[] = {"AllReduce", "Reduce", "Broadcast", "ReduceScatter",
                                        "AllGather"};
    const size_t bytes = count * (type == DP_NCCL_FLOAT32 ? sizeof(float) : 1);
    const task t = {
        what, what, static_cast<const char *>(from),  static_cast<char *>(to), bytes, root,
        type, comm, static_cast<cudaStream_t>(stream)};

    check_operation(names[what], comm, t.stream);
    cuda_on_host_must_reach("NCCL", from);
    cuda_on_host_must_reach("NCCL", to);
    if (grouping) {
        group.push_back(t);
        return DP_NCCL_SUCCESS;
    }
    cuda_host_count_call();
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

int ncclReduceScatter(const void *from, void *to, size_t each, int type, int op,
                      struct dp_nccl_comm *comm, void *stream)
{
    (void)op;
    return add_task(REDUCE_SCATTER, from, to, each, type, 0, comm, stream);
}

int ncclAllGather(const void *from, void *to, size_t each, int type, struct dp_nccl_comm *comm,
                  void *stream)
{
    return add_task(ALL_GATHER, from, to, each, type, 0, comm, stream);
}

int ncclGroupStart(void)
{
    if (grouping) {
        refuse("GroupStart", "the group before was not ended");
    }
    grouping = true;
    return DP_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    if (!grouping) {
        refuse("GroupEnd", "no group was started");
    }
    grouping = false;
    cuda_host_count_call();
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

    if (made.file < 0 || ftruncate(made.file, static_cast<off_t>(sizeof(rendezvous))) != 0) {
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
    void *memory = mmap(nullptr, sizeof(rendezvous), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        return SYSTEM_ERROR;
    }
    *comm = new dp_nccl_comm{rank,
                             ranks,
                             rank == 0 ? given.file : -1,
                             0,
                             static_cast<rendezvous *>(memory),
                             std::make_shared<std::atomic<bool>>(false),
                             false,
                             0,
                             nullptr,
                             true};
    cudaGetDevice(&device);
    (*comm)->device = device;
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
    comm->pending = comm->pending && *result == DP_NCCL_IN_PROGRESS;
    return DP_NCCL_SUCCESS;
}

int ncclCommFinalize(struct dp_nccl_comm *comm)
{
    check_call("CommFinalize", comm);
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
    leave_device(comm);
    aborted.emplace_back(comm);
    return DP_NCCL_SUCCESS;
}

int ncclCommDestroy(struct dp_nccl_comm *comm)
{
    if (comm->finishing == false || comm->all->finished < comm->size) {
        refuse("CommDestroy", "the communicator was not finalized by all ranks");
    }
    leave_device(comm);
    (void)munmap(comm->all, sizeof(*comm->all));
    if (comm->file >= 0) {
        close(comm->file);
    }
    delete comm;
    return DP_NCCL_SUCCESS;
}
