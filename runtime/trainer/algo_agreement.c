#include "runtime/trainer/algo_agreement.h"

#include <string.h>

#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"

enum { BLOCK_BYTES = 16 * 1024 };

/* What a rank sends the others at a time: names and values, each with a NUL after it. */
struct block {
    dp_status status;
    int bytes;
    char text[BLOCK_BYTES];
};

/* The next choices of this rank, after *at, that are not agreed on yet; empty: there are none. */
static void fill_block(const struct dp_algo_choices *mine, const struct dp_algo_choices *agreed,
                       size_t *at, struct block *block)
{
    size_t used = 0, next = *at;
    const char *name, *value;

    while (used + DP_ALGO_CHOICE_NAME + DP_ALGO_CHOICE_VALUE <= BLOCK_BYTES &&
           dp_algo_choices_next(mine, &next, &name, &value)) {
        const size_t lengths[] = {strlen(name) + 1, strlen(value) + 1};
        if (!dp_algo_choices_has(agreed, name)) {
            memcpy(block->text + used, name, lengths[0]);
            memcpy(block->text + used + lengths[0], value, lengths[1]);
            used += lengths[0] + lengths[1];
        }
        *at = next;
    }
    block->bytes = (int)used;
}

static dp_status read_block(struct dp_algo_choices *agreed, const struct block *block)
{
    for (int at = 0; at < block->bytes;) {
        const char *name = block->text + at, *value = name + strlen(name) + 1;
        DP_TRY(dp_algo_choices_add(agreed, name, value));
        at += (int)(strlen(name) + strlen(value) + 2);
    }
    return DP_OK;
}

/* Rounds, in each of which every rank has a block, until none has anything left to send. A rank
 * that fails reports it in the next one, with which all end. */
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
    dp_algo_choices_settle(mine);
    dp_algo_choices_destroy(agreed);
    dp_free(blocks);
    return status;
}
