/*
 * batch_sender.h - a rank that reads batches for those that train (batch_link.h).
 */
#ifndef DP_RUNTIME_TRAINER_INPUT_BATCH_SENDER_H
#define DP_RUNTIME_TRAINER_INPUT_BATCH_SENDER_H

#include "runtime/data/loader.h"
#include "runtime/trainer/input/batch_link.h"

struct dp_batch_sender;

/* `loader`: borrowed; its batches are this reader's share of each global batch. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_batch_sender_create(const struct dp_batch_link *link, int reader,
                                            struct dp_loader *loader, struct dp_batch_sender **out);
void dp_batch_sender_destroy(struct dp_batch_sender *sender);

/* Sends batches until no rank that trains takes more. While it waits it calls `look`, which must
 * not wait. Of rows that cannot be read, whoever gets the first is told. Errors: of messages, of
 * `look`. */
DP_CHECKED dp_status dp_batch_sender_run(struct dp_batch_sender *sender,
                                         dp_status (*look)(void *context), void *context);

#endif
