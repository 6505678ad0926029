/*
 * test_gpu_peers.c - gradients shared on GPUs: the choice of GPUs, shared memory, what `auto`
 * chooses and why, the bits of every strategy, and failures.
 *
 * What needs GPUs is skipped without device cuda; in a build of DP_CUDA=host they are simulated.
 */
#include "tests/support/arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/gpu/nccl_api.h"
#include "collectives/strategies/strategy.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"
#include "tests/support/strategies/strategy_checks.h"
#include "tests/support/tested_device.h"

enum { SIMULATED = DP_CUDA_ON_HOST }; /* tests/cuda_on_host/nccl.cpp */

enum { STEPS = 6, WORDS = 1000 };

static const struct dp_device *cuda; /* NULL: there is none */
static int gpus_here;                /* that one process sees */

static void needs_gpus(int count)
{
    if (gpus_here < count) {
        skip();
    }
}

/* ---- which rank has which ---- */

static size_t takes_a_gpu(struct dp_group *group, const void *arg)
{
    const int expected = *(const int *)arg;
    const int most = (group->size + expected - 1) / expected;
    char text[80], wanted[80] = "";
    size_t wrong = dp_gpu_peers_create(group, cuda) != DP_OK;

    if (wrong == 0) {
        wrong += group->gpus->count != expected || group->gpus->most != most;
        if (most > 1) {
            (void)snprintf(wanted, sizeof(wanted), "%d ranks share %d GPU%s, up to %d on each",
                           group->size, expected, expected == 1 ? "" : "s", most);
        }
        dp_gpu_peers_describe(group, text, sizeof(text));
        wrong += strcmp(text, wanted) != 0;
        wrong += dp_gpu_peers_create(group, cuda) != DP_OK; /* once is enough */
    }
    return wrong;
}

