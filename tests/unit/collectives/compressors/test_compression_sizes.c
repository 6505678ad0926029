/* test_compression_sizes.c - what a compressor keeps, allocates and codes, by its name alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/compressors/compression.h"
#include "tests/support/local_world.h"
#include "tests/support/stderr_text.h"

enum { TRAINED = 1000, RANKS = 3, MUCH = 3 << 20 };

static void residuals_are_as_long_as_the_weights(void **state)
{
    static const struct {
        const char *compressor;
        size_t arrays;
    } cases[] = {{"none", 0},    {"fp16", 0},     {"bf16", 0},
                 {"onebit", 2},  {"topk", 1},     {"topk:ratio=0.1,momentum=0.9", 2},
                 {"randomk", 1}, {"powersgd", 1}, {"no compressor", 0}};
    static const struct dp_tensor tensor = {.begin = 0};
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_compression_size size =
            dp_compression_measure(cases[i].compressor, &tensor, 1, TRAINED);
        assert_int_equal(size.residuals, cases[i].arrays * TRAINED);
    }
    assert_int_equal(dp_mem_live(), live);
}

static size_t codes_of(const char *compressor, size_t largest)
{
    const struct dp_bucket_plan plan = {.largest = largest};

    return dp_compression_codes(compressor, &plan, RANKS);
}

/* Pairs of a number and its place: this rank's twice, and those of all ranks; at least
 * one pair, unless there is nothing. */
static void codes_of_topk_are_pairs(void **state)
{
    const size_t slots = 2 + RANKS, pair = 8;
    (void)state;

    assert_int_equal(codes_of("topk:ratio=0.25", 4096), slots * 1024 * pair);
    assert_int_equal(codes_of("topk:ratio=0.25,momentum=0.5", 4096),
                     slots * 1024 * pair + 1024 * sizeof(float));
    assert_int_equal(codes_of("topk:ratio=0.25", 3), slots * DP_MEM_ALIGN);
    assert_int_equal(codes_of("topk:ratio=0.25", 1), slots * DP_MEM_ALIGN);
    assert_int_equal(codes_of("topk:ratio=0.25", 0), 0);
    assert_int_equal(codes_of("none", 4096), 0);
    assert_int_equal(codes_of("no compressor", 4096), 0);
}

/* Whatever it is, of vectors nothing but themselves is sent. */
static void codes_of_powersgd_are_thin_matrices_or_a_vector(void **state)
{
    static const struct dp_tensor vector = {.count = TRAINED, .dims = 1, .shape = {TRAINED}};
    static const struct dp_tensor matrix = {.count = TRAINED, .dims = 2, .shape = {50, 20}};
    static const struct {
        const struct dp_tensor *tensor;
        size_t floats;
    } cases[] = {{&vector, 1024}, {&matrix, 128 + (size_t)2 * 40}}; /* P of 100, and twice Q */
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_bucket_plan *plan = NULL;
        assert_int_equal(dp_bucket_plan_create(cases[i].tensor, 1, 1024, 1024 + DP_BLOCK,
                                               &(struct dp_bucket_sizes){64, 64, false}, &plan),
                         DP_OK);
        assert_int_equal(dp_compression_codes("powersgd:rank=2", plan, RANKS),
                         cases[i].floats * sizeof(float));
        dp_bucket_plan_destroy(plan);
    }
}

static void check_work(const char *compressor, int ranks, double encodes, double decodes)
{
    const struct dp_coding_work work = dp_compression_work(compressor, ranks);

    assert_float_equal(work.encodes, encodes, 1e-12);
    assert_float_equal(work.decodes, decodes, 1e-12);
}

/* Each rank encodes its own and the sum of its part, and decodes as much as there is of both; or
 * what all ranks have sent. */
static void what_is_coded_depends_on_ranks_as_the_method_says(void **state)
{
    (void)state;

    check_work("none", 4, 1.0, 1.0);
    check_work("fp16", 4, 1.25, 2.0);
    check_work("int8", 2, 1.5, 2.0);
    check_work("topk", 4, 1.0, 4.0);
    check_work("no compressor", 4, 1.0, 1.0);
}

/* ---- memory that lacks ---- */

/* The reference, in other memory than the host's, of which there is none of one kind. */
static struct dp_device far;

static void *no_memory(enum dp_purpose purpose, size_t bytes)
{
    (void)purpose;
    (void)bytes;
    return NULL;
}

static size_t lacks_memory(struct dp_group *group, const void *arg)
{
    static const struct dp_tensor tensor = {.count = MUCH};
    const struct dp_compression_config config = {.compressor = arg};
    struct dp_bucket_plan *plan = NULL;
    struct dp_compression *compression = NULL;
    struct dp_stream codes = *group->stream;
    struct dp_comm *comm = NULL;
    size_t wrong;

    codes.device = &far;
    if (dp_bucket_plan_create(&tensor, 1, MUCH, MUCH + DP_BLOCK,
                              &(struct dp_bucket_sizes){64, 64, false}, &plan) != DP_OK ||
        dp_comm_create(group, "ring", DP_BLOCK, 0, &comm) != DP_OK) {
        return 1;
    }
    comm->codes = &codes;
    wrong = dp_compression_create(comm, plan, NULL, MUCH, &config, &compression) != DP_ERR_NOMEM;
    wrong += compression != NULL;
    dp_comm_destroy(comm);
    dp_bucket_plan_destroy(plan);
    return wrong;
}

static void check_lack(const char *compressor, const char *text)
{
    const size_t live = dp_mem_live();

    stderr_begin();
    const size_t wrong = on_local_ranks(2, lacks_memory, compressor);
    stderr_end();
    assert_int_equal(wrong, 0);
    if (strstr(stderr_text, text) == NULL) {
        fail_msg("%s", stderr_text);
    }
    assert_int_equal(dp_mem_live(), live);
}

static void memory_that_lacks_is_named_with_its_size(void **state)
{
    const struct dp_device *ref = NULL;
    (void)state;

    assert_int_equal(dp_device_find("ref", &ref), DP_OK);
    far = *ref;
    far.host_memory = false;
    far.alloc_host = no_memory;
    check_lack("topk", "residuals of compressor topk need 12 MB of the host, too: ");
    far.alloc = no_memory;
    check_lack("topk", "residuals of compressor topk need 12 MB: ");
    check_lack("topk:momentum=0.9", "residuals of compressor topk need 24 MB: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_are_as_long_as_the_weights),
        cmocka_unit_test(codes_of_topk_are_pairs),
        cmocka_unit_test(codes_of_powersgd_are_thin_matrices_or_a_vector),
        cmocka_unit_test(what_is_coded_depends_on_ranks_as_the_method_says),
        cmocka_unit_test(memory_that_lacks_is_named_with_its_size),
    };

    return cmocka_run_group_tests_name("compression_sizes", tests, NULL, NULL);
}
