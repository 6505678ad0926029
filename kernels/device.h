/*
 * device.h - where computing happens: memory, streams, events and a table of operations.
 *
 * To add one: a folder kernels/<name>/ that defines `const struct dp_device dp_device_<name>`, and
 * one line in devices.def. Start from the table of `ref` and override operation by operation.
 */
#ifndef DP_KERNELS_DEVICE_H
#define DP_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/plugin.h"
#include "base/status.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "kernels/units.h"

/* What computes convolutions, where a device has several engines. */
enum dp_conv_engine { DP_CONV_AUTO, DP_CONV_CUBLAS, DP_CONV_CUDNN };

struct dp_algo_choices;

/* A queue of operations, its threads and its workspace. One thread uses a stream at a time; parts
 * that run side by side have a stream each. */
struct dp_stream {
    const struct dp_device *device;
    const struct dp_ops *ops;
    int threads;       /* that one operation may use; 1 or more */
    enum dp_type type; /* the compute type: dp_stream_set_type() */
    enum dp_conv_engine conv;
    bool tf32; /* of type float32: products may round their factors to tf32 */
    struct dp_algo_choices
        *algo_choices; /* borrowed; what of several algorithms is taken, and where what is
                                   measured while it prepares goes; NULL: the library's first
                                   proposal, and nothing is measured */
    void *state;       /* the device's own */
};

/* A point in a stream; the device's own. */
struct dp_event;

/* Operations that were queued once and can be queued again at once; the device's own. */
struct dp_recording;

/* The memory of a device that has its own, in bytes. */
struct dp_device_room {
    char name[96];      /* "cuda:0 (NVIDIA H200)" */
    size_t total, left; /* of the device; others may use it, too */
    size_t workspace;   /* that a stream's operations may want beside what alloc() gives */
    size_t peak;        /* the most that this process ever had, by alloc(), but for trials */
    size_t used[DP_MEM_PURPOSE_COUNT];
};

struct dp_device {
    struct dp_plugin plugin; /* name, help */
    bool host_memory;        /* the host can read and write what alloc() gives */
    bool has_tf32;           /* stream.tf32 makes a difference */
    size_t tile_bytes;       /* of cache for one thread, where it pays to compute several layers on
                                a few rows before the next rows; 0: it does not */

    /* Whether this machine has one, or why not. */
    bool (*available)(const char **why_not);

    /* On error nothing is left behind. */
    dp_status (*stream_create)(const struct dp_device *device, int threads, struct dp_stream **out);
    void (*stream_destroy)(struct dp_stream *stream); /* NULL is allowed */

    /* Zeroed memory, aligned to at least DP_MEM_ALIGN; NULL when there is none left. */
    void *(*alloc)(enum dp_purpose purpose, size_t bytes);
    void (*release)(void *memory);

    /* How much of it there is. NULL: it is the host's. */
    void (*room)(struct dp_device_room *room);

    /* The same of the host, where copies reach it fastest. Operations reach it, too, slowly. */
    void *(*alloc_host)(enum dp_purpose purpose, size_t bytes);
    void (*release_host)(void *memory);

    /* Makes copies to and from this memory of the host as fast, if that can be; unpin: whether it
     * was pinned or not. */
    void (*pin)(void *memory, size_t bytes);
    void (*unpin)(void *memory);

    /* Queues a copy to or from memory of the host, which must stay as it is until that is done. */
    dp_status (*upload)(struct dp_stream *stream, void *device, const void *host, size_t bytes);
    dp_status (*download)(struct dp_stream *stream, void *host, const void *device, size_t bytes);

    /* Whatever is queued on `later` from now on waits for all that is queued on `earlier` so far,
     * which another thread may be using. */
    dp_status (*order)(struct dp_stream *later, struct dp_stream *earlier);

    /* An event happens when all that was queued on the stream is done; asking does not wait. One
     * that was never recorded has happened. event_destroy: NULL is allowed. */
    dp_status (*event_create)(struct dp_event **out);
    void (*event_destroy)(struct dp_event *event);
    dp_status (*event_record)(struct dp_event *event, struct dp_stream *stream);
    dp_status (*event_query)(const struct dp_event *event, bool *done);

    /* Whatever is queued on the stream from now on waits for the event, as it was recorded last. */
    dp_status (*event_wait)(struct dp_stream *stream, const struct dp_event *event);

