/*
 * cudnn.cpp - as much of cuDNN as kernels/cuda uses, on the host: plain loops, in double and
 * rounded once, queued on the stream. Engines that must not be taken give NaN.
 *
 *   DP_HOST_CUDNN=off       no library is found
 *   DP_HOST_CUDNN=broken    it is found, but does not start
 *   DP_HOST_CUDNN=8         version 8 is found, not 9
 *   DP_HOST_CUDNN=lacking   version 9 is found, but not a library that it needs
 *   DP_HOST_CUDNN=hungry    its first good engine wants a lot of memory
 *   DP_HOST_CUDNN=failing   what it has plans for fails when it is run
 */
#include <dlfcn.h>
#undef dlopen
#undef dlerror
#undef dlsym

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "costs.h"
#include "cudnn_graph.h"
#include "elements.h"
#include "inside.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1001, BAD = 2000 };

struct context {
    cudaStream_t stream;
};

/* ---- computing ---- */

static cudaDataType type_of(int type)
{
    return type == DP_CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
           : type == DP_CUDNN_DATA_HALF   ? CUDA_R_16F
                                          : CUDA_R_32F;
}

static size_t count_of(const int64_t dims[4])
{
    return static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]);
}

static std::vector<double> widened(const void *array, int type, size_t count, bool tf32)
{
    std::vector<double> wide(count);

    for (size_t i = 0; i < count; i++) {
        const float value = get(array, type_of(type), i);
        wide[i] = static_cast<double>(tf32 ? to_tf32(value) : value);
    }
    return wide;
}

/* In LANES sums, which a processor adds to at a time. */
static double dot(const double *x, const double *w, int64_t channels)
{
    enum { LANES = 8 };
    double sums[LANES] = {}, sum = 0;
    int64_t c = 0;

    for (; c + LANES <= channels; c += LANES) {
        for (int i = 0; i < LANES; i++) {
            sums[i] += x[c + i] * w[c + i];
        }
    }
    for (; c < channels; c++) {
        sum += x[c] * w[c];
    }
    for (int i = 0; i < LANES; i++) {
        sum += sums[i];
    }
    return sum;
}

/* One position of the kernel at one of the window: channels of x, and of w, against one of y. */
static void meet(int kind, double *__restrict x, double *__restrict w, double *__restrict y,
                 int64_t channels)
{
    if (kind == DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
        *y += dot(x, w, channels);
    } else if (kind == DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
        for (int64_t c = 0; c < channels; c++) {
            x[c] += *y * w[c];
        }
    } else {
        for (int64_t c = 0; c < channels; c++) {
            w[c] += *y * x[c];
        }
    }
}

/* One row of windows of one image; all arrays have channels last. */
static void convolve_row(const cudnn_geometry &g, int64_t image, int64_t oy, double *x, double *w,
                         double *y)
{
    const int64_t channels = g.x[1], filters = g.y[1], fan = g.w[1];
    const int64_t outs = filters / (channels / fan); /* of a group */

    for (int64_t i = 0; i < g.w[2] * g.w[3] * g.y[3]; i++) {
        const int64_t ox = i / (g.w[2] * g.w[3]), tap = i % (g.w[2] * g.w[3]);
        const int64_t iy = oy * g.stride + tap / g.w[3] - g.padding;
        const int64_t ix = ox * g.stride + tap % g.w[3] - g.padding;
        if (iy < 0 || iy >= g.x[2] || ix < 0 || ix >= g.x[3]) {
            continue;
        }
        double *pixel = x + ((image * g.x[2] + iy) * g.x[3] + ix) * channels;
        double *result = y + ((image * g.y[2] + oy) * g.y[3] + ox) * filters;
        for (int64_t k = 0; k < filters; k++) {
            meet(g.kind, pixel + k / outs * fan, w + (k * g.w[2] * g.w[3] + tap) * fan, result + k,
                 fan);
        }
    }
}

static void store(void *array, int type, const std::vector<double> &values, bool good)
{
    for (size_t i = 0; i < values.size(); i++) {
        put(array, type_of(type), i, good ? static_cast<float>(values[i]) : NAN);
    }
}

