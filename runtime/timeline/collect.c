#include "runtime/timeline/collect.h"

#include <stdint.h>

#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"

struct collection {
    struct dp_group *group;
    const void *mine;
    size_t bytes;
    dp_collect_take *take;
    void *context;
    dp_status taken; /* of rank 0, which goes on asking */
};

static const struct dp_slice nothing = {NULL, 0, 1};

static dp_status send_to(struct dp_group *group, int rank, void *data, size_t bytes)
{
    return dp_group_exchange(group, rank, (struct dp_slice){data, bytes, 1}, -1, nothing);
}

static dp_status receive(struct dp_group *group, int rank, void *data, size_t bytes)
{
    return dp_group_exchange(group, -1, nothing, rank, (struct dp_slice){data, bytes, 1});
}

/* Rank 0: asks a rank for its bytes, unless there is no memory for them, or no need. */
static dp_status take_from(struct collection *c, int rank)
{
    uint64_t bytes = 0;
    uint8_t wanted;
    void *data = NULL;
    dp_status status;

    DP_TRY(receive(c->group, rank, &bytes, sizeof(bytes)));
    if (c->taken == DP_OK) {
        data = dp_zalloc((size_t)bytes, 1);
        c->taken = data == NULL ? DP_FAIL(DP_ERR_NOMEM, "%llu bytes of rank %d",
                                          (unsigned long long)bytes, rank)
                                : DP_OK;
    }
    wanted = data != NULL && bytes > 0;
    DP_TRY_GOTO(send_to(c->group, rank, &wanted, sizeof(wanted)), status, done);
    if (wanted) {
        DP_TRY_GOTO(receive(c->group, rank, data, (size_t)bytes), status, done);
    }
    if (data != NULL) {
        c->taken = c->take(c->context, rank, data, (size_t)bytes);
    }

done:
    dp_free(data);
    return status;
}

static dp_status give(struct collection *c)
{
    union {
        const void *borrowed;
        void *data; /* a slice is not const; it is only read */
    } mine = {.borrowed = c->mine};
    uint64_t bytes = c->bytes;
    uint8_t wanted = 0;

    DP_TRY(send_to(c->group, 0, &bytes, sizeof(bytes)));
    DP_TRY(receive(c->group, 0, &wanted, sizeof(wanted)));
    return wanted ? send_to(c->group, 0, mine.data, c->bytes) : DP_OK;
}

static dp_status collect_job(void *arg, int index)
{
    struct collection *c = arg;
    (void)index;

    if (c->group->rank != 0) {
        return give(c);
    }
    for (int rank = 1; rank < c->group->size; rank++) {
        DP_TRY(take_from(c, rank));
    }
    return DP_OK;
}

dp_status dp_collect(struct dp_exchange *exchange, const void *mine, size_t bytes,
                     dp_collect_take *take, void *context)
{
    struct collection c = {
        dp_exchange_group(exchange), mine, bytes, take, context, DP_OK,
    };

    if (c.group->rank == 0) {
        c.taken = take(context, 0, mine, bytes);
    }
    DP_TRY(dp_exchange_call(exchange, collect_job, &c, 0));
    return c.taken;
}