static void ranks_take_gpus_in_turns(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    const size_t live = dp_mem_live();
    (void)state;

    needs_gpus(1);
    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        const int expected = sizes[n] < gpus_here ? sizes[n] : gpus_here;
        assert_int_equal(on_local_ranks(sizes[n], takes_a_gpu, &expected), 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* ---- memory ---- */

/* Every rank reads what each rank has written; unshared memory is not found. */
static size_t reads_all(struct dp_group *group, float *memory)
{
    struct dp_stream *stream = group->gpus->stream;
    float words[WORDS], private;
    size_t wrong = 0;

    for (size_t i = 0; i < WORDS; i++) {
        words[i] = (float)group->rank * WORDS + (float)i;
    }
    wrong += dp_device_write(stream, memory, words, sizeof(words)) != DP_OK;
    wrong += dp_group_barrier(group) != DP_OK;
    for (int r = 0; r < group->size; r++) {
        const float *theirs = dp_gpu_peers_peer(group, memory + 7, r);
        if (theirs == NULL ||
            dp_device_read(stream, words, theirs, (WORDS - 7) * sizeof(float)) != DP_OK) {
            return wrong + 1;
        }
        for (size_t i = 0; i + 7 < WORDS; i++) {
            wrong += words[i] != (float)r * WORDS + (float)(i + 7);
        }
    }
    return wrong + (dp_gpu_peers_peer(group, &private, 0) != NULL) +
           (dp_group_barrier(group) != DP_OK);
}

static size_t shares_memory(struct dp_group *group, const void *arg)
{
    const bool reach = *(const bool *)arg;
    float *memory[3] = {NULL, NULL, NULL};
    size_t wrong = dp_gpu_peers_create(group, cuda) != DP_OK;

    if (wrong > 0) {
        return wrong;
    }
    wrong += group->gpus->reach != reach || (group->gpus->why_unreachable[0] == '\0') != reach;
    for (int i = 0; i < 3 && wrong == 0; i++) {
        memory[i] = dp_gpu_peers_memory(group, cuda, DP_MEM_OTHER, WORDS * sizeof(float));
        wrong += memory[i] == NULL;
    }
    for (int i = 2; i >= 0 && wrong == 0; i--) {
        wrong +=
            reach ? reads_all(group, memory[i]) : dp_gpu_peers_peer(group, memory[i], 0) != NULL;
    }
    for (int i = 0; i < 3; i++) {
        dp_gpu_peers_release(group, cuda, memory[i]);
    }
    return wrong;
}

static void ranks_of_one_node_use_each_others_memory(void **state)
{
    static const int node_of[] = {0, 0, 1};
    const size_t live = dp_mem_live();
    bool reach = true;
    (void)state;

    needs_gpus(1);
    for (int size = 2; size <= 5; size++) {
        assert_int_equal(on_local_ranks(size, shares_memory, &reach), 0);
    }
    reach = false;
    assert_int_equal(on_local_nodes(3, node_of, shares_memory, &reach), 0);
    assert_int_equal(dp_mem_live(), live);
}

/* One of two ranks gets no memory at some point: both end, and nothing is left. */
static size_t shares_without_memory(struct dp_group *group, const void *arg)
{
    void *memory = NULL;
    dp_status status = dp_gpu_peers_create(group, cuda);
    (void)arg;

    if (status == DP_OK) {
        memory = dp_gpu_peers_memory(group, cuda, DP_MEM_OTHER, WORDS);
        status = memory == NULL ? DP_ERR_NOMEM : DP_OK;
        dp_gpu_peers_release(group, cuda, memory);
    }
    dp_group_leave(group, status);
    return status != DP_OK;
}

static void missing_memory_on_one_rank_blocks_no_rank(void **state)
{
    (void)state;
    needs_gpus(1);
    check_failing_allocations(2, NULL, shares_without_memory, NULL);
}

/* ---- which way `auto` goes ---- */

struct choice {
    const char *sets[5]; /* of the run; ends with NULL */
    int size, node_of[8];
    const char *shared, *label, *why; /* with ranks that share GPUs, or with one each; NULL: nodes
                                         that are none have the same GPUs, which NCCL notices */
};

static size_t is_chosen(struct dp_group *group, const void *arg)
{
    const struct choice *c = arg;
    struct small_run run;
    struct dp_trainer *t = NULL;
    size_t wrong = 1;

    if (small_run_create(&run, small_dense, c->sets) != 0) {
        return 1;
    }
    if (small_run_trainer(&run, group, 1, &t) == DP_OK) {
        const struct dp_exchange *e = t->exchange;
        const char *label = group->gpus->most > 1 ? c->shared : c->label;
        const char *found = dp_exchange_label(e), *why = dp_exchange_why(e);
        wrong = strncmp(found, label, strlen(label)) != 0 || strstr(why, c->why) == NULL;
        if (wrong > 0) {
            print_error("%s (%s), not %s (%s)\n", found, why, label, c->why);
        }
    }
    dp_trainer_destroy(t);
    small_run_destroy(&run);
    return wrong;
}

static void auto_reports_its_choice_and_why(void **state)
{
    static const struct choice cases[] = {
        {{"comm.strategy=auto", NULL}, 2, {0}, "ipc", "nccl", ""},
        {{"comm.strategy=auto", NULL}, 8, {0}, "ipc", "nccl", ""},
        {{"comm.strategy=auto", "train.lanes=4", NULL}, 2, {0}, "ipc", "ipc", "not nccl"},
        {{"comm.strategy=auto", NULL}, 4, {0, 0, 1, 1}, "staged:over=", NULL, "not ipc"},
        {{"comm.strategy=auto", "train.lanes=4", NULL},
         4,
         {0, 0, 1, 1},
         "staged:over=",
         "staged:over=",
         "measured"},
        {{"comm.strategy=auto", "comm.compressor=fp16", NULL},
         2,
         {0},
         "staged",
         "staged",
         "codes of compressors cross over the host"},
        {{"comm.strategy=auto", "comm.servers=1", NULL}, 3, {0}, "ps", "ps", ""},
        {{"comm.strategy=ring", NULL}, 2, {0}, "ring", "ring", ""},
    };
    (void)state;

    needs_gpus(1);
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        if (cases[i].label == NULL && gpus_here > 1) {
            continue;
        }
        if (on_local_nodes(cases[i].size, cases[i].node_of, is_chosen, &cases[i]) != 0) {
            fail_msg("case %zu", i);
        }
    }
}

struct refusal {
    const char *sets[4];
    dp_status status;
    const char *text;
};

static size_t is_refused(struct dp_group *group, const void *arg)
{
    const struct refusal *r = arg;
    struct small_run run;
    struct dp_trainer *t = NULL;
    size_t wrong = 1;

    if (small_run_create(&run, small_dense, r->sets) == 0) {
        wrong = small_run_trainer(&run, group, 1, &t) != r->status;
    }
    dp_trainer_destroy(t);
    small_run_destroy(&run);
    return wrong;
}

static void incompatible_options_are_refused_by_name(void **state)
{
    static const struct refusal refusals[] = {
        {{"comm.strategy=ipc", "comm.compressor=fp16", NULL}, DP_ERR_CONFIG, "staged can"},
        {{"comm.strategy=ps:over=ipc", NULL}, DP_ERR_CONFIG, "cannot go over ipc"},
        {{"comm.strategy=staged:over=ipc", NULL}, DP_ERR_CONFIG, "over cannot be ipc"},
        {{"comm.strategy=staged:over=staged", NULL}, DP_ERR_CONFIG, "over cannot be staged"},
        {{"comm.strategy=staged:over=rnig", NULL}, DP_ERR_CONFIG, "rnig"},
        {{"comm.strategy=nccl", "train.lanes=4", NULL}, DP_ERR_CONFIG, "these keep it: ipc"},
        {{"comm.strategy=nccl", NULL}, DP_ERR_UNAVAILABLE, "one rank a GPU; these can: ipc"},
    };
    (void)state;

    needs_gpus(1);
    for (size_t i = 0; i < DP_COUNT(refusals); i++) {
        const bool shared = gpus_here < 2, nccl = strstr(refusals[i].sets[0], "nccl") != NULL;
        if (nccl && shared == (refusals[i].status == DP_ERR_CONFIG)) {
            continue; /* sharing a GPU is the first reason */
        }
        stderr_begin();
        const size_t wrong = on_local_ranks(2, is_refused, &refusals[i]);
        stderr_end();
        if (wrong != 0 || strstr(stderr_text, refusals[i].text) == NULL) {
            fail_msg("case %zu: %s", i, stderr_text);
        }
    }
}

/* Without GPUs; on other devices nothing looks for them. */
static void gpu_strategies_refuse_gradients_on_the_host(void **state)
{
    static const char *const names[] = {"nccl", "ipc", "staged"};
    const struct dp_group group = {.size = 1, .nodes = 1};
    const char *why_not;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(names); i++) {
        const struct dp_plugin *plugin = dp_plugin_find(&dp_strategies, names[i], strlen(names[i]));
        const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
        assert_true(strategy->gpus);
        assert_false(strategy->supports(&group, &why_not));
        assert_non_null(strstr(why_not, "not on GPUs"));
    }
}

