/*
 * test_compressor_randomk.c - randomk against a second implementation of its method.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "collectives/compressors/compressor.h"
#include "tests/support/local_world.h"
#include "tests/support/strategies/compressor_lab.h"

enum { RANKS = 3, STEPS = 5 };

/* The ranks' state between steps, which every rank computes. */
struct model {
    float unsent[RANKS][LAB_TRAINED];
    bool sent[LAB_TRAINED];
};

/* Sums are in tree order, like the strategy's; each number is sent at most once per step. */
static size_t wrong_step(struct model *m, const struct lab *lab)
{
    const uint32_t step = lab->step_params.step - 1;
    size_t wrong = 0, sent = 0;

    for (size_t i = 0; i < LAB_TRAINED; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
            m->unsent[rank][i] += lab_value(rank, step, i);
        }
        const float sum = (m->unsent[0][i] + m->unsent[1][i]) + m->unsent[2][i];
        const bool now = lab->compression->residual[0][i] == 0 && sum != 0;
        wrong += lab->grad[i] != (now ? sum : 0);
        for (int rank = 0; rank < RANKS && now; rank++) {
            m->unsent[rank][i] = 0;
        }
        wrong += lab->compression->residual[0][i] != m->unsent[lab->group->rank][i];
        m->sent[i] = m->sent[i] || now;
        sent += now;
    }
    /* Half of the 3814 numbers that are not 0, between tensors, more or less. */
    return wrong + (sent < 1907 - 100 || sent > 1907 + 100);
}

static size_t sends_at_random(struct dp_group *group, const void *setup)
{
    struct model *m = dp_zalloc(1, sizeof(*m));
    size_t wrong = 0, deferred = 0;
    struct lab lab;

    if (m == NULL || lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        wrong += wrong_step(m, &lab);
    }
    for (size_t i = 0; i < LAB_TRAINED; i++) {
        deferred += lab_value(0, 0, i) != 0 && !m->sent[i];
    }
    wrong += deferred > 3814 / 16; /* 1 in 32 has never been sent in five steps */
    lab_close(&lab);
    dp_free(m);
    return wrong;
}

static void randomk_sends_some_places_now_and_all_in_the_end(void **state)
{
    static const struct lab_setup setup = {"randomk:ratio=0.5", "shm", DP_KEEP_ALL, false};
    (void)state;

    assert_int_equal(on_local_nodes_twice(RANKS, NULL, sends_at_random, &setup), 0);
}

static void other_seeds_and_steps_choose_other_places(void **state)
{
    const struct dp_key keys[] = {
        {.seed = 1}, {.seed = 2}, {.seed = 1, .step = 1}, {.seed = 1, .first = 64}};
    struct dp_stream *s = stream_on("ref", 1);
    uint32_t index[4][100];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(keys); i++) {
        OK(s->ops->sample(s, index[i], 100, 10000, &keys[i]));
        for (size_t k = 0; k < i; k++) {
            assert_memory_not_equal(index[i], index[k], sizeof(index[i]));
        }
    }
    stream_close(s);
}

/* Opens over a plan of that bucket. Returns its status. */
static dp_status opened(struct lab *lab, const char *text, size_t largest)
{
    const struct dp_bucket_plan plan = {.largest = largest};
    const struct dp_plugin *plugin = NULL;
    void *state = NULL;
    char problem[256];
    dp_status status =
        dp_plugin_create(&dp_compressors, text, &plugin, &state, problem, sizeof(problem));

    if (status == DP_OK) {
        const struct dp_compressor *c = (const struct dp_compressor *)plugin;
        status = c->open(state, lab->comm, &plan);
        if (status == DP_OK) {
            c->close(state);
        }
    }
    dp_free(state);
    return status;
}

static size_t opens_up_to_the_limit(struct dp_group *group, const void *text)
{
    static const struct lab_setup setup = {"none", "ring", DP_KEEP_ALL, false};
    const size_t most = UINT32_MAX;
    struct lab lab;
    size_t wrong;

    if (lab_open(&lab, group, &setup) != DP_OK) {
        return 1;
    }
    wrong = opened(&lab, text, most) != DP_OK;
    wrong += opened(&lab, text, most + 1) != DP_ERR_CONFIG;
    lab_close(&lab);
    return wrong;
}

/* Places are numbers of 32 bits; that of the last one is less than the largest of them. Each time
 * all is released. */
static void a_bucket_has_no_more_numbers_than_places_can_name(void **state)
{
    static const char *const texts[] = {"randomk:ratio=0.000001", "topk:ratio=0.000001"};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < DP_COUNT(texts); i++) {
        assert_int_equal(on_local_nodes_twice(2, NULL, opens_up_to_the_limit, texts[i]), 0);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(randomk_sends_some_places_now_and_all_in_the_end),
        cmocka_unit_test(other_seeds_and_steps_choose_other_places),
        cmocka_unit_test(a_bucket_has_no_more_numbers_than_places_can_name),
    };

    return cmocka_run_group_tests_name("compressor_randomk", tests, NULL, NULL);
}
