/*
 * test_optimizer.c - SGD, AdamW and LAMB of both devices against formulas written here once more,
 * over several steps; also with factors of blocks, as LARS and no_decay use them.
 *
 * Tolerance: a step rounds w, v and what is between a handful of times; weights are below 2, so
 * after five steps 5e-6 is room for 40 roundings of 1.2e-7 and far below any real difference (one
 * step of the smallest learning rate here moves weights by 1e-3).
 */
#include "tests/support/arrays.h"

static const size_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 70000};

enum { STEPS = 5 };

struct state {
    struct dp_update update;
    struct dp_step_params step_params;
    float *grad, *squares;
    float *factors[2]; /* of blocks: decays, rates */
};

/* Another one for each block; decays are 0 or 1. */
static float decay_of(size_t i)
{
    return (float)(i / DP_BLOCK % 2);
}

static float rate_of(size_t i)
{
    return 0.25f * (float)(i / DP_BLOCK % 3);
}

static void state_init(struct state *t, size_t count, bool own_weights)
{
    t->step_params = (struct dp_step_params){.lr = 0.01f, .factor = 1};
    t->grad = zeros(count);
    t->update = (struct dp_update){.master = uniform(count, 1, -1, 1),
                                   .grad = t->grad,
                                   .slots = {zeros(count), zeros(count)},
                                   .count = count,
                                   .step_params = &t->step_params};
    t->update.weights = own_weights ? held(count, 2, 0) : t->update.master;
    t->squares = zeros(count / DP_BLOCK + 1);
    t->factors[0] = zeros(count / DP_BLOCK + 1);
    t->factors[1] = zeros(count / DP_BLOCK + 1);
    for (size_t i = 0; i < count; i += DP_BLOCK) {
        t->factors[0][i / DP_BLOCK] = decay_of(i);
        t->factors[1][i / DP_BLOCK] = rate_of(i);
    }
}

static void state_fini(struct state *t)
{
    dp_free(t->update.weights != t->update.master ? t->update.weights : NULL);
    dp_free(t->update.master);
    dp_free(t->update.slots[0]);
    dp_free(t->update.slots[1]);
    dp_free(t->grad);
    dp_free(t->squares);
    dp_free(t->factors[0]);
    dp_free(t->factors[1]);
}

/* The gradient of step t: another one each time. */
static void next_gradient(struct state *t, int step)
{
    for (size_t i = 0; i < t->update.count; i++) {
        const uint32_t bits = dp_random_u32(9, DP_RANDOM_TEST, (uint32_t)step, i);
        t->grad[i] = 2 * dp_random_unit(bits) - 1;
    }
}

struct rule {
    bool adamw, lamb, nesterov, decays, rates;
    float momentum, decay; /* sgd; decay of both */
    double beta1, beta2;
    float eps;
    float factor;
};

static const struct rule rules[] = {
    {.factor = 1},
    {.factor = 0.25f, .decay = 0.1f},
    {.factor = 1, .momentum = 0.9f},
    {.factor = 0.5f, .momentum = 0.9f, .decay = 0.01f},
    {.factor = 1, .momentum = 0.9f, .decay = 0.01f, .nesterov = true},
    {.factor = 1, .adamw = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f},
    {.factor = 0.1f, .adamw = true, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-4f, .decay = 0.1f},
    {.factor = 1, .decay = 0.1f, .decays = true},
    {.factor = 0.5f, .momentum = 0.9f, .decay = 0.1f, .decays = true, .rates = true},
    {.factor = 1, .momentum = 0.9f, .decay = 0.1f, .nesterov = true, .rates = true},
    {.factor = 1,
     .adamw = true,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-8f,
     .decay = 0.1f,
     .decays = true},
    {.factor = 0.5f,
     .lamb = true,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-6f,
     .decay = 0.1f,
     .decays = true,
     .rates = true},
    {.factor = 1, .lamb = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6f},
};

static void apply(struct dp_stream *s, const struct rule *rule, struct state *t)
{
    t->step_params.factor = rule->factor;
    t->update.decays = rule->decays ? t->factors[0] : NULL;
    t->update.rates = rule->rates ? t->factors[1] : NULL;
    if (rule->lamb) {
        OK(s->ops->lamb_moments(s, t->squares, &t->update, rule->beta1, rule->beta2, rule->eps,
                                rule->decay));
        OK(s->ops->lamb(s, &t->update, rule->beta1, rule->beta2, rule->eps, rule->decay));
    } else if (rule->adamw) {
        OK(s->ops->adamw(s, &t->update, rule->beta1, rule->beta2, rule->eps, rule->decay));
    } else {
        OK(s->ops->sgd(s, &t->update, rule->momentum, rule->nesterov, rule->decay));
    }
}

