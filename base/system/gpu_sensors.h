/*
 * gpu_sensors.h - what the driver of an NVIDIA GPU says of it: use, clock, power, memory. By NVML,
 * which is opened when it is asked for, with declarations of our own.
 *
 * https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
 */
#ifndef DP_BASE_SYSTEM_GPU_SENSORS_H
#define DP_BASE_SYSTEM_GPU_SENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dp_gpu_sensors;

/* What cannot be read is NaN or, of integers, below 0. */
struct dp_gpu_reading {
    double utilisation; /* of 1: time in which a kernel ran, over the driver's last period */
    double clock_mhz;   /* of its processors */
    double watts;
    double joules;     /* since the driver was loaded */
    int64_t memory;    /* bytes in use, of all processes */
    int64_t throttles; /* why the clock is lower than it could be: DP_GPU_THROTTLES */
};

/* NVML's clocks throttle reasons that slow a busy GPU down: bit, text. */
#define DP_GPU_THROTTLES(X)            \
    X(0x04, "power limit")             \
    X(0x08, "hardware slowdown")       \
    X(0x20, "temperature")             \
    X(0x40, "temperature of hardware") \
    X(0x80, "power brake")

/*
 * Opens the sensors of a GPU.
 *
 *   library  "libnvidia-ml.so.1", or a file
 *   bus      where it is: "00000000:65:00.0" (cudaDeviceGetPCIBusId)
 *   why_not  out  where there are none, why; valid until the next call on this thread
 *
 * NULL: there are none; nothing is logged.
 */
struct dp_gpu_sensors *dp_gpu_sensors_open(const char *library, const char *bus,
                                           const char **why_not);

/* May take milliseconds: not for a thread that trains. */
void dp_gpu_sensors_read(const struct dp_gpu_sensors *sensors, struct dp_gpu_reading *out);

/* NULL is allowed. */
void dp_gpu_sensors_close(struct dp_gpu_sensors *sensors);

/* The reasons of a reading: "power limit, temperature"; empty: none. */
void dp_gpu_throttle_text(int64_t throttles, char *text, size_t size);

#endif
