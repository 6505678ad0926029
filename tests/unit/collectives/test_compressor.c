/*
 * test_compressor.c - what every compressor must do, checked for every registered one. A new one is
 * covered as soon as it is in compressors.def.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/strategies/compressor_lab.h"

enum { STEPS = 3 };

/* Beside every compressor with its defaults. */
static const char *const with_options[] = {"int8:block=64", "topk:ratio=0.2", "randomk:ratio=0.3",
                                           "powersgd:rank=2", "powersgd:rank=5"};

static const struct {
    const char *strategy;
    enum dp_keep keep;
    bool messages;
} ways[] = {
    {"shm", DP_KEEP_ALL, false},
    {"shm", DP_KEEP_CHUNK, false},
    {"ring", DP_KEEP_ALL, true},
    {"ring", DP_KEEP_CHUNK, true},
};

/* The text of compressor i: all with defaults, then those with options; NULL after the last. */
static const char *text_at(size_t i)
{
    size_t count = 0;

    while (dp_plugin_at(&dp_compressors, (int)count) != NULL) {
        count++;
    }
    if (i < count) {
        return dp_plugin_at(&dp_compressors, (int)i)->name;
    }
    return i - count < DP_COUNT(with_options) ? with_options[i - count] : NULL;
}

/* `number`: of the compressor, for the share of ways that it is tried in. */
static void on_ranks(int ranks, size_t number, rank_body *body)
{
    const char *text = text_at(number);

    for (size_t w = 0; w < DP_COUNT(ways); w++) {
        if (!in_share(number + (size_t)ranks + w)) {
            continue;
        }
        const struct lab_setup setup = {text, ways[w].strategy, ways[w].keep, ways[w].messages};
        const size_t live = dp_mem_live();
        const size_t wrong = on_local_ranks(ranks, body, &setup);
        if (wrong != 0) {
            fail_msg("%s over %s, keep %d, %d ranks: %zu wrong", text, setup.strategy,
                     (int)setup.keep, ranks, wrong);
        }
        assert_int_equal(dp_mem_live(), live);
    }
}

/* Runs `body` for every compressor but `none`, in every way to share, on these many ranks. */
static void on_all(int first, int last, rank_body *body)
{
    for (size_t i = 1; text_at(i) != NULL; i++) {
        for (int ranks = first; ranks <= last; ranks++) {
            on_ranks(ranks, i, body);
        }
    }
}

/* ---- sums ---- */

static size_t sums_alike(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    wrong += (lab.compression == NULL) != (group->size == 1);
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        wrong += lab_split(&lab);
        for (size_t i = 3000; i < 3008; i++) {
            wrong += lab.grad[i] != 0; /* between two tensors */
        }
    }
    lab_close(&lab);
    return wrong;
}

static void all_ranks_get_the_same_bits(void **state)
{
    (void)state;
    on_all(1, 3, sums_alike);
    on_all(5, 5, sums_alike);
}

/* Every bucket but the tail is coded, and coding is a part of the last step alone. A device that
 * queues has no times. */
static size_t times_coding(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        const uint64_t begin_ns = dp_now_ns();
        uint64_t coding_ns = 0;
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        for (int b = 0; b < lab.plan->count; b++) {
            const struct dp_coding_times coding = dp_compression_coding(lab.compression, b);
            wrong += (coding.encode_ns > 0) !=
                     (!lab.plan->buckets[b].exact && lab.codes->device->host_memory);
            coding_ns += coding.encode_ns + coding.decode_ns;
        }
        wrong += coding_ns > dp_now_ns() - begin_ns;
    }
    lab_close(&lab);
    return wrong;
}

static void coding_of_the_last_step_is_timed(void **state)
{
    (void)state;
    on_all(2, 3, times_coding);
}

/* ---- error feedback ---- */

