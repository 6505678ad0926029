/*
 * test_optimizers.c - what every optimizer must do, checked for every registered one, with the
 * configuration's defaults. A new one is covered as soon as it is in optimizers.def; the formulas
 * of the operations are in test_optimizer.c, and PyTorch's steps in test_golden.c.
 */
#include "tests/support/arrays.h"

#include "runtime/optim/param_groups.h"
#include "tests/support/small_run.h"

/* Elements: many blocks, and a part that fills no vector. */
enum { COUNT = 5 * 1024 + 37, STEPS = 5 };

struct rule {
    const struct dp_optimizer *optimizer;
    const void *options; /* the configuration's */
};

/* All state of an optimizer: the weights, and the slots that it names. */
struct memory {
    struct dp_update update;
    struct dp_step_params step_params;
    float *grad;
};

/* Runs `check` for all optimizers; the last name that was printed is the one that failed. */
static void for_each(const struct streams *streams,
                     void (*check)(const struct rule *rule, const struct streams *streams))
{
    const struct dp_plugin *plugin;

    for (int i = 0; (plugin = dp_plugin_at(&dp_optimizers, i)) != NULL; i++) {
        char name[64];
        const char *const sets[] = {name, NULL};
        struct small_run run;
        struct rule rule = {.optimizer = (const struct dp_optimizer *)plugin};
        print_message("optimizer %s\n", plugin->name);
        (void)snprintf(name, sizeof(name), "optimizer.name=%s", plugin->name);
        assert_int_equal(small_run_create(&run, small_dense, sets), 0);
        assert_ptr_equal(dp_optimizer_of(&run.config->optimizer), rule.optimizer);
        rule.options = run.config->optimizer.chosen.state;
        check(&rule, streams);
        small_run_destroy(&run);
    }
}

static void memory_init(struct memory *m, const struct rule *rule)
{
    m->step_params = (struct dp_step_params){.lr = 0.01f, .factor = 1};
    m->grad = zeros(COUNT);
    m->update = (struct dp_update){.master = uniform(COUNT, 1, -1, 1),
                                   .weights = held(COUNT, 2, 0),
                                   .grad = m->grad,
                                   .count = COUNT,
                                   .step_params = &m->step_params};
    for (int k = 0; k < 2 && rule->optimizer->slots[k] != NULL; k++) {
        m->update.slots[k] = zeros(COUNT);
    }
}

static void memory_fini(struct memory *m)
{
    dp_free(m->update.slots[1]);
    dp_free(m->update.slots[0]);
    dp_free(m->update.weights);
    dp_free(m->update.master);
    dp_free(m->grad);
}

static void next_gradient(struct memory *m, float factor)
{
    for (size_t i = 0; i < COUNT; i++) {
        const uint32_t bits = dp_random_u32(9, DP_RANDOM_TEST, m->step_params.applied, i);
        m->grad[i] = factor * (2 * dp_random_unit(bits) - 1);
    }
}

/* The update of a part. */
static struct dp_update part_at(const struct memory *m, const struct dp_param_groups *groups,
                                size_t at, size_t part)
{
    struct dp_update u = m->update;

    u.master += at;
    u.weights = (float *)u.weights + at;
    u.grad += at;
    for (int k = 0; k < 2; k++) {
        u.slots[k] = u.slots[k] == NULL ? NULL : u.slots[k] + at;
    }
    u.count = COUNT - at < part ? COUNT - at : part;
    dp_param_groups_apply(groups, at, &u);
    return u;
}

/* Two weights and a bias. */
static const struct dp_tensor tensors[] = {
    {.name = "0.weight", .count = 1000, .begin = 0, .fan_in = 10},
    {.name = "0.bias", .count = 100, .begin = 1024, .fan_in = 10},
    {.name = "1.weight", .count = COUNT - 1152, .begin = 1152, .fan_in = 10},
};

/* One step, in parts of `part` elements. */
static void step_in(const struct rule *rule, struct dp_stream *s, struct memory *m, size_t part)
{
    const struct dp_flat flat = {.tensors = tensors,
                                 .tensor_count = (int)DP_COUNT(tensors),
                                 .trained = dp_round_up(COUNT, DP_BLOCK)};
    struct dp_param_groups *groups = NULL;

    OK(dp_param_groups_create(&flat, rule->optimizer, rule->options, s, &groups));
    for (size_t at = 0; at < COUNT && rule->optimizer->measure != NULL; at += part) {
        const struct dp_update u = part_at(m, groups, at, part);
        OK(dp_param_groups_measure(groups, at, &u));
    }
    if (rule->optimizer->measure != NULL) {
        OK(dp_param_groups_find_rates(groups, &m->step_params));
    }
    for (size_t at = 0; at < COUNT; at += part) {
        const struct dp_update u = part_at(m, groups, at, part);
        OK(rule->optimizer->update(rule->options, s, &u));
    }
    dp_param_groups_destroy(groups);
    m->step_params.applied++;
}

