/*
 * batch_receiver.h - the batches of a rank that trains, from ranks that read (batch_link.h). What a
 * loader is for a rank that reads them itself.
 */
#ifndef DP_RUNTIME_TRAINER_INPUT_BATCH_RECEIVER_H
#define DP_RUNTIME_TRAINER_INPUT_BATCH_RECEIVER_H

#include "runtime/data/loader.h"
#include "runtime/trainer/input/batch_link.h"

struct dp_batch_receiver;

/* Asks for the first batches, which begin with that of step `first_step`. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_batch_receiver_create(const struct dp_batch_link *link, int trainer,
                                              uint64_t first_step, struct dp_batch_receiver **out);

/*
 * As dp_loader_next() and dp_loader_peek().
 *
 *   error  out  what a reader that could not read its rows has to say; else its text is empty
 *
 * Errors: those of dp_loader_next() on a reader, which are not reported; those of messages;
 * DP_ERR_ARG (no batch is left).
 */
DP_CHECKED dp_status dp_batch_receiver_next(struct dp_batch_receiver *receiver,
                                            struct dp_batch *out, struct dp_log_error *error);
bool dp_batch_receiver_peek(struct dp_batch_receiver *receiver, struct dp_batch *out);

/* How long dp_batch_receiver_next() waited so far, and for how many batches. */
void dp_batch_receiver_waits(const struct dp_batch_receiver *receiver, uint64_t *ns,
                             uint64_t *batches);

/* Takes what is under way, and tells the readers that it takes no more; once, and also before the
 * last batch. Errors: those of messages. */
DP_CHECKED dp_status dp_batch_receiver_end(struct dp_batch_receiver *receiver);

/* NULL is allowed. Only after an error of the job is it not ended before. */
void dp_batch_receiver_destroy(struct dp_batch_receiver *receiver);

#endif