/* kept = over all ranks and residuals, what has not been sent of each element. */
static size_t sum_kept(const struct lab *lab, double *kept, float *all)
{
    const int size = lab->group->size;
    size_t wrong = 0;

    memset(kept, 0, LAB_TRAINED * sizeof(*kept));
    for (int r = 0; r < lab->compression->residuals; r++) {
        wrong += dp_group_allgather(lab->group, lab->compression->residual[r],
                                    LAB_TRAINED * sizeof(float), all) != DP_OK;
        for (size_t i = 0; i < (size_t)size * LAB_TRAINED; i++) {
            kept[i % LAB_TRAINED] += (double)all[i];
        }
    }
    return wrong;
}

/* Sent and kept together are what came in, within the roundings of a few float32 operations on
 * numbers of this size: of n ranks, each below 1.1 and what it kept before. */
static size_t wrong_balance(const struct lab *lab, const double *before, const double *kept)
{
    size_t wrong = 0;

    for (size_t i = 0; i < LAB_TRAINED; i++) {
        double came = before[i], size = fabs(before[i]);
        for (int rank = 0; rank < lab->group->size; rank++) {
            const double x = (double)lab_value(rank, lab->step_params.step - 1, i);
            came += x;
            size += 1.1 + fabs(x);
        }
        wrong += !(fabs((double)lab->grad[i] + kept[i] - came) <= 2e-6 * size);
    }
    return wrong;
}

static size_t keeps_the_rest(struct dp_group *group, const void *setup)
{
    const size_t ranks = (size_t)group->size;
    double *before = dp_zalloc(LAB_TRAINED, sizeof(*before));
    double *kept = dp_zalloc(LAB_TRAINED, sizeof(*kept));
    float *all = dp_zalloc(ranks * LAB_TRAINED, sizeof(*all));
    struct lab lab;
    size_t wrong = before == NULL || kept == NULL || all == NULL;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS && wrong == 0 && lab.compression->residuals > 0; step++) {
        lab_fill(&lab);
        memcpy(before, kept, LAB_TRAINED * sizeof(*kept));
        wrong += lab_step(&lab) != DP_OK;
        wrong += sum_kept(&lab, kept, all);
        wrong += wrong_balance(&lab, before, kept);
    }
    lab_close(&lab);
    dp_free(all);
    dp_free(kept);
    dp_free(before);
    return wrong;
}

static void sent_plus_kept_equals_the_input(void **state)
{
    (void)state;
    on_all(2, 3, keeps_the_rest);
}

static size_t does_nothing_when_skipped(struct dp_group *group, const void *setup)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    uint64_t before[DP_COMPRESSION_ARRAYS] = {0}, after[DP_COMPRESSION_ARRAYS] = {0}, all[2];
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    const int count = dp_compression_arrays(lab.compression, arrays);
    for (int turn = 0; turn < 2; turn++) {
        const uint64_t wire = group->wire_bytes;
        lab_fill(&lab);
        lab.step_params.skip = (uint32_t)turn;
        for (int b = 0; b < lab.plan->count - 1; b++) {
            wrong += dp_compression_sum(lab.compression, b, lab.setup->keep) != DP_OK;
        }
        const uint64_t sent = group->wire_bytes - wire;
        wrong += dp_group_allgather(group, &sent, sizeof(sent), all) != DP_OK;
        wrong += (all[0] + all[1] == 0) != (turn == 1); /* few numbers are one rank's to read */
        for (int i = 0; i < count; i++) {
            uint64_t *hash = turn == 0 ? &before[i] : &after[i];
            *hash = arrays[i].count;
            for (size_t k = 0; k < arrays[i].count; k++) {
                uint32_t bits;
                memcpy(&bits, &arrays[i].data[k], sizeof(bits));
                *hash = (*hash ^ bits) * 0x100000001b3u;
            }
            wrong += turn == 1 && before[i] != after[i];
        }
    }
    lab_close(&lab);
    return wrong;
}

static void a_skipped_step_sends_nothing_and_changes_no_residual(void **state)
{
    (void)state;
    on_all(2, 2, does_nothing_when_skipped);
}

/* ---- bad numbers ---- */

