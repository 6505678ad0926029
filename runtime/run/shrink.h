/*
 * shrink.h - going on in the same processes after the death of a rank, from memory, with
 * train.on_rank_failure shrink.
 *
 * A step changes a rank's state only after its last message (dp_config_shrinks). So whenever a rank
 * dies, every other one has the whole state of the beginning of the step that it is in. They may
 * be a step apart, where one had all sums already: the others take the state over from that one.
 * The state is put aside, the run is torn down, the world is made one of the ranks that live
 * (dp_world_shrink), and the run is set up again as one that is resumed.
 */
#ifndef DP_RUNTIME_RUN_SHRINK_H
#define DP_RUNTIME_RUN_SHRINK_H

#include "base/files/file.h"
#include "base/json.h"
#include "collectives/world/world.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/report/files/metrics.h"
#include "runtime/report/summary.h"
#include "runtime/run/run_options.h"

struct dp_run_job;
struct dp_training;

/* What outlives a run that has lost ranks. Zeroed at first. */
struct dp_kept_run {
    struct dp_run_options options;  /* of the run that goes on */
    char out[DP_PATH_BYTES];        /* its folder */
    struct dp_snapshot *snapshot;   /* owned; NULL: no run has begun its steps yet */
    char *state;                    /* owned; as state.json of a checkpoint */
    uint64_t step;                  /* of both */
    int lanes;                      /* train.lanes: of ranks as many go on as divide it */
    struct dp_metrics_step line;    /* of metrics.jsonl, about that step */
    struct dp_run_lost_rank *ranks; /* owned, [rank_count]: of the world that has lost some: rank
                                     * and host alone */
    int rank_count;
    struct dp_run_lost_rank lost[DP_WORLD_LOST_MOST]; /* in order; away_ms 0: not known yet */
    int lost_count, lost_before; /* all of them; without those of the last loss */
    uint64_t found_ns;           /* when this rank found out about that */
};

void dp_kept_run_release(struct dp_kept_run *kept);

/* Refuses train.on_rank_failure shrink where MPI cannot do it. All ranks decide alike. Errors:
 * DP_ERR_CONFIG. */
DP_CHECKED dp_status dp_shrink_check_world(const struct dp_run_job *job);

/* The same where ranks own parts of the state, which would be lost with them. Collective. */
DP_CHECKED dp_status dp_shrink_check_state(const struct dp_training *run);

/* Gives the faults of a run that has lost ranks the numbers that ranks have now. Local. */
void dp_shrink_renumber_faults(const struct dp_run_job *job);

/* After a failed run: whether a rank was lost and the others can go on. Then all messages have
 * ended, and kept has this rank's state: that of this run, or of the one before if this one had not
 * begun its steps. Local. */
bool dp_shrink_may(struct dp_training *run, dp_status failure, struct dp_kept_run *kept);

/* After the failed run was torn down: makes the world one of the ranks that live, and gives the
 * state of the one that is furthest to the first. Rank 0 reports it. Collective over them. Returns
 * whether this rank goes on: with lanes some may have to leave, too. Where another rank dies
 * meanwhile, the job ends as hung. */
bool dp_shrink_world(struct dp_world *world, struct dp_kept_run *kept);

/* lost_ranks of run.json. kept NULL: none. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_shrink_summarize(const struct dp_kept_run *kept,
                                         struct dp_run_summary *summary);

/* A step is done: how long that took after the last loss. Local. */
void dp_shrink_note_step(struct dp_kept_run *kept);

#endif
