/*
 * test_layer.c - what every layer type must do, checked for every registered one.
 *
 * A layer alone, on arrays of its own: gradients against finite differences, devices against each
 * other, and what its plan states. Models of several layers are in test_pass.c.
 */
#include "tests/support/models/layer_lab.h"

static const struct layer_case cases[] = {
    {"dense:units=3", {1, {5}}, PLAIN},
    {"dense:units=1,bias=false", {1, {7}}, PLAIN},
    {"conv2d:filters=3,kernel=3,padding=1", {3, {4, 5, 2}}, PLAIN},
    {"conv2d:filters=2,kernel=2,stride=2,bias=false", {3, {5, 4, 3}}, PLAIN},
    {"conv2d:filters=4,kernel=1,stride=2", {3, {3, 3, 1}}, PLAIN},
    {"conv2d:filters=2,kernel=5,padding=4,stride=3", {3, {4, 4, 1}}, PLAIN},
    {"conv2d:filters=4,kernel=3,padding=1,groups=4", {3, {4, 5, 4}}, PLAIN},
    {"conv2d:filters=6,kernel=2,stride=2,groups=2,bias=false", {3, {4, 4, 4}}, PLAIN},
    {"batchnorm", {1, {6}}, PLAIN},
    {"batchnorm:eps=0.1,momentum=0.5", {3, {3, 2, 3}}, PLAIN},
    {"batchnorm:sync=true", {3, {2, 2, 5}}, PLAIN},
    {"groupnorm:groups=2", {3, {3, 2, 4}}, PLAIN},
    {"groupnorm:groups=3,eps=0.1", {3, {2, 2, 3}}, PLAIN},
    {"groupnorm:groups=1", {3, {2, 3, 37}}, PLAIN},
    {"layernorm", {1, {11}}, PLAIN},
    {"layernorm:eps=0.1", {1, {40}}, PLAIN},
    {"relu", {1, {9}}, APART},
    {"relu", {3, {3, 2, 2}}, APART},
    {"gelu", {3, {2, 3, 4}}, PLAIN},
    {"silu", {3, {2, 3, 4}}, PLAIN},
    {"leaky_relu", {1, {9}}, APART},
    {"leaky_relu:slope=0.25", {3, {3, 2, 2}}, APART},
    {"maxpool:size=2", {3, {5, 4, 3}}, APART},
    {"maxpool:size=3,stride=2,padding=1", {3, {5, 5, 2}}, APART},
    {"maxpool:size=2,stride=1", {3, {3, 4, 1}}, APART},
    {"avgpool:size=2", {3, {4, 5, 3}}, PLAIN},
    {"avgpool:size=3,stride=2,padding=1", {3, {5, 5, 2}}, PLAIN},
    {"global_avgpool", {3, {4, 3, 5}}, PLAIN},
    {"dropout", {1, {11}}, PLAIN},
    {"dropout:rate=0.25", {3, {3, 3, 2}}, PLAIN},
    {"flatten", {3, {3, 2, 4}}, PLAIN},
    {"residual", {3, {3, 2, 4}}, PLAIN},
    {"residual", {1, {5}}, PLAIN},
    {"concat", {3, {3, 2, 4}}, PLAIN},
};

/* ---- finite differences ---- */

/* sum of dy * y, and of its magnitudes, after a forward of all rows. */
static double objective(struct lab *lab, double *magnitude)
{
    const struct dp_layer_call call = lab_call(lab, 0, ROWS, 0);
    double sum = 0;

    OK(layer_forward(lab->type, lab->state, &call));
    *magnitude = 0;
    for (size_t i = 0; i < ROWS * lab->out; i++) {
        const double part = (double)lab->dy[i] * (double)lab->y[i];
        sum += part;
        *magnitude += fabs(part);
    }
    return sum;
}

/* The derivative for *at by four points around it. */
static double derivative(struct lab *lab, float *at, double h, double *magnitude)
{
    static const double steps[] = {1, -1, 2, -2}, factors[] = {8, -8, -1, 1};
    const float middle = *at;
    double sum = 0;

    for (int i = 0; i < 4; i++) {
        *at = (float)((double)middle + steps[i] * h);
        sum += factors[i] * objective(lab, magnitude);
    }
    *at = middle;
    return sum / (12 * h);
}

