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
#include <stdint.h>

#include "base/mem.h"
#include "base/plugin.h"
#include "base/status.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "kernels/units.h"

/* The library that computes convolutions, where a device has several. */
enum dp_conv_engine { DP_CONV_AUTO, DP_CONV_CUBLAS, DP_CONV_CUDNN };

struct dp_algo_choices;

/* A queue of operations, its threads and its workspace. One thread uses a stream at a time; parts
 * that run in parallel have a stream each. */
struct dp_stream {
    const struct dp_device *device;
    const struct dp_ops *ops;
    int threads; /* that one operation may use; 1 or more */
    /* Owned; where the device has `parallel` and threads > 1: [threads + 1] streams of one thread
     * each, for operations that these threads call side by side, and NULL. */
    struct dp_stream **singles;
    enum dp_type type; /* the compute type: dp_stream_set_type() */
    enum dp_conv_engine conv;
    bool tf32; /* with type float32: products may round their factors to tf32 */
    struct dp_algo_choices
        *algo_choices; /* borrowed; choices among several algorithms, read and extended while
                        * operations are prepared; NULL: the library's first proposal, without
                        * measuring */
    char *path;        /* borrowed; NULL: nobody asks what computes operations (op_path.h) */
    double *spared;    /* borrowed; NULL: nobody asks what they did without */
    bool records;      /* what is queued: from record_begin() to record_end() */
    uint16_t trace_lane, trace_index; /* of its spans: stream_trace.h */
    void *state;                      /* the device's own */
};

/* Between the host and a device with separate memory. */
enum dp_copy_direction { DP_COPY_TO_DEVICE, DP_COPY_FROM_DEVICE, DP_COPY_DIRECTIONS };

/* A point in a stream; the device's own. */
struct dp_event;

/* Operations that were recorded once and can be queued again together; the device's own. */
struct dp_recording;

/* The memory of a device with separate memory, in bytes. */
struct dp_device_room {
    char name[DP_UNIT_LABEL]; /* "cuda:0 (NVIDIA H200)" */
    size_t total, left;       /* of the device; other processes may use it, too */
    size_t workspace;         /* that a stream's operations may use besides alloc() */
    size_t peak; /* the most that this process ever had from alloc(), trials left out */
    size_t used[DP_MEM_PURPOSE_COUNT];
};

struct dp_device {
    struct dp_plugin plugin; /* name, help */
    bool host_memory;        /* the host can read and write memory from alloc() */
    bool has_tf32;           /* stream.tf32 makes a difference */
    size_t tile_bytes;       /* of cache for a thread that computes alone, if computing several
                              * layers on a few rows before the next rows is faster; 0: it is not */

    /* Whether this machine has one, or why not. */
    bool (*available)(const char **why_not);

    /* Runs body(arg, i, count) for each i below count on threads of their own, those of a stream
     * with so many, and returns when all are done. NULL: there are none. */
    void (*parallel)(int count, void (*body)(void *arg, int i, int count), void *arg);

    /* On error nothing is left allocated. */
    dp_status (*stream_create)(const struct dp_device *device, int threads, struct dp_stream **out);
    void (*stream_destroy)(struct dp_stream *stream); /* NULL is allowed */

    /* Zeroed memory, aligned to at least DP_MEM_ALIGN; NULL when there is none left. */
    void *(*alloc)(enum dp_purpose purpose, size_t bytes);
    void (*release)(void *memory);

    /* Reports the device's memory. NULL: it is the host's. */
    void (*room)(struct dp_device_room *room);

    /* Memory of the host that copies reach fastest. Operations can use it, but slowly. */
    void *(*alloc_host)(enum dp_purpose purpose, size_t bytes);
    void (*release_host)(void *memory);

    /* Makes copies to and from this host memory as fast, where possible. unpin may be called
     * whether it was pinned or not. */
    void (*pin)(void *memory, size_t bytes);
    void (*unpin)(void *memory);

    /* Queues a copy to or from host memory, which must not change until that is done. */
    dp_status (*upload)(struct dp_stream *stream, void *device, const void *host, size_t bytes);
    dp_status (*download)(struct dp_stream *stream, void *host, const void *device, size_t bytes);

    /* Bytes that these two have queued in this process so far, also by replays. NULL: the host
     * uses the device's memory. */
    void (*copied)(uint64_t bytes[DP_COPY_DIRECTIONS]);

    /* All that is queued on `later` from now on waits for all that is queued on `earlier` so far,
     * which another thread may be using. */
    dp_status (*order)(struct dp_stream *later, struct dp_stream *earlier);

    /* An event happens when all work queued on the stream before it is done; querying does not
     * wait. One that was never recorded has happened. event_destroy: NULL is allowed. */
    dp_status (*event_create)(struct dp_event **out);
    void (*event_destroy)(struct dp_event *event);
    dp_status (*event_record)(struct dp_event *event, struct dp_stream *stream);
    dp_status (*event_query)(const struct dp_event *event, bool *done);

