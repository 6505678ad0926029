#include "runtime/measure/machine_rates.h"

#include <math.h>

#include "base/log.h"
#include "base/trace.h"

enum {
    HOST_SIDE = 768, /* of a square product on a host; a GPU needs larger ones */
    DEVICE_SIDE = 4096,
    QUICK_SIDE = 192,
    HOST_COPY = 16 << 20, /* bytes of an array; two of them do not fit into the caches of a core */
    DEVICE_COPY = 256 << 20,
    QUICK_COPY = 2 << 20,
    CACHE_COPY = 32 << 10,
    CACHE_CALLS = 16, /* one copy in the cache takes as long as reading the clock twice */
    TRIES_LEAST = 3,
    FIRST_SIDE = 64, /* of the first product, which says how large the next may be */
    GROWS = 8,
    KINDS = 4
};

/* How much longer than it should a product may take, as its time is guessed from a smaller one. */
static const double patience = 16.0;

static const double quick_s = 0.05; /* below, sizes are small ones */

const char *const dp_machine_rate_keys[DP_MACHINE_RATES] = {"peak_gflops", "copy_gbs", "cache_gbs",
                                                            "host_device_gbs"};

/* Some operation to time; arrays are of the device but `host`. */
struct trial {
    struct dp_stream *stream;
    char *x, *y, *w;
    char *host;
    size_t side, bytes;
    int calls;
    dp_status (*run)(const struct trial *t);
};

static dp_status multiply(const struct trial *t)
{
    return t->stream->ops->dense_forward(t->stream, t->y, t->x, t->w, NULL, t->side, t->side,
                                         t->side, DP_ACT_NONE);
}

static dp_status copy(const struct trial *t)
{
    return t->stream->ops->copy(t->stream, t->y, t->x, t->bytes);
}

static dp_status cross(const struct trial *t)
{
    DP_TRY(t->stream->device->upload(t->stream, t->x, t->host, t->bytes));
    return t->stream->device->download(t->stream, t->host, t->x, t->bytes);
}

/* Seconds of the fastest call. */
static dp_status best_of(const struct trial *t, double seconds, double *best)
{
    const struct dp_device *device = t->stream->device;
    const uint64_t begin_ns = dp_now_ns();

    DP_TRY(t->run(t)); /* warms up */
    DP_TRY(device->synchronize(t->stream));
    for (int i = 0; i < TRIES_LEAST || (double)(dp_now_ns() - begin_ns) / 1e9 < seconds; i++) {
        const uint64_t from_ns = dp_now_ns();
        for (int k = 0; k < t->calls; k++) {
            DP_TRY(t->run(t));
        }
        DP_TRY(device->synchronize(t->stream));
        const double each = (double)(dp_now_ns() - from_ns) / 1e9 / t->calls;
        *best = i == 0 || each < *best ? each : *best;
    }
    return DP_OK;
}

/* ---- one rate each ---- */

static dp_status rate_of(struct trial *t, double work, double seconds, double *rate)
{
    double best = 0.0;

    DP_TRY(best_of(t, seconds, &best));
    *rate = work / best / 1e9;
    return DP_OK;
}

/* Seconds of one product of this side, the fastest of a few. */
static dp_status one_product(struct trial *t, size_t side, double *seconds)
{
    t->side = side;
    DP_TRY(t->stream->ops->dense_prepare(t->stream, side, side, side, DP_DENSE_FORWARD));
    return best_of(t, 0.0, seconds);
}

/* Devices that compute in plain loops would take minutes for a large product. */
static dp_status find_side(struct trial *t, size_t wanted, double seconds)
{
    double once = 0.0;

    DP_TRY(one_product(t, FIRST_SIDE, &once));
    while (t->side < wanted) {
        const size_t next = t->side * GROWS < wanted ? t->side * GROWS : wanted;
        const double longer = pow((double)next / (double)t->side, 3.0);
        if (once * longer * (TRIES_LEAST + 1) > patience * seconds) {
            break;
        }
        DP_TRY(one_product(t, next, &once));
    }
    return DP_OK;
}

static dp_status product_rate(struct trial *t, double seconds, double *rate)
{
    double side;

    t->run = multiply;
    t->calls = 1;
    DP_TRY(find_side(t, t->side, seconds));
    side = (double)t->side;
    return rate_of(t, 2.0 * side * side * side, seconds, rate);
}

