/*
 * host_names.h - the names of the hosts of all ranks. There is one list a host, in memory that its
 * ranks share: of the first ranks of hosts each sends its own to the others.
 */
#ifndef DP_COLLECTIVES_WORLD_HOST_NAMES_H
#define DP_COLLECTIVES_WORLD_HOST_NAMES_H

#include "collectives/core/group.h"

enum { DP_HOST_NAME = 64 };

struct dp_host_names;

/* own: this host's, at most DP_HOST_NAME - 1 bytes of which count. The group is borrowed.
 * Collective; with one host no rank sends anything. Errors: DP_ERR_NOMEM, those of messages. */
DP_CHECKED dp_status dp_host_names_create(struct dp_group *group, const char *own,
                                          struct dp_host_names **out);

/* The name of a rank's host: borrowed. Local. */
const char *dp_host_names_of(const struct dp_host_names *names, int rank);

/* Collective, as dp_group_release(). NULL is ignored. */
void dp_host_names_destroy(struct dp_host_names *names);

#endif
