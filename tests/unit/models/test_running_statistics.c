/* test_running_statistics.c - how a model's running statistics are updated by a batch. */
#include "kernels/ref/ops_ref.h"
#include "tests/support/arrays.h"
#include "tests/support/models/small_model.h"

static int blends; /* calls since a test has set it to 0 */

static dp_status counted_blend(struct dp_stream *s, float *y, const float *x, float weight,
                               size_t count)
{
    blends++;
    return dp_ref_ops.blend(s, y, x, weight, count);
}

/* Each layer has two channels: two means, two variances. */
static void check(struct dp_stream *stream, const char *layers, const float *momentums, int count,
                  int calls)
{
    struct small_model small = small_model_create("[2]", layers);
    struct dp_stream counting = *stream;
    struct dp_ops ops = *stream->ops;
    float running[16], statistics[16], expected[16];

    assert_int_equal(small.model->statistics, 4 * (size_t)count);
    for (int i = 0; i < 4 * count; i++) {
        running[i] = (float)i;
        statistics[i] = (float)(7 * i % 16);
        expected[i] = (1 - momentums[i / 4]) * running[i] + momentums[i / 4] * statistics[i];
    }
    ops.blend = counted_blend;
    counting.ops = &ops;
    blends = 0;
    OK(dp_model_absorb(small.model, &counting, running, statistics));
    assert_same_bits(running, expected, 4 * (size_t)count);
    assert_int_equal(blends, calls);
    small_model_destroy(&small);
}

static void each_layer_updates_statistics_with_its_own_momentum(void **state)
{
    static const float momentums[] = {0.5f, 0.25f};
    const struct streams *streams = *state;

    check(streams->ref,
          "[batchnorm: {momentum: 0.5}, dense: {units: 2}, batchnorm: {momentum: 0.25}, dense:"
          " {units: 2}]",
          momentums, 2, 2);
}

/* On a GPU each operation is a launch: resnet50 has 53 such layers. */
static void layers_with_equal_momentum_need_one_operation(void **state)
{
    static const float equal[] = {0.5f, 0.5f, 0.5f, 0.5f}, last[] = {0.5f, 0.5f, 0.5f, 0.125f};
    const struct streams *streams = *state;

    check(streams->ref,
          "[repeat: {times: 4, layers: [batchnorm: {momentum: 0.5}, dense: {units: 2}]}]", equal, 4,
          1);
    check(streams->ref,
          "[repeat: {times: 3, layers: [batchnorm: {momentum: 0.5}, dense: {units: 2}]},"
          " batchnorm: {momentum: 0.125}, dense: {units: 2}]",
          last, 4, 2);
}

static void without_batch_norm_nothing_is_computed(void **state)
{
    const struct streams *streams = *state;

    check(streams->ref, "[dense: {units: 2}]", NULL, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_updates_statistics_with_its_own_momentum),
        cmocka_unit_test(layers_with_equal_momentum_need_one_operation),
        cmocka_unit_test(without_batch_norm_nothing_is_computed),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
