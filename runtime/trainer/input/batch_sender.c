#include "runtime/trainer/input/batch_sender.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"

enum { DEPTH = DP_BATCH_LINK_DEPTH };

/* To one rank that trains, of one batch. */
struct part {
    struct dp_batch_note note;
    struct dp_p2p_message noted, images, labels;
};

struct slot {
    uint8_t *images;    /* within the sender's memory */
    int32_t *labels;    /* likewise */
    struct part *parts; /* [trainers] */
};

/* What a rank that trains allows. */
struct credit {
    struct dp_batch_credit coming;
    struct dp_p2p_message message;
    uint64_t allowed;
    bool ended;
};

struct dp_batch_sender {
    struct dp_batch_link link;
    struct dp_loader *loader; /* borrowed */
    int reader;
    struct slot slots[DEPTH];
    struct part *parts;     /* owned; [DEPTH, trainers] */
    struct credit *credits; /* owned; [trainers] */
    uint8_t *memory;        /* owned; rows of all slots */
};

static void expect_credit(struct dp_batch_sender *s, int trainer)
{
    struct credit *c = &s->credits[trainer];

    dp_p2p_receive(s->link.p2p, &c->message, trainer, &c->coming, sizeof(c->coming));
}

static bool allocate(struct dp_batch_sender *s)
{
    const struct dp_batch_link *link = &s->link;
    const size_t rows = dp_most_rows(dp_batch_link_most(link), link->readers);
    const size_t trainers = (size_t)link->trainers;
    const size_t images = dp_round_up(DEPTH * rows * link->sample_bytes, DP_MEM_ALIGN);
    const size_t words = rows * link->label_words;

    s->parts = dp_zalloc(DEPTH * trainers, sizeof(*s->parts));
    s->credits = dp_zalloc(trainers, sizeof(*s->credits));
    s->memory = dp_mem_arena(DP_MEM_DATA, images + DEPTH * words * sizeof(int32_t));
    if (s->parts == NULL || s->credits == NULL || s->memory == NULL) {
        return false;
    }
    for (size_t i = 0; i < DEPTH; i++) {
        s->slots[i].parts = s->parts + i * trainers;
        s->slots[i].images = s->memory + i * rows * link->sample_bytes;
        s->slots[i].labels = (int32_t *)(void *)(s->memory + images) + i * words;
    }
    return true;
}

dp_status dp_batch_sender_create(const struct dp_batch_link *link, int reader,
                                 struct dp_loader *loader, struct dp_batch_sender **out)
{
    struct dp_batch_sender *s = dp_zalloc(1, sizeof(*s));

    if (s != NULL) {
        *s = (struct dp_batch_sender){.link = *link, .loader = loader, .reader = reader};
    }
    if (s == NULL || !allocate(s)) {
        dp_batch_sender_destroy(s);
        return DP_FAIL(DP_ERR_NOMEM, "batches of %zu rows for ranks that train",
                       link->global_batch);
    }
    for (int i = 0; i < link->trainers; i++) {
        expect_credit(s, i);
    }
    *out = s;
    return DP_OK;
}

void dp_batch_sender_destroy(struct dp_batch_sender *s)
{
    if (s != NULL) {
        dp_free(s->memory);
        dp_free(s->credits);
        dp_free(s->parts);
        dp_free(s);
    }
}

/* What a rank that trains allows by now; older news of it is replaced in later calls. */
static void hear_of(struct dp_batch_sender *s, int trainer)
{
    struct credit *c = &s->credits[trainer];

    if (!c->ended && dp_p2p_done(s->link.p2p, &c->message)) {
        c->allowed = c->coming.allowed;
        c->ended = c->coming.ends != 0;
        if (!c->ended) {
            expect_credit(s, trainer);
        }
    }
}

/* Moves messages, and hears what ranks that train allow. */
static dp_status hear(struct dp_batch_sender *s)
{
    bool more;

    DP_TRY(dp_p2p_poll(s->link.p2p, &more));
    for (int i = 0; i < s->link.trainers; i++) {
        hear_of(s, i);
    }
    return DP_OK;
}

static bool all_ended(const struct dp_batch_sender *s)
{
    bool all = true;

    for (int i = 0; i < s->link.trainers; i++) {
        all = all && s->credits[i].ended;
    }
    return all;
}