static size_t shows_a_nan(struct dp_group *group, const void *setup)
{
    enum { AT = 3100 };
    struct lab lab;
    bool found;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    lab_fill(&lab);
    lab.grad[AT] = group->rank == 1 ? NAN : lab.grad[AT];
    wrong += lab_step(&lab) != DP_OK;
    wrong += lab_split(&lab);
    found = isnan(lab.grad[AT]);
    for (int r = 0; r < lab.compression->residuals; r++) {
        found = found || isnan(lab.compression->residual[r][AT]);
    }
    wrong += group->rank == 1 && !found; /* sent, or kept for later */
    lab_close(&lab);
    return wrong;
}

static void a_nan_is_sent_or_kept(void **state)
{
    (void)state;
    on_all(2, 3, shows_a_nan);
}

static size_t agrees_on_anything(struct dp_group *group, const void *setup)
{
    static const float odd[] = {3e38f, -3e38f, 1e-42f, -1e-38f, 65504, -70000, INFINITY, 0, -0.0f};
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        for (size_t i = (size_t)group->rank; i < LAB_TRAINED; i += 97) {
            lab.grad[i] = lab.grad[i] == 0 ? 0 : odd[i % DP_COUNT(odd)];
        }
        wrong += lab_step(&lab) != DP_OK;
        wrong += lab_split(&lab);
    }
    lab_close(&lab);
    return wrong;
}

static void ranks_agree_on_any_numbers(void **state)
{
    (void)state;
    on_all(2, 3, agrees_on_anything);
}

static size_t sums_zeros(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        wrong += lab_step(&lab) != DP_OK;
        for (size_t i = 0; i < LAB_TRAINED; i++) {
            wrong += lab.grad[i] != 0;
        }
    }
    lab_close(&lab);
    return wrong;
}

static void a_gradient_of_zeros_stays_zero(void **state)
{
    (void)state;
    on_all(2, 3, sums_zeros);
}

/* ---- bytes ---- */

/* Barriers by messages send a byte in each of log2(ranks) turns; a sum of codes has at most two. */
static size_t sends_what_it_says(struct dp_group *group, const void *setup)
{
    struct lab lab;
    uint64_t with, without, barriers = 0;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    dp_compression_wire(lab.compression, lab.setup->keep, &with, &without);
    for (int distance = 1; distance < group->size; distance *= 2) {
        barriers += 2 * (uint64_t)(lab.plan->count - 1);
    }
    for (int step = 0; step < 2; step++) {
        lab_fill(&lab);
        const uint64_t wire = group->wire_bytes;
        wrong += lab_step(&lab) != DP_OK;
        const uint64_t sent = group->wire_bytes - wire;
        wrong += sent < with || sent > with + (lab.setup->messages ? barriers : 0);
    }
    /* And the strategy alone. */
    const uint64_t wire = group->wire_bytes;
    for (int b = 0; b < lab.plan->count - 1; b++) {
        const struct dp_range *range = &lab.plan->buckets[b].range;
        const struct dp_slice grad = {lab.grad + range->begin, range->count, sizeof(float)};
        wrong += dp_comm_sum(lab.comm, grad, lab.setup->keep) != DP_OK;
    }
    wrong += group->wire_bytes - wire != without;
    lab_close(&lab);
    return wrong;
}

static void as_many_bytes_are_sent_as_predicted(void **state)
{
    (void)state;
    on_all(2, 3, sends_what_it_says);
    on_all(5, 5, sends_what_it_says);
}

/* ---- memory ---- */

static size_t opens_and_steps(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    lab_fill(&lab);
    wrong = lab_step(&lab) != DP_OK;
    lab_close(&lab);
    return wrong;
}

static void opening_survives_every_failed_allocation_on_one_rank_or_two(void **state)
{
    const char *text;
    (void)state;

    const struct lab_setup momentum = {"topk:momentum=0.9", "ring", DP_KEEP_ALL, true};

    for (size_t i = 0; (text = text_at(i)) != NULL; i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            const struct lab_setup setup = {text, "ring", DP_KEEP_ALL, true};
            check_failing_allocations(ranks, NULL, opens_and_steps, &setup);
        }
    }
    check_failing_allocations(2, NULL, opens_and_steps, &momentum);
}