    /* All that is queued on the stream from now on waits for the event, as it was recorded last. */
    dp_status (*event_wait)(struct dp_stream *stream, const struct dp_event *event);

    /* An event that also keeps the time at which it happens, and the milliseconds from one such
     * event to another, which may be of another stream; both have happened. NULL: what is queued is
     * done when the call returns. */
    dp_status (*timed_event_create)(struct dp_event **out);
    dp_status (*event_ms)(const struct dp_event *from, const struct dp_event *to, double *ms);

    /*
     * Operations between begin and end are recorded instead of run; replay queues them all. They
     * are the same calls with the same arguments: values that change from replay to replay are in
     * device memory. In between, no call may wait for the stream, order it with another one, or
     * allocate memory; and the same thread calls begin and end. record_end: overwrites the
     * recording. Where recording is impossible (DP_ERR_UNAVAILABLE), *why_not is the device's
     * reason, and nothing is logged. All NULL: the device cannot record. recording_destroy: NULL is
     * allowed.
     */
    dp_status (*recording_create)(struct dp_recording **out);
    void (*recording_destroy)(struct dp_recording *recording);
    dp_status (*record_begin)(struct dp_stream *stream);
    dp_status (*record_end)(struct dp_stream *stream, struct dp_recording *recording,
                            const char **why_not);
    dp_status (*replay)(const struct dp_recording *recording, struct dp_stream *stream);

    /* Describes everything that choices by measuring (algo_choices.h), and so bits, depend on:
     * "NVIDIA H200 (9.0), driver 13000, ...". NULL: nothing is chosen. */
    void (*machine)(char *text, size_t size);

    /* Discards what was prepared on a stream, so that it is prepared anew. NULL: not needed. */
    dp_status (*forget)(struct dp_stream *stream);

    /* Sets the operations for stream->type. NULL: they are the same for all types. */
    void (*set_type)(struct dp_stream *stream);

    /* Reserves memory for operations that compute in float32 and store narrow types: `count`
     * elements of all arrays of one call together. For streams that are not float32, before the
     * first call. NULL: not needed. Errors: DP_ERR_NOMEM. */
    dp_status (*reserve)(struct dp_stream *stream, size_t count);

    /* How operations of a type compute here, for people: "bf16 storage, float32 arithmetic". NULL:
     * in that type. */
    const char *(*arithmetic)(enum dp_type type);

    /* Finds the library that computes convolutions. *text: its version, or why another one is not
     * used, for people: "cudnn 9.19.0". One that is named must be available. NULL: there is only
     * DP_CONV_AUTO. Errors: DP_ERR_UNAVAILABLE. */
    dp_status (*find_conv)(enum dp_conv_engine wanted, const char **text);

    /* Waits until everything queued on the stream is done. On the CPU it already is. */
    dp_status (*synchronize)(struct dp_stream *stream);

    /* What the library below calls this stream, for kernels of one's own: the cudaStream_t of
     * device cuda, with its GPU made the thread's current one. NULL: there is no such thing. */
    void *(*native)(struct dp_stream *stream);

    /* For several devices in a machine, and memory that processes share. NULL: there is one. */
    const struct dp_units *units;
};

extern struct dp_plugin_family dp_devices;

/* Describes computing in this type, with or without stream.tf32, for people: as arithmetic(), else
 * "bf16". */
const char *dp_device_arithmetic(const struct dp_device *device, enum dp_type type, bool tf32);

/* Sets the compute type, also of `singles`; it is float32 at creation. Call it before anything is
 * prepared. */
void dp_stream_set_type(struct dp_stream *stream, enum dp_type type);

/* Sets type, tf32 and convolution library as in `other`. Call it before anything is prepared. */
void dp_stream_set_like(struct dp_stream *stream, const struct dp_stream *other);

/* Finds the device with that name; "auto" means the first available one of devices.def. Errors:
 * DP_ERR_CONFIG (unknown), DP_ERR_UNAVAILABLE. */
DP_CHECKED dp_status dp_device_find(const char *name, const struct dp_device **out);

/* The first device of devices.def, if "auto" skipped it and chose another one; *why_not is valid
 * until the next call on this thread. NULL: it was chosen. */
const struct dp_device *dp_device_passed_over(const struct dp_device *taken, const char **why_not);

/* Whether a device of that name exists but is not in this build. */
bool dp_device_left_out(const char *name);

/* As device->find_conv; *text is NULL if there is nothing to report. Errors: DP_ERR_UNAVAILABLE. */
DP_CHECKED dp_status dp_device_find_conv(const struct dp_device *device, enum dp_conv_engine wanted,
                                         const char **text);

/* Copies to and from the host on `stream`; done when they return. */
DP_CHECKED dp_status dp_device_write(struct dp_stream *stream, void *device, const void *host,
                                     size_t bytes);
DP_CHECKED dp_status dp_device_read(struct dp_stream *stream, void *host, const void *device,
                                    size_t bytes);

#endif
