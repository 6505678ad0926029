/* test_grad_norm.c - clipping by the norm of the whole gradient, and finding numbers that are not
 * finite. */
#include "base/log.h"
#include "runtime/optim/grad_norm.h"
#include "tests/support/arrays.h"

enum { TRAINED = 200 * DP_BLOCK };

static float *grad; /* [TRAINED] */
static const char *devices[] = {"ref", NULL};

static int gradient_open(void **state)
{
    (void)state;
    grad = zeros(TRAINED);
    devices[1] = tested_device();
    return 0;
}

static int gradient_close(void **state)
{
    (void)state;
    dp_free(grad);
    return (int)blocks_left();
}

/* Random numbers with gaps of zeros, as after tensors. */
static void fill_grad(float scale)
{
    for (size_t i = 0; i < TRAINED; i++) {
        const float x = dp_random_unit(dp_random_u32(3, DP_RANDOM_TEST, 0, i)) - 0.5f;
        grad[i] = i % 500 > 460 ? 0.0f : scale * x;
    }
}

/* Adds the gradient in ranges of `step` blocks, last range first, like buckets. */
static float factor_on(float before, const char *device_name, double clip_norm, size_t step,
                       double *norm)
{
    const struct dp_flat flat = {.trained = TRAINED, .total = TRAINED + DP_BLOCK, .grad = grad};
    struct dp_step_params step_params = {.factor = before};
    struct dp_stream *stream = stream_on(device_name, 1);
    struct dp_grad_norm *grad_norm;

    assert_int_equal(dp_grad_norm_create(&flat, clip_norm, false, stream, &grad_norm), DP_OK);
    for (size_t end = TRAINED; end > 0;) {
        const size_t begin = end > step * DP_BLOCK ? end - step * DP_BLOCK : 0;
        assert_int_equal(dp_grad_norm_add(grad_norm, (struct dp_range){begin, end - begin}), DP_OK);
        end = begin;
    }
    assert_int_equal(dp_grad_norm_decide(grad_norm, &step_params), DP_OK);
    *norm = grad_norm->norm;
    dp_grad_norm_destroy(grad_norm);
    stream_close(stream);
    return step_params.factor;
}

static float factor_of(const char *device_name, double clip_norm, size_t step, double *norm)
{
    return factor_on(1.0f, device_name, clip_norm, step, norm);
}

static void clipping_applies_after_the_loss_scale(void **state)
{
    double norm, twice;
    (void)state;

    fill_grad(1.0f);
    (void)factor_of("ref", 1.0, 4, &norm);
    const double factor = (double)factor_on(2.0f, "ref", 1.0, 4, &twice);
    assert_true(twice == 2.0 * norm);
    assert_true(fabs(factor * norm - 1.0) < 1e-6);
    assert_true(factor_on(2.0f, "ref", 1e6, 4, &twice) == 2.0f);
}

/* torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)). The squares of a block are
 * kept in float32: each is off by 2^-24 at most, and so is their sum and twice its root. */
static void the_clipping_factor_is_that_of_pytorch(void **state)
{
    static const double clip_norms[] = {0.01, 1.0, 5.0, 31.0, 33.0, 1e6};
    (void)state;

    fill_grad(1.0f);
    for (size_t d = 0; d < 2; d++) {
        for (size_t n = 0; n < sizeof(clip_norms) / sizeof(clip_norms[0]); n++) {
            double sum = 0.0, norm = 0.0;
            for (size_t i = 0; i < TRAINED; i++) {
                sum += (double)grad[i] * (double)grad[i];
            }
            const double expected = fmin(1.0, clip_norms[n] / (sqrt(sum) + 1e-6));
            const float factor = factor_of(devices[d], clip_norms[n], 7, &norm);
            assert_true(fabs(norm - sqrt(sum)) <= 2e-7 * sqrt(sum));
            assert_true(fabs((double)factor - expected) <= 3e-7 * expected);
        }
    }
}

static void a_small_or_empty_gradient_is_left_alone(void **state)
{
    double norm = -1.0;
    (void)state;

    memset(grad, 0, TRAINED * sizeof(*grad));
    assert_true(factor_of("ref", 1.0, 3, &norm) == 1.0f);
    assert_true(norm == 0.0);
    grad[77] = 3.0f;
    grad[999] = 4.0f;
    assert_true(factor_of("ref", 5.1, 3, &norm) == 1.0f);
    assert_true(norm == 5.0);
    assert_true(factor_of("ref", 2.5, 3, &norm) == (float)(2.5 / (5.0 + 1e-6)));
}

static void the_norm_does_not_depend_on_buckets(void **state)
{
    (void)state;
    fill_grad(100.0f);
    for (size_t d = 0; d < 2; d++) {
        double whole_norm, norm;
        const float whole = factor_of(devices[d], 1.0, 200, &whole_norm);
        for (size_t step = 1; step < 60; step += 7) {
            assert_true(factor_of(devices[d], 1.0, step, &norm) == whole);
            assert_true(norm == whole_norm);
        }
    }
}

