/* test_start_watch.c - who is named where ranks do not meet, by which rank, and when; on a host
 * whose processes are files that the test writes. */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "base/mem.h"
#include "collectives/world/start_watch.h"
#include "tests/support/scratch.h"
#include "tests/support/stderr_text.h"

#define on_files(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)
#define PATH_FORMAT "%.63s/%d/%s"

enum { LAUNCHER = 10, LAST_S = 600 };

static int ended, ended_s; /* the code, and when; 0: not yet */

static void write_file(int id, const char *name, const char *text, size_t bytes)
{
    char path[160];
    FILE *file;

    (void)snprintf(path, sizeof(path), PATH_FORMAT, scratch_folder, id, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void make_folder(int id, const char *name)
{
    char path[160];

    (void)snprintf(path, sizeof(path), PATH_FORMAT, scratch_folder, id, name);
    assert_true(mkdir(path, 0700) == 0 || access(path, X_OK) == 0);
}

/* A process of that number. variables: "A=1 B=2"; come: it has the watch's thread. */
static void put_process(int id, int parent, const char *name, char state, const char *variables,
                        bool come)
{
    char text[160];
    int length = snprintf(text, sizeof(text), "%d (%s) %c %d 1 1 0", id, name, state, parent);

    make_folder(id, "");
    make_folder(id, "task");
    make_folder(id, "task/7");
    write_file(id, "stat", text, (size_t)length);
    length = snprintf(text, sizeof(text), "HOME=/ %s", variables) + 1;
    for (int i = 0; i < length; i++) {
        text[i] = (char)(text[i] == ' ' ? '\0' : text[i]);
    }
    write_file(id, "environ", text, (size_t)length);
    write_file(id, "task/7/comm", come ? "dp-start\n" : "other\n", come ? 9 : 6);
}

static void put_rank(int rank, const char *name, char state, bool come)
{
    char variables[80];

    (void)snprintf(variables, sizeof(variables), "OMPI_COMM_WORLD_RANK=%d PMIX_NAMESPACE=j1", rank);
    put_process(100 + rank, LAUNCHER, name, state, variables, come);
}

static void note_end(int code)
{
    ended = code;
}

/* Looks as rank `self` of so many, of which `here` are on this host, each second until it ends;
 * what is printed is in stderr_text. */
static void watch(int self, int ranks, int here, const char *space)
{
    const struct dp_start_watch_config config = {
        .job = {.proc = scratch_folder, .space = space, .launcher = LAUNCHER, .thread = "dp-start"},
        .rank = self,
        .ranks = ranks,
        .here = here,
        .host = "h1",
        .limit_s = DP_START_LIMIT_S,
        .end = note_end};
    struct dp_start_watch *w = dp_start_watch_create(&config);

    assert_non_null(w);
    ended = ended_s = 0;
    stderr_begin();
    for (int s = 0; s <= LAST_S && ended == 0; s++) {
        (void)dp_start_watch_look(w, (uint64_t)s * 1000000000);
        ended_s = s;
    }
    stderr_end();
    dp_start_watch_destroy(w);
    assert_int_equal(ended, dp_status_exit(DP_ERR_HUNG));
}

static void the_first_rank_that_has_come_names_who_has_not(void **state)
{
    (void)state;

    put_rank(0, "bash", 'T', false);
    put_rank(1, "ddp_train", 'S', true);
    put_rank(2, "ddp_train", 'D', false);
    put_rank(3, "ddp_train", 'S', true);
    watch(1, 5, 5, "j1");
    assert_int_equal(ended_s, 300);
    assert_string_equal(
        stderr_text,
        "lockstep: warning: ranks have not met for 60 s: did not arrive: rank 0 (h1): stopped by a "
        "signal, process 100 (bash), rank 2 (h1): waits for a device, process 102 (ddp_train), "
        "rank 4 (h1): not started; the job ends after 300 s\n"
        "lockstep: error: ranks have not met for 300 s: did not arrive: rank 0 (h1): stopped by a "
        "signal, process 100 (bash), rank 2 (h1): waits for a device, process 102 (ddp_train), "
        "rank 4 (h1): not started; the job ends, start it again\n");
    watch(3, 5, 5, "j1"); /* has nothing to say, and ends where the launcher does not end it */
    assert_int_equal(ended_s, 390);
    assert_string_equal(stderr_text, "");
}

static void a_rank_that_is_stopped_after_it_has_come_is_named(void **state)
{
    (void)state;

    put_rank(0, "ddp_train", 'T', true);
    put_rank(1, "ddp_train", 'S', true);
    watch(1, 2, 2, "j1");
    assert_int_equal(ended_s, 300);
    assert_non_null(strstr(stderr_text, "s: did not arrive: rank 0 (h1): stopped by a signal, "
                                        "process 100 (ddp_train); the job ends, start it again"));
}

static void a_host_whose_ranks_have_all_come_leaves_the_report_to_others(void **state)
{
    static const char said[] = "all ranks of host h1 have come, but not those of other hosts: do "
                               "these hosts answer, and does mpirun reach them?; the job ends";
    (void)state;

    put_rank(0, "ddp_train", 'S', true);
    put_rank(1, "ddp_train", 'S', true);
    watch(0, 5, 2, "j1");
    assert_int_equal(ended_s, 310);
    assert_non_null(strstr(stderr_text, said));
    assert_non_null(strstr(strstr(stderr_text, said) + 1, said)); /* warning and error */
    scratch_remove(scratch_path("100"));
    put_rank(2, "ddp_train", 'S', true);
    watch(1, 5, 2, "j1"); /* rank 0 is on another host */
    assert_int_equal(ended_s, 320);
    assert_null(strstr(stderr_text, "warning"));
    assert_non_null(strstr(stderr_text, said));
    watch(1, 5, 3, "j1"); /* of some ranks it is not known which they are */
    assert_int_equal(ended_s, 300);
    assert_non_null(strstr(stderr_text, "did not arrive: 1 of 3 ranks of host h1: not started; "));
}

/* As where /proc hides processes of others, and those of this job. */
static void nobody_is_missing_for_a_rank_that_does_not_see_itself(void **state)
{
    (void)state;

    put_process(20, LAUNCHER, "ddp_train", 'S', "OMPI_COMM_WORLD_RANK=-1 PMIX_NAMESPACE=j1", true);
    watch(0, 2, 2, "j1");
    assert_int_equal(ended_s, 310);
    assert_non_null(strstr(stderr_text,
                           "for 310 s: who is missing cannot be seen from rank 0 (h1); "
                           "the job ends, start it again"));
}

static void of_many_ranks_the_first_ones_are_named(void **state)
{
    (void)state;

    put_rank(0, "ddp_train", 'S', true);
    put_rank(30, "sh", 'S', false);
    watch(0, 100, 100, "j1");
    assert_non_null(strstr(stderr_text, "rank 1 (h1): not started, "));
    assert_non_null(strstr(stderr_text, "rank 8 (h1): not started (99 in all); the job ends"));
    assert_null(strstr(stderr_text, "rank 9 "));
}

/* What other jobs run, or this one beside its ranks, is not looked at. A script that starts the
 * program has its rank, and so has a guard (guard.h). */
static void ranks_are_found_by_what_their_launcher_says(void **state)
{
    (void)state;

    put_process(20, LAUNCHER, "ddp_train", 'S', "PMI_RANK=0", false); /* the guard of 21 */
    put_process(21, 20, "ddp_train", 'S', "PMI_RANK=0", true);
    put_process(22, LAUNCHER, "a) T 3 (b", 'T', "PMI_RANK=1 PMI_RANKS=9", false);
    put_process(23, 5, "ddp_train", 'T', "PMI_RANK=2", false); /* of another launcher */
    put_process(24, 1, "cat", 'S', "XPMI_RANK=3", false);
    watch(0, 2, 2, NULL);
    assert_int_equal(ended_s, 300);
    assert_non_null(strstr(stderr_text, "did not arrive: rank 1 (h1): stopped by a signal, process "
                                        "22 (a) T 3 (b); the job ends, "));
    put_process(31, 1, "sh", 'S', "OMPI_COMM_WORLD_RANK=0 PMIX_NAMESPACE=j1", false);
    put_process(32, 31, "ddp_train", 'S', "OMPI_COMM_WORLD_RANK=0 PMIX_NAMESPACE=j1", true);
    put_process(33, 1, "ddp_train", 'T', "OMPI_COMM_WORLD_RANK=1 PMIX_NAMESPACE=j2", false);
    put_process(34, 1, "ddp_train", 'T', "OMPI_COMM_WORLD_RANK=1 PMIX_NAMESPACE=j1", true);
    make_folder(34, "ns"); /* of another host, whose processes can be seen */
    assert_int_equal(symlink("uts:[2]", scratch_path("34/ns/uts")), 0);
    assert_int_equal(mkdir(scratch_path("self"), 0700) | mkdir(scratch_path("self/ns"), 0700), 0);
    assert_int_equal(symlink("uts:[1]", scratch_path("self/ns/uts")), 0);
    watch(0, 2, 2, "j1");
    assert_non_null(strstr(stderr_text, "did not arrive: rank 1 (h1): not started; the job ends"));
}

static void a_rank_that_was_asked_to_end_does_not_wait_for_others(void **state)
{
    atomic_bool asked = false;
    const struct dp_start_watch_config config = {
        .job = {.proc = scratch_folder, .space = "j1", .thread = "dp-start"},
        .host = "h1",
        .limit_s = DP_START_LIMIT_S,
        .asked = &asked,
        .end = note_end};
    struct dp_start_watch *w = dp_start_watch_create(&config);
    (void)state;

    assert_non_null(w);
    ended = 0;
    stderr_begin();
    for (uint64_t s = 0; s <= LAST_S && ended == 0; s++) {
        atomic_store(&asked, s >= 20);
        (void)dp_start_watch_look(w, s * 1000000000);
        ended_s = (int)s;
    }
    stderr_end();
    dp_start_watch_destroy(w);
    assert_int_equal(ended, 143); /* as of who got SIGTERM earlier */
    assert_in_range(ended_s, 30, 31);
    assert_string_equal(stderr_text, "lockstep: warning: asked to end before ranks have met: "
                                     "nothing is saved\n");
}

static void no_memory_leaves_nothing(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int nth = 1; nth <= 2; nth++) {
        const struct dp_start_watch_config config = {.host = "h1", .end = note_end};
        dp_mem_fail_nth(nth);
        assert_null(dp_start_watch_create(&config));
        dp_mem_fail_nth(0);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* Its process is gone, and with it the debugger's hold; the code with which the job ends. */
static int end_without_rank_1(struct dp_start_watch *w)
{
    scratch_remove(scratch_path("101"));
    stderr_begin();
    for (uint64_t s = LAST_S + 1; s <= LAST_S + LAST_S && ended == 0; s++) {
        (void)dp_start_watch_look(w, s * 1000000000);
    }
    stderr_end();
    return ended;
}

static void a_debugger_may_hold_a_rank(void **state)
{
    const struct dp_start_watch_config config = {
        .job = {.proc = scratch_folder, .space = "j1", .thread = "dp-start"},
        .ranks = 2,
        .here = 2,
        .host = "h1",
        .limit_s = 10.0,
        .end = note_end};
    struct dp_start_watch *w = dp_start_watch_create(&config);
    (void)state;

    assert_non_null(w);
    put_rank(0, "ddp_train", 'S', true);
    put_rank(1, "ddp_train", 't', true);
    ended = 0;
    stderr_begin();
    for (uint64_t s = 0; s <= LAST_S; s++) {
        (void)dp_start_watch_look(w, s * 1000000000);
    }
    stderr_end();
    assert_int_equal(ended, 0);
    assert_string_equal(stderr_text,
                        "lockstep: warning: ranks have not met for 5 s: did not arrive: rank 1 "
                        "(h1): held by a debugger, process 101 (ddp_train); the job ends after 10 "
                        "s\n");
    assert_int_equal(end_without_rank_1(w), dp_status_exit(DP_ERR_HUNG));
    dp_start_watch_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_files(the_first_rank_that_has_come_names_who_has_not),
        on_files(a_rank_that_is_stopped_after_it_has_come_is_named),
        on_files(a_host_whose_ranks_have_all_come_leaves_the_report_to_others),
        on_files(nobody_is_missing_for_a_rank_that_does_not_see_itself),
        on_files(of_many_ranks_the_first_ones_are_named),
        on_files(ranks_are_found_by_what_their_launcher_says),
        on_files(a_debugger_may_hold_a_rank),
        on_files(a_rank_that_was_asked_to_end_does_not_wait_for_others),
        cmocka_unit_test(no_memory_leaves_nothing),
    };
    return cmocka_run_group_tests_name("start_watch", tests, NULL, NULL);
}
