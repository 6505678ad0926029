#include "collectives/async/ps_messages.h"

#include <string.h>

#include "collectives/core/backoff.h"

static int trainers_of(const struct dp_ps_messages *m)
{
    return m->group->size - m->servers;
}

static bool serves(const struct dp_ps_messages *m)
{
    return m->group->rank >= trainers_of(m);
}

/* The server whose chunks are in box `i`. */
static int server_of(const struct dp_ps_messages *m, int i)
{
    return serves(m) ? m->group->rank - trainers_of(m) : i;
}

static int rank_of(const struct dp_ps_messages *m, int i)
{
    return serves(m) ? i : trainers_of(m) + i;
}

/* Number of elements in the part of box `i`. */
static size_t part_count(const struct dp_ps_messages *m, int i)
{
    size_t count = 0;

    for (int b = 0; b < m->plan->count; b++) {
        /* Width 0: only the count is used. */
        const struct dp_slice bucket = {m->boxes, m->plan->buckets[b].range.count, 0};
        count += m->plan->buckets[b].exact
                     ? 0
                     : dp_slice_chunk(bucket, m->servers, server_of(m, i)).count;
    }
    return count;
}

static size_t head_bytes(const struct dp_ps_messages *m)
{
    return dp_round_up(m->head_bytes, DP_MEM_ALIGN);
}

/* A message with a gradient, or an answer. */
static struct dp_slice letter(const struct dp_ps_messages *m, int i, bool gradient)
{
    const size_t extra = server_of(m, i) == 0 ? m->extra : 0, count = m->boxes[i].count;
    const size_t body = gradient ? (count + extra) * sizeof(float) : count * m->width;

    return (struct dp_slice){m->boxes[i].memory, head_bytes(m) + body, 1};
}

static dp_status make_boxes(struct dp_ps_messages *m)
{
    m->boxes = dp_zalloc((size_t)m->peers, sizeof(*m->boxes));
    for (int i = 0; m->boxes != NULL && i < m->peers; i++) {
        m->boxes[i].count = part_count(m, i);
        const size_t bytes = letter(m, i, true).count;
        if (bytes > DP_MESSAGE_MAX) {
            return DP_FAIL(DP_ERR_CONFIG,
                           "comm.servers: a server's part of the weights takes %zu MB, and a "
                           "message may have %d: use more servers",
                           bytes >> 20, DP_MESSAGE_MAX >> 20);
        }
        m->boxes[i].memory = dp_mem_arena(DP_MEM_COMM, bytes);
        m->boxes[i].transfer.to = m->boxes[i].transfer.from = -1;
        if (m->boxes[i].memory == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "messages of %zu MB to %d ranks", bytes >> 20, m->peers);
        }
    }
    return m->boxes != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "messages to %d ranks", m->peers);
}

dp_status dp_ps_messages_open(struct dp_ps_messages *m)
{
    dp_status status;

    m->peers = serves(m) ? trainers_of(m) : m->servers;
    m->turn = 0;
    status = make_boxes(m);
    if (status != DP_OK) {
        dp_ps_messages_close(m);
    }
    return status;
}

void dp_ps_messages_close(struct dp_ps_messages *m)
{
    for (int i = 0; m->boxes != NULL && i < m->peers; i++) {
        dp_free(m->boxes[i].memory);
    }
    dp_free(m->boxes);
    m->boxes = NULL;
}

void *dp_ps_messages_head(const struct dp_ps_messages *m, int i)
{
    return m->boxes[i].memory;
}

float *dp_ps_messages_part(const struct dp_ps_messages *m, int i)
{
    return (float *)(void *)(m->boxes[i].memory + head_bytes(m));
}

float *dp_ps_messages_extra(const struct dp_ps_messages *m, int i)
{
    return dp_ps_messages_part(m, i) + m->boxes[i].count;
}

