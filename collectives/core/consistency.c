#include "collectives/core/consistency.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"

/* The part of an item that is sent: all fields of fixed size. */
struct record {
    char host[64];
    char value[DP_CONSISTENCY_TEXT];
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

/* Sets *first to the place (rank * count + item) of the first item that differs from rank 0's;
 * INT_MAX: none does. `hashes` is scratch for `count` numbers. */
static dp_status find_difference(struct dp_group *group, const struct dp_consistency_item *items,
                                 int count, uint64_t *hashes, int *first)
{
    *first = INT_MAX;
    for (int c = 0; c < count; c++) {
        hashes[c] = items[c].hash;
    }
    DP_TRY(dp_group_broadcast(group, hashes, (size_t)count * sizeof(*hashes), 0));
    for (int c = count - 1; c >= 0; c--) {
        *first = hashes[c] != items[c].hash ? group->rank * count + c : *first;
    }
    return dp_group_least(group, first);
}

static struct record describe(const struct dp_consistency_item *item)
{
    struct record record;

    memset(&record, 0, sizeof(record));
    (void)gethostname(record.host, sizeof(record.host) - 1);
    memcpy(record.value, item->value, sizeof(record.value));
    return record;
}

/* Rank 0 reports what another rank has sent it. */
static dp_status report(struct dp_group *group, const struct dp_consistency_item *item, int rank)
{
    const struct record mine = describe(item);
    struct record theirs = mine;

    DP_TRY(dp_group_broadcast(group, &theirs, sizeof(theirs), rank));
    const dp_status status =
        group->rank == 0 ? disagree(item, rank, &theirs, &mine) : DP_ERR_DISAGREE;
    DP_TRY(dp_group_barrier(group)); /* a rank may then end the others */
    return status;
}

dp_status dp_consistency_check(struct dp_group *group, const struct dp_consistency_item *items,
                               int count)
{
    uint64_t *hashes = dp_zalloc((size_t)count, sizeof(*hashes));
    int first = INT_MAX;
    dp_status status;

    if (hashes == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "%d items to compare", count);
    }
    status = find_difference(group, items, count, hashes, &first);
    dp_free(hashes);
    DP_TRY(status);
    return first == INT_MAX ? DP_OK : report(group, &items[first % count], first / count);
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
