/*
 * event_file.h - the course of a run for TensorBoard: events.out.tfevents.TIME.lockstep.
 *
 * Made of metrics.jsonl, whose lines it follows: a run that goes on writes the same file anew,
 * since steps that are trained again must not be there twice. TIME is that of the first line.
 *
 * Source: TensorFlow's record_writer.h (a record is its length, a CRC of that, its bytes, a CRC of
 * these), event.proto and summary.proto. By hand, since protobuf and a library for CRC-32C would be
 * two more packages and a code generator for six fields.
 */
#ifndef DP_RUNTIME_REPORT_FILES_EVENT_FILE_H
#define DP_RUNTIME_REPORT_FILES_EVENT_FILE_H

#include "base/status.h"

struct dp_event_file;

/* folder: of the run; copied. Nothing is read or written yet. Errors: DP_ERR_NOMEM, DP_ERR_ARG (the
 * path is too long). */
DP_CHECKED dp_status dp_event_file_create(const char *folder, struct dp_event_file **out);

/* Adds what is new in metrics.jsonl. After a failure, as on a full disk, the next call writes the
 * file anew. Errors: DP_ERR_WRITE; those of dp_metrics_read(). */
DP_CHECKED dp_status dp_event_file_update(struct dp_event_file *file);

/* NULL is allowed. */
void dp_event_file_destroy(struct dp_event_file *file);

#endif
