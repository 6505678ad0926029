#include "kernels/device.h"

#include <string.h>

#define DP_DEVICE(name) extern const struct dp_device dp_device_##name;
#include "kernels/devices.def"
#undef DP_DEVICE

static const struct dp_plugin *const registry[] = {
#define DP_DEVICE(name) &dp_device_##name.plugin,
#include "kernels/devices.def"
#undef DP_DEVICE
};

struct dp_plugin_family dp_devices = {
    .noun = "device", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

bool dp_device_left_out(const char *name)
{
    return !DP_HAVE_CUDA && strcmp(name, "cuda") == 0;
}

const char *dp_device_arithmetic(const struct dp_device *device, enum dp_type type, bool tf32)
{
    static const char *const names[] = {
        [DP_TYPE_F32] = "fp32", [DP_TYPE_BF16] = "bf16", [DP_TYPE_F16] = "fp16"};

    if (tf32) {
        return device->has_tf32 ? "tf32" : "tf32 as fp32";
    }
    return device->arithmetic != NULL && type != DP_TYPE_F32 ? device->arithmetic(type)
                                                             : names[type];
}

void dp_stream_set_type(struct dp_stream *stream, enum dp_type type)
{
    stream->type = type;
    if (stream->device->set_type != NULL) {
        stream->device->set_type(stream);
    }
    for (int i = 0; stream->singles != NULL && i < stream->threads; i++) {
        dp_stream_set_type(stream->singles[i], type);
    }
}

void dp_stream_set_like(struct dp_stream *stream, const struct dp_stream *other)
{
    stream->tf32 = other->tf32;
    stream->conv = other->conv;
    dp_stream_set_type(stream, other->type);
}

dp_status dp_device_find(const char *name, const struct dp_device **out)
{
    const bool automatic = strcmp(name, "auto") == 0;
    const struct dp_plugin *plugin;
    const char *why_not = "no device is available", *nearest;

    for (int i = 0; (plugin = dp_plugin_at(&dp_devices, i)) != NULL; i++) {
        const struct dp_device *device = (const struct dp_device *)plugin;
        if (!automatic && strcmp(plugin->name, name) != 0) {
            continue;
        }
        if (device->available(&why_not)) {
            *out = device;
            return DP_OK;
        }
        if (!automatic) {
            return DP_FAIL(DP_ERR_UNAVAILABLE, "device %s: %s", name, why_not);
        }
    }
    if (automatic) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "%s", why_not);
    }
    if (dp_device_left_out(name)) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "device %s: this program was built without it; build with the CUDA toolkit "
                       "and -DDP_CUDA=on",
                       name);
    }
    nearest = dp_plugin_nearest(&dp_devices, name);
    return DP_FAIL(DP_ERR_CONFIG, "unknown device '%s' (did you mean '%s'?)", name,
                   nearest != NULL ? nearest : "auto");
}

const struct dp_device *dp_device_passed_over(const struct dp_device *taken, const char **why_not)
{
    const struct dp_device *first = (const struct dp_device *)dp_plugin_at(&dp_devices, 0);

    *why_not = NULL;
    return first == taken || first->available(why_not) ? NULL : first;
}

dp_status dp_device_find_conv(const struct dp_device *device, enum dp_conv_engine wanted,
                              const char **text)
{
    *text = NULL;
    if (device->find_conv != NULL) {
        return device->find_conv(wanted, text);
    }
    return wanted == DP_CONV_AUTO
               ? DP_OK
               : DP_FAIL(DP_ERR_UNAVAILABLE,
                         "device %s has no engines of convolutions to choose from: leave "
                         "device.conv at auto",
                         device->plugin.name);
}

dp_status dp_device_write(struct dp_stream *stream, void *device, const void *host, size_t bytes)
{
    DP_TRY(stream->device->upload(stream, device, host, bytes));
    return stream->device->synchronize(stream);
}

dp_status dp_device_read(struct dp_stream *stream, void *host, const void *device, size_t bytes)
{
    DP_TRY(stream->device->download(stream, host, device, bytes));
    return stream->device->synchronize(stream);
}