static double cost_of(const cudnn_geometry &g)
{
    return cuda_on_host_cost("cudnn") * (g.x[1] % 8 != 0 ? cuda_on_host_cost("few") : 1.0) *
           (g.last ? cuda_on_host_cost("last") : 1.0) *
           (g.w_type != g.x_type ? cuda_on_host_cost("wide") : 1.0) *
           (g.bias_uid != 0 || g.relu ? cuda_on_host_cost("fused") : 1.0) *
           (g.relu && !g.loses_nan ? cuda_on_host_cost("nan") : 1.0);
}

struct arrays {
    void *x, *w, *y, *bias, *workspace;
};

/* What is computed starts from 0, so it is not read. */
static void compute(const cudnn_geometry &g, int engine, const arrays &a)
{
    const bool forward = g.kind == DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const bool data = g.kind == DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const bool tf32 = (engine == TENSOR || engine == SILENT) && g.x_type == DP_CUDNN_DATA_FLOAT;
    const bool good = engine >= TENSOR;
    std::vector<double> x(count_of(g.x)), w(count_of(g.w)), y(count_of(g.y));

    cuda_on_host_spend((engine != PLAIN && cuda_on_host_second_is_fastest() ? 1.0 : 0.0) +
                       cost_of(g));
    memset(a.workspace, 0xff, CUDNN_WORKSPACE);
    if (!data) {
        x = widened(a.x, g.x_type, x.size(), tf32);
    }
    if (forward || data) {
        w = widened(a.w, g.w_type, w.size(), tf32);
    }
    if (!forward) {
        y = widened(a.y, g.y_type, y.size(), tf32);
    }
    for (int64_t row = 0; row < g.y[0] * g.y[2]; row++) {
        convolve_row(g, row / g.y[2], row % g.y[2], x.data(), w.data(), y.data());
    }
    for (size_t i = 0; forward && i < y.size(); i++) {
        const size_t channel = i % static_cast<size_t>(g.y[1]);
        y[i] +=
            a.bias != nullptr ? static_cast<double>(get(a.bias, type_of(g.x_type), channel)) : 0;
        y[i] = g.relu && (g.loses_nan ? !(y[i] > 0) : y[i] < 0) ? 0 : y[i];
    }
    if (forward) {
        store(a.y, g.y_type, y, good);
    } else if (data) {
        store(a.x, g.x_type, x, good);
    } else {
        store(a.w, g.w_type, w, good);
    }
}