/* ---- the same bits ---- */

static void train_with(const char *layers, const char *const *sets, int ranks, struct outcome *out)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(small_train(&run, ranks, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, ranks, STEPS), 0);
    small_run_destroy(&run);
}

static void ipc_and_staged_give_the_bits_of_shm(void **state)
{
    static const char *const others[] = {"comm.strategy=ipc", "comm.strategy=zero1:over=ipc",
                                         "comm.strategy=staged", "comm.strategy=staged:over=direct",
                                         "comm.strategy=zero1:over=staged"};
    static const int sizes[] = {1, 2, 3, 8};
    const char *shm[] = {"comm.strategy=shm", "optimizer.clip_norm=0.5", NULL};
    (void)state;

    needs_gpus(1);
    for (size_t n = 0; n < DP_COUNT(sizes); n++) {
        struct outcome expected;
        train_with(small_conv, shm, sizes[n], &expected);
        for (size_t i = 0; i < DP_COUNT(others); i++) {
            const char *sets[] = {others[i], shm[1], i % 2 == 0 ? "comm.overlap=on" : NULL, NULL};
            struct outcome found;
            train_with(small_conv, sets, sizes[n], &found);
            assert_same_bits(found.weights, expected.weights, expected.trained);
            outcome_fini(&found);
        }
        outcome_fini(&expected);
    }
}