static dp_status copy_rate(struct trial *t, size_t bytes, int calls, double seconds, double *rate)
{
    t->run = copy;
    t->calls = calls;
    t->bytes = bytes;
    return rate_of(t, 2.0 * (double)bytes, seconds, rate);
}

static dp_status crossing_rate(struct trial *t, size_t bytes, double seconds, double *rate)
{
    t->run = cross;
    t->calls = 1;
    t->bytes = bytes;
    return rate_of(t, 2.0 * (double)bytes, seconds, rate);
}

/* ---- all ---- */

static dp_status measure(struct trial *t, size_t bytes, double seconds,
                         struct dp_machine_rates *out)
{
    const double share = seconds / KINDS;

    DP_TRY(product_rate(t, share, &out->peak_gflops));
    DP_TRY(copy_rate(t, bytes, 1, share, &out->copy_gbs));
    if (t->stream->device->host_memory) {
        return copy_rate(t, CACHE_COPY, CACHE_CALLS, share, &out->cache_gbs);
    }
    return t->host != NULL ? crossing_rate(t, bytes, share, &out->host_device_gbs) : DP_OK;
}

static size_t product_side(const struct dp_device *device, bool quick)
{
    return quick ? QUICK_SIDE : device->host_memory ? HOST_SIDE : DEVICE_SIDE;
}

static size_t copy_bytes(const struct dp_device *device, bool quick)
{
    return quick ? QUICK_COPY : device->host_memory ? HOST_COPY : DEVICE_COPY;
}

size_t dp_machine_rates_bytes(const struct dp_device *device, bool quick)
{
    const size_t side = product_side(device, quick), bytes = copy_bytes(device, quick);
    const size_t square = side * side * sizeof(float);

    return 2 * (square > bytes ? square : bytes) + square;
}

/* Narrow types on hosts compute in pieces of float32, in memory that is reserved. */
static dp_status reserve(const struct trial *t)
{
    const struct dp_stream *s = t->stream;

    return s->type == DP_TYPE_F32 || s->device->reserve == NULL
               ? DP_OK
               : s->device->reserve(t->stream, 4 * t->side * t->side);
}

static dp_status with_memory(struct trial *t, double seconds, struct dp_machine_rates *out)
{
    const struct dp_device *device = t->stream->device;
    const size_t square = t->side * t->side * sizeof(float),
                 bytes = copy_bytes(device, seconds < quick_s);
    const size_t most = square > bytes ? square : bytes;
    dp_status status = DP_OK;

    t->x = device->alloc(DP_MEM_TRIAL, most);
    t->y = device->alloc(DP_MEM_TRIAL, most);
    t->w = device->alloc(DP_MEM_TRIAL, square);
    t->host = device->host_memory ? NULL : device->alloc_host(DP_MEM_TRIAL, bytes);
    if (t->x != NULL && t->y != NULL && t->w != NULL) {
        status = reserve(t);
        status = status == DP_OK ? measure(t, bytes, seconds, out) : status;
    }
    if (t->host != NULL) {
        device->release_host(t->host);
    }
    device->release(t->w);
    device->release(t->y);
    device->release(t->x);
    return status;
}

double *dp_machine_rates_array(struct dp_machine_rates *rates)
{
    _Static_assert(sizeof(*rates) == DP_MACHINE_RATES * sizeof(double), "a rate is a double");
    return &rates->peak_gflops;
}

void dp_machine_rates_clear(struct dp_machine_rates *rates)
{
    const double unknown = (double)NAN;

    *rates = (struct dp_machine_rates){unknown, unknown, unknown, unknown};
}

dp_status dp_machine_rates_measure(const struct dp_stream *like, int threads, double seconds,
                                   struct dp_machine_rates *out)
{
    const struct dp_device *device = like->device;
    struct trial trial = {.side = product_side(device, seconds < quick_s)};
    struct dp_log_capture capture;
    dp_status status;

    dp_machine_rates_clear(out);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = device->stream_create(device, threads, &trial.stream);
    if (status == DP_OK) {
        dp_stream_set_like(trial.stream, like);
        status = with_memory(&trial, seconds, out);
        device->stream_destroy(trial.stream);
    }
    dp_log_capture_end(&capture, status == DP_ERR_NOMEM ? DP_LOG_DROP : DP_LOG_PRINT);
    return status == DP_ERR_NOMEM ? DP_OK : status;
}