static void creating_survives_every_failed_allocation(void **state)
{
    const struct dp_flat flat = {.trained = TRAINED, .grad = grad};
    struct dp_stream *stream = stream_on(devices[1], 1);
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    const size_t live = dp_mem_live();
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_grad_norm *grad_norm = NULL;
        dp_mem_fail_nth(nth);
        status = dp_grad_norm_create(&flat, 1.0, false, stream, &grad_norm);
        dp_mem_fail_nth(0);
        assert_true((grad_norm != NULL) == (status == DP_OK));
        dp_grad_norm_destroy(grad_norm);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    stream_close(stream);
}

static void the_first_tensor_that_overflows_is_named(void **state)
{
    const struct dp_tensor tensors[] = {
        {.name = "0.weight", .count = 100, .begin = 0},
        {.name = "0.bias", .count = 10, .begin = (size_t)2 * DP_BLOCK},
        {.name = "2.weight", .count = 12000, .begin = (size_t)3 * DP_BLOCK}};
    const struct dp_flat flat = {.tensors = tensors,
                                 .tensor_count = 3,
                                 .trained = TRAINED,
                                 .total = TRAINED + DP_BLOCK,
                                 .grad = grad};
    static const struct {
        size_t at;
        float value;
        const char *name; /* among those planted so far */
    } plants[] = {{99, INFINITY, "0.weight"},
                  {2 * DP_BLOCK + 9, NAN, "0.bias"},
                  {TRAINED - 100, -INFINITY, "2.weight"}};
    struct dp_stream *stream = stream_on(devices[1], 1);
    struct dp_grad_norm *grad_norm;
    (void)state;

    for (int clips = 0; clips < 2; clips++) {
        struct dp_step_params step_params = {.factor = 1.0f / 1024, .loss_scale = 1024};
        fill_grad(1.0f);
        assert_int_equal(dp_grad_norm_create(&flat, clips, true, stream, &grad_norm), DP_OK);
        assert_int_equal(dp_grad_norm_add(grad_norm, (struct dp_range){0, TRAINED}), DP_OK);
        assert_int_equal(dp_grad_norm_decide(grad_norm, &step_params), DP_OK);
        assert_int_equal(step_params.skip, 0);
        assert_null(dp_grad_norm_overflowed(grad_norm));
        for (size_t i = 0; i < 3; i++) {
            grad[plants[i].at] = plants[i].value;
            step_params.skip = 0;
            assert_int_equal(dp_grad_norm_add(grad_norm, (struct dp_range){0, TRAINED}), DP_OK);
            assert_int_equal(dp_grad_norm_decide(grad_norm, &step_params), DP_OK);
            assert_int_equal(step_params.skip, 1);
            assert_string_equal(dp_grad_norm_overflowed(grad_norm)->name, plants[i].name);
        }
        dp_grad_norm_destroy(grad_norm);
    }
    stream_close(stream);
}

/* ---- what crosses to the host ---- */

static size_t downloaded; /* bytes */

static dp_status counted_download(struct dp_stream *stream, void *host, const void *device,
                                  size_t bytes)
{
    const struct dp_device *found;

    downloaded += bytes;
    DP_TRY(dp_device_find(stream->device->plugin.name, &found));
    return found->download(stream, host, device, bytes);
}

/* At 268 million parameters all squares are 16 MiB, and adding them up on the host takes 4 to 5 ms
 * of each step. */
static void for_a_finite_gradient_the_host_reads_one_number(void **state)
{
    const struct dp_tensor tensor = {.name = "0.weight", .count = TRAINED};
    const struct dp_flat flat = {
        .tensors = &tensor, .tensor_count = 1, .trained = TRAINED, .grad = grad};
    struct dp_stream *stream = stream_on(devices[1], 1), counting = *stream;
    struct dp_device device = *stream->device;
    struct dp_step_params step_params = {.factor = 1.0f};
    struct dp_grad_norm *grad_norm;
    (void)state;

    device.download = counted_download;
    counting.device = &device;
    fill_grad(1.0f);
    assert_int_equal(dp_grad_norm_create(&flat, 1.0, true, &counting, &grad_norm), DP_OK);
    assert_int_equal(dp_grad_norm_add(grad_norm, (struct dp_range){0, TRAINED}), DP_OK);
    downloaded = 0;
    assert_int_equal(dp_grad_norm_decide(grad_norm, &step_params), DP_OK);
    assert_int_equal(step_params.skip, 0);
    assert_int_equal(downloaded, sizeof(double));
    grad[7] = NAN;
    assert_int_equal(dp_grad_norm_add(grad_norm, (struct dp_range){0, TRAINED}), DP_OK);
    assert_int_equal(dp_grad_norm_decide(grad_norm, &step_params), DP_OK);
    assert_int_equal(step_params.skip, 1);
    assert_string_equal(dp_grad_norm_overflowed(grad_norm)->name, "0.weight");
    dp_grad_norm_destroy(grad_norm);
    stream_close(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipping_applies_after_the_loss_scale),
        cmocka_unit_test(the_clipping_factor_is_that_of_pytorch),
        cmocka_unit_test(a_small_or_empty_gradient_is_left_alone),
        cmocka_unit_test(the_norm_does_not_depend_on_buckets),
        cmocka_unit_test(creating_survives_every_failed_allocation),
        cmocka_unit_test(the_first_tensor_that_overflows_is_named),
        cmocka_unit_test(for_a_finite_gradient_the_host_reads_one_number),
    };

    return run_reached_tests(tests, gradient_open, gradient_close);
}