/* One weight through all steps, as the textbook has it, in double. */
static double expected_weight(const struct rule *rule, double w, size_t i, double lr)
{
    const double decay = (double)rule->decay * (rule->decays ? (double)decay_of(i) : 1);
    const double rate = rule->rates ? (double)rate_of(i) : 1;
    double v = 0, m = 0, b1 = 1, b2 = 1;

    for (int step = 0; step < STEPS; step++) {
        const uint32_t bits = dp_random_u32(9, DP_RANDOM_TEST, (uint32_t)step, i);
        const double g = (double)rule->factor * (2 * (double)dp_random_unit(bits) - 1);
        if (rule->adamw || rule->lamb) {
            b1 *= rule->beta1;
            b2 *= rule->beta2;
            m = rule->beta1 * m + (1 - rule->beta1) * g;
            v = rule->beta2 * v + (1 - rule->beta2) * g * g;
            const double r = (m / (1 - b1)) / (sqrt(v / (1 - b2)) + (double)rule->eps);
            w -= lr * (rule->lamb ? rate * (r + decay * w) : r + decay * w);
        } else {
            const double decayed = rate * (g + decay * w);
            v = (double)rule->momentum * v + decayed;
            w -= lr * (rule->nesterov ? decayed + (double)rule->momentum * v : v);
        }
    }
    return w;
}

static void check_rule(struct dp_stream *s, const struct rule *rule, size_t count, bool own_weights)
{
    struct state t;
    float *start, *expected = zeros(count);

    state_init(&t, count, own_weights);
    start = copy_of(t.update.master, count);
    for (int step = 0; step < STEPS; step++) {
        next_gradient(&t, step);
        apply(s, rule, &t);
        t.step_params.applied++;
    }
    for (size_t i = 0; i < count; i++) {
        expected[i] = (float)expected_weight(rule, (double)start[i], i, (double)t.step_params.lr);
    }
    assert_near(t.update.master, expected, count, 5e-6, 0);
    assert_same_bits((const float *)t.update.weights, t.update.master, count);
    dp_free(start);
    dp_free(expected);
    state_fini(&t);
}

static void several_steps_follow_the_formulas(void **state)
{
    const struct streams *streams = *state;

    for (size_t r = 0; r < DP_COUNT(rules); r++) {
        check_rule(streams->ref, &rules[r], 1000, true);
        check_rule(streams->ref, &rules[r], 17, false);
        for (size_t n = 0; n < DP_COUNT(sizes); n++) {
            check_rule(streams->tested[0], &rules[r], sizes[n], n % 2 == 0);
            check_rule(streams->tested[1], &rules[r], sizes[n], n % 2 == 1);
        }
    }
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    const struct streams *streams = *state;
    const size_t count = 70000;

    for (size_t r = 0; r < DP_COUNT(rules); r++) {
        struct state one, two;
        state_init(&one, count, false);
        state_init(&two, count, false);
        next_gradient(&one, 0);
        next_gradient(&two, 0);
        apply(streams->tested[0], &rules[r], &one);
        apply(streams->tested[1], &rules[r], &two);
        assert_same_bits(two.update.master, one.update.master, count);
        assert_same_bits(two.update.slots[0], one.update.slots[0], count);
        assert_same_bits(two.update.slots[1], one.update.slots[1], count);
        state_fini(&one);
        state_fini(&two);
    }
}

/* With a gradient of NaN, as after an overflow: nothing may change, neither weights nor slots. */
static void a_skipped_step_changes_nothing(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};
    const size_t count = 1000;

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        for (size_t r = 0; r < DP_COUNT(rules); r++) {
            struct state t, before;
            state_init(&t, count, false);
            state_init(&before, count, false);
            for (size_t i = 0; i < count; i++) {
                t.grad[i] = NAN;
            }
            t.step_params.skip = 1;
            apply(all[k], &rules[r], &t);
            assert_same_bits(t.update.master, before.update.master, count);
            assert_same_bits(t.update.slots[0], before.update.slots[0], count);
            assert_same_bits(t.update.slots[1], before.update.slots[1], count);
            state_fini(&t);
            state_fini(&before);
        }
    }
}

