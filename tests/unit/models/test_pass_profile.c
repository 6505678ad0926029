/*
 * test_pass_profile.c - times of layers: whose they are, what computed them, how much work it was;
 * and that measuring changes nothing.
 */
#include "models/pass/pass_profile.h"
#include "tests/support/arrays.h"
#include "tests/support/models/small_model.h"

enum { ROWS = 12, MOST = 32 };

static const char image[] = "[6, 6, 2]";
static const char layers[] =
    "[conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}, batchnorm: {}, relu: {}, residual: "
    "{body: [conv2d: {filters: 4, kernel: 1, bias: false}, batchnorm: {}], shortcut: []}, dropout: "
    "{rate: 0.2}, maxpool: {size: 2}, flatten: {}, dense: {units: 5}, relu: {}, dense: {units: 3}]";

/* Some device's profile of the model above; grad [grad_count]. */
struct found {
    struct small_model small;
    struct small_batch batch;
    struct dp_pass *pass;
    float *grad;
    struct dp_pass_call call;
    struct dp_layer_profile layer[MOST];
    int count;
};

static void open_model(struct found *f, struct dp_stream *stream, const char *input,
                       const char *text)
{
    f->small = small_model_create(input, text);
    f->batch = small_batch_create(f->small.model, ROWS);
    f->grad = zeros(grad_count(f->small.model));
    f->call = batch_call(&f->batch, 0, ROWS, f->grad, 0);
    assert_true(dp_pass_profile_most(f->small.model) <= MOST);
    OK(dp_pass_create(f->small.model, stream, ROWS, true, &f->pass));
    OK(batch_step(&f->batch, f->pass, &f->call));
}

static void open_found(struct found *f, struct dp_stream *stream)
{
    open_model(f, stream, image, layers);
}

static void close_found(struct found *f)
{
    dp_pass_destroy(f->pass);
    dp_free(f->grad);
    small_batch_destroy(&f->batch);
    small_model_destroy(&f->small);
}

static const struct dp_layer_profile *layer_called(const struct found *f, const char *name)
{
    for (int i = 0; i < f->count; i++) {
        if (strcmp(f->layer[i].name, name) == 0) {
            return &f->layer[i];
        }
    }
    fail_msg("no layer '%s'", name);
    return f->layer;
}

static void layers_have_their_names_kinds_and_work(void **state)
{
    const struct streams *streams = *state;
    struct found f;

    open_found(&f, streams->tested[0]);
    OK(dp_pass_profile(f.pass, &f.call, &(struct dp_pass_effort){9.0, 2, 1, 9.0}, f.layer,
                       &f.count));
    const struct dp_layer_profile *first = layer_called(&f, "0"), *last = layer_called(&f, "9");
    assert_string_equal(first->kind, "conv2d");
    assert_string_equal(layer_called(&f, "1")->kind, "batchnorm");
    assert_string_equal(layer_called(&f, "3.body.0")->kind, "conv2d");
    assert_string_equal(last->kind, "dense");
    assert_string_equal(f.layer[f.count - 1].name, "loss");
    /* 36 places, 4 filters of 3x3x2: forward and the weights' gradient, since the input has none */
    assert_true(first->flops == 2.0 * ROWS * 36 * 4 * 18 * 2);
    assert_true(last->flops == 3.0 * ROWS * 2 * 5 * 3);
    /* x, y, w and b; then dy, x, dx, w and b again, and their gradients */
    assert_true(last->bytes == 4.0 * (ROWS * (5 + 3) + 18 + ROWS * (3 + 5 + 5) + 18 + 18));
    for (int i = 0; i < f.count; i++) {
        const struct dp_layer_profile *l = &f.layer[i];
        assert_true(l->product ==
                    (strcmp(l->kind, "conv2d") == 0 || strcmp(l->kind, "dense") == 0));
        assert_true(l->product == (l->best_s > 0.0));
        assert_true(strcmp(l->kind, "flatten") != 0); /* it does nothing */
        assert_true(l->seconds[DP_FORWARD] + l->seconds[DP_BACKWARD] > 0.0);
    }
    close_found(&f);
}

