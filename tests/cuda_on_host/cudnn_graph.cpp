/*
 * cudnn_graph.cpp - descriptors of cuDNN on the host: what was described becomes a cudnn_geometry.
 *
 * Stricter than cuDNN where it can be: types and numbers of attributes, order of calls, shapes.
 */
#include "cudnn_graph.h"
#include "costs.h"

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, BAD = 2000, NOT_FINAL = 2004, NOT_SUPPORTED = 3000 };

static int64_t workspace_of(int engine)
{
    const int64_t bytes = engine == HUNGRY    ? CUDNN_MORE
                          : engine == FAILING ? CUDNN_MUCH
                                              : CUDNN_WORKSPACE;

    return engine == GREEDY ? int64_t(1) << 50 : bytes;
}

/* ---- descriptors ---- */

int cudnn_host_create(int kind, void **made)
{
    *made = new cudnn_descriptor{kind, false, {}, {}, 0};
    return SUCCESS;
}

int cudnn_host_destroy(void *made)
{
    delete static_cast<cudnn_descriptor *>(made);
    return SUCCESS;
}

static size_t width_of(int type)
{
    switch (type) {
    case DP_CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case DP_CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case DP_CUDNN_TYPE_HANDLE:
    case DP_CUDNN_TYPE_VOID_PTR:
    case DP_CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int); /* float, too */
    }
}

int cudnn_host_set(void *made, int name, int type, int64_t count, const void *elements)
{
    cudnn_descriptor *d = static_cast<cudnn_descriptor *>(made);
    const char *bytes = static_cast<const char *>(elements);

    if (d == nullptr || d->final || count < 1) {
        return BAD;
    }
    d->attributes[name] = {
        type, count, std::vector<char>(bytes, bytes + static_cast<size_t>(count) * width_of(type))};
    return SUCCESS;
}

static bool has_int(const cudnn_descriptor *d, int name, int type, int value)
{
    const int *found = values<int>(d, name, type, 1);

    return found != nullptr && *found == value;
}

/* A cudnn_descriptor of that kind, finalized; or NULL. */
static const cudnn_descriptor *other(const cudnn_descriptor *d, int name, int kind)
{
    void *const *found = values<void *>(d, name, DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1);
    const cudnn_descriptor *made =
        found == nullptr ? nullptr : static_cast<const cudnn_descriptor *>(*found);

    return made != nullptr && made->kind == kind && made->final ? made : nullptr;
}

/* ---- tensors and operations ---- */

static const int64_t *dims_of(const cudnn_descriptor *tensor)
{
    return values<int64_t>(tensor, DP_CUDNN_ATTR_TENSOR_DIMENSIONS, DP_CUDNN_TYPE_INT64, 4);
}

static int64_t uid_of(const cudnn_descriptor *tensor)
{
    return *values<int64_t>(tensor, DP_CUDNN_ATTR_TENSOR_UNIQUE_ID, DP_CUDNN_TYPE_INT64, 1);
}

static int type_of(const cudnn_descriptor *tensor)
{
    return *values<int>(tensor, DP_CUDNN_ATTR_TENSOR_DATA_TYPE, DP_CUDNN_TYPE_DATA_TYPE, 1);
}

static int64_t alignment_of(const cudnn_descriptor *tensor)
{
    return *values<int64_t>(tensor, DP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, DP_CUDNN_TYPE_INT64, 1);
}

/* Channels next to each other, nothing in between. */
static bool tensor_is_good(const cudnn_descriptor *d)
{
    const int64_t *dims = dims_of(d);
    const int64_t *strides =
        values<int64_t>(d, DP_CUDNN_ATTR_TENSOR_STRIDES, DP_CUDNN_TYPE_INT64, 4);
    const int64_t *alignment =
        values<int64_t>(d, DP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, DP_CUDNN_TYPE_INT64, 1);

    return dims != nullptr && strides != nullptr && alignment != nullptr && *alignment > 0 &&
           16 % *alignment == 0 &&
           values<int>(d, DP_CUDNN_ATTR_TENSOR_DATA_TYPE, DP_CUDNN_TYPE_DATA_TYPE, 1) != nullptr &&
           values<int64_t>(d, DP_CUDNN_ATTR_TENSOR_UNIQUE_ID, DP_CUDNN_TYPE_INT64, 1) != nullptr &&
           values<bool>(d, DP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, DP_CUDNN_TYPE_BOOLEAN, 1) != nullptr &&
           strides[1] == 1 && strides[3] == dims[1] && strides[2] == dims[3] * strides[3] &&
           strides[0] == dims[2] * strides[2];
}

