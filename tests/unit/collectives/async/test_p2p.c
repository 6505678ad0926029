/*
 * test_p2p.c - messages beside the training: in order, of any length, moved by an engine between
 * its jobs or by whoever waits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/async/p2p.h"
#include "collectives/core/engine.h"
#include "collectives/core/transport.h"
#include "tests/support/local_world.h"

enum { MESSAGES = 12, LONGEST = 5000 };

/* Lengths of messages, one of them empty; what is in them depends on the sender, too. */
static size_t length(int i)
{
    return (size_t)((i * 977) % LONGEST);
}

static void fill(uint8_t *data, int from, int i)
{
    for (size_t k = 0; k < length(i); k++) {
        data[k] = (uint8_t)((size_t)(from * 31 + i * 7) + k);
    }
}

static size_t count_wrong(const uint8_t *data, int from, int i)
{
    uint8_t expected[LONGEST];

    fill(expected, from, i);
    return memcmp(data, expected, length(i)) != 0;
}

/* A rank with an engine, on a group of its own, that moves the messages. */
struct trainer {
    struct dp_group *alone;
    struct dp_engine *engine;
};

static void poke(void *engine)
{
    dp_engine_poke(engine);
}

static dp_status move(void *p2p, bool *more)
{
    return dp_p2p_poll(p2p, more);
}

static size_t open_rank(struct trainer *t, struct dp_p2p *p, struct dp_group *group, bool trains)
{
    if (!trains) {
        dp_p2p_open(p, group, NULL, NULL);
        return 0;
    }
    if (dp_local_alone(&t->alone) != DP_OK ||
        dp_engine_create(t->alone, DP_RUN_ON_THREAD, &t->engine) != DP_OK) {
        return 1;
    }
    dp_p2p_open(p, group, poke, t->engine);
    dp_engine_set_errand(t->engine, (struct dp_errand){move, p});
    return 0;
}

static void close_rank(struct trainer *t, struct dp_p2p *p)
{
    dp_engine_destroy(t->engine);
    dp_group_destroy(t->alone);
    dp_p2p_close(p);
}

/* Every rank sends all messages to every other one, and gets as many. Even ranks train. */
static size_t all_to_all(struct dp_group *group, const void *arg)
{
    static uint8_t out[4][4][MESSAGES][LONGEST], in[4][4][MESSAGES][LONGEST];
    struct dp_p2p_message sent[4][MESSAGES], got[4][MESSAGES];
    struct trainer trainer = {.engine = NULL};
    const int self = group->rank;
    struct dp_p2p p;
    size_t wrong = open_rank(&trainer, &p, group, self % 2 == 0);
    (void)arg;

    memset(sent, 0, sizeof(sent));
    memset(got, 0, sizeof(got));
    for (int peer = 0; peer < group->size; peer++) {
        for (int i = 0; peer != self && i < MESSAGES; i++) {
            fill(out[self][peer][i], self, i);
            dp_p2p_send(&p, &sent[peer][i], peer, out[self][peer][i], length(i));
            dp_p2p_receive(&p, &got[peer][i], peer, in[self][peer][i], length(i));
        }
    }
    for (int peer = group->size - 1; peer >= 0; peer--) {
        for (int i = MESSAGES - 1; i >= 0; i--) { /* the last ones are waited for first */
            wrong += dp_p2p_wait(&p, &got[peer][i]) != DP_OK;
            wrong += !dp_p2p_done(&p, &got[peer][i]);
            wrong += peer != self ? count_wrong(in[self][peer][i], peer, i) : 0;
        }
    }
    for (int peer = 0; peer < group->size; peer++) {
        for (int i = 0; i < MESSAGES; i++) {
            wrong += dp_p2p_wait(&p, &sent[peer][i]) != DP_OK;
        }
    }
    close_rank(&trainer, &p);
    return wrong;
}

static void messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        assert_int_equal(on_local_ranks(ranks, all_to_all, NULL), 0);
    }
}

/* Rank 0 waits for a message that rank 1 sends only when it hears that rank 0 has given up. */
static size_t wait_a_while(struct dp_group *group, const void *arg)
{
    const bool engine = *(const bool *)arg;
    struct dp_p2p_message first = {.peer = 0}, second = {.peer = 0};
    struct trainer trainer = {.engine = NULL};
    const int other = 1 - group->rank;
    int data = 1 + group->rank, got = 0;
    struct dp_p2p p;
    size_t wrong = open_rank(&trainer, &p, group, engine);

    dp_p2p_receive(&p, &first, other, &got, sizeof(got));
    if (group->rank == 0) {
        wrong += dp_p2p_wait_for(&p, &first, 2000000) != DP_OK || dp_p2p_done(&p, &first);
    } else {
        wrong += dp_p2p_wait(&p, &first) != DP_OK;
    }
    dp_p2p_send(&p, &second, other, &data, sizeof(data));
    wrong += dp_p2p_wait(&p, &first) != DP_OK || dp_p2p_wait(&p, &second) != DP_OK;
    wrong += got != 1 + other;
    close_rank(&trainer, &p);
    return wrong;
}

static void a_wait_may_end_before_its_message_comes(void **state)
{
    (void)state;
    for (int engine = 0; engine < 2; engine++) {
        const bool with = engine == 1;
        assert_int_equal(on_local_ranks(2, wait_a_while, &with), 0);
    }
}

/* Rank 1 fails; rank 0 waits for it. */
static size_t wait_for_nobody(struct dp_group *group, const void *arg)
{
    const bool engine = *(const bool *)arg;
    struct dp_p2p_message message = {.peer = 0};
    struct trainer trainer = {.engine = NULL};
    struct dp_p2p p;
    size_t wrong;
    int got = 0;

    if (group->rank == 1) {
        dp_group_leave(group, DP_ERR_INTERNAL);
        return 0;
    }
    wrong = open_rank(&trainer, &p, group, engine);
    dp_p2p_receive(&p, &message, 1, &got, sizeof(got));
    wrong += dp_p2p_wait(&p, &message) != DP_ERR_CANCELLED;
    close_rank(&trainer, &p);
    return wrong;
}

static void a_failure_elsewhere_ends_all_waits(void **state)
{
    (void)state;
    for (int engine = 0; engine < 2; engine++) {
        const bool with = engine == 1;
        assert_int_equal(on_local_ranks(2, wait_for_nobody, &with), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(a_wait_may_end_before_its_message_comes),
        cmocka_unit_test(a_failure_elsewhere_ends_all_waits),
    };
    return cmocka_run_group_tests_name("p2p", tests, NULL, NULL);
}
