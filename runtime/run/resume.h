/*
 * resume.h - the checkpoint that a run goes on from.
 */
#ifndef DP_RUNTIME_RUN_RESUME_H
#define DP_RUNTIME_RUN_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/json.h"
#include "collectives/exchange/exchange.h"
#include "runtime/checkpoint/weights.h"

struct dp_resume {
    bool on;                          /* there is one */
    bool continues;                   /* it is of the run in --out, whose files go on */
    bool finished;                    /* nothing is left to do */
    bool ended;                       /* a report tells that its run ended with it */
    bool early_stopped;               /* its run had ended early with it */
    uint64_t step;                    /* done by then; 0 without one */
    uint64_t waited;                  /* evaluations without improvement by then */
    int ranks, nodes;                 /* that saved it */
    char strategy[DP_EXCHANGE_LABEL]; /* that `auto` takes over from it; empty: none */
    char path[DP_PATH_BYTES];         /* rank 0: its folder */
    struct dp_loose loose;            /* rank 0: what became of the arrays of compressors */
    bool moved;                       /* rank 0: what owners left out is of other places now */
    struct dp_json *state;            /* rank 0, owned: what state.json says */
};

#endif