/* It adds in its own order: nearly equal, and the same on all ranks. */
static void nccl_gives_all_ranks_the_same_bits(void **state)
{
    static const char *const ways[] = {"comm.strategy=nccl", "comm.strategy=zero1:over=nccl"};
    const char *shm[] = {"comm.strategy=shm", NULL};
    struct outcome expected;
    struct small_run run;
    (void)state;

    needs_gpus(3);
    assert_int_equal(small_run_create(&run, small_dense, shm), 0);
    train_with(small_dense, shm, 3, &expected);
    for (size_t i = 0; i < 4; i++) {
        const char *sets[] = {ways[i % 2], i < 2 ? "comm.overlap=on" : NULL, NULL};
        struct outcome found;
        train_with(small_dense, sets, 3, &found);
        assert_true(small_distance(&run, &found, &expected) < 1e-5);
        outcome_fini(&found);
    }
    outcome_fini(&expected);
    small_run_destroy(&run);
}

/* ---- when something fails ---- */

static size_t ends_early(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    dp_status status = small_run_trainer(run, group, STEPS, &t);

    for (int step = 0; step < STEPS && status == DP_OK; step++) {
        status = dp_trainer_step(t, &report);
    }
    dp_group_leave(group, status == DP_OK ? DP_OK : DP_ERR_CANCELLED);
    dp_trainer_destroy(t);
    return status == DP_OK;
}

/* An operation that fails while it runs: all ranks end, and one says what it was. */
static void a_failing_nccl_operation_ends_all_ranks(void **state)
{
    const char *sets[] = {"comm.strategy=nccl", "comm.overlap=on", NULL};
    struct small_run run;
    (void)state;

    needs_gpus(2);
    if (!SIMULATED) {
        skip();
    }
    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(setenv("DP_CUDA_NCCL", "fail:7", 1), 0);
    stderr_begin();
    const size_t wrong = on_local_ranks(2, ends_early, &run);
    stderr_end();
    assert_int_equal(unsetenv("DP_CUDA_NCCL"), 0);
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "error: nccl")); /* of the rank that notices it first */
    small_run_destroy(&run);
}

static void a_missing_library_is_named(void **state)
{
    const char *why_not = NULL;
    (void)state;

    assert_null(dp_nccl_find("libnccl-that-is-not-there.so.9", &why_not));
    assert_non_null(strstr(why_not, "NCCL was not found"));
    assert_non_null(strstr(why_not, "libnccl-that-is-not-there.so.9"));
    assert_null(dp_nccl_find("libm.so.6", &why_not)); /* another library */
    assert_non_null(strstr(why_not, "too old"));
    (void)dp_nccl_find(NULL, &why_not);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_strategies_refuse_gradients_on_the_host),
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(ranks_take_gpus_in_turns),
        cmocka_unit_test(ranks_of_one_node_use_each_others_memory),
        cmocka_unit_test(missing_memory_on_one_rank_blocks_no_rank),
        cmocka_unit_test(auto_reports_its_choice_and_why),
        cmocka_unit_test(incompatible_options_are_refused_by_name),
        cmocka_unit_test(ipc_and_staged_give_the_bits_of_shm),
        cmocka_unit_test(nccl_gives_all_ranks_the_same_bits),
        cmocka_unit_test(a_failing_nccl_operation_ends_all_ranks),
    };

    if (strcmp(tested_device(), "cuda") == 0 && dp_device_find("cuda", &cuda) == DP_OK) {
        gpus_here = cuda->units->count();
    }
    return cmocka_run_group_tests_name("gpu_peers", tests, NULL, NULL);
}