static void steps(const struct rule *rule, struct dp_stream *s, struct memory *m, int count)
{
    for (int i = 0; i < count; i++) {
        next_gradient(m, 1);
        step_in(rule, s, m, COUNT);
    }
}

static void assert_same_memory(const struct memory *a, const struct memory *b)
{
    assert_same_bits(a->update.master, b->update.master, COUNT);
    for (int k = 0; k < 2 && a->update.slots[k] != NULL; k++) {
        assert_same_bits(a->update.slots[k], b->update.slots[k], COUNT);
    }
}

/* ---- the checks ---- */

static void is_complete(const struct rule *rule, const struct streams *streams)
{
    const struct dp_optimizer *o = rule->optimizer;
    (void)streams;

    assert_true(o->plugin.help != NULL && strlen(o->plugin.help) > 0);
    assert_non_null(o->update);
    assert_true((o->measure == NULL) == (o->trust == NULL));
    if (o->slots[1] != NULL) {
        assert_non_null(o->slots[0]);
        assert_string_not_equal(o->slots[0], o->slots[1]);
    }
}

/* Gradients point uphill. */
static void goes_downhill(const struct rule *rule, const struct streams *streams)
{
    struct memory m;
    float *before;
    double descent = 0;

    memory_init(&m, rule);
    before = copy_of(m.update.master, COUNT);
    steps(rule, streams->tested[0], &m, 1);
    for (size_t i = 0; i < COUNT; i++) {
        descent += ((double)before[i] - (double)m.update.master[i]) * (double)m.grad[i];
    }
    assert_true(descent > 0);
    assert_same_bits(m.update.weights, m.update.master, COUNT);
    dp_free(before);
    memory_fini(&m);
}

/* Buckets, shardings and threads cut the weights; bits do not depend on that. */
static void parts_give_the_whole(const struct rule *rule, const struct streams *streams)
{
    static const size_t parts[] = {64, 1024, 4096, COUNT};
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t d = 0; d < DP_COUNT(all); d++) {
        struct memory whole;
        memory_init(&whole, rule);
        steps(rule, all[d == 2 ? 1 : d], &whole, STEPS);
        for (size_t p = 0; p < DP_COUNT(parts); p++) {
            struct memory cut;
            memory_init(&cut, rule);
            for (int i = 0; i < STEPS; i++) {
                next_gradient(&cut, 1);
                step_in(rule, all[d], &cut, parts[p]);
            }
            assert_same_memory(&cut, &whole);
            memory_fini(&cut);
        }
        memory_fini(&whole);
    }
}

/* As in test_optimizer.c: room for 40 roundings of weights below 2, far below any real
 * difference. */
static void devices_agree(const struct rule *rule, const struct streams *streams)
{
    struct memory ref, tested;

    memory_init(&ref, rule);
    memory_init(&tested, rule);
    steps(rule, streams->ref, &ref, STEPS);
    steps(rule, streams->tested[1], &tested, STEPS);
    assert_near(tested.update.master, ref.update.master, COUNT, 5e-6, 0);
    memory_fini(&tested);
    memory_fini(&ref);
}

/* A checkpoint has all state: weights, named slots, and the number of updates. */
static void resumed_equals_uninterrupted(const struct rule *rule, const struct streams *streams)
{
    struct memory through, saved;

    memory_init(&through, rule);
    steps(rule, streams->tested[0], &through, 2);
    memory_init(&saved, rule);
    memcpy(saved.update.master, through.update.master, COUNT * sizeof(float));
    for (int k = 0; k < 2 && saved.update.slots[k] != NULL; k++) {
        memcpy(saved.update.slots[k], through.update.slots[k], COUNT * sizeof(float));
    }
    saved.step_params = through.step_params;
    steps(rule, streams->tested[0], &through, STEPS);
    steps(rule, streams->tested[0], &saved, STEPS);
    assert_same_memory(&saved, &through);
    memory_fini(&saved);
    memory_fini(&through);
}

