/*
 * message_check.h - a checksum behind each message, which its receiver compares: for memory and
 * networks that change bits.
 *
 * The sender takes XXH3-64 of what it sends before it is under way, and sends it as a message of
 * its own, right after, which counts no bytes. For that the group gets another transport, over its
 * own. Messages of fewer than DP_MESSAGE_CHECKED bytes (barriers, flags) have none.
 * What ranks of a node read in each other's memory, and what MPI or NCCL sum, are no messages.
 */
#ifndef DP_COLLECTIVES_CORE_MESSAGE_CHECK_H
#define DP_COLLECTIVES_CORE_MESSAGE_CHECK_H

#include "collectives/core/group.h"

enum { DP_MESSAGE_CHECKED = 256 };

/* From now on messages of the group, and of groups that are made of it, are checked; until the
 * second call. No message may be in flight. Every rank calls them at the same place. Errors:
 * DP_ERR_NOMEM. A message that is not what was sent is DP_ERR_DAMAGED, reported by its receiver. */
DP_CHECKED dp_status dp_message_checks_begin(struct dp_group *group);
void dp_message_checks_end(struct dp_group *group);

/* A fault on purpose (base/fault.h): the next message of at least DP_MESSAGE_CHECKED bytes that
 * this rank receives gets another bit in its first number, before it is checked. While no job runs;
 * until dp_message_checks_end(). *done, which is borrowed, is true once it has. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_message_damage_next(struct dp_group *group, int bit, bool *done);

#endif
