/*
 * loss_scaler.h - dynamic loss scaling. A half cannot hold values below 6e-8. So the loss, and with
 * it all gradients, is multiplied by a power of two, which is divided out again in float32.
 *
 * A step whose gradient is not finite is skipped, on all ranks, and halves the scale; after 2000
 * good steps in a row it is doubled. Source: Micikevicius et al., "Mixed precision training", ICLR
 * 2018, section 3.2; the numbers are those of torch.cuda.amp.GradScaler.
 */
#ifndef DP_RUNTIME_OPTIM_LOSS_SCALER_H
#define DP_RUNTIME_OPTIM_LOSS_SCALER_H

#include <stdbool.h>
#include <stdint.h>

struct dp_loss_scaler {
    bool on;             /* fp16; otherwise the scale stays 1 */
    double scale;        /* of the next step; a power of two */
    uint64_t good;       /* good steps since it changed */
    uint64_t skipped;    /* skipped steps so far */
    uint64_t grow_after; /* good steps */
    bool exhausted;      /* a step overflowed at scale 1: the run cannot continue */
    char where[96];      /* the last tensor that overflowed */
};

void dp_loss_scaler_init(struct dp_loss_scaler *scaler, bool on);

/* Whether an overflow now would be reported, or end the run: only then is it worth finding the
 * tensor. */
bool dp_loss_scaler_tells(const struct dp_loss_scaler *scaler);

/* Step number `step` is done: it was good, or overflowed, first in `where`. `speaks`: this rank
 * reports, now and then, what overflowed. */
void dp_loss_scaler_step(struct dp_loss_scaler *scaler, bool overflowed, const char *where,
                         uint64_t step, bool speaks);

#endif
