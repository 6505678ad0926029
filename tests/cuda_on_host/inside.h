/*
 * inside.h - what the files of this folder share.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_INSIDE_H
#define DP_TESTS_CUDA_ON_HOST_INSIDE_H

#include "cuda_runtime.h"

#include <mutex>

/* Guards streams, events and memory. */
extern std::recursive_mutex cuda_on_host_mutex;

/* While queued work runs the region of device memory is open. */
void region_open();
void region_close();

/* Whether the stream captures (or this thread's does): then what it is asked for cannot be done. */
bool cuda_host_spoils(cudaStream_t stream);
bool cuda_host_spoils_own();

/* reach.cpp: memory that devices reach from now on, and no more: false: they did not. */
void cuda_host_reach(const void *memory, size_t bytes);
bool cuda_host_unreach(const void *memory);

/* memory.cpp: whether it is an address of device memory. */
bool cuda_host_owns(uint64_t address);

/* In queued work: it takes so long, as events see it. */
void cuda_on_host_spend(double ms);
bool cuda_on_host_second_is_fastest();

/* Runs everything that is queued. */
void cuda_on_host_run_all();

#endif