/* Clipping and loss scaling are a factor; a power of two changes no bit. */
static void the_factor_scales_the_gradient(const struct rule *rule, const struct streams *streams)
{
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t d = 0; d < DP_COUNT(all); d++) {
        struct memory plain, scaled;
        memory_init(&plain, rule);
        memory_init(&scaled, rule);
        steps(rule, all[d], &plain, STEPS);
        scaled.step_params.factor = 1.0f / 1024;
        for (int i = 0; i < STEPS; i++) {
            next_gradient(&scaled, 1024);
            step_in(rule, all[d], &scaled, COUNT);
        }
        assert_same_memory(&scaled, &plain);
        memory_fini(&scaled);
        memory_fini(&plain);
    }
}

/* After an overflow the gradient is NaN, and nothing may change. */
static void a_skipped_step_changes_nothing(const struct rule *rule, const struct streams *streams)
{
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t d = 0; d < DP_COUNT(all); d++) {
        struct memory skipped, plain;
        memory_init(&skipped, rule);
        memory_init(&plain, rule);
        steps(rule, all[d], &skipped, 1);
        steps(rule, all[d], &plain, 1);
        next_gradient(&skipped, NAN);
        skipped.step_params.skip = 1;
        step_in(rule, all[d], &skipped, COUNT);
        assert_same_memory(&skipped, &plain);
        memory_fini(&plain);
        memory_fini(&skipped);
    }
}

/* What is left out has no decay: with a gradient of zeros its weights stay as they are. */
static void no_decay_leaves_parameters_out(void **state)
{
    static const char *const options[] = {"no_decay=[]", "no_decay=[bias]", "no_decay=[norm]",
                                          "no_decay=[norm, bias]"};
    const struct streams *streams = *state;
    const struct dp_plugin *plugin;

    for (int i = 0; (plugin = dp_plugin_at(&dp_optimizers, i)) != NULL; i++) {
        for (unsigned left = 0; left < DP_COUNT(options); left++) {
            char name[64], words[64];
            const char *const sets[] = {name, words, "optimizer.weight_decay=0.5", NULL};
            struct small_run run;
            struct rule rule = {.optimizer = (const struct dp_optimizer *)plugin};
            struct memory m;
            float *before;
            print_message("optimizer %s, %s\n", plugin->name, options[left]);
            (void)snprintf(name, sizeof(name), "optimizer.name=%s", plugin->name);
            (void)snprintf(words, sizeof(words), "optimizer.%s", options[left]);
            assert_int_equal(small_run_create(&run, small_dense, sets), 0);
            rule.options = run.config->optimizer.chosen.state;
            assert_int_equal(dp_optimizer_no_decay(rule.optimizer, rule.options), left);
            memory_init(&m, &rule);
            before = copy_of(m.update.master, COUNT);
            next_gradient(&m, 0);
            step_in(&rule, streams->tested[0], &m, COUNT);
            assert_true(m.update.master[500] != before[500]);
            assert_true((m.update.master[1050] == before[1050]) ==
                        ((left & DP_NO_DECAY_BIAS) != 0));
            dp_free(before);
            memory_fini(&m);
            small_run_destroy(&run);
        }
    }
}

static void every_optimizer_has_its_functions_and_names_its_state(void **state)
{
    for_each(*state, is_complete);
}

static void every_optimizer_lowers_the_loss(void **state)
{
    for_each(*state, goes_downhill);
}

static void every_optimizer_gives_the_same_bits_part_by_part(void **state)
{
    for_each(*state, parts_give_the_whole);
}

static void every_optimizer_equals_the_reference(void **state)
{
    for_each(*state, devices_agree);
}

static void every_optimizer_resumes_from_its_named_state(void **state)
{
    for_each(*state, resumed_equals_uninterrupted);
}

static void every_optimizer_applies_the_clipping_factor(void **state)
{
    for_each(*state, the_factor_scales_the_gradient);
}

static void every_optimizer_ignores_a_skipped_step(void **state)
{
    for_each(*state, a_skipped_step_changes_nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_decay_leaves_parameters_out),
        cmocka_unit_test(every_optimizer_has_its_functions_and_names_its_state),
        cmocka_unit_test(every_optimizer_lowers_the_loss),
        cmocka_unit_test(every_optimizer_gives_the_same_bits_part_by_part),
        cmocka_unit_test(every_optimizer_equals_the_reference),
        cmocka_unit_test(every_optimizer_resumes_from_its_named_state),
        cmocka_unit_test(every_optimizer_applies_the_clipping_factor),
        cmocka_unit_test(every_optimizer_ignores_a_skipped_step),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
