#include "runtime/trainer/compute/normalize.h"

#include "base/mem.h"

static double channel_value(const struct dp_numbers *numbers, size_t channel, double otherwise)
{
    if (numbers->count == 0) {
        return otherwise;
    }
    return numbers->value[numbers->count == 1 ? 0 : channel];
}

size_t dp_normalize_channels(const struct dp_shape *input, const struct dp_numbers *mean,
                             const struct dp_numbers *std)
{
    const bool each = mean->count > 1 || std->count > 1;

    return input->dims == 3 ? input->dim[2] : each ? input->dim[0] : 1;
}

dp_status dp_normalize_init(struct dp_normalize *n, size_t channels, double white,
                            const struct dp_numbers *mean, const struct dp_numbers *std)
{
    *n = (struct dp_normalize){NULL, NULL, channels, NULL, NULL};
    n->scale = dp_zalloc(channels, sizeof(float));
    n->shift = dp_zalloc(channels, sizeof(float));
    if (n->scale == NULL || n->shift == NULL) {
        dp_normalize_fini(n);
        return DP_FAIL(DP_ERR_NOMEM, "normalisation of %zu channels", channels);
    }
    for (size_t i = 0; i < channels; i++) {
        const double deviation = channel_value(std, i, 1.0);
        n->scale[i] = (float)(1.0 / (white * deviation));
        n->shift[i] = (float)(-channel_value(mean, i, 0.0) / deviation);
    }
    return DP_OK;
}

dp_status dp_normalize_place(struct dp_normalize *n, struct dp_stream *stream)
{
    const struct dp_device *device = stream->device;
    const size_t bytes = n->channels * sizeof(float);

    if (device->host_memory) {
        return DP_OK;
    }
    n->placed = device->alloc(DP_MEM_OTHER, 2 * bytes);
    if (n->placed == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "normalisation of %zu channels", n->channels);
    }
    n->device = device;
    DP_TRY(dp_device_write(stream, n->placed, n->scale, bytes));
    DP_TRY(dp_device_write(stream, n->placed + n->channels, n->shift, bytes));
    dp_free(n->scale);
    dp_free(n->shift);
    n->scale = n->placed;
    n->shift = n->placed + n->channels;
    return DP_OK;
}

void dp_normalize_fini(struct dp_normalize *n)
{
    if (n->device != NULL) {
        n->device->release(n->placed);
    }
    if (n->placed == NULL || n->scale != n->placed) { /* they are in host memory */
        dp_free(n->scale);
        dp_free(n->shift);
    }
    n->scale = n->shift = n->placed = NULL;
}