/*
 * ref computes each output in double and rounds it once, by at most 2^-24 of itself; the four
 * points pass that on times 18 / (12 h). The rule's own error, h^4 / 30 of the fifth derivative, is
 * below 1e-6, and so is the rounding of the gradient.
 */
static void assert_gradient(struct lab *lab, float *values, const float *gradient, size_t count)
{
    const double h = 1.0 / 64;

    for (size_t i = 0; i < count; i++) {
        double magnitude = 0;
        const double expected = derivative(lab, &values[i], h, &magnitude);
        const double noise = 1.5 / h * magnitude / 16777216.0;
        if (!(fabs((double)gradient[i] - expected) <= noise + 1e-6 + 1e-6 * fabs(expected))) {
            print_error("%s: gradient %zu of %zu is %.9g, differences give %.9g\n",
                        lab->type->plugin.name, i, count, (double)gradient[i], expected);
            fail();
        }
    }
}

static void gradients_are_those_of_finite_differences(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct lab lab;
        float *dy, *dx;
        lab_open(&lab, &cases[i], streams->ref);
        dy = copy_of(lab.dy, ROWS * lab.out);
        lab_run_all(&lab);
        dx = copy_of(lab.dx, ROWS * lab.in);
        memcpy(lab.dy, dy, ROWS * lab.out * sizeof(float)); /* an alias writes dx there */
        assert_gradient(&lab, lab.x, dx, ROWS * lab.in);
        if (lab_call(&lab, 0, ROWS, 0).x2 != NULL) {
            assert_gradient(&lab, lab.x2, dx, ROWS * lab.in);
        }
        for (int p = 0; p < lab.plan.param_count; p++) {
            float *grad = copy_of(lab.grads[p], lab.plan.params[p].count);
            assert_gradient(&lab, lab.weights[p], grad, lab.plan.params[p].count);
            dp_free(grad);
        }
        dp_free(dx);
        dp_free(dy);
        lab_close(&lab);
    }
}

static void every_registered_layer_has_a_case_here(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_layers, i)) != NULL; i++) {
        const size_t length = strlen(plugin->name);
        bool found = false;
        for (size_t k = 0; k < DP_COUNT(cases); k++) {
            const char *text = cases[k].text;
            found = found || (strncmp(text, plugin->name, length) == 0 &&
                              (text[length] == '\0' || text[length] == ':'));
        }
        if (!found) {
            print_error("layer %s has no case in this file\n", plugin->name);
        }
        assert_true(found);
    }
}

/* ---- devices, and what the plan states ---- */

static void cpu_computes_what_ref_does(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < DP_COUNT(cases) * DP_COUNT(streams->tested); i++) {
        struct lab ref, cpu;
        lab_open(&ref, &cases[i / DP_COUNT(streams->tested)], streams->ref);
        lab_open(&cpu, &cases[i / DP_COUNT(streams->tested)],
                 streams->tested[i % DP_COUNT(streams->tested)]);
        lab_run_all(&ref);
        lab_run_all(&cpu);
        assert_labs_near(&cpu, &ref, 1e-5);
        lab_close(&ref);
        lab_close(&cpu);
    }
}

/* Batch norm is left out: the halves of a batch have statistics of their own. */
static void two_halves_of_the_rows_add_up_to_one_pass(void **state)
{
    const struct streams *streams = *state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct lab whole, halves;
        lab_open(&whole, &cases[i], streams->tested[0]);
        lab_open(&halves, &cases[i], streams->tested[0]);
        if (whole.plan.statistics == 0) {
            const struct dp_layer_call first = lab_call(&halves, 0, HALF, 0);
            const struct dp_layer_call second = lab_call(&halves, HALF, ROWS - HALF, 1);
            lab_run_all(&whole);
            lab_run(&halves, &first);
            lab_run(&halves, &second);
            assert_labs_near(&halves, &whole, 1e-6);
        }
        lab_close(&whole);
        lab_close(&halves);
    }
}

/* Gradients and statistics of `lab` are those of `other` plus what they held before. */
static void assert_added(const float *now, const float *before, const float *result, size_t count)
{
    float *sum = copy_of(before, count);

    for (size_t i = 0; i < count; i++) {
        sum[i] += result[i];
    }
    assert_near(now, sum, count, 1e-6, 1e-6);
    dp_free(sum);
}

