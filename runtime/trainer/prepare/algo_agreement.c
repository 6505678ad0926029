#include "runtime/trainer/prepare/algo_agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"

enum {
    BLOCK_BYTES = 16 * 1024,
    MOST = DP_ALGO_CHOICE_NAME + DP_ALGO_CHOICE_VALUE + 32 /* bytes of one choice */
};

/* What one rank sends to all others at once: names, values and times, each ended by a NUL. */
struct block {
    int bytes;
    char text[BLOCK_BYTES];
};

/* What all ranks say before. */
struct offer {
    dp_status status;
    int bytes; /* of the block that it could send */
};

/* Packs choices of this rank that are not agreed on yet, or were chosen by faster ranks; empty:
 * there are none. */
static void fill_block(const struct dp_algo_choices *mine, const struct dp_algo_choices *agreed,
                       struct block *block)
{
    struct dp_algo_choice choice;
    size_t used = 0, at = 0;

    while (used + MOST <= BLOCK_BYTES && dp_algo_choices_next(mine, &at, &choice)) {
        if (dp_algo_choices_lacks(agreed, &choice)) {
            used += (size_t)snprintf(block->text + used, MOST, "%s%c%s%c%a", choice.name, '\0',
                                     choice.value, '\0', choice.ms) +
                    1;
        }
    }
    block->bytes = (int)used;
}

static dp_status read_block(struct dp_algo_choices *agreed, const struct block *block)
{
    for (int at = 0; at < block->bytes;) {
        const char *name = block->text + at, *value = name + strlen(name) + 1;
        const char *time = value + strlen(value) + 1;
        const struct dp_algo_choice choice = {name, value, strtod(time, NULL)};
        DP_TRY(dp_algo_choices_replace(agreed, &choice));
        at += (int)(time + strlen(time) + 1 - name);
    }
    return DP_OK;
}

/* The lowest rank that has something to send; -1: none. */
static int next_sender(const struct offer *offers, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        if (offers[i].bytes > 0) {
            return i;
        }
    }
    return -1;
}

/* Works in rounds: in each, the lowest rank that knows more than what is agreed on, or took longer
 * by another choice, sends that to all. Mostly rank 0 knows all, so that a start on many ranks
 * sends its table once to each. A rank that fails reports it in the next round, after which all
 * return. The rounds end, since a choice is replaced by slower ones only. */
static dp_status gather(struct dp_exchange *e, const struct dp_algo_choices *mine,
                        struct dp_algo_choices *agreed, struct offer *offers, struct block *block)
{
    const int ranks = dp_exchange_group(e)->size;
    dp_status status = DP_OK;
    int sender = 0;

    while (sender >= 0) {
        fill_block(mine, agreed, block);
        const struct offer own = {status, block->bytes};
        DP_TRY(dp_exchange_gather(e, &own, sizeof(own), offers));
        for (int i = 0; i < ranks; i++) {
            DP_TRY(status == DP_OK ? offers[i].status : status);
        }
        sender = next_sender(offers, ranks);
        if (sender >= 0) {
            block->bytes = offers[sender].bytes;
            DP_TRY(dp_exchange_broadcast(e, block->text, (size_t)block->bytes, sender));
            status = read_block(agreed, block);
        }
    }
    return DP_OK;
}

dp_status dp_algo_agreement_reach(struct dp_exchange *e, dp_status status,
                                  struct dp_algo_choices *mine, bool *changed)
{
    const size_t count = (size_t)dp_exchange_group(e)->size;
    struct offer *offers = dp_zalloc(count, sizeof(*offers));
    struct block *block = dp_zalloc(1, sizeof(*block));
    struct dp_algo_choices *agreed = NULL;
    dp_status worst;

    if (status == DP_OK) {
        status = offers != NULL && block != NULL
                     ? dp_algo_choices_create("", &agreed)
                     : DP_FAIL(DP_ERR_NOMEM, "choices of %zu ranks", count);
    }
    worst = dp_exchange_agree(e, status);
    status = status != DP_OK ? status : worst;
    if (status == DP_OK) {
        status = gather(e, mine, agreed, offers, block);
    }
    if (status == DP_OK) {
        status = dp_exchange_agree(e, dp_algo_choices_adopt(mine, agreed, changed));
    }
    dp_algo_choices_freeze(mine);
    dp_algo_choices_destroy(agreed);
    dp_free(block);
    dp_free(offers);
    return status;
}
