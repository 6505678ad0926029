/*
 * inside.h - what the files of this folder share.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_INSIDE_H
#define DP_TESTS_CUDA_ON_HOST_INSIDE_H

#include "cuda_runtime.h"

#include <atomic>
#include <mutex>
#include <vector>

/* Guards streams, events and memory. */
extern std::recursive_mutex cuda_on_host_mutex;

/* device.cpp: keeps an error for cudaGetLastError(), as every call that fails does. */
cudaError_t cuda_host_fail(cudaError_t error);

/* One of n, at random; the same ones in each run with the same DP_CUDA_ORDER. */
size_t cuda_on_host_random(size_t n);

/* While queued work runs the region of device memory is open. */
void region_open();
void region_close();

/* Whether the stream captures (or this thread's does): then what it is asked for cannot be done. */
bool cuda_host_spoils(cudaStream_t stream);
bool cuda_host_spoils_own();

/* What processes share about a block of memory: the owner writes which one is there, 0: none;
 * others count themselves while they have it open. */
struct exported_block {
    std::atomic<uint64_t> serial;
    std::atomic<int> opened;
};

/* Where a block and its note are, in the file of its process. */
struct exported_place {
    size_t offset, bytes, note;
    uint64_t serial;
};

/* memory.cpp: of a block that begins there; false: there is none. */
bool cuda_host_export(void *memory, exported_place *place);

/* reach.cpp: memory that devices reach from now on, and no more: false: they did not. With `note`
 * it is another process's, whose block `serial` must still be there when it is used. */
void cuda_host_reach(const void *memory, size_t bytes, const exported_block *note = nullptr,
                     uint64_t serial = 0);
bool cuda_host_unreach(const void *memory);
bool cuda_host_reaches(const void *memory);

/* Memory that something queued was given: an address, and which block was there then. */
struct given_memory {
    uint64_t address, serial;
};

/* What was given since the last call, on this thread. */
std::vector<given_memory> cuda_host_take_given();

/* Whether the same blocks are still there. */
bool cuda_host_is_there(const given_memory &given);

/* A number for a block of memory, of a device or pinned: no two have the same. */
uint64_t cuda_host_new_serial();

/* memory.cpp: whether it is an address of device memory, and the block there; 0: none. */
bool cuda_host_owns(uint64_t address);
uint64_t cuda_host_serial(uint64_t address);

/* In queued work: it takes so long, as events see it. */
void cuda_on_host_spend(double ms);
bool cuda_on_host_second_is_fastest();

/* Runs everything that is queued. */
void cuda_on_host_run_all();

#endif
