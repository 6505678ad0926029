/*
 * loader.h - the batches of one rank, prepared ahead by threads of its own.
 *
 * Step s of a run takes global batch s % steps_per_epoch of epoch s / steps_per_epoch, and of it
 * the rows that dp_row_range() gives this rank. Position i of epoch e is row
 * dp_permutation_at(permutation(seed, e), i) of the data set, with a window that of window.h, and
 * row i without shuffle. All of it is a function of the step, so a loader can start anywhere.
 *
 * Slots are filled in order. A free thread takes the next few rows of the batch that is being
 * filled, reads, decodes and changes them (stream/row_maker.h), and writes them where they belong:
 * so bits do not depend on the number of threads, and memory is that of the slots and of what each
 * thread works in. Threads sleep while all slots are full. Nothing is allocated after
 * dp_loader_create(), but for samples that are larger than all before (buffer.h). If batches are
 * copied to a device, the slots are pinned: copies then run at full speed, and while the device
 * computes.
 */
#ifndef DP_RUNTIME_DATA_LOADER_H
#define DP_RUNTIME_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "runtime/data/samples.h"
#include "runtime/data/stream/stage.h"

enum { DP_LOADER_DEPTH = 3 };

struct dp_loader_config {
    const uint8_t *images;      /* borrowed; [count, sample_bytes]; NULL: `samples` are read */
    const int32_t *labels;      /* borrowed; [count, label_words] */
    const uint32_t *prints;     /* borrowed; [count]: row_print.h; NULL: rows are not checked */
    struct dp_samples *samples; /* borrowed */
    bool skips;                 /* of `samples`: another one takes the place of a bad one */
    size_t count, sample_bytes;
    size_t label_words; /* of a label; 0: 1 */
    size_t
        batch_words; /* of a label in a batch; 0: as many; more: augment makes pairs of classes */
    size_t global_batch; /* rows over all ranks; 1 or more */
    int rank, ranks;
    uint64_t seed;
    bool shuffle;
    size_t window;                    /* rows that are shuffled together (window.h); 0: all */
    bool drop_last;                   /* leave out the rows that fill no batch */
    bool cached;                      /* batch 0 of epoch 0 in every step: measures without input */
    uint64_t first_step;              /* of the run: where a resumed run goes on */
    uint64_t total_steps;             /* the last batch is that of step total_steps - 1 */
    int depth;                        /* slots, the one in use included; 0: DP_LOADER_DEPTH */
    const struct dp_device *device;   /* batches are copied to it; NULL: they are read here */
    const struct dp_augment *augment; /* borrowed; NULL: samples stay as they are */
    int workers;                      /* threads; 0: as many as the steps' pace needs (pace.h),
                                       * beside a device from all downwards, else from 1 up */
    int workers_most;                 /* of those; 0: 1 */
};

/* This rank's rows of one global batch. */
struct dp_batch {
    uint64_t step, epoch;
    size_t global_rows;    /* of the whole global batch; fewer than configured in a short one */
    size_t first_row;      /* where this rank's rows begin inside the global batch */
    size_t rows;           /* this rank's; may be 0 */
    size_t skipped;        /* bad samples among them, in whose place others stand */
    const uint8_t *images; /* borrowed; [rows, sample_bytes] */
    const int32_t *labels; /* borrowed; [rows, batch_words] */
};

struct dp_loader;

/*
 * Starts preparing batches.
 *
 *   out  out  owned by the caller, who gives it to dp_loader_destroy(); set only on success
 *
 * Errors: DP_ERR_CONFIG (no batch: drop_last, and fewer rows than global_batch), DP_ERR_DATA (no
 * rows), DP_ERR_NOMEM (also: no thread).
 */
DP_CHECKED dp_status dp_loader_create(const struct dp_loader_config *config,
                                      struct dp_loader **out);

/*
 * The batch of the next step; waits until it is ready (charge it to DP_PHASE_INPUT). What the
 * batch points to stays valid until the next call, or dp_loader_destroy(). One thread calls this.
 *
 * Errors: DP_ERR_ARG (total_steps batches were taken); those of dp_sample_reader_read(), of the
 * first bad sample of the batch: then its rows may be of earlier batches.
 */
DP_CHECKED dp_status dp_loader_next(struct dp_loader *loader, struct dp_batch *out);

/* The batch that the next call of dp_loader_next() will return, if it is ready; does not wait. What
 * it points to stays valid until the call after that one. false: it is not ready, or none is left.
 * Called by the thread that calls dp_loader_next(). */
bool dp_loader_peek(struct dp_loader *loader, struct dp_batch *out);

/* What all threads have done so far, and how many of them work now. */
struct dp_loader_report {
    struct dp_stage_times stages;
    uint64_t wait_ns; /* that dp_loader_next() waited */
    int workers;
};

void dp_loader_report(struct dp_loader *loader, struct dp_loader_report *out);

/* Ends the threads, whatever they do, and releases the loader. No copy from its batches may be
 * queued any more. NULL is allowed. */
void dp_loader_destroy(struct dp_loader *loader);

#endif
