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

/* What a rank sends to the others at once: names, values and times, each ended by a NUL. */
struct block {
    dp_status status;
    int bytes;
    char text[BLOCK_BYTES];
};

/* Packs this rank's next choices, after *at, that are not agreed on yet; empty: there are none. */
static void fill_block(const struct dp_algo_choices *mine, const struct dp_algo_choices *agreed,
                       size_t *at, struct block *block)
{
    size_t used = 0, next = *at;
    struct dp_algo_choice choice;

    while (used + MOST <= BLOCK_BYTES && dp_algo_choices_next(mine, &next, &choice)) {
        if (!dp_algo_choices_has(agreed, choice.name)) {
            used += (size_t)snprintf(block->text + used, MOST, "%s%c%s%c%a", choice.name, '\0',
                                     choice.value, '\0', choice.ms) +
                    1;
        }
        *at = next;
    }
    block->bytes = (int)used;
}

static dp_status read_block(struct dp_algo_choices *agreed, const struct block *block)
{
    for (int at = 0; at < block->bytes;) {
        const char *name = block->text + at, *value = name + strlen(name) + 1;
        const char *time = value + strlen(value) + 1;
        const struct dp_algo_choice choice = {name, value, strtod(time, NULL)};
        DP_TRY(dp_algo_choices_add(agreed, &choice));
        at += (int)(time + strlen(time) + 1 - name);
    }
    return DP_OK;
}

/* Works in rounds: in each, every rank sends a block, until no rank has anything left to send. A
 * rank that fails reports it in the next round, after which all return. */
static dp_status gather(struct dp_exchange *e, const struct dp_algo_choices *mine,
                        struct dp_algo_choices *agreed, struct block *blocks)
{
    struct block *own = &blocks[dp_exchange_group(e)->size];
    dp_status status = DP_OK;
    size_t at = 0;

    for (bool more = true; more;) {
        fill_block(mine, agreed, &at, own);
        own->status = status;
        DP_TRY(dp_exchange_gather(e, own, sizeof(*own), blocks));
        more = false;
        for (int i = 0; i < dp_exchange_group(e)->size; i++) {
            DP_TRY(status == DP_OK ? blocks[i].status : status);
        }
        for (int i = 0; i < dp_exchange_group(e)->size; i++) {
            more = more || blocks[i].bytes > 0;
            status = status == DP_OK ? read_block(agreed, &blocks[i]) : status;
        }
    }
    return dp_exchange_agree(e, status);
}

dp_status dp_algo_agreement_reach(struct dp_exchange *e, dp_status status,
                                  struct dp_algo_choices *mine, bool *changed)
{
    const size_t count = (size_t)dp_exchange_group(e)->size + 1;
    struct block *blocks = dp_zalloc(count, sizeof(*blocks));
    struct dp_algo_choices *agreed = NULL;
    dp_status worst;

    if (status == DP_OK) {
        status = blocks != NULL ? dp_algo_choices_create("", &agreed)
                                : DP_FAIL(DP_ERR_NOMEM, "choices of %zu ranks", count - 1);
    }
    worst = dp_exchange_agree(e, status);
    status = status != DP_OK ? status : worst;
    if (status == DP_OK) {
        status = gather(e, mine, agreed, blocks);
    }
    if (status == DP_OK) {
        status = dp_exchange_agree(e, dp_algo_choices_adopt(mine, agreed, changed));
    }
    dp_algo_choices_freeze(mine);
    dp_algo_choices_destroy(agreed);
    dp_free(blocks);
    return status;
}
