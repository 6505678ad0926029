#include "collectives/core/message_check.h"

#include <string.h>
#include <xxhash.h>

#include "collectives/core/transport.h"

/* The checksums of a transfer. */
struct slot {
    bool used;
    uint64_t sent, came;
    struct dp_transfer sums; /* in flight, after the messages themselves */
};

struct dp_message_checks {
    const struct dp_transport *under; /* borrowed; the group's own */
    struct dp_transport over;         /* the same but for messages */
    bool on;                          /* else messages may be damaged, and are not checked */
    int damage;                       /* a bit of the next message, + 1; 0: none */
    bool *damaged;                    /* borrowed: whether it was */
    struct slot *slots;               /* owned; [count] */
    size_t count, next;               /* where to look for a free one */
};

static dp_status checked_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                               struct dp_transfer *transfer);
static dp_status checked_finish(struct dp_group *group, struct dp_transfer *transfer);
static dp_status checked_test(struct dp_group *group, struct dp_transfer *transfer, bool *done);

/* Puts the other transport over the group's own, once. */
static dp_status cover(struct dp_group *group)
{
    struct dp_message_checks *checks;
    const size_t count = (size_t)group->size * DP_TRANSFERS_MAX;

    if (group->checks != NULL) {
        return DP_OK;
    }
    checks = dp_zalloc(1, sizeof(*checks));
    if (checks != NULL) {
        checks->slots = dp_zalloc(count, sizeof(*checks->slots));
        checks->count = count;
    }
    if (checks == NULL || checks->slots == NULL) {
        dp_free(checks);
        return DP_FAIL(DP_ERR_NOMEM, "checksums of messages");
    }
    checks->under = group->transport;
    checks->over = *group->transport;
    checks->over.start = checked_start;
    checks->over.finish = checked_finish;
    checks->over.test = checked_test;
    group->checks = checks;
    group->transport = &checks->over;
    return DP_OK;
}

dp_status dp_message_checks_begin(struct dp_group *group)
{
    DP_TRY(cover(group));
    group->checks->on = true;
    return DP_OK;
}

void dp_message_checks_end(struct dp_group *group)
{
    if (group->checks != NULL) {
        group->transport = group->checks->under;
        dp_free(group->checks->slots);
        dp_free(group->checks);
        group->checks = NULL;
    }
}

dp_status dp_message_damage_next(struct dp_group *group, int bit, bool *done)
{
    DP_TRY(cover(group));
    group->checks->damage = bit + 1;
    group->checks->damaged = done;
    return DP_OK;
}

/* If that was asked for: damages what a transfer has brought. */
static void damage(struct dp_message_checks *checks, const struct dp_transfer *transfer)
{
    uint32_t bits;

    if (checks->damage == 0 || transfer->from < 0 ||
        dp_slice_bytes(transfer->came) < DP_MESSAGE_CHECKED) {
        return;
    }
    memcpy(&bits, transfer->came.data, sizeof(bits));
    bits ^= (uint32_t)1 << (checks->damage - 1);
    memcpy(transfer->came.data, &bits, sizeof(bits));
    checks->damage = 0;
    *checks->damaged = true;
}

static struct slot *free_slot(struct dp_message_checks *checks)
{
    for (size_t i = 0; i < checks->count; i++) {
        struct slot *slot = &checks->slots[(checks->next + i) % checks->count];
        if (!slot->used) {
            checks->next = (checks->next + i + 1) % checks->count;
            slot->used = true;
            return slot;
        }
    }
    return NULL;
}

static struct slot *slot_of(const struct dp_group *group, const struct dp_transfer *transfer)
{
    return transfer->check == 0 ? NULL : &group->checks->slots[transfer->check - 1];
}

static bool is_checked(int peer, struct dp_slice slice)
{
    return peer >= 0 && dp_slice_bytes(slice) >= DP_MESSAGE_CHECKED;
}

static dp_status checked_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                               struct dp_transfer *transfer)
{
    const bool sends = is_checked(transfer->to, out), gets = is_checked(transfer->from, in);
    struct slot *slot;

    if (!group->checks->on || (!sends && !gets)) {
        return group->checks->under->start(group, out, in, transfer);
    }
    slot = free_slot(group->checks);
    if (slot == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "more than %zu checked messages in flight",
                       group->checks->count);
    }
    slot->sums =
        (struct dp_transfer){.to = sends ? transfer->to : -1, .from = gets ? transfer->from : -1};
    slot->sent = sends ? XXH3_64bits(out.data, dp_slice_bytes(out)) : 0;
    transfer->check = (int)(slot - group->checks->slots) + 1;
    DP_TRY(group->checks->under->start(group, out, in, transfer));
    return group->checks->under->start(group, (struct dp_slice){&slot->sent, sizeof(slot->sent), 1},
                                       (struct dp_slice){&slot->came, sizeof(slot->came), 1},
                                       &slot->sums);
}

/* Both have arrived. */
static dp_status compare(const struct dp_transfer *transfer, struct slot *slot, int from)
{
    const struct dp_slice in = transfer->came;
    const bool same =
        !is_checked(from, in) || XXH3_64bits(in.data, dp_slice_bytes(in)) == slot->came;

    slot->used = false;
    return same ? DP_OK
                : DP_FAIL(DP_ERR_DAMAGED,
                          "a message of %zu bytes from rank %d is not what was sent "
                          "(comm.checksum): test memory and network of both hosts, and start the "
                          "job again with --resume",
                          dp_slice_bytes(in), from);
}

static dp_status checked_finish(struct dp_group *group, struct dp_transfer *transfer)
{
    struct slot *slot = slot_of(group, transfer);
    const int from = transfer->from;

    DP_TRY(group->checks->under->finish(group, transfer));
    damage(group->checks, transfer);
    if (slot == NULL) {
        return DP_OK;
    }
    DP_TRY(group->checks->under->finish(group, &slot->sums));
    transfer->check = 0;
    return compare(transfer, slot, from);
}

static dp_status checked_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    struct slot *slot = slot_of(group, transfer);
    const int from = transfer->from;

    DP_TRY(group->checks->under->test(group, transfer, done));
    if (*done) {
        damage(group->checks, transfer);
    }
    if (slot == NULL || !*done) {
        return DP_OK;
    }
    DP_TRY(group->checks->under->test(group, &slot->sums, done));
    if (!*done) {
        return DP_OK;
    }
    transfer->check = 0;
    return compare(transfer, slot, from);
}