static void sgd_without_momentum_needs_no_state(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        float w = 1, g = 0.5f;
        const struct dp_step_params step_params = {.lr = 0.5f, .factor = 2};
        const struct dp_update u = {
            .master = &w, .weights = &w, .grad = &g, .count = 1, .step_params = &step_params};
        OK(all[k]->ops->sgd(all[k], &u, 0, false, 0.25f));
        assert_true(w == 1 - 0.5f * (2 * 0.5f + 0.25f)); /* exact in binary */
    }
}

/* The sum of a block's squares of r, in double. */
static void the_first_half_of_lamb_sums_squares_block_by_block(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};
    const size_t count = 70000;

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        struct state t;
        state_init(&t, count, false);
        next_gradient(&t, 0);
        t.update.decays = t.factors[0];
        OK(all[k]->ops->lamb_moments(all[k], t.squares, &t.update, 0.9, 0.99, 1e-3f, 0.5f));
        for (size_t begin = 0; begin < count; begin += DP_BLOCK) {
            double sum = 0;
            for (size_t i = begin; i < begin + DP_BLOCK && i < count; i++) {
                const double g = (double)t.grad[i];
                const double r =
                    g / (fabs(g) + 1e-3) + 0.5 * (double)decay_of(i) * (double)t.update.master[i];
                sum += r * r;
            }
            assert_true(fabs((double)t.squares[begin / DP_BLOCK] - sum) < 1e-5 * sum);
        }
        state_fini(&t);
    }
}

/* Three tensors, with a block of none between them; the third is fixed, and of one a norm is 0. */
static void trust_ratios_are_those_of_the_norms(void **state)
{
    static const struct dp_tensor_blocks tensors[] = {{0, 700, 0}, {701, 3, 0}, {704, 2, 1}};
    enum { BLOCKS = 706 };
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        for (int zero = 0; zero < 2; zero++) {
            const struct dp_step_params params = {.factor = 0.5f};
            const struct dp_trust how = {0.125f, 0.25f, 0.5f, true};
            struct dp_tensor_blocks *there = dp_zalloc(DP_COUNT(tensors), sizeof(*there));
            float *rates = held(BLOCKS, 1, 0), *squares = uniform(2 * (size_t)BLOCKS, 3, 0, 2);
            double w = 0, r = 0;
            memcpy(there, tensors, sizeof(tensors));
            memset(squares + BLOCKS + 701, 0, (zero ? 3 : 0) * sizeof(float));
            for (size_t i = 0; i < 700; i++) {
                w += (double)squares[i];
                r += (double)squares[BLOCKS + i];
            }
            const float between = rates[700];
            OK(all[k]->ops->trust_ratios(all[k], rates, squares, BLOCKS, there, 3, &how, &params));
            w = sqrt(w);
            const double expected = 0.125 * w / (0.5 * sqrt(r) + 0.25 * w + 0.5);
            for (size_t i = 0; i < 700; i++) {
                assert_true(fabs((double)rates[i] - expected) < 1e-6);
            }
            assert_true(isnan(between) ? isnan(rates[700]) : rates[700] == between);
            assert_true(zero ? rates[702] == 1 : rates[702] < 0.5f);
            assert_true(rates[704] == 1 && rates[705] == 1);
            dp_free(there);
            dp_free(rates);
            dp_free(squares);
        }
    }
}

/* As torch.optim.AdamW's first step: the gradient's size cancels, only lr and eps remain. */
static void the_first_step_of_adamw_has_the_size_of_the_learning_rate(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        float w[3] = {1, 1, 1}, m[3] = {0}, v[3] = {0};
        const float g[3] = {1e-3f, -1, 1000};
        const struct dp_step_params step_params = {.lr = 0.125f, .factor = 1};
        const struct dp_update u = {.master = w,
                                    .weights = w,
                                    .grad = g,
                                    .slots = {m, v},
                                    .count = 3,
                                    .step_params = &step_params};
        OK(all[k]->ops->adamw(all[k], &u, 0.9, 0.999, 1e-10f, 0));
        for (int i = 0; i < 3; i++) {
            assert_true(fabsf(w[i] - (g[i] > 0 ? 0.875f : 1.125f)) < 1e-6f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_steps_follow_the_formulas),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(a_skipped_step_changes_nothing),
        cmocka_unit_test(the_first_half_of_lamb_sums_squares_block_by_block),
        cmocka_unit_test(trust_ratios_are_those_of_the_norms),
        cmocka_unit_test(sgd_without_momentum_needs_no_state),
        cmocka_unit_test(the_first_step_of_adamw_has_the_size_of_the_learning_rate),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
