#include "runtime/trainer/input/batch_receiver.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"

enum { DEPTH = DP_BATCH_LINK_DEPTH };

/* From one reader, for one batch. */
struct part {
    struct dp_batch_note note;
    struct dp_p2p_message noted, images, labels;
};

struct slot {
    struct dp_batch batch;
    uint8_t *images;    /* within the receiver's memory */
    int32_t *labels;    /* likewise */
    struct part *parts; /* [readers] */
};

/* To one reader. */
struct credit {
    struct dp_batch_credit credit;
    struct dp_p2p_message message;
};

/* Batch k, counted from first_step, lies in slot k % DEPTH. */
struct dp_batch_receiver {
    struct dp_batch_link link;
    int trainer;
    uint64_t first_step;
    struct slot slots[DEPTH];
    struct part *parts;     /* owned; [DEPTH, readers] */
    struct credit *credits; /* owned; [DEPTH, readers] */
    uint8_t *memory;        /* owned; rows of all slots */
    uint64_t asked, taken;  /* batches so far */
    uint64_t wait_ns;
    bool ended;
};

/* Tells all readers how many batches they may send. */
static dp_status allow(struct dp_batch_receiver *r, bool ends)
{
    const struct dp_batch_link *link = &r->link;
    struct credit *row = r->credits + (r->asked % DEPTH) * (uint64_t)link->readers;

    for (int i = 0; i < link->readers; i++) {
        DP_TRY(dp_p2p_wait(link->p2p, &row[i].message)); /* sent for long */
        row[i].credit = (struct dp_batch_credit){r->asked, ends};
        dp_p2p_send(link->p2p, &row[i].message, link->first_reader + i, &row[i].credit,
                    sizeof(row[i].credit));
    }
    return DP_OK;
}

/* Makes room for one more batch. */
static dp_status ask(struct dp_batch_receiver *r)
{
    const struct dp_batch_link *link = &r->link;
    const uint64_t step = r->first_step + r->asked;
    const size_t global_rows = dp_batch_link_global_rows(link, step);
    const struct dp_range mine = dp_row_range(global_rows, r->trainer, link->trainers);
    struct slot *slot = &r->slots[r->asked % DEPTH];

    slot->batch = (struct dp_batch){.step = step,
                                    .epoch = step / dp_batch_link_per_epoch(link),
                                    .global_rows = global_rows,
                                    .first_row = mine.begin,
                                    .rows = mine.count,
                                    .images = slot->images,
                                    .labels = slot->labels};
    for (int i = 0; i < link->readers; i++) {
        const struct dp_range rows = dp_batch_link_rows(link, i, r->trainer, global_rows);
        const size_t at = rows.begin - mine.begin;
        slot->parts[i].note = (struct dp_batch_note){.skipped = 0};
        if (rows.count > 0) {
            dp_p2p_receive(link->p2p, &slot->parts[i].noted, link->first_reader + i,
                           &slot->parts[i].note, sizeof(slot->parts[i].note));
            dp_p2p_receive(link->p2p, &slot->parts[i].images, link->first_reader + i,
                           slot->images + at * link->sample_bytes, rows.count * link->sample_bytes);
            dp_p2p_receive(link->p2p, &slot->parts[i].labels, link->first_reader + i,
                           slot->labels + at * link->label_words,
                           rows.count * link->label_words * sizeof(int32_t));
        }
    }
    r->asked++;
    return allow(r, false);
}

/* Asks for all that there is room for, now that `done` batches are not read any more. */
static dp_status ask_ahead(struct dp_batch_receiver *r, uint64_t done)
{
    const uint64_t all = r->link.cached ? 1 : r->link.batches;

    while (r->asked < all && r->asked - done < DEPTH) {
        DP_TRY(ask(r));
    }
    return DP_OK;
}

static bool allocate(struct dp_batch_receiver *r)
{
    const struct dp_batch_link *link = &r->link;
    const size_t rows = dp_most_rows(dp_batch_link_most(link), link->trainers);
    const size_t readers = (size_t)link->readers;
    const size_t images = dp_round_up(DEPTH * rows * link->sample_bytes, DP_MEM_ALIGN);
    const size_t words = rows * link->label_words;

    r->parts = dp_zalloc(DEPTH * readers, sizeof(*r->parts));
    r->credits = dp_zalloc(DEPTH * readers, sizeof(*r->credits));
    r->memory = dp_mem_arena(DP_MEM_DATA, images + DEPTH * words * sizeof(int32_t));
    if (r->parts == NULL || r->credits == NULL || r->memory == NULL) {
        return false;
    }
    for (size_t i = 0; i < DEPTH; i++) {
        r->slots[i].parts = r->parts + i * readers;
        r->slots[i].images = r->memory + i * rows * link->sample_bytes;
        r->slots[i].labels = (int32_t *)(void *)(r->memory + images) + i * words;
    }
    return true;
}

