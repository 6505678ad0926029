/*
 * meter.cpp - see meter.h.
 */
#include "meter.h"

#include <dlfcn.h>
#undef dlopen
#undef dlerror
#undef dlsym

#include <execinfo.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

#include "streams.h"

static std::recursive_mutex &mutex = cuda_on_host_mutex;
static cuda_on_host_meter meter;

uint64_t cuda_on_host_accesses, cuda_on_host_turns;
bool cuda_on_host_wrote;

static bool steps;                                /* are reported */
static size_t pageable, pageable_most = SIZE_MAX; /* bytes of this step */
static std::map<std::string, size_t> pageable_by; /* bytes, by who copied */

/* The function of the library that has called. */
static std::string caller()
{
    enum { DEPTH = 16 };
    void *frames[DEPTH];
    const int count = backtrace(frames, DEPTH);

    for (int i = 0; i < count; i++) {
        Dl_info info;
        if (dladdr(frames[i], &info) != 0 && info.dli_sname != nullptr &&
            strncmp(info.dli_sname, "dp_", 3) == 0) {
            return info.dli_sname;
        }
    }
    return "somebody";
}

static void count_pageable(size_t bytes)
{
    if (!steps) {
        return; /* looking for the caller takes time */
    }
    pageable += bytes;
    pageable_by[caller()] += bytes;
    if (pageable > pageable_most) {
        fprintf(stderr, "a step copies %zu bytes of memory that is not pinned, more than %zu: %s\n",
                pageable, pageable_most, cuda_on_host_meter_pageable());
        abort();
    }
}

static void count_copy(const device_work &work)
{
    switch (work.way) {
    case UP_PINNED:
        meter.up_pinned += work.bytes;
        break;
    case UP_PAGEABLE:
        meter.up_pageable += work.bytes;
        count_pageable(work.bytes);
        break;
    case DOWN_PINNED:
        meter.down_pinned += work.bytes;
        break;
    case DOWN_PAGEABLE:
        meter.down_pageable += work.bytes;
        meter.waits++;
        count_pageable(work.bytes);
        break;
    case WITHIN:
        meter.within += work.bytes;
        break;
    }
}

void cuda_host_count_work(const device_work &work)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    switch (work.what) {
    case KERNEL:
        meter.kernels++;
        break;
    case PRODUCT:
        meter.products++;
        break;
    case CONVOLUTION:
        meter.convolutions++;
        break;
    case SUM:
        meter.sums++;
        break;
    case SET:
        meter.sets++;
        break;
    case COPY:
        meter.copies++;
        count_copy(work);
        break;
    }
}

void cuda_host_count_call()
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    meter.calls++;
}

void cuda_host_count_event()
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    meter.events++;
}

void cuda_host_count_wait()
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    meter.waits++;
}

void cuda_host_count_registered(long long bytes)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    meter.registered += static_cast<uint64_t>(bytes);
}

void cuda_on_host_meter_read(struct cuda_on_host_meter *out)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    *out = meter;
    out->accesses = cuda_on_host_accesses;
    out->turns = cuda_on_host_turns;
}

void cuda_on_host_meter_step(size_t most)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);

    steps = true;
    pageable = 0;
    pageable_most = most;
    pageable_by.clear();
}

const char *cuda_on_host_meter_pageable(void)
{
    std::lock_guard<std::recursive_mutex> lock(mutex);
    static std::string text;

    text.clear();
    for (const auto &each : pageable_by) {
        text += (text.empty() ? "" : ", ") + each.first + " " + std::to_string(each.second);
    }
    return text.c_str();
}
