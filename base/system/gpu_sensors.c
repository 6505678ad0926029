#include "base/system/gpu_sensors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { SUCCESS = 0, CLOCK_SM = 1, WHY_BYTES = 256 };

struct utilisation {
    unsigned gpu, memory; /* percent */
};

struct memory {
    unsigned long long total, unused, used; /* bytes */
};

/* Functions of NVML: member, result and parameters; OPTIONAL where older drivers have none. */
#define FUNCTIONS(NEEDED, OPTIONAL)                                                         \
    NEEDED(init, "nvmlInit_v2", (void))                                                     \
    NEEDED(shutdown, "nvmlShutdown", (void))                                                \
    NEEDED(by_bus, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, void **device))    \
    NEEDED(rates, "nvmlDeviceGetUtilizationRates", (void *device, struct utilisation *out)) \
    NEEDED(memory, "nvmlDeviceGetMemoryInfo", (void *device, struct memory *out))           \
    OPTIONAL(clock, "nvmlDeviceGetClockInfo", (void *device, int type, unsigned *mhz))      \
    OPTIONAL(power, "nvmlDeviceGetPowerUsage", (void *device, unsigned *milliwatts))        \
    OPTIONAL(energy, "nvmlDeviceGetTotalEnergyConsumption",                                 \
             (void *device, unsigned long long *millijoules))                               \
    OPTIONAL(throttles, "nvmlDeviceGetCurrentClocksThrottleReasons",                        \
             (void *device, unsigned long long *reasons))

struct dp_gpu_sensors {
    void *library, *device;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define X(member, name, parameters) int(*member) parameters;
    FUNCTIONS(X, X)
#undef X
};

static _Thread_local char why[WHY_BYTES];

/* ISO C has no conversion of a pointer to data into one to a function. */
static bool take(void *library, const char *name, void *member)
{
    void *symbol = dlsym(library, name);

    memcpy(member, &symbol, sizeof(symbol));
    if (symbol == NULL) {
        (void)snprintf(why, sizeof(why), "NVML has no %s", name);
    }
    return symbol != NULL;
}

static bool take_all(struct dp_gpu_sensors *s)
{
    bool all = true;

#define NEEDED(member, name, parameters) all = take(s->library, name, &s->member) && all;
#define OPTIONAL(member, name, parameters) (void)take(s->library, name, &s->member);
    FUNCTIONS(OPTIONAL, OPTIONAL)
#undef OPTIONAL
#define OPTIONAL(member, name, parameters)
    FUNCTIONS(NEEDED, OPTIONAL)
#undef NEEDED
#undef OPTIONAL
    return all;
}

static bool find_device(struct dp_gpu_sensors *s, const char *bus)
{
    int result = s->init();

    if (result != SUCCESS) {
        (void)snprintf(why, sizeof(why), "NVML does not start: error %d", result);
        return false;
    }
    result = s->by_bus(bus, &s->device);
    if (result != SUCCESS) {
        (void)snprintf(why, sizeof(why), "NVML does not know the GPU at %.32s: error %d", bus,
                       result);
        (void)s->shutdown();
    }
    return result == SUCCESS;
}

struct dp_gpu_sensors *dp_gpu_sensors_open(const char *library, const char *bus,
                                           const char **why_not)
{
    struct dp_gpu_sensors *s = dp_zalloc(1, sizeof(*s));

    *why_not = why;
    if (s == NULL) {
        (void)snprintf(why, sizeof(why), "there is no memory");
        return NULL;
    }
    s->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (s->library == NULL) {
        (void)snprintf(why, sizeof(why), "%.200s does not open", library);
    } else if (take_all(s) && find_device(s, bus)) {
        return s;
    }
    if (s->library != NULL) {
        (void)dlclose(s->library);
    }
    dp_free(s);
    return NULL;
}

void dp_gpu_sensors_read(const struct dp_gpu_sensors *s, struct dp_gpu_reading *out)
{
    const double unknown = (double)NAN;
    struct utilisation rates;
    struct memory memory;
    unsigned number;
    unsigned long long large;

    *out = (struct dp_gpu_reading){unknown, unknown, unknown, unknown, -1, -1};
    if (s->rates(s->device, &rates) == SUCCESS) {
        out->utilisation = rates.gpu / 100.0;
    }
    if (s->memory(s->device, &memory) == SUCCESS) {
        out->memory = (int64_t)memory.used;
    }
    if (s->clock != NULL && s->clock(s->device, CLOCK_SM, &number) == SUCCESS) {
        out->clock_mhz = number;
    }
    if (s->power != NULL && s->power(s->device, &number) == SUCCESS) {
        out->watts = number / 1e3;
    }
    if (s->energy != NULL && s->energy(s->device, &large) == SUCCESS) {
        out->joules = (double)large / 1e3;
    }
    if (s->throttles != NULL && s->throttles(s->device, &large) == SUCCESS) {
#define X(bit, text) | (bit)
        out->throttles = (int64_t)(large & (0ull DP_GPU_THROTTLES(X)));
#undef X
    }
}

void dp_gpu_sensors_close(struct dp_gpu_sensors *s)
{
    if (s != NULL) {
        (void)s->shutdown();
        (void)dlclose(s->library);
        dp_free(s);
    }
}

void dp_gpu_throttle_text(int64_t throttles, char *text, size_t size)
{
    static const struct {
        int64_t bit;
        const char *text;
    } reasons[] = {
#define X(bit, text) {bit, text},
        DP_GPU_THROTTLES(X)
#undef X
    };
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; throttles > 0 && i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if ((throttles & reasons[i].bit) != 0 && used < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     reasons[i].text);
        }
    }
}
