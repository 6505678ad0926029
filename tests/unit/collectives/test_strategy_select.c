/*
 * test_strategy_select.c - what comm.strategy becomes: what the user wants as it is, what an
 * earlier run chose where it can still run, and `auto` by where ranks are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/exchange/strategy_select.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/gpu/nccl_api.h"
#include "tests/support/local_world.h"

/* Whether there is an NCCL; the linker takes this one, and not nccl_api.c's. */
static bool has_nccl;

const struct dp_nccl *dp_nccl_find(const char *file, const char **why_not)
{
    static const struct dp_nccl nccl;

    (void)file;
    *why_not = "there is none";
    return has_nccl ? &nccl : NULL;
}

struct wanted {
    const char *strategy;
    bool recalled, whole;
    int servers;
    const char *expected;
};

static size_t selects(struct dp_group *group, const void *arg)
{
    const struct wanted *wanted = arg;
    struct dp_exchange_config config = {.strategy = wanted->strategy,
                                        .recalled = wanted->recalled,
                                        .whole = wanted->whole,
                                        .servers = wanted->servers};
    const struct dp_bucket_plan plan = {.count = 0};
    struct dp_strategy_selection selection = {.text = NULL};

    return dp_device_find("ref", &config.device) != DP_OK ||
           dp_strategy_select(group, &config, &plan, &selection) != DP_OK ||
           strcmp(selection.text, wanted->expected) != 0 || selection.measured ||
           selection.why[0] != '\0';
}

static void ranks_of_one_node_share_its_memory_unless_something_else_is_wanted(void **state)
{
    static const struct wanted cases[] = {
        {"ring", false, false, 0, "ring"},
        {"ring", true, false, 0, "ring"},
        {"zero1:over=ring", true, false, 0, "zero1:over=ring"},
        {"mpi", false, false, 0, "mpi"},  /* whoever opens it says what is wrong */
        {"mpi", true, false, 0, "zero1"}, /* these ranks have no MPI */
        {"mpi", true, true, 0, "auto"},   /* which is shm then */
        {"mpi", true, false, 1, "ps"},
        {"auto", false, false, 0, "zero1"},
        {"auto", false, true, 0, "auto"},
        {"auto", false, false, 1, "ps"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_ranks(3, selects, &cases[i]) != 0) {
            fail_msg("case %zu: not %s", i, cases[i].expected);
        }
    }
}

/* With nobody to share with all are alike. */
static void a_rank_alone_keeps_auto(void **state)
{
    static const struct wanted wanted = {"auto", false, false, 1, "auto"};
    (void)state;

    assert_int_equal(on_local_ranks(1, selects, &wanted), 0);
}

/* Two ranks on one node, one on another. */
static void what_cannot_run_between_nodes_is_not_recalled_there(void **state)
{
    static const int nodes[] = {0, 0, 1};
    static const struct wanted cases[] = {
        {"shm", true, false, 1, "ps"},
        {"zero1:over=shm", true, false, 1, "ps"},
        {"hier", true, false, 0, "hier"},
        {"shm", false, false, 0, "shm"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_nodes(3, nodes, selects, &cases[i]) != 0) {
            fail_msg("case %zu: not %s", i, cases[i].expected);
        }
    }
}

struct on_gpus {
    struct dp_gpu_peers peers;
    bool nccl, ordered;
    const char *compressor, *expected, *why;
};

static size_t selects_on_gpus(struct dp_group *group, const void *arg)
{
    const struct on_gpus *wanted = arg;
    struct dp_gpu_peers peers = wanted->peers;
    const struct dp_bucket_plan plan = {.count = 0};
    struct dp_strategy_selection selection = {.text = NULL};
    const struct dp_device *ref;
    size_t wrong;

    if (dp_device_find("ref", &ref) != DP_OK) {
        return 1;
    }
    struct dp_device far = *ref;
    far.host_memory = false;
    const struct dp_exchange_config config = {.strategy = "auto",
                                              .device = &far,
                                              .ordered = wanted->ordered,
                                              .compressor = wanted->compressor};
    group->gpus = &peers;
    wrong = dp_strategy_select(group, &config, &plan, &selection) != DP_OK ||
            strcmp(selection.text, wanted->expected) != 0 || selection.measured ||
            strcmp(selection.why, wanted->why) != 0;
    group->gpus = NULL;
    return wrong;
}

static void on_gpus_the_first_way_that_can_run_is_taken_and_why(void **state)
{
    static const char ways[] = "ranks reach each other's GPU memory";
    static const struct on_gpus cases[] = {
        {{.most = 1, .reach = true}, true, false, NULL, "nccl", "one rank a GPU"},
        {{.most = 1, .reach = true}, false, false, NULL, "ipc", "not nccl: there is none; "},
        {{.most = 1, .reach = true},
         true,
         true,
         NULL,
         "ipc",
         "not nccl: it keeps no order of sums; "},
        {{.most = 2, .reach = true},
         true,
         false,
         NULL,
         "ipc",
         "not nccl: ranks share a GPU, and NCCL wants one rank a GPU; "},
        {{.most = 1, .why_unreachable = "they are far"},
         false,
         false,
         NULL,
         "staged:over=shm",
         "not nccl: there is none; not ipc: they are far"},
        {{.most = 1, .reach = true},
         true,
         false,
         "fp16",
         "staged:over=shm",
         "codes of compressors cross over the host"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct on_gpus wanted = cases[i];
        char why[200];
        (void)snprintf(why, sizeof(why), "%s%s", wanted.why,
                       strcmp(wanted.expected, "ipc") == 0 ? ways : "");
        wanted.why = why;
        has_nccl = wanted.nccl;
        if (on_local_ranks(3, selects_on_gpus, &wanted) != 0) {
            fail_msg("case %zu: not %s, %s", i, wanted.expected, why);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_node_share_its_memory_unless_something_else_is_wanted),
        cmocka_unit_test(a_rank_alone_keeps_auto),
        cmocka_unit_test(on_gpus_the_first_way_that_can_run_is_taken_and_why),
        cmocka_unit_test(what_cannot_run_between_nodes_is_not_recalled_there),
    };

    return cmocka_run_group_tests_name("strategy_select", tests, NULL, NULL);
}
