/*
 * hang_gather.h - gathers where the ranks of all hosts are, when a job hangs, over the connections
 * that watch hosts (host_link.h). So one table names the rank that all wait for, wherever it is,
 * while main threads are stuck and MPI with them.
 *
 * One rank of each host, the first that runs (dp_watchdog_reports()), gives its host's rows, and
 * sends on, both ways round, every row that it gets for the first time: one host that is stuck as a
 * whole does not cut off another. All ranks of a host have its connections (socket_share.h), so it
 * may be any of them; the first that uses them keeps them. A host that gets a row without having
 * found a hang itself gives its own rows, too. The first host of those that answer in time has the
 * table.
 */
#ifndef DP_COLLECTIVES_WORLD_HANG_GATHER_H
#define DP_COLLECTIVES_WORLD_HANG_GATHER_H

#include <stdatomic.h>

#include "collectives/core/group.h"
#include "collectives/world/hang_table.h"
#include "collectives/world/host_link.h"
#include "collectives/world/host_names.h"

struct dp_hang_gather;

/* What a host has reported: a death, by which the job ends, so that there is no hang; the hang. */
enum dp_hang_news { DP_HANG_DEATH = 1, DP_HANG_REPORT = 2 };

/* *out is NULL where this host has no connection. names: of all hosts. speaker: of this host, in
 * memory that its ranks share, zeroed; NULL: there is none, and only the first rank has the
 * connections. All are borrowed. Collective. Errors: DP_ERR_NOMEM, those of messages. */
DP_CHECKED dp_status dp_hang_gather_create(struct dp_group *group, struct dp_host_link *link,
                                           const struct dp_host_names *names, atomic_int *speaker,
                                           struct dp_hang_gather **out);

/* Takes and sends what can be now, without waiting, where `gives`: this rank is to give its host's
 * rows. To be called several times a second, by the thread that also calls dp_host_link_lost().
 * Returns whether another host has told of a hang. NULL: false. */
bool dp_hang_gather_look(struct dp_hang_gather *gather, bool gives);

/* Tells other hosts what this rank has reported, and whether another host has told that; NULL:
 * nothing, and false. */
void dp_hang_gather_tell(struct dp_hang_gather *gather, enum dp_hang_news news);
bool dp_hang_gather_knows(const struct dp_hang_gather *gather, enum dp_hang_news news);

/* Gives the rows of this host, once. */
void dp_hang_gather_put(struct dp_hang_gather *gather, const struct dp_hang_row *rows, int count);

/* Whether all rows are there; whether this rank is the one to report, as far as it knows. */
bool dp_hang_gather_complete(const struct dp_hang_gather *gather);
bool dp_hang_gather_reports(const struct dp_hang_gather *gather);

/* The rows of all ranks: [*count], borrowed; of ranks that have not answered without more than rank
 * and host. */
const struct dp_hang_row *dp_hang_gather_rows(struct dp_hang_gather *gather, int *count);

/* NULL is ignored. */
void dp_hang_gather_destroy(struct dp_hang_gather *gather);

#endif