static void keep_adds_to_gradients_and_statistics(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < DP_COUNT(cases) * DP_COUNT(all); i++) {
        struct lab plain, kept;
        lab_open(&plain, &cases[i / 2], all[i % 2]);
        lab_open(&kept, &cases[i / 2], all[i % 2]);
        const struct dp_layer_call call = lab_call(&kept, 0, ROWS, 1);
        const size_t statistics = kept.plan.statistics;
        const int params = kept.plan.param_count;
        float *before[3] = {NULL, NULL, uniform(statistics, 22, -1, 1)};
        memcpy(kept.statistics, before[2], statistics * sizeof(float));
        for (int p = 0; p < params; p++) {
            const size_t count = kept.plan.params[p].count;
            before[p] = uniform(count, 20, -1, 1);
            memcpy(kept.grads[p], before[p], count * sizeof(float));
        }
        lab_run_all(&plain);
        lab_run(&kept, &call);
        for (int p = 0; p < params; p++) {
            assert_added(kept.grads[p], before[p], plain.grads[p], kept.plan.params[p].count);
            dp_free(before[p]);
        }
        assert_added(kept.statistics, before[2], plain.statistics, statistics);
        dp_free(before[2]);
        lab_close(&plain);
        lab_close(&kept);
    }
}

static void no_rows_give_gradients_and_statistics_of_zero(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < DP_COUNT(cases) * DP_COUNT(all); i++) {
        struct lab lab;
        float *zero = zeros(1024);
        lab_open(&lab, &cases[i / 2], all[i % 2]);
        const struct dp_layer_call call = lab_call(&lab, 0, 0, 0);
        float *x = copy_of(lab.x, ROWS * lab.in);
        lab_run(&lab, &call);
        for (int p = 0; p < lab.plan.param_count; p++) {
            assert_near(lab.grads[p], zero, lab.plan.params[p].count, 0, 0);
        }
        assert_near(lab.statistics, zero, lab.plan.statistics, 0, 0);
        assert_same_bits(lab.x, x, ROWS * lab.in);
        for (size_t k = 0; !lab.plan.alias && k < ROWS * lab.out; k++) {
            assert_true(isnan(lab.y[k])); /* as before */
        }
        dp_free(x);
        dp_free(zero);
        lab_close(&lab);
    }
}

static void without_a_wanted_dx_gradients_are_the_same(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < DP_COUNT(cases) * DP_COUNT(all); i++) {
        struct lab with, without;
        lab_open(&with, &cases[i / 2], all[i % 2]);
        lab_open(&without, &cases[i / 2], all[i % 2]);
        struct dp_layer_call call = lab_call(&without, 0, ROWS, 0);
        call.dx = NULL;
        lab_run_all(&with);
        lab_run(&without, &call);
        for (int p = 0; p < with.plan.param_count; p++) {
            assert_near(without.grads[p], with.grads[p], with.plan.params[p].count, 1e-6, 1e-6);
        }
        lab_close(&with);
        lab_close(&without);
    }
}

static void writing_in_place_changes_no_bit_where_the_plan_allows_it(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t i = 0; i < DP_COUNT(cases) * DP_COUNT(all); i++) {
        struct lab apart, over;
        lab_open(&apart, &cases[i / 3], all[i % 3]);
        lab_open(&over, &cases[i / 3], all[i % 3]);
        struct dp_layer_call call = lab_call(&over, 0, ROWS, 0);
        call.y = over.plan.y_in_x ? over.x : over.y;
        call.dx = over.dx_in_dy ? over.dy : over.dx;
        lab_run_all(&apart);
        lab_run(&over, &call);
        assert_same_bits(call.y, apart.y, ROWS * apart.out);
        assert_same_bits(call.dx, apart.dx, ROWS * apart.in);
        for (int p = 0; p < apart.plan.param_count; p++) {
            assert_same_bits(over.grads[p], apart.grads[p], apart.plan.params[p].count);
        }
        lab_close(&apart);
        lab_close(&over);
    }
}