/* Whether what was sent from a slot has gone. */
static bool has_gone(const struct dp_batch_sender *s, uint64_t k)
{
    const struct slot *slot = &s->slots[k % DEPTH];
    bool gone = true;

    for (int i = 0; i < s->link.trainers; i++) {
        gone = gone && dp_p2p_done(s->link.p2p, &slot->parts[i].noted) &&
               dp_p2p_done(s->link.p2p, &slot->parts[i].images) &&
               dp_p2p_done(s->link.p2p, &slot->parts[i].labels);
    }
    return gone;
}

/* Whether some rank takes batch k, and none that has not ended would have to wait for room. */
static bool is_wanted(const struct dp_batch_sender *s, uint64_t k)
{
    bool wanted = k < s->link.batches;

    for (int i = 0; i < s->link.trainers; i++) {
        wanted = wanted && (s->credits[i].ended || s->credits[i].allowed > k);
    }
    return wanted;
}

/* Waits until batch k can be sent, or no more are wanted. */
static dp_status await(struct dp_batch_sender *s, uint64_t k, dp_status (*look)(void *context),
                       void *context)
{
    DP_SPAN(DP_PHASE_IDLE, (int64_t)k);
    struct dp_backoff backoff = {.cancel = s->link.p2p->group->cancel, .spin_ns = 0};

    for (;;) {
        DP_TRY(hear(s));
        DP_TRY(look(context));
        if (all_ended(s) || (is_wanted(s, k) && has_gone(s, k))) {
            return DP_OK;
        }
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}

static void send(struct dp_batch_sender *s, uint64_t k, const struct dp_batch *batch,
                 const struct dp_batch_note *note)
{
    const struct dp_batch_link *link = &s->link;
    const struct slot *slot = &s->slots[k % DEPTH];
    bool noted = false;

    memcpy(slot->images, batch->images, batch->rows * link->sample_bytes);
    memcpy(slot->labels, batch->labels, batch->rows * link->label_words * sizeof(int32_t));
    for (int i = 0; i < link->trainers; i++) {
        const struct dp_range rows = dp_batch_link_rows(link, s->reader, i, batch->global_rows);
        const size_t at = rows.begin - batch->first_row;
        struct part *part = &slot->parts[i];
        if (rows.count > 0 && s->credits[i].allowed > k) {
            const struct dp_batch_note none = {.skipped = 0};
            part->note = noted ? none : *note;
            noted = true;
            dp_p2p_send(link->p2p, &part->noted, i, &part->note, sizeof(part->note));
            dp_p2p_send(link->p2p, &part->images, i, slot->images + at * link->sample_bytes,
                        rows.count * link->sample_bytes);
            dp_p2p_send(link->p2p, &part->labels, i, slot->labels + at * link->label_words,
                        rows.count * link->label_words * sizeof(int32_t));
        }
    }
}

/* Returns when all that was sent has gone. */
static dp_status wait_all(const struct dp_batch_sender *s)
{
    for (int i = 0; i < DEPTH * s->link.trainers; i++) {
        DP_TRY(dp_p2p_wait(s->link.p2p, &s->parts[i].noted));
        DP_TRY(dp_p2p_wait(s->link.p2p, &s->parts[i].images));
        DP_TRY(dp_p2p_wait(s->link.p2p, &s->parts[i].labels));
    }
    return DP_OK;
}

/* Reads and sends batch k. Where rows cannot be read it has those of earlier batches, and says so:
 * ranks that train end when they come to it, all alike. */
static void read_and_send(struct dp_batch_sender *s, uint64_t k)
{
    struct dp_batch_note note = {.skipped = 0};
    struct dp_log_capture capture;
    struct dp_batch batch;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    note.failure = dp_loader_next(s->loader, &batch);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (note.failure != DP_OK) {
        dp_log_keep_error(&capture, &note.error);
    }
    note.skipped = batch.skipped;
    send(s, k, &batch, &note);
}

dp_status dp_batch_sender_run(struct dp_batch_sender *s, dp_status (*look)(void *context),
                              void *context)
{
    uint64_t k = 0;

    DP_TRY(await(s, k, look, context));
    while (!all_ended(s)) {
        DP_SPAN(DP_PHASE_INPUT, (int64_t)k);
        read_and_send(s, k);
        k++;
        DP_TRY(await(s, k, look, context));
    }
    return wait_all(s);
}
