/*
 * batch_link.h - batches that other ranks read (data.input_ranks): who sends which rows to whom.
 *
 *      reader 0   rows [0, B/2)    |--> trainer 0  rows [0, B/3)
 *                                  |--> trainer 1  rows [B/3, 2B/3)
 *      reader 1   rows [B/2, B)    |--> trainer 1
 *                                  |--> trainer 2  rows [2B/3, B)
 *
 * Of each global batch a reader has the rows that dp_row_range() gives it among readers, as if it
 * trained; each rank that trains gets its own rows, from one reader or several, straight into its
 * batch. So bits depend neither on the number of readers nor on that of ranks.
 *
 * A rank that trains allows each reader so many batches ahead (DP_BATCH_LINK_DEPTH, the one in use
 * included), and one more whenever it is done with one: memory is bounded on both sides.
 */
#ifndef DP_RUNTIME_TRAINER_INPUT_BATCH_LINK_H
#define DP_RUNTIME_TRAINER_INPUT_BATCH_LINK_H

#include <stdbool.h>

#include "base/log.h"
#include "collectives/async/p2p.h"
#include "runtime/data/rows.h"

enum { DP_BATCH_LINK_DEPTH = 4 };

struct dp_batch_link {
    struct dp_p2p *p2p;               /* borrowed */
    int trainers, readers;            /* trainers are ranks [0, trainers) */
    int first_reader;                 /* rank of the first one */
    size_t sample_bytes, label_words; /* of a row */
    size_t count, global_batch;       /* rows to train on; of a batch */
    bool drop_last, cached;           /* as of struct dp_loader_config */
    /* In all. A batch that is taken again and again counts each time for whom it is sent to, and
     * once for who sends it. */
    uint64_t batches;
};

static inline uint64_t dp_batch_link_per_epoch(const struct dp_batch_link *link)
{
    return dp_steps_per_epoch(link->count, link->global_batch, link->drop_last);
}

/* Rows of the global batch of a step; at most. */
static inline size_t dp_batch_link_global_rows(const struct dp_batch_link *link, uint64_t step)
{
    return dp_global_rows(link->count, link->global_batch,
                          link->cached ? 0 : step % dp_batch_link_per_epoch(link));
}

static inline size_t dp_batch_link_most(const struct dp_batch_link *link)
{
    return link->count < link->global_batch ? link->count : link->global_batch;
}

/* Goes with the rows of a batch; to the first rank that gets some of the reader's, all that it has
 * to say of them: the others get zeros. */
struct dp_batch_note {
    uint64_t skipped;          /* bad samples */
    dp_status failure;         /* not DP_OK: some could not be read, */
    struct dp_log_error error; /* and what there is to say about it */
};

/* What a rank that trains sends: it takes batches below `allowed`; `ends`: no more of them. */
struct dp_batch_credit {
    uint64_t allowed;
    uint64_t ends;
};

/* The rows of a batch of `rows` that this reader sends to this trainer. */
static inline struct dp_range dp_batch_link_rows(const struct dp_batch_link *link, int reader,
                                                 int trainer, size_t rows)
{
    const struct dp_range from = dp_row_range(rows, reader, link->readers);
    const struct dp_range to = dp_row_range(rows, trainer, link->trainers);
    const size_t end = from.begin + from.count < to.begin + to.count ? from.begin + from.count
                                                                     : to.begin + to.count;
    const size_t begin = from.begin > to.begin ? from.begin : to.begin;

    return (struct dp_range){begin, end > begin ? end - begin : 0};
}

#endif