static size_t counts_arrays(struct dp_group *group, const void *setup)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    struct lab lab;
    size_t wrong = 0, bytes = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    const int count = dp_compression_arrays(lab.compression, arrays);
    for (int i = 0; i < count; i++) {
        wrong += arrays[i].data == NULL || arrays[i].name == NULL;
        wrong += !arrays[i].same && arrays[i].count != LAB_TRAINED;
        bytes += arrays[i].count * sizeof(float) * (arrays[i].data != arrays[i].there ? 2 : 1);
    }
    wrong += dp_group_barrier(group) != DP_OK; /* all have opened theirs, and none has left */
    wrong += dp_mem_bytes(DP_MEM_RESIDUALS) != bytes * (size_t)group->size;
    wrong += dp_group_barrier(group) != DP_OK;
    lab_close(&lab);
    return wrong;
}

static void all_memory_between_steps_is_counted_as_residuals(void **state)
{
    (void)state;
    on_all(2, 3, counts_arrays);
    assert_int_equal(dp_mem_bytes(DP_MEM_RESIDUALS), 0);
}

/* ---- what is refused ---- */

/* Memory for codes goes with what is sent: a sign for each number, a byte, two bytes. */
static void codes_take_memory_as_their_numbers_do(void **state)
{
    static const char *const texts[] = {"onebit", "int8", "fp16"};
    const struct dp_bucket_plan plan = {.largest = (size_t)1 << 24};
    size_t bytes[3];
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        const size_t numbers = plan.largest * (i == 0 ? 1 : 8 * i);
        bytes[i] = dp_compression_codes(texts[i], &plan, 2);
        assert_in_range(bytes[i], numbers / 8, numbers);
        assert_true(i == 0 || bytes[i] > bytes[i - 1]);
        assert_true(dp_compression_codes(texts[i], &plan, 8) < 2 * bytes[i]);
    }
}

static size_t is_refused(struct dp_group *group, const void *setup)
{
    struct lab lab;
    const int errors = dp_log_errors();

    return lab_open(&lab, group, setup) != DP_ERR_CONFIG || dp_log_errors() <= errors;
}

static void impossible_options_are_configuration_errors(void **state)
{
    static const struct lab_setup setups[] = {
        {"fp61", "ring", DP_KEEP_ALL, true},
        {"fp16:digits=3", "ring", DP_KEEP_ALL, true},
        {"fp16", "none", DP_KEEP_ALL, true},
        {"int8:block=100", "ring", DP_KEEP_ALL, true},
        {"topk:ratio=0", "ring", DP_KEEP_ALL, true},
        {"topk:ratio=1.1", "ring", DP_KEEP_ALL, true},
        {"topk:ratio=5e-7", "ring", DP_KEEP_ALL, true},
        {"topk:warmup_steps=1000000001", "ring", DP_KEEP_ALL, true},
    };
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < DP_COUNT(setups); i++) {
        assert_int_equal(on_local_ranks(2, is_refused, &setups[i]), 0);
        assert_int_equal(on_local_ranks(1, is_refused, &setups[i]), 0);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_get_the_same_bits),
        cmocka_unit_test(coding_of_the_last_step_is_timed),
        cmocka_unit_test(sent_plus_kept_equals_the_input),
        cmocka_unit_test(a_skipped_step_sends_nothing_and_changes_no_residual),
        cmocka_unit_test(a_nan_is_sent_or_kept),
        cmocka_unit_test(ranks_agree_on_any_numbers),
        cmocka_unit_test(a_gradient_of_zeros_stays_zero),
        cmocka_unit_test(as_many_bytes_are_sent_as_predicted),
        cmocka_unit_test(opening_survives_every_failed_allocation_on_one_rank_or_two),
        cmocka_unit_test(all_memory_between_steps_is_counted_as_residuals),
        cmocka_unit_test(codes_take_memory_as_their_numbers_do),
        cmocka_unit_test(impossible_options_are_configuration_errors),
    };

    return cmocka_run_group_tests_name("compressor", tests, NULL, NULL);
}
