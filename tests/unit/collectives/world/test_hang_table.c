/* test_hang_table.c - the table of several hosts; test_watchdog has that of one. */
#include <stdlib.h>

#include "tests/support/arrays.h"

#include "base/trace.h"
#include "collectives/world/hang_table.h"
#include "tests/support/stderr_text.h"

static void a_rank_that_does_not_answer_is_named_and_all_that_wait_are_not(void **state)
{
    struct dp_hang_row rows[3] = {{.rank = 0,
                                   .known = true,
                                   .waits = true,
                                   .host = "h1",
                                   .activity = DP_PHASE_STEP,
                                   .phase = "wait",
                                   .step = 7,
                                   .bucket = 1,
                                   .doing = "waits for other ranks"},
                                  {.rank = 1, .host = "host-2"},
                                  {.rank = 2,
                                   .known = true,
                                   .waits = true,
                                   .host = "h3",
                                   .activity = DP_PHASE_STEP,
                                   .phase = "wait",
                                   .step = 7,
                                   .bucket = 1,
                                   .doing = "waits for other ranks"}};
    (void)state;

    stderr_begin();
    dp_hang_table_report(rows, 3, false, 7.0, true);
    stderr_end();
    assert_string_equal(
        stderr_text,
        "rank host       step bucket phase       since_s  process\n"
        "   0 h1            7      1 wait            0.0  waits for other ranks\n"
        "   1 host-2        -      - -                 -  does not answer\n"
        "   2 h3            7      1 wait            0.0  waits for other ranks\n"
        "lockstep: error: no progress for 7.0 s: did not arrive: rank 1 (host-2): does not answer; "
        "the job ends, start it again with --resume\n");
    rows[1] = rows[0];
    rows[1].rank = 1;
    stderr_begin();
    dp_hang_table_report(rows, 3, false, 7.0, false);
    stderr_end();
    assert_non_null(strstr(stderr_text,
                           "7.0 s: all ranks wait for each other; the job ends, start it again\n"));
    rows[2].bucket = 0;
    assert_true(dp_hang_table_blames(rows, 3, 2));
    assert_false(dp_hang_table_blames(rows, 3, 0));
}

/* Only in a step a rank works on a bucket, of which 0 is one. */
static void a_bucket_is_shown_in_a_step_only(void **state)
{
    struct dp_hang_row rows[3];
    (void)state;

    for (int i = 0; i < 3; i++) {
        rows[i] = (struct dp_hang_row){.rank = i,
                                       .known = true,
                                       .host = "h1",
                                       .activity = i < 2 ? DP_PHASE_STEP : DP_PHASE_EVALUATE,
                                       .phase = "forward",
                                       .step = 12,
                                       .bucket = i == 1 ? -1 : 0,
                                       .doing = "computing"};
    }
    stderr_begin();
    dp_hang_table_report(rows, 3, false, 7.0, true);
    stderr_end();
    assert_non_null(strstr(stderr_text, "\n   0 h1         12      0 forward "));
    assert_non_null(strstr(stderr_text, "\n   1 h1         12      - forward "));
    assert_non_null(strstr(stderr_text, "\n   2 h1         12      - forward "));
}

/* Rank 0 and 1 are of one host, rank 2 is alone on another. */
static void who_works_beside_is_named_only_where_a_rank_waits_for_it(void **state)
{
    struct dp_hang_row rows[3] = {{.rank = 0, .known = true, .waits = true, .host = "h1"},
                                  {.rank = 1, .known = true, .host = "h1"},
                                  {.rank = 2, .known = true, .beside = true, .host = "h2"}};
    (void)state;

    for (int rounds = 0; rounds < 2; rounds++) {
        rows[0].rounds = rounds == 1;
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(dp_hang_table_blames(rows, 3, rank),
                             rank == 1 || (rank == 2 && rounds == 1));
        }
    }
    rows[0].rounds = false;
    rows[1].waits = true;
    rows[0].activity = rows[1].activity = DP_PHASE_STEP;
    rows[0].step = 2;
    rows[1].step = 1; /* it has come less far */
    assert_true(dp_hang_table_blames(rows, 3, 1));
    assert_false(dp_hang_table_blames(rows, 3, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_does_not_answer_is_named_and_all_that_wait_are_not),
        cmocka_unit_test(a_bucket_is_shown_in_a_step_only),
        cmocka_unit_test(who_works_beside_is_named_only_where_a_rank_waits_for_it),
    };

    return cmocka_run_group_tests_name("hang_table", tests, NULL, NULL);
}
