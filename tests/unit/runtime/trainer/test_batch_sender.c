/* test_batch_sender.c - a rank that reads for others ends when all that it sent has gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/transport.h"
#include "runtime/trainer/compute/input.h"
#include "runtime/trainer/input/batch_sender.h"
#include "tests/support/small_run.h"

enum { STEPS = 12 };

static dp_status look(void *looks)
{
    ++*(int *)looks;
    return DP_OK;
}

/* To a rank that takes one batch and ends at once; what is sent needs a while. */
static dp_status slow_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                            struct dp_transfer *transfer)
{
    int *credits = group->link;
    (void)out;

    if (transfer->from >= 0) {
        const struct dp_batch_credit credit = {.allowed = 1, .ends = *credits > 0};
        memcpy(in.data, &credit, sizeof(credit));
        ++*credits;
    }
    transfer->out[0] = 0;
    return DP_OK;
}

static dp_status slow_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    (void)group;
    *done = transfer->from >= 0 || ++transfer->out[0] > 5;
    return DP_OK;
}

/* Sends what the rank that trains wants, which the transport knows. */
static void send_over(const struct dp_transport *transport, void *link_of_it)
{
    struct small_run run;
    struct dp_batch_sender *sender = NULL;
    struct dp_loader *loader = NULL;
    struct dp_loader_config config;
    atomic_int cancel = 0;
    int looks = 0;
    struct dp_group group = {
        .rank = 1, .size = 2, .transport = transport, .link = link_of_it, .cancel = &cancel};
    struct dp_p2p p2p;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    config = dp_dataset_loader(&run.data, run.config, run.model, NULL, run.device, 1);
    config.global_batch = (size_t)run.config->train.global_batch;
    config.ranks = 1;
    config.total_steps = STEPS;
    dp_p2p_open(&p2p, &group, NULL, NULL);
    const struct dp_batch_link link = {.p2p = &p2p,
                                       .trainers = 1,
                                       .readers = 1,
                                       .first_reader = 1,
                                       .sample_bytes = run.data.sample_bytes,
                                       .label_words = dp_model_label_words(run.model),
                                       .count = run.data.train_count,
                                       .global_batch = config.global_batch,
                                       .batches = STEPS};
    assert_int_equal(dp_loader_create(&config, &loader), DP_OK);
    assert_int_equal(dp_batch_sender_create(&link, 0, loader, &sender), DP_OK);
    assert_int_equal(dp_batch_sender_run(sender, look, &looks), DP_OK);
    assert_null(p2p.first);
    dp_batch_sender_destroy(sender);
    dp_loader_destroy(loader);
    dp_p2p_close(&p2p);
    small_run_destroy(&run);
}

static void a_reader_ends_when_all_has_gone(void **state)
{
    static const struct dp_transport slow = {.start = slow_start, .test = slow_test};
    int credits = 0;
    (void)state;

    send_over(&slow, &credits);
    assert_int_equal(credits, 2);
}

/* ---- what is under way ---- */

enum { SENT = 3 * DP_BATCH_LINK_DEPTH, LARGEST = 1 << 14 };

/* To a rank that takes as many batches as may be under way, and ends; nothing goes before. */
struct held {
    int credits, sent, gone, changed;
    const void *data[SENT];
    size_t bytes[SENT];
    char as_sent[SENT][LARGEST];
};

static dp_status held_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                            struct dp_transfer *transfer)
{
    struct held *h = group->link;
    const size_t bytes = out.count * out.width;

    transfer->out[0] = 0;
    if (transfer->from >= 0) {
        const struct dp_batch_credit credit = {DP_BATCH_LINK_DEPTH, h->credits++ > 0};
        memcpy(in.data, &credit, sizeof(credit));
        return DP_OK;
    }
    if (h->sent == SENT || bytes > LARGEST) {
        return DP_ERR_ARG;
    }
    transfer->out[0] = (uint64_t)h->sent;
    h->data[h->sent] = out.data;
    h->bytes[h->sent] = bytes;
    memcpy(h->as_sent[h->sent++], out.data, bytes);
    return DP_OK;
}

static dp_status held_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    struct held *h = group->link;
    const size_t i = transfer->out[0];

    *done = h->sent == SENT || (transfer->from >= 0 && h->credits == 1);
    if (*done && transfer->from < 0) {
        h->gone++;
        h->changed += memcmp(h->data[i], h->as_sent[i], h->bytes[i]) != 0;
    }
    return DP_OK;
}

static void batches_under_way_stay_as_they_are(void **state)
{
    static const struct dp_transport transport = {.start = held_start, .test = held_test};
    static struct held held;
    (void)state;

    send_over(&transport, &held);
    assert_int_equal(held.gone, SENT);
    assert_int_equal(held.changed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_ends_when_all_has_gone),
        cmocka_unit_test(batches_under_way_stay_as_they_are),
    };

    return cmocka_run_group_tests_name("batch_sender", tests, NULL, NULL);
}