static void two_dropout_layers_of_a_model_drop_different_elements(void **state)
{
    const struct streams *streams = *state;
    const struct layer_case drop = {"dropout", {1, {16}}, PLAIN};
    struct lab lab;
    float *first;
    size_t same = 0;

    lab_open(&lab, &drop, streams->tested[0]);
    struct dp_layer_call call = lab_call(&lab, 0, ROWS, 0);
    OK(layer_forward(lab.type, lab.state, &call));
    first = copy_of(lab.y, ROWS * lab.out);
    call.index++;
    OK(layer_forward(lab.type, lab.state, &call));
    for (size_t i = 0; i < ROWS * lab.out; i++) {
        same += (lab.y[i] == 0) == (first[i] == 0);
    }
    assert_in_range(same, 12, 52); /* 32 of 64 in the mean; five deviations are 20 */
    dp_free(first);
    lab_close(&lab);
}

/* ---- evaluation ---- */

static void evaluation_normalises_with_running_statistics_and_drops_nothing(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};
    const struct layer_case norm = {"batchnorm:eps=0.5", {3, {2, 2, 3}}, PLAIN};
    const struct layer_case drop = {"dropout:rate=0.9", {1, {6}}, PLAIN};

    for (size_t i = 0; i < DP_COUNT(all); i++) {
        struct lab lab;
        struct dp_layer_call call;

        lab_open(&lab, &drop, all[i]);
        call = lab_call(&lab, 0, ROWS, 0);
        call.training = false;
        OK(layer_forward(lab.type, lab.state, &call));
        assert_same_bits(lab.y, lab.x, ROWS * lab.in);
        lab_close(&lab);

        lab_open(&lab, &norm, all[i]);
        call = lab_call(&lab, 0, ROWS, 0);
        call.training = false;
        call.statistics = NULL; /* must not be written */
        OK(layer_forward(lab.type, lab.state, &call));
        for (size_t k = 0; k < ROWS * lab.in; k++) {
            const size_t c = k % 3;
            const double hat = ((double)lab.x[k] - (double)lab.running[c]) /
                               sqrt((double)lab.running[3 + c] + 0.5);
            const double y = hat * (double)lab.weights[0][c] + (double)lab.weights[1][c];
            assert_true(fabs((double)lab.y[k] - y) < 1e-6);
        }
        lab_close(&lab);
    }
}

/* The tail gets the mean and the unbiased variance, weighted by the rows' share of the batch. */
static void batchnorm_reports_its_statistics_by_rows(void **state)
{
    const struct streams *streams = *state;
    const struct layer_case norm = {"batchnorm", {3, {1, 2, 3}}, PLAIN};
    const size_t rows = 3, n = 6;
    struct lab lab;

    lab_open(&lab, &norm, streams->ref);
    const struct dp_layer_call call = lab_call(&lab, 0, rows, 0);
    OK(layer_forward(lab.type, lab.state, &call));
    for (size_t c = 0; c < 3; c++) {
        double mean = 0, squares = 0;
        for (size_t k = c; k < n * 3; k += 3) {
            mean += (double)lab.x[k] / (double)n;
        }
        for (size_t k = c; k < n * 3; k += 3) {
            squares += ((double)lab.x[k] - mean) * ((double)lab.x[k] - mean);
        }
        assert_true(fabs((double)lab.statistics[c] - 0.75 * mean) < 1e-6);
        assert_true(fabs((double)lab.statistics[3 + c] - 0.75 * squares / 5) < 1e-6);
    }
    lab_close(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_registered_layer_has_a_case_here),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(cpu_computes_what_ref_does),
        cmocka_unit_test(two_halves_of_the_rows_add_up_to_one_pass),
        cmocka_unit_test(keep_adds_to_gradients_and_statistics),
        cmocka_unit_test(no_rows_give_gradients_and_statistics_of_zero),
        cmocka_unit_test(without_a_wanted_dx_gradients_are_the_same),
        cmocka_unit_test(writing_in_place_changes_no_bit_where_the_plan_allows_it),
        cmocka_unit_test(two_dropout_layers_of_a_model_drop_different_elements),
        cmocka_unit_test(evaluation_normalises_with_running_statistics_and_drops_nothing),
        cmocka_unit_test(batchnorm_reports_its_statistics_by_rows),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
