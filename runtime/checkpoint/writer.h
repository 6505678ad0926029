/*
 * writer.h - a thread that writes one thing at a time, while others go on.
 *
 * It runs when nothing else wants its core (SCHED_IDLE): where training fills all cores, while that
 * waits for other ranks. A starved write ends late, but it ends: Linux gives an idle thread a few
 * thousandths of a core that is always wanted, and who waits for the write leaves a core to it.
 */
#ifndef DP_RUNTIME_CHECKPOINT_WRITER_H
#define DP_RUNTIME_CHECKPOINT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct dp_writer;

/* Starts the thread, which sleeps until there is something to do. Each dp_writer_start() has it
 * call write(context). Errors: DP_ERR_NOMEM (also: no thread). */
DP_CHECKED dp_status dp_writer_create(dp_status (*write)(void *context), void *context,
                                      struct dp_writer **out);

/* Begins to write; nothing may be being written: dp_writer_wait() first. What it reads must stay as
 * it is until then. One thread calls this and the next. */
void dp_writer_start(struct dp_writer *writer);

/* Whether something is being written. */
bool dp_writer_busy(struct dp_writer *writer);

/* Waits until nothing is being written. The status of what was written last; DP_OK before that. */
DP_CHECKED dp_status dp_writer_wait(struct dp_writer *writer);

/* How long the last write took, and what it had of a core; after dp_writer_wait(). */
uint64_t dp_writer_ns(const struct dp_writer *writer);
uint64_t dp_writer_core_ns(const struct dp_writer *writer);

/* Waits for what is being written, and ends the thread. NULL is allowed. */
void dp_writer_destroy(struct dp_writer *writer);

#endif