dp_status dp_batch_receiver_create(const struct dp_batch_link *link, int trainer,
                                   uint64_t first_step, struct dp_batch_receiver **out)
{
    struct dp_batch_receiver *r = dp_zalloc(1, sizeof(*r));
    dp_status status = DP_ERR_NOMEM;

    if (r != NULL) {
        *r =
            (struct dp_batch_receiver){.link = *link, .trainer = trainer, .first_step = first_step};
        status = allocate(r) ? DP_OK : DP_ERR_NOMEM;
    }
    if (r == NULL || status != DP_OK) {
        dp_batch_receiver_destroy(r);
        return DP_FAIL(DP_ERR_NOMEM, "batches of %zu rows from ranks that read",
                       link->global_batch);
    }
    status = ask_ahead(r, 0);
    if (status != DP_OK) {
        dp_batch_receiver_destroy(r);
        return status;
    }
    *out = r;
    return DP_OK;
}

/* Of the next batch; where one is taken again and again, its. */
static const struct slot *slot_of(const struct dp_batch_receiver *r)
{
    return &r->slots[r->link.cached ? 0 : r->taken % DEPTH];
}

static void give(const struct dp_batch_receiver *r, const struct slot *slot, struct dp_batch *out)
{
    *out = slot->batch;
    for (int i = 0; i < r->link.readers; i++) {
        out->skipped += (size_t)slot->parts[i].note.skipped;
    }
    out->step = r->first_step + r->taken;
    out->epoch = out->step / dp_batch_link_per_epoch(&r->link);
}

static dp_status wait_slot(const struct dp_batch_receiver *r, const struct slot *slot)
{
    for (int i = 0; i < r->link.readers; i++) {
        DP_TRY(dp_p2p_wait(r->link.p2p, &slot->parts[i].noted));
        DP_TRY(dp_p2p_wait(r->link.p2p, &slot->parts[i].images));
        DP_TRY(dp_p2p_wait(r->link.p2p, &slot->parts[i].labels));
    }
    return DP_OK;
}

/* What the first reader says that could not read its rows. */
static dp_status failure_of(const struct dp_batch_receiver *r, const struct slot *slot,
                            struct dp_log_error *error)
{
    for (int i = 0; i < r->link.readers; i++) {
        const struct dp_batch_note *note = &slot->parts[i].note;
        if (note->failure != DP_OK) {
            *error = note->error;
            return note->failure;
        }
    }
    return DP_OK;
}

static bool is_here(const struct dp_batch_receiver *r, const struct slot *slot)
{
    bool here = true;

    for (int i = 0; i < r->link.readers; i++) {
        here = here && dp_p2p_done(r->link.p2p, &slot->parts[i].images) &&
               dp_p2p_done(r->link.p2p, &slot->parts[i].labels);
    }
    return here;
}

dp_status dp_batch_receiver_next(struct dp_batch_receiver *r, struct dp_batch *out,
                                 struct dp_log_error *error)
{
    const uint64_t begin_ns = dp_now_ns();
    const struct slot *slot = slot_of(r);

    *error = (struct dp_log_error){.rank = 0};
    if (r->taken == r->link.batches || r->ended) {
        return DP_FAIL(DP_ERR_ARG, "no batch is left after %llu", (unsigned long long)r->taken);
    }
    DP_TRY(ask_ahead(r, r->taken)); /* the caller is done with all before */
    DP_TRY(wait_slot(r, slot));
    give(r, slot, out);
    r->taken++;
    r->wait_ns += dp_now_ns() - begin_ns;
    return failure_of(r, slot, error);
}

bool dp_batch_receiver_peek(struct dp_batch_receiver *r, struct dp_batch *out)
{
    const struct slot *slot = slot_of(r);

    if (r->taken == r->link.batches || (r->taken >= r->asked && !r->link.cached) ||
        !is_here(r, slot)) {
        return false;
    }
    give(r, slot, out);
    return true;
}

void dp_batch_receiver_waits(const struct dp_batch_receiver *r, uint64_t *ns, uint64_t *batches)
{
    *ns = r->wait_ns;
    *batches = r->taken;
}

dp_status dp_batch_receiver_end(struct dp_batch_receiver *r)
{
    if (r->ended) {
        return DP_OK;
    }
    r->ended = true;
    for (uint64_t k = r->taken; k < r->asked; k++) {
        DP_TRY(wait_slot(r, &r->slots[k % DEPTH]));
    }
    DP_TRY(allow(r, true));
    for (int i = 0; i < DEPTH * r->link.readers; i++) {
        DP_TRY(dp_p2p_wait(r->link.p2p, &r->credits[i].message));
    }
    return DP_OK;
}

void dp_batch_receiver_destroy(struct dp_batch_receiver *r)
{
    if (r != NULL) {
        dp_free(r->memory);
        dp_free(r->credits);
        dp_free(r->parts);
        dp_free(r);
    }
}
