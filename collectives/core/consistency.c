#include "collectives/core/consistency.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"

/* The part of an item that is sent: all fields of fixed size. */
struct record {
    char host[64];
    char value[DP_CONSISTENCY_TEXT];
    uint64_t hash;
};

struct dp_consistency_item dp_consistency_text(const char *field, const char *text)
{
    struct dp_consistency_item item;

    memset(&item, 0, sizeof(item));
    item.field = field;
    item.hash = XXH3_64bits(text, strlen(text));
    (void)snprintf(item.value, sizeof(item.value), "%s", text);
    return item;
}

/* Advances both values to the first word in which they differ. */
static void skip_equal_words(const char **a, const char **b)
{
    size_t at = 0, word = 0;

    for (; (*a)[at] != '\0' && (*a)[at] == (*b)[at]; at++) {
        word = (*a)[at] == ' ' ? at + 1 : word;
    }
    *a += word;
    *b += word;
}

static dp_status disagree(const struct dp_consistency_item *item, int rank,
                          const struct record *theirs, const struct record *first)
{
    const char *a = theirs->value, *b = first->value;
    const char *then = item->remedy == NULL ? "" : "; ";
    const char *remedy = item->remedy == NULL ? "" : item->remedy;

    if (strcmp(a, b) == 0) {
        return DP_FAIL(DP_ERR_DISAGREE, "rank %d (%s) has another %s than rank 0 (%s)%s%s", rank,
                       theirs->host, item->field, first->host, then, remedy);
    }
    skip_equal_words(&a, &b);
    return DP_FAIL(DP_ERR_DISAGREE, "rank %d (%s) has %s '%s', rank 0 (%s) has '%s'%s%s", rank,
                   theirs->host, item->field, a, first->host, b, then, remedy);
}

static dp_status compare(const struct dp_group *group, const struct dp_consistency_item *items,
                         int count, const struct record *all)
{
    for (int i = 1; i < group->size; i++) {
        for (int c = 0; c < count; c++) {
            const struct record *theirs = &all[(size_t)i * (size_t)count + (size_t)c];
            if (theirs->hash != all[c].hash) {
                return group->rank == 0 ? disagree(&items[c], i, theirs, &all[c]) : DP_ERR_DISAGREE;
            }
        }
    }
    return DP_OK;
}

dp_status dp_consistency_check(struct dp_group *group, const struct dp_consistency_item *items,
                               int count)
{
    const size_t bytes = (size_t)count * sizeof(struct record);
    struct record *all = dp_zalloc((size_t)group->size + 1, bytes);
    struct record *mine = all == NULL ? NULL : all + (size_t)group->size * (size_t)count;
    dp_status status;

    if (all == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "items of %d ranks", group->size);
    }
    for (int c = 0; c < count; c++) {
        (void)gethostname(mine[c].host, sizeof(mine[c].host) - 1);
        memcpy(mine[c].value, items[c].value, sizeof(mine[c].value));
        mine[c].hash = items[c].hash;
    }
    status = dp_group_allgather(group, mine, bytes, all);
    if (status == DP_OK) {
        status = compare(group, items, count, all);
        /* Rank 0 has reported after this barrier: a rank may then end the others. */
        const dp_status reported = status == DP_OK ? DP_OK : dp_group_barrier(group);
        status = reported == DP_OK ? status : reported;
    }
    dp_free(all);
    return status;
}

/* The first rank that failed, and its status; -1: none has. */
static dp_status find_first(struct dp_group *group, dp_status mine, int *first, int *status)
{
    if (dp_group_agree(group, mine) == DP_OK) {
        return DP_OK;
    }
    for (int rank = 0; rank < group->size && *first < 0; rank++) {
        *status = (int)mine;
        DP_TRY(dp_group_broadcast(group, status, sizeof(*status), rank));
        *first = *status != DP_OK ? rank : -1;
    }
    return DP_OK;
}

dp_status dp_consistency_agree(struct dp_group *group, dp_status mine,
                               struct dp_log_capture *capture)
{
    int first = -1, theirs = DP_OK;
    const dp_status status = find_first(group, mine, &first, &theirs);
    const bool prints = status != DP_OK || first == group->rank;

    dp_log_capture_end(capture, prints ? DP_LOG_PRINT : DP_LOG_DROP);
    DP_TRY(status);
    /* It is reported after this: a rank may then end the others. */
    DP_TRY(first >= 0 ? dp_group_barrier(group) : DP_OK);
    return (dp_status)theirs;
}