    /*
     * Operations between begin and end are remembered instead of done; replay queues them all. They
     * are the same calls with the same arguments: what changes from replay to replay lies in device
     * memory. In between nothing may wait for the stream, order it with another one, or take
     * memory, and the same thread calls begin and end. record_end: a recording is written anew;
     * *why_not is what the device says, and nothing is logged, where that was impossible
     * (DP_ERR_UNAVAILABLE). All NULL: the device cannot. recording_destroy: NULL is allowed.
     */
    dp_status (*recording_create)(struct dp_recording **out);
    void (*recording_destroy)(struct dp_recording *recording);
    dp_status (*record_begin)(struct dp_stream *stream);
    dp_status (*record_end)(struct dp_stream *stream, struct dp_recording *recording,
                            const char **why_not);
    dp_status (*replay)(const struct dp_recording *recording, struct dp_stream *stream);

    /* What else may be chosen by measuring depends on (algo_choices.h), and bits with it:
     * "NVIDIA H200 (9.0), driver 13000, ...". NULL: nothing is chosen. */
    void (*machine)(char *text, size_t size);

    /* Forgets what was prepared on a stream, so that it is prepared anew. NULL: it need not be. */
    dp_status (*forget)(struct dp_stream *stream);

    /* Chooses operations for stream->type. NULL: they are the same for all types. */
    void (*set_type)(struct dp_stream *stream);

    /* Makes room for operations that compute in float32 what they keep narrow: `count` elements of
     * all arrays of one call together. For streams that are not float32, before the first call.
     * NULL: not needed. Errors: DP_ERR_NOMEM. */
    dp_status (*reserve)(struct dp_stream *stream, size_t count);

    /* How operations of a type compute here, for people: "bf16 storage, float32 arithmetic". NULL:
     * in that type. */
    const char *(*arithmetic)(enum dp_type type);

    /* Which engine computes convolutions, and for people its version, or why not another one:
     * "cudnn 9.19.0". Asked for by name one must be there. NULL: there is only DP_CONV_AUTO.
     * Errors: DP_ERR_UNAVAILABLE. */
    dp_status (*find_conv)(enum dp_conv_engine wanted, const char **text);

    /* Waits until everything queued on the stream is done. On the CPU it is. */
    dp_status (*synchronize)(struct dp_stream *stream);

    /* Several of them in a machine, and memory that processes share. NULL: there is one. */
    const struct dp_units *units;
};

extern struct dp_plugin_family dp_devices;

/* What to tell people about computing in this type, with stream.tf32 or without: as arithmetic(),
 * else "bf16". */
const char *dp_device_arithmetic(const struct dp_device *device, enum dp_type type, bool tf32);

/* Chooses the compute type, which is float32 at creation: before anything is prepared. */
void dp_stream_set_type(struct dp_stream *stream, enum dp_type type);

/* Chooses type, tf32 and engine of convolutions as `other` has them: before anything is
 * prepared. */
void dp_stream_set_like(struct dp_stream *stream, const struct dp_stream *other);

/* The device with that name; "auto" takes the first available one of devices.def.
 * Errors: DP_ERR_CONFIG (unknown), DP_ERR_UNAVAILABLE. */
DP_CHECKED dp_status dp_device_find(const char *name, const struct dp_device **out);

/* The first device of devices.def, if "auto" passed it over to take another one, and why: words
 * that stay until the next call on this thread. NULL: it was taken. */
const struct dp_device *dp_device_passed_over(const struct dp_device *taken, const char **why_not);

/* Whether there is a device of that name that this program was built without. */
bool dp_device_left_out(const char *name);

/* As device->find_conv; text is NULL where there is nothing to tell. Errors: DP_ERR_UNAVAILABLE. */
DP_CHECKED dp_status dp_device_find_conv(const struct dp_device *device, enum dp_conv_engine wanted,
                                         const char **text);

/* Copies to and from the host that are done when they return; `stream` does them. */
DP_CHECKED dp_status dp_device_write(struct dp_stream *stream, void *device, const void *host,
                                     size_t bytes);
DP_CHECKED dp_status dp_device_read(struct dp_stream *stream, void *host, const void *device,
                                    size_t bytes);

#endif