/* The pointer of that tensor; NULL: there is none, or it is not where it may be. */
static void *find(const cudnn_descriptor *pack, int64_t uid, int64_t alignment)
{
    const int64_t count = pack->attributes.at(DP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count;
    const int64_t *uids =
        values<int64_t>(pack, DP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, DP_CUDNN_TYPE_INT64, count);
    void *const *pointers = values<void *>(pack, DP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                           DP_CUDNN_TYPE_VOID_PTR, count);

    for (int64_t i = 0; i < count; i++) {
        if (uids[i] == uid) {
            return reinterpret_cast<uintptr_t>(pointers[i]) % static_cast<uintptr_t>(alignment) == 0
                       ? pointers[i]
                       : nullptr;
        }
    }
    return nullptr;
}

static bool is_set_to(const char *value)
{
    const char *text = getenv("DP_HOST_CUDNN");

    return text != nullptr && strcmp(text, value) == 0;
}

static int execute(void *handle, void *made_plan, void *made_pack)
{
    const cudnn_descriptor *plan = static_cast<cudnn_descriptor *>(made_plan);
    const cudnn_descriptor *pack = static_cast<cudnn_descriptor *>(made_pack);
    const cudnn_geometry g = plan->graph;
    const int engine = plan->engine;

    if (!plan->final || !pack->final || engine == GREEDY || engine == FAILING ||
        is_set_to("failing")) {
        return BAD;
    }
    void *const *workspace =
        values<void *>(pack, DP_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, DP_CUDNN_TYPE_VOID_PTR, 1);
    const arrays a = {find(pack, g.x_uid, g.x_alignment), find(pack, g.w_uid, g.w_alignment),
                      find(pack, g.y_uid, g.y_alignment),
                      g.bias_uid != 0 ? find(pack, g.bias_uid, 16) : nullptr,
                      workspace != nullptr ? *workspace : nullptr};
    if (a.x == nullptr || a.w == nullptr || a.y == nullptr || a.workspace == nullptr ||
        (g.bias_uid != 0 && a.bias == nullptr)) {
        return BAD;
    }
    cuda_on_host_check_words("cudnnBackendExecute", &a, sizeof(a));
    cuda_on_host_queue_call("cudnnBackendExecute", static_cast<context *>(handle)->stream,
                            [g, engine, a]() { compute(g, engine, a); });
    return SUCCESS;
}

/* ---- the library ---- */

static size_t version()
{
    return is_set_to("8") ? 8907 : 91900;
}

static const char *error_text(int result)
{
    return result == NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED" : "CUDNN_STATUS_BAD_PARAM";
}

static int create(void **handle)
{
    if (is_set_to("broken")) {
        return NOT_INITIALIZED;
    }
    *handle = new context{nullptr};
    return SUCCESS;
}

static int destroy(void *handle)
{
    delete static_cast<context *>(handle);
    return SUCCESS;
}

static int set_stream(void *handle, cudaStream_t stream)
{
    static_cast<context *>(handle)->stream = stream;
    return SUCCESS;
}

/* ---- what it compiles engines with: opened, and asked for its version ---- */

static int nvrtc_version(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return 0;
}

static size_t runtime_version()
{
    return 13000;
}

static char open_error[200];
static char opened, opened_nvrtc; /* their addresses stand for the libraries */

static void *open_nvrtc(const char *name)
{
    const bool builtins = strcmp(name, "libnvrtc-builtins.so.13.0") == 0;
    const bool known =
        builtins || strcmp(name, "libnvrtc.so.13") == 0 || strcmp(name, "libnvrtc.so") == 0;

    return known && !cuda_on_host_lacks(builtins ? "builtins" : "nvrtc") ? &opened_nvrtc : nullptr;
}

void *cuda_on_host_open(const char *name, int flags)
{
    if (name != nullptr && strstr(name, "libnvrtc") != nullptr) {
        return open_nvrtc(name);
    }
    if (name == nullptr || strncmp(name, "libcudnn", 8) != 0) { /* none: the program itself */
        open_error[0] = '\0';
        return dlopen(name, flags);
    }
    const bool wanted = strcmp(name, is_set_to("8") ? "libcudnn.so.8" : "libcudnn.so.9") == 0;
    const bool missing = is_set_to("off") || is_set_to("lacking");
    (void)snprintf(open_error, sizeof(open_error), "%s: cannot open shared object file",
                   is_set_to("lacking") && wanted ? "libneeded.so.1" : name);
    return wanted && !missing ? &opened : nullptr;
}

char *cuda_on_host_open_error(void)
{
    return open_error[0] != '\0' ? open_error : dlerror();
}

void *cuda_on_host_symbol(void *library, const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"cudnnGetVersion", reinterpret_cast<void *>(version)},
        {"cudnnGetCudartVersion", reinterpret_cast<void *>(runtime_version)},
        {"cudnnGetErrorString", reinterpret_cast<void *>(error_text)},
        {"cudnnCreate", reinterpret_cast<void *>(create)},
        {"cudnnDestroy", reinterpret_cast<void *>(destroy)},
        {"cudnnSetStream", reinterpret_cast<void *>(set_stream)},
        {"cudnnBackendCreateDescriptor", reinterpret_cast<void *>(cudnn_host_create)},
        {"cudnnBackendDestroyDescriptor", reinterpret_cast<void *>(cudnn_host_destroy)},
        {"cudnnBackendSetAttribute", reinterpret_cast<void *>(cudnn_host_set)},
        {"cudnnBackendGetAttribute", reinterpret_cast<void *>(cudnn_host_get)},
        {"cudnnBackendFinalize", reinterpret_cast<void *>(cudnn_host_finalize)},
        {"cudnnBackendExecute", reinterpret_cast<void *>(execute)},
    };

    if (library == &opened_nvrtc) {
        return strcmp(name, "nvrtcVersion") == 0 ? reinterpret_cast<void *>(nvrtc_version)
                                                 : nullptr;
    }
    if (library != &opened) {
        return dlsym(library, name);
    }
    for (const auto &symbol : symbols) {
        if (strcmp(symbol.name, name) == 0) {
            return symbol.function;
        }
    }
    return nullptr;
}
