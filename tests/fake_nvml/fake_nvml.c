/*
 * fake_nvml.c - as much of NVML as base/system/gpu_sensors.c asks for, of one GPU at
 * 00000000:65:00.0. Its values change with each reading of the use, so that a test sees which
 * reading it got.
 *
 *   FAKE_NVML=off  it does not start
 */
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

static int started, readings;

int nvmlInit_v2(void)
{
    const char *how = getenv("FAKE_NVML");

    if (how != NULL && strcmp(how, "off") == 0) {
        return DRIVER_NOT_LOADED;
    }
    started++;
    return 0;
}

int nvmlShutdown(void)
{
    started--;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    *device = &started;
    return strcmp(bus, "00000000:65:00.0") == 0 ? 0 : NOT_FOUND;
}

/* A reading of a GPU that is not open fails. */
static int is_open(const void *device)
{
    return started > 0 && device == &started;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent)
{
    percent[0] = 50 + 10 * (unsigned)readings++;
    percent[1] = 7;
    return is_open(device) ? 0 : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes)
{
    bytes[0] = 80ull << 30;
    bytes[1] = 77ull << 30;
    bytes[2] = 3ull << 30;
    return is_open(device) ? 0 : NOT_FOUND;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    *mhz = type == 1 ? 1980 : 1; /* 1: of its processors */
    return is_open(device) ? 0 : NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    *milliwatts = 350500;
    return is_open(device) ? 0 : NOT_FOUND;
}

/* The GPU has no counter of energy: nvmlDeviceGetTotalEnergyConsumption is missing here, as in old
 * drivers. Power limit, temperature, and a reason that slows nothing that is busy. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = 0x04 | 0x20 | 0x01;
    return is_open(device) ? 0 : NOT_SUPPORTED;
}
