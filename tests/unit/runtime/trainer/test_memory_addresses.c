/* test_memory_addresses.c - address space, of which each rank has its own, must do for its role. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/trainer/prepare/memory_check.h"
#include "tests/support/local_world.h"
#include "tests/support/scratch.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { TRAINS, READS, EVALUATES, ROLES };

struct addresses {
    const struct dp_memory_plan *plan;
    int victim; /* the rank that has too little */
};

static size_t refuse_hosts(struct dp_group *group, const void *arg)
{
    const struct addresses *a = arg;
    const char *root = group->rank == a->victim ? scratch_folder : "/nowhere";

    return dp_memory_check_hosts(a->plan, group, root) != DP_ERR_UNAVAILABLE;
}

/* From now on this process says that it has so many bytes of addresses left, where `root` has what
 * it uses. */
static void leave_addresses(size_t left)
{
    const rlim_t most = (rlim_t)1 << 62;
    struct rlimit limit;
    char text[32];

    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    (void)snprintf(text, sizeof(text), "%zu 1 1\n",
                   ((size_t)most - left) / (size_t)sysconf(_SC_PAGESIZE));
    scratch_write(scratch_path("proc/self/statm"), text, strlen(text));
}

/* Half of what its role needs; of another role it might be enough. */
static void a_rank_with_too_few_addresses_for_its_role_is_refused(void **state)
{
    static const struct dp_memory_ranks roles[ROLES] = {
        [TRAINS] = {.trainers = 1, .first = true, .leads = true},
        [READS] = {.readers = 1, .first = true},
        [EVALUATES] = {.evaluators = 1, .first = true}};
    struct small_run run;
    struct dp_memory_plan need;
    struct rlimit before;
    (void)state;

    assert_int_equal(
        small_run_create(&run, small_own_norm,
                         (const char *[]){"data.input_ranks=1", "train.eval_rank=true", NULL}),
        0);
    need = (struct dp_memory_plan){.config = run.config,
                                   .model = run.model,
                                   .device = run.device,
                                   .trainers = 1,
                                   .threads = 1,
                                   .ranks_per_device = 1,
                                   .one_node = true,
                                   .saves = true,
                                   .train_count = run.data.train_count};
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(mkdir(scratch_path("proc"), 0700), 0);
    assert_int_equal(mkdir(scratch_path("proc/self"), 0700), 0);
    for (int role = 0; role < ROLES; role++) {
        const struct addresses addresses = {&need, role};
        size_t bytes[DP_MEM_PURPOSE_COUNT], wrong;
        dp_memory_plan_host(&need, &roles[role], 0, bytes);
        leave_addresses((dp_memory_plan_sum(bytes) - bytes[DP_MEM_OTHER]) / 2);
        stderr_begin();
        wrong = on_local_ranks(ROLES, refuse_hosts, &addresses);
        stderr_end();
        assert_int_equal(wrong, 0);
        assert_non_null(strstr(stderr_text, "available for 1 rank: "));
        assert_int_equal(strstr(stderr_text, "checkpoint") != NULL, roles[role].leads);
    }
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_with_too_few_addresses_for_its_role_is_refused,
                                        scratch_create, scratch_destroy),
    };

    return cmocka_run_group_tests_name("memory_addresses", tests, NULL, NULL);
}
