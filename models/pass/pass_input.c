/*
 * pass_input.c - copies the bytes of samples to the device, and converts them to the input.
 *
 *   host     [ rows k+1 ]
 *                 | copy stream, while the pass computes rows k
 *   device   [ bytes ] -> [ input ]       the pass's stream: its first operation for these rows
 *
   * Double buffering: `bytes` and the converted input are the two buffers. After the conversion,
   * which is the first operation of a pass, `bytes` is free for the next rows; a second array of
   * bytes would only use memory.
 *
 * Recorded operations read the input and the labels at fixed addresses. The conversion is not
 * recorded, since it waits for an event of the copy stream and records one: a recording can do
 * neither. That costs one launch, and no copy inside the device.
 */
#include "kernels/stream_trace.h"
#include "models/pass/pass_own.h"

void *dp_pass_input(const struct dp_pass *p)
{
    return p->storage[p->model->values[0].storage];
}

static size_t label_bytes(const struct dp_pass *p, const struct dp_pass_rows *rows)
{
    const size_t words =
        rows->evaluated ? dp_model_label_words(p->model) : dp_model_train_words(p->model);

    return rows->count * words * sizeof(int32_t);
}

dp_status dp_pass_prepare_ahead(struct dp_pass *p)
{
    const struct dp_device *device = p->stream->device;
    const struct dp_pass_rows most = {.count = p->rows};
    struct dp_pass_sender *sender = &p->sender;

    if (device->host_memory) {
        return DP_OK;
    }
    sender->labels = device->alloc(DP_MEM_ACTIVATIONS, label_bytes(p, &most));
    if (sender->labels == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "labels of %zu rows", p->rows);
    }
    DP_TRY(device->event_create(&sender->there));
    DP_TRY(device->event_create(&sender->taken));
    DP_TRY(device->stream_create(device, 1, &sender->stream));
    dp_stream_set_lane(sender->stream, DP_LANE_GPU_COPY, 0);
    return DP_OK;
}

void dp_pass_close_ahead(struct dp_pass *p)
{
    const struct dp_device *device = p->stream->device;
    struct dp_pass_sender *sender = &p->sender;

    device->stream_destroy(sender->stream);
    device->event_destroy(sender->taken);
    device->event_destroy(sender->there);
    device->release(sender->labels);
    *sender = (struct dp_pass_sender){.stream = NULL};
}

/* Where labels are copied to: not over those that the current pass still reads. */
static int32_t *labels_to_fill(const struct dp_pass *p)
{
    return p->sender.labels != NULL ? p->sender.labels : p->labels;
}

static dp_status upload(const struct dp_pass *p, struct dp_stream *stream,
                        const struct dp_pass_rows *rows)
{
    DP_STREAM_SPAN(stream, DP_WORK_BATCH, (int64_t)rows->count);
    const struct dp_device *device = stream->device;

    DP_TRY(device->upload(stream, p->bytes, rows->images,
                          rows->count * dp_model_sample_bytes(p->model)));
    return device->upload(stream, labels_to_fill(p), rows->labels, label_bytes(p, rows));
}

dp_status dp_pass_send(struct dp_pass *p, const struct dp_pass_rows *rows)
{
    struct dp_pass_sender *sender = &p->sender;

    if (sender->stream == NULL) {
        return DP_OK;
    }
    DP_TRY(p->stream->device->event_wait(sender->stream, sender->taken));
    sender->sent = *rows;
    DP_TRY(upload(p, sender->stream, rows));
    return p->stream->device->event_record(sender->there, sender->stream);
}

/* Operations queued after this find the bytes of these rows in device memory. */
static dp_status bring(struct dp_pass *p, const struct dp_pass_rows *rows)
{
    struct dp_pass_sender *sender = &p->sender;
    const struct dp_pass_rows sent = sender->sent;

    if (sender->stream != NULL) { /* also before other rows overwrite those that were sent */
        sender->sent = (struct dp_pass_rows){.images = NULL};
        DP_TRY(p->stream->device->event_wait(p->stream, sender->there));
    }
    return sent.images != NULL && sent.images == rows->images && sent.count == rows->count
               ? DP_OK
               : upload(p, p->stream, rows);
}

/* Moves the labels to their fixed address. After that the bytes may be overwritten. */
static dp_status take(struct dp_pass *p, const struct dp_pass_rows *rows)
{
    const struct dp_pass_sender *sender = &p->sender;

    if (sender->stream == NULL) {
        return DP_OK;
    }
    DP_TRY(p->stream->ops->copy(p->stream, p->labels, sender->labels, label_bytes(p, rows)));
    return p->stream->device->event_record(sender->taken, p->stream);
}

dp_status dp_pass_load(struct dp_pass *p, const struct dp_pass_rows *rows, const float *scale,
                       const float *shift, size_t channels)
{
    const bool there = p->bytes == NULL; /* operations read the host's memory */
    const void *samples = there ? (const void *)rows->images : p->bytes;
    const size_t count = rows->count * p->model->values[0].count;
    const struct dp_ops *ops = p->stream->ops;
    void *input = dp_pass_input(p);

    DP_TRY(there ? DP_OK : bring(p, rows));
    DP_TRY(p->model->float_samples
               ? ops->floats_load(p->stream, input, samples, scale, shift, channels, count)
               : ops->bytes_load(p->stream, input, samples, scale, shift, channels, count));
    return there ? DP_OK : take(p, rows);
}

dp_status dp_pass_drop_rows(struct dp_pass *p)
{
    p->sender.sent = (struct dp_pass_rows){.images = NULL};
    if (p->sender.stream != NULL) {
        DP_TRY(p->stream->device->synchronize(p->sender.stream));
    }
    return p->stream->device->synchronize(p->stream);
}