static void a_path_says_what_computed_a_layer(void **state)
{
    const struct streams *streams = *state;
    struct found f;

    open_found(&f, streams->ref);
    OK(dp_pass_profile(f.pass, &f.call, &(struct dp_pass_effort){9.0, 1, 0, 9.0}, f.layer,
                       &f.count));
    assert_string_equal(layer_called(&f, "0")->path, "ref loops");
    assert_string_equal(layer_called(&f, "9")->path, "ref loops");
    assert_string_equal(layer_called(&f, "1")->path, "");
    assert_null(streams->ref->path);
    close_found(&f);
    open_found(&f, streams->tested[0]);
    OK(dp_pass_profile(f.pass, &f.call, &(struct dp_pass_effort){9.0, 1, 0, 9.0}, f.layer,
                       &f.count));
    assert_string_not_equal(layer_called(&f, "9")->path, "");
    assert_string_not_equal(layer_called(&f, "9")->path, "ref loops");
    close_found(&f);
}

static void measuring_gives_the_gradient_of_a_step_and_leaves_nothing(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t i = 0; i < DP_COUNT(all); i++) {
        struct found f;
        open_found(&f, all[i]);
        const size_t count = grad_count(f.small.model);
        float *measured = zeros(count);
        struct dp_pass_call call = f.call;
        call.grad = measured;
        OK(dp_pass_profile(f.pass, &call, &(struct dp_pass_effort){9.0, 2, 0, 9.0}, f.layer,
                           &f.count));
        assert_same_bits(measured, f.grad, count);
        OK(dp_pass_profile(f.pass, &call, &(struct dp_pass_effort){9.0, 1, 3, 9.0}, f.layer,
                           &f.count));
        call.grad = zeros(count);
        OK(batch_step(&f.batch, f.pass, &call));
        assert_same_bits(call.grad, f.grad, count);
        dp_free(call.grad);
        dp_free(measured);
        close_found(&f);
    }
}

/* A table for this stream's device by which tiles compute what was measured. */
static struct dp_algo_choices *by_tiles(const struct dp_algo_choices *measured)
{
    struct dp_algo_choices *choices = NULL;
    struct dp_algo_choice choice;
    size_t at = 0;

    OK(dp_algo_choices_create("this one", &choices));
    while (dp_algo_choices_next(measured, &at, &choice)) {
        choice.value = strstr(choice.name, "convolution") != NULL ? "winograd" : choice.value;
        OK(dp_algo_choices_add(choices, &choice));
    }
    return choices;
}

/* 16 tiles of 36 products in place of 14 x 14 pixels of 9. */
static void check_work(int threads)
{
    static const char wide[] = "[conv2d: {filters: 16, kernel: 3, padding: 1, bias: false}, "
                               "flatten: {}, dense: {units: 3}]";
    struct dp_stream *s = stream_on(tested_device(), threads);
    const double nominal = 2.0 * ROWS * 14 * 14 * 16 * 16 * 9 * 2; /* the input has no gradient */
    struct dp_algo_choices *measured = NULL;
    struct found f;

    OK(dp_algo_choices_create("this one", &measured));
    s->algo_choices = measured;
    open_model(&f, s, "[14, 14, 16]", wide);
    close_found(&f);
    s->algo_choices = by_tiles(measured);
    OK(s->device->forget(s));
    open_model(&f, s, "[14, 14, 16]", wide);
    OK(dp_pass_profile(f.pass, &f.call, &(struct dp_pass_effort){9.0, 2, 1, 9.0}, f.layer,
                       &f.count));
    const struct dp_layer_profile *first = layer_called(&f, "0");
    if (strcmp(first->path, "own winograd") == 0) {
        const double share = 16.0 * 36 / (14.0 * 14 * 9);
        assert_true(first->flops > 0.999 * share * nominal &&
                    first->flops < 1.001 * share * nominal);
    } else {
        assert_true(first->flops == nominal); /* another processor, or a build without oneDNN */
    }
    close_found(&f);
    dp_algo_choices_destroy(s->algo_choices);
    dp_algo_choices_destroy(measured);
    stream_close(s);
}

/* One thread, and two, of which the clock is that of the first. */
static void work_is_what_the_algorithm_needs(void **state)
{
    (void)state;
    check_work(1);
    check_work(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_their_names_kinds_and_work),
        cmocka_unit_test(a_path_says_what_computed_a_layer),
        cmocka_unit_test(work_is_what_the_algorithm_needs),
        cmocka_unit_test(measuring_gives_the_gradient_of_a_step_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, streams_open, streams_close);
}