static const int64_t *pair_of(const cudnn_descriptor *d, int name)
{
    const int64_t *found = values<int64_t>(d, name, DP_CUDNN_TYPE_INT64, 2);

    return found != nullptr && found[0] == found[1] ? found : nullptr;
}

static bool window_is_good(const cudnn_descriptor *d)
{
    const int64_t *before = pair_of(d, DP_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t *after = pair_of(d, DP_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    const int64_t *apart = pair_of(d, DP_CUDNN_ATTR_CONVOLUTION_DILATIONS);
    const int64_t *spatial =
        values<int64_t>(d, DP_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, DP_CUDNN_TYPE_INT64, 1);

    return before != nullptr && after != nullptr && *before == *after && apart != nullptr &&
           *apart == 1 && spatial != nullptr && *spatial == 2 &&
           pair_of(d, DP_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) != nullptr &&
           has_int(d, DP_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DP_CUDNN_TYPE_DATA_TYPE,
                   DP_CUDNN_DATA_FLOAT) &&
           has_int(d, DP_CUDNN_ATTR_CONVOLUTION_CONV_MODE, DP_CUDNN_TYPE_CONVOLUTION_MODE,
                   DP_CUDNN_CROSS_CORRELATION);
}

/* Attributes of the three operations lie in the same distances, but in another order. */
struct roles {
    int first, x, w, y; /* of alpha; others from there */
};

static roles roles_of(int kind)
{
    switch (kind) {
    case DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return {700, 704, 703, 705};
    case DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return {706, 710, 709, 711};
    default:
        return {712, 716, 715, 717};
    }
}

static bool convolution_read(cudnn_descriptor *d)
{
    const roles r = roles_of(d->kind);
    const cudnn_descriptor *tensors[3], *window;
    const float *alpha = values<float>(d, r.first, DP_CUDNN_TYPE_FLOAT, 1);
    const float *beta = values<float>(d, r.first + 1, DP_CUDNN_TYPE_FLOAT, 1);
    cudnn_geometry *g = &d->graph;

    window = other(d, r.first + 2, DP_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    tensors[0] = other(d, r.x, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensors[1] = other(d, r.w, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensors[2] = other(d, r.y, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (window == nullptr || tensors[0] == nullptr || tensors[1] == nullptr ||
        tensors[2] == nullptr || alpha == nullptr || *alpha != 1 || beta == nullptr || *beta != 0) {
        return false;
    }
    *g = {};
    g->kind = d->kind;
    g->x_uid = uid_of(tensors[0]);
    g->w_uid = uid_of(tensors[1]);
    g->y_uid = uid_of(tensors[2]);
    g->x_type = type_of(tensors[0]);
    g->w_type = type_of(tensors[1]);
    g->y_type = type_of(tensors[2]);
    g->x_alignment = alignment_of(tensors[0]);
    g->w_alignment = alignment_of(tensors[1]);
    g->y_alignment = alignment_of(tensors[2]);
    memcpy(g->x, dims_of(tensors[0]), sizeof(g->x));
    memcpy(g->w, dims_of(tensors[1]), sizeof(g->w));
    memcpy(g->y, dims_of(tensors[2]), sizeof(g->y));
    g->stride = *pair_of(window, DP_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    g->padding = *pair_of(window, DP_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    for (int i = 2; i < 4; i++) {
        if ((g->x[i] + 2 * g->padding - g->w[i]) / g->stride + 1 != g->y[i]) {
            return false;
        }
    }
    return g->x[0] == g->y[0] && g->w[0] == g->y[1] && g->x[1] % g->w[1] == 0 &&
           g->y[1] % (g->x[1] / g->w[1]) == 0;
}

/* Takes one more operation into the graph, after those that are in it. */
static bool append(cudnn_geometry *g, const cudnn_descriptor *d)
{
    const cudnn_descriptor *how = other(d, DP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                        DP_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const cudnn_descriptor *x =
        other(d, DP_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnn_descriptor *y =
        other(d, DP_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnn_descriptor *bias =
        other(d, DP_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    if (how == nullptr || x == nullptr || y == nullptr || uid_of(x) != g->y_uid ||
        !*values<bool>(x, DP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, DP_CUDNN_TYPE_BOOLEAN, 1) ||
        type_of(x) != DP_CUDNN_DATA_FLOAT) {
        return false;
    }
    g->y_uid = uid_of(y);
    g->y_type = type_of(y);
    g->y_alignment = alignment_of(y);
    if (has_int(how, DP_CUDNN_ATTR_POINTWISE_MODE, DP_CUDNN_TYPE_POINTWISE_MODE,
                DP_CUDNN_POINTWISE_ADD)) {
        g->bias_uid = bias != nullptr && dims_of(bias)[1] == g->y[1] ? uid_of(bias) : 0;
        return g->bias_uid != 0 && !g->relu;
    }
    g->relu = true;
    g->loses_nan = how->attributes.count(DP_CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == 0;
    return bias == nullptr &&
           (g->loses_nan || has_int(how, DP_CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                    DP_CUDNN_TYPE_NAN_PROPOGATION, DP_CUDNN_PROPAGATE_NAN));
}

static bool graph_read(cudnn_descriptor *d)
{
    const auto found = d->attributes.find(DP_CUDNN_ATTR_OPERATIONGRAPH_OPS);
    void *const *operations =
        values<void *>(d, DP_CUDNN_ATTR_OPERATIONGRAPH_OPS, DP_CUDNN_TYPE_BACKEND_DESCRIPTOR, -1);

    if (operations == nullptr || values<void *>(d, DP_CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                                DP_CUDNN_TYPE_HANDLE, 1) == nullptr) {
        return false;
    }
    d->graph = static_cast<cudnn_descriptor *>(operations[0])->graph;
    for (int64_t i = 0; i < found->second.count; i++) {
        const cudnn_descriptor *operation = static_cast<cudnn_descriptor *>(operations[i]);
        if (!operation->final || (i > 0 && !append(&d->graph, operation))) {
            return false;
        }
    }
    return true;
}

/* ---- engines ---- */

/* Shapes and types that no engine takes; without them nobody would fall back on something else. */
static bool is_supported(const cudnn_geometry &g, int engine)
{
    const bool fused = g.bias_uid != 0 || g.relu, wide = g.x_type == DP_CUDNN_DATA_FLOAT;
    const bool mixed = g.w_type != g.x_type;

    if (g.relu && !g.loses_nan && cuda_on_host_lacks("nan")) {
        return false;
    }
    if (g.x[1] == 17 || (mixed && (g.x[1] % 8 != 0 || g.y[1] % 8 != 0))) {
        return false;
    }
    if (engine == HUNGRY) {
        const char *text = getenv("DP_HOST_CUDNN");
        return text != nullptr && strcmp(text, "hungry") == 0;
    }
    if (engine == SILENT) {
        return wide && g.kind == DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    }
    return engine == PLAIN ? wide && !fused : engine != DOWN_CONVERTING || wide;
}

/* Kernels of one pixel get their plain engine only from the last resort, which is all there is
 * where costs.h says so. */
static std::vector<int> proposals(const cudnn_geometry &g, int mode)
{
    std::vector<int> found;

    for (int engine = 0; engine < ENGINES; engine++) {
        const bool last = (engine == PLAIN && g.w[2] == 1) ||
                          (g.w_type != g.x_type && cuda_on_host_lacks("wide")) ||
                          ((g.bias_uid != 0 || g.relu) && cuda_on_host_lacks("fused"));
        if (is_supported(g, engine) && last == (mode == DP_CUDNN_HEUR_MODE_FALLBACK)) {
            found.push_back(engine);
        }
    }
    return found;
}

static std::vector<int> notes_of(int engine)
{
    switch (engine) {
    case NONDETERMINISTIC:
        return {DP_CUDNN_NUMERICAL_NOTE_TENSOR_CORE, DP_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case REDUCED:
        return {DP_CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
    case DOWN_CONVERTING:
        return {DP_CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
    case TENSOR:
    case FAILING:
        return {DP_CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    default:
        return {};
    }
}

static bool plan_read(cudnn_descriptor *d)
{
    const cudnn_descriptor *config =
        other(d, DP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);

    if (config == nullptr || config->engine == BROKEN ||
        values<void *>(d, DP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE, DP_CUDNN_TYPE_HANDLE, 1) ==
            nullptr) {
        return false;
    }
    d->graph = config->graph;
    d->engine = config->engine;
    return true;
}

static bool heuristics_read(cudnn_descriptor *d)
{
    const cudnn_descriptor *graph = other(d, DP_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                          DP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    if (graph == nullptr) {
        return false;
    }
    d->graph = graph->graph;
    return values<int>(d, DP_CUDNN_ATTR_ENGINEHEUR_MODE, DP_CUDNN_TYPE_HEUR_MODE, 1) != nullptr;
}

static bool pack_is_good(const cudnn_descriptor *d)
{
    const auto uids = d->attributes.find(DP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = d->attributes.find(DP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

    return uids != d->attributes.end() && pointers != d->attributes.end() &&
           uids->second.count == pointers->second.count &&
           uids->second.type == DP_CUDNN_TYPE_INT64 &&
           pointers->second.type == DP_CUDNN_TYPE_VOID_PTR;
}

int cudnn_host_finalize(void *made)
{
    cudnn_descriptor *d = static_cast<cudnn_descriptor *>(made);
    bool good = true;

    switch (d->kind) {
    case DP_CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        good = tensor_is_good(d);
        break;
    case DP_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        good = window_is_good(d);
        break;
    case DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case DP_CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        good = convolution_read(d);
        break;
    case DP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        good = graph_read(d);
        break;
    case DP_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        good = heuristics_read(d);
        break;
    case DP_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        good = plan_read(d);
        break;
    case DP_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        good = pack_is_good(d);
        break;
    default:
        break;
    }
    d->final = good;
    return good ? SUCCESS : NOT_SUPPORTED;
}

int cudnn_host_get(void *made, int name, int type, int64_t wanted, int64_t *count, void *elements)
{
    const cudnn_descriptor *d = static_cast<const cudnn_descriptor *>(made);
    const std::vector<int> engines =
        name == DP_CUDNN_ATTR_ENGINEHEUR_RESULTS
            ? proposals(d->graph,
                        *values<int>(d, DP_CUDNN_ATTR_ENGINEHEUR_MODE, DP_CUDNN_TYPE_HEUR_MODE, 1))
            : std::vector<int>();
    const std::vector<int> notes = notes_of(d->engine);

    if (!d->final) {
        return NOT_FINAL;
    }
    *count = 1;
    if (name == DP_CUDNN_ATTR_ENGINEHEUR_RESULTS && type == DP_CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        *count = static_cast<int64_t>(engines.size());
        for (int64_t i = 0; i < *count && i < wanted; i++) {
            cudnn_descriptor *config = static_cast<cudnn_descriptor **>(elements)[i];
            config->graph = d->graph;
            config->graph.last = has_int(d, DP_CUDNN_ATTR_ENGINEHEUR_MODE, DP_CUDNN_TYPE_HEUR_MODE,
                                         DP_CUDNN_HEUR_MODE_FALLBACK);
            config->engine = engines[static_cast<size_t>(i)];
            config->final = true;
        }
    } else if (name == DP_CUDNN_ATTR_ENGINECFG_ENGINE && wanted == 1) {
        cudnn_descriptor *engine = *static_cast<cudnn_descriptor **>(elements);
        engine->engine = d->engine;
        engine->final = true;
    } else if (name == DP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == DP_CUDNN_TYPE_INT64) {
        *static_cast<int64_t *>(elements) = d->engine;
    } else if (name == DP_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
               type == DP_CUDNN_TYPE_NUMERICAL_NOTE) {
        *count = static_cast<int64_t>(notes.size());
        for (int64_t i = 0; i < *count && i < wanted; i++) {
            static_cast<int *>(elements)[i] = notes[static_cast<size_t>(i)];
        }
    } else if (name == DP_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == DP_CUDNN_TYPE_INT64) {
        *static_cast<int64_t *>(elements) = workspace_of(d->engine);
    } else {
        return BAD;
    }
    return SUCCESS;
}