/* Copies in the order in which an exchange places the chunks of each owner. */
static void copy_chunks(const struct dp_ps_messages *m, int i, char *array, size_t width, bool pack)
{
    char *part = m->boxes[i].memory + head_bytes(m);

    for (int b = m->plan->count - 1; b >= 0; b--) {
        const struct dp_range range = m->plan->buckets[b].range;
        const struct dp_slice bucket = {array + range.begin * width, range.count, width};
        const struct dp_slice chunk = dp_slice_chunk(bucket, m->servers, server_of(m, i));
        if (!m->plan->buckets[b].exact) {
            memcpy(pack ? part : chunk.data, pack ? chunk.data : part, dp_slice_bytes(chunk));
            part += dp_slice_bytes(chunk);
        }
    }
}

void dp_ps_messages_pack(const struct dp_ps_messages *m, int i, void *array, size_t width)
{
    copy_chunks(m, i, array, width, true);
}

void dp_ps_messages_unpack(const struct dp_ps_messages *m, int i, void *array, size_t width)
{
    copy_chunks(m, i, array, width, false);
}

static dp_status start(struct dp_ps_messages *m, int i, bool out, bool gradient)
{
    static const struct dp_slice nothing = {NULL, 0, 1};
    const struct dp_slice slice = letter(m, i, gradient);
    const int rank = rank_of(m, i);

    return dp_group_start(m->group, out ? rank : -1, out ? slice : nothing, out ? -1 : rank,
                          out ? nothing : slice, &m->boxes[i].transfer);
}

static dp_status finish_all(struct dp_ps_messages *m)
{
    for (int i = 0; i < m->peers; i++) {
        DP_TRY(dp_group_finish(m->group, &m->boxes[i].transfer));
    }
    return DP_OK;
}

dp_status dp_ps_messages_swap(struct dp_ps_messages *m, bool answered)
{
    for (int i = 0; i < m->peers; i++) {
        DP_TRY(start(m, i, true, true));
    }
    DP_TRY(finish_all(m));
    for (int i = 0; answered && i < m->peers; i++) {
        DP_TRY(start(m, i, false, false));
    }
    return finish_all(m);
}

static dp_status receive(struct dp_ps_messages *m, int i)
{
    m->boxes[i].state = DP_PS_BOX_COMING;
    return start(m, i, false, true);
}

dp_status dp_ps_messages_begin(struct dp_ps_messages *m)
{
    for (int i = 0; i < m->peers; i++) {
        DP_TRY(receive(m, i));
    }
    return DP_OK;
}

/* Whether a message has come into box `i`. When an answer has been sent, starts to receive the next
 * message into its box. */
static dp_status look(struct dp_ps_messages *m, int i, bool *come)
{
    struct dp_ps_messages_box *box = &m->boxes[i];
    bool done = false;

    *come = false;
    if (box->state == DP_PS_BOX_OURS) {
        return DP_OK;
    }
    DP_TRY(dp_group_test(m->group, &box->transfer, &done));
    if (done && box->state == DP_PS_BOX_GOING) {
        return receive(m, i);
    }
    *come = done;
    box->state = done ? DP_PS_BOX_OURS : box->state;
    return DP_OK;
}

/* A trainer's step passes between two messages: spinning would take a core from it. */
dp_status dp_ps_messages_next(struct dp_ps_messages *m, int *i)
{
    struct dp_backoff backoff = {.cancel = m->group->cancel};
    bool come = false;

    for (;;) {
        for (int k = 0; k < m->peers; k++) {
            const int peer = (m->turn + k) % m->peers;
            DP_TRY(look(m, peer, &come));
            if (come) {
                *i = peer;
                m->turn = peer + 1;
                return DP_OK;
            }
        }
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}

dp_status dp_ps_messages_answer(struct dp_ps_messages *m, int i)
{
    m->boxes[i].state = DP_PS_BOX_GOING;
    return start(m, i, true, false);
}
