/*
 * test_source.c - sources of data: the registry, rows that are made up, and the installed data set.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/random.h"
#include "base/trace.h"
#include "runtime/data/sample_reader.h"
#include "tests/support/files/read_source.h"

enum { CLASSES = 10 };

static void every_source_has_all_functions_and_a_line_of_help(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_sources, i)) != NULL; i++) {
        const struct dp_source *source = (const struct dp_source *)plugin;
        assert_true(plugin->help != NULL && strlen(plugin->help) > 0 && plugin->state_bytes > 0);
        assert_true(source->open != NULL && source->close != NULL);
        assert_true((source->load != NULL) != (source->fetch != NULL && source->name != NULL));
    }
    assert_non_null(dp_plugin_find(&dp_sources, "fashion-mnist", 13));
}

/* ---- synthetic ---- */

static struct dp_source_config synthetic_config(size_t bytes, int height, int width, int channels)
{
    return (struct dp_source_config){
        .input = {.height = height, .width = width, .channels = channels, .count = bytes},
        .classes = CLASSES,
        .seed = 5,
        .samples = 2000,
        .test_samples = 500};
}

static void synthetic_rows_depend_on_the_seed_alone(void **state)
{
    struct dp_source_config config = synthetic_config(784, 28, 28, 1);
    struct outcome a, b;
    (void)state;

    a = run_source("synthetic", &config);
    config.samples = 1000; /* fewer rows: the same ones */
    b = run_source("synthetic", &config);
    assert_int_equal(a.loaded, DP_OK);
    assert_int_equal(b.info.count[DP_SET_TRAIN], 1000);
    assert_memory_equal(a.images[0], b.images[0], (size_t)1000 * 784);
    assert_memory_equal(a.labels[0], b.labels[0], 1000 * sizeof(int32_t));
    assert_memory_equal(a.images[1], b.images[1], (size_t)500 * 784);
    assert_memory_not_equal(a.images[0], a.images[1], 784);
    outcome_release(&b);
    config.seed = 6;
    b = run_source("synthetic", &config);
    assert_memory_not_equal(a.images[0], b.images[0], 784);
    outcome_release(&b);
    outcome_free(&a);
}

/* One byte more than are made at once: the last one is made, too, and nothing after it. Each row
 * is a sign of life. */
static void synthetic_rows_of_any_length_are_made_whole(void **state)
{
    enum { BYTES = 17, ROWS = 2000, BEHIND = 64, MARKED = 0x5a };
    struct dp_source_config config = synthetic_config(BYTES, 0, 0, 0);
    static uint8_t rows[2][ROWS * BYTES + BEHIND];
    static int32_t labels[2][ROWS];
    struct dp_trace_mark mark = {.open = 0};
    struct dp_samples *samples = NULL;
    size_t others = 0;
    (void)state;

    config.test_samples = ROWS;
    config.input.element = DP_ELEMENT_FLOAT; /* that the model takes: these are bytes */
    memset(rows, MARKED, sizeof(rows));
    assert_int_equal(dp_samples_open("synthetic", &config, &samples), DP_OK);
    assert_int_equal(dp_samples_info(samples)->shape.element, DP_ELEMENT_BYTE);
    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    assert_int_equal(dp_samples_load(samples, (uint8_t *const[]){rows[0], rows[1]},
                                     (int32_t *const[]){labels[0], labels[1]}),
                     DP_OK);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    assert_int_equal(atomic_load(&mark.beats), 2 * ROWS);
    for (size_t row = 0; row < ROWS; row++) {
        others += rows[0][row * BYTES + BYTES - 1] != MARKED;
    }
    assert_true(others > ROWS / 2);
    for (size_t i = 0; i < BEHIND; i++) {
        assert_int_equal(rows[0][(size_t)ROWS * BYTES + i], MARKED);
        assert_int_equal(rows[1][(size_t)ROWS * BYTES + i], MARKED);
    }
    dp_samples_close(samples);
}

/* Of eleven rows two are of one class. */
static void synthetic_rows_of_one_class_differ(void **state)
{
    const struct dp_source_config config = synthetic_config(784, 28, 28, 1);
    struct outcome o = run_source_well("synthetic", &config);
    int pairs = 0;
    (void)state;

    assert_non_null(o.images[0]);
    for (size_t row = 0; row <= CLASSES; row++) {
        for (size_t other = 0; other < row; other++) {
            if (o.labels[0][row] == o.labels[0][other]) {
                assert_memory_not_equal(o.images[0] + row * 784, o.images[0] + other * 784, 784);
                pairs++;
            }
        }
    }
    assert_true(pairs > 0);
    outcome_free(&o);
}

/* The pattern of a class is four by four cells, of which each has one grey value: pixels of a cell
 * have one mean, others have others. Means of 200 pixels are off by 4 (one standard deviation). */
static void synthetic_classes_are_patterns_of_four_by_four_cells(void **state)
{
    enum { SIDE = 8, CELL = 2 };
    struct dp_source_config config = synthetic_config((size_t)SIDE * SIDE, SIDE, SIDE, 1);
    double sum[CLASSES][SIDE] = {{0}}, within = 0, across = 0;
    size_t count[CLASSES] = {0};
    struct outcome o;
    (void)state;

    config.samples = 5000;
    o = run_source_well("synthetic", &config);
    assert_non_null(o.images[0]);
    for (size_t row = 0; row < config.samples; row++) {
        const size_t k = (size_t)o.labels[0][row];
        count[k]++;
        for (size_t x = 0; x < SIDE; x++) {
            sum[k][x] += o.images[0][row * SIDE * SIDE + x];
        }
    }
    for (size_t k = 0; k < CLASSES; k++) {
        for (size_t x = 0; x + 1 < SIDE; x++) {
            const double off = fabs(sum[k][x + 1] - sum[k][x]) / (double)count[k];
            *(x % CELL == 0 ? &within : &across) += off / CLASSES / (x % CELL == 0 ? 4 : 3);
        }
    }
    assert_true(within < 6 && across > 3 * within);
    outcome_free(&o);
}

/* It is made at once: there are no samples to read one by one. */
static void synthetic_needs_no_memory_of_readers(void **state)
{
    const struct dp_source_config config = synthetic_config(784, 28, 28, 1);
    struct dp_samples *samples = NULL;
    (void)state;

    assert_int_equal(dp_samples_open("synthetic", &config, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_need(samples), 0);
    dp_samples_close(samples);
}

static void synthetic_has_default_counts(void **state)
{
    struct dp_source_config config = synthetic_config(4, 2, 2, 1);
    struct outcome o;
    (void)state;

    config.samples = config.test_samples = 0;
    o = run_source("synthetic", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 60000);
    assert_int_equal(o.info.count[DP_SET_TEST], 10000);
    outcome_free(&o);
}

/* Byte `i` of a row: its class's grey value there, and a half and a quarter of a random byte. */
static uint8_t synthetic_byte(const struct dp_source_config *c, enum dp_set set, size_t row,
                              size_t label, size_t i)
{
    const size_t rows = c->input.height == 0 ? 1 : (size_t)c->input.height;
    const size_t channels = c->input.height == 0 ? 1 : (size_t)c->input.channels;
    const size_t columns = c->input.count / rows / channels;
    const size_t across = c->input.height == 0 ? 16 : 4;
    const size_t place =
        i / channels / columns * 4 / rows * across + i / channels % columns * across / columns;
    const size_t blocks = (c->input.count + 15) / 16;
    const uint32_t gray = dp_random_u32(c->seed, DP_RANDOM_SYNTHETIC, 4,
                                        label * 16 * channels + place * channels + i % channels) >>
                          26;
    uint32_t words[4];
    uint8_t noise;

    dp_random_block(c->seed, DP_RANDOM_SYNTHETIC, set, row * blocks + i / 16, words);
    noise = (uint8_t)(words[i % 16 / 4] >> 8 * (i % 4));
    return (uint8_t)(gray + noise / 2 + noise / 4);
}

static void assert_synthetic_rows(const struct dp_source_config *config, const struct outcome *o,
                                  size_t classes)
{
    for (int set = 0; set < DP_SETS; set++) {
        for (size_t row = 0; row < o->info.count[set]; row++) {
            const uint64_t number =
                dp_random_u32(config->seed, DP_RANDOM_SYNTHETIC, 2 + (uint32_t)set, row);
            const size_t label = (size_t)(number * classes >> 32);
            assert_int_equal(o->labels[set][row], label);
            for (size_t i = 0; i < o->bytes; i++) {
                assert_int_equal(o->images[set][row * o->bytes + i],
                                 synthetic_byte(config, (enum dp_set)set, row, label, i));
            }
        }
    }
}

static void synthetic_rows_are_what_they_are_said_to_be(void **state)
{
    static const struct {
        int height, width, channels, classes;
        size_t count;
    } cases[] = {
        {0, 0, 0, 10, 37}, /* a flat input, of three blocks of random bytes */
        {8, 4, 1, 10, 32}, {5, 7, 3, 3, 105}, {4, 4, 3, 1, 48}, {3, 2, 1, 0 /* ten */, 6},
    };
    (void)state;

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct dp_source_config config =
            synthetic_config(cases[k].count, cases[k].height, cases[k].width, cases[k].channels);
        const size_t classes = cases[k].classes > 0 ? (size_t)cases[k].classes : CLASSES;
        struct outcome o;
        config.classes = cases[k].classes;
        config.samples = config.test_samples = 40;
        o = run_source_well("synthetic", &config);
        assert_int_equal(o.info.classes, classes);
        assert_synthetic_rows(&config, &o, classes);
        outcome_free(&o);
    }
}

/* Rows of the second half whose nearest mean of the training classes is their own class's. */
static size_t right_by_nearest_mean(const struct outcome *o, size_t bytes)
{
    double *mean = dp_zalloc((size_t)CLASSES * bytes, sizeof(*mean));
    size_t count[CLASSES] = {0}, right = 0;

    assert_non_null(mean);
    for (size_t row = 0; row < o->info.count[DP_SET_TRAIN]; row++) {
        const size_t k = (size_t)o->labels[0][row];
        assert_true(k < CLASSES);
        count[k]++;
        for (size_t j = 0; j < bytes; j++) {
            mean[k * bytes + j] += o->images[0][row * bytes + j];
        }
    }
    for (size_t row = 0; row < o->info.count[DP_SET_TEST]; row++) {
        double best = 1e300;
        size_t nearest = CLASSES;
        for (size_t k = 0; k < CLASSES; k++) {
            double distance = 0;
            for (size_t j = 0; j < bytes; j++) {
                const double off =
                    o->images[1][row * bytes + j] - mean[k * bytes + j] / (double)count[k];
                distance += off * off;
            }
            nearest = distance < best ? k : nearest;
            best = distance < best ? distance : best;
        }
        right += nearest == (size_t)o->labels[1][row];
    }
    dp_free(mean);
    return right;
}

/* Whatever the shape: rows of all classes, noise, and yet classes that can be told apart on rows
 * that were not trained on (chance would be 50 of 500). */
static void synthetic_classes_can_be_learnt(void **state)
{
    static const int shapes[][3] = {{28, 28, 1}, {32, 32, 3}, {0, 0, 0}, {9, 7, 2}};
    (void)state;

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const int *shape = shapes[s];
        const size_t bytes =
            shape[0] == 0 ? 301 : (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2];
        struct dp_source_config config = synthetic_config(bytes, shape[0], shape[1], shape[2]);
        struct outcome o = run_source_well("synthetic", &config);
        size_t hits[CLASSES] = {0};
        assert_int_equal(o.loaded, DP_OK);
        for (size_t row = 0; row < 2000; row++) {
            hits[o.labels[0][row]]++;
        }
        for (int k = 0; k < CLASSES; k++) { /* 200 expected, deviation 13.4 */
            assert_true(hits[k] > 130 && hits[k] < 270);
        }
        assert_true(right_by_nearest_mean(&o, bytes) > 450);
        outcome_free(&o);
    }
}

static void open_survives_every_failed_allocation(void **state)
{
    const struct dp_source_config config = synthetic_config(784, 28, 28, 1);
    (void)state;

    assert_open_survives_failed_allocations("synthetic", &config);
}

/* ---- the real thing, where it is installed ---- */

static void the_installed_fashion_mnist_has_the_known_content(void **state)
{
    static const int32_t first[] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5}, test[] = {9, 2, 1, 1, 6};
    struct dp_source_config config = synthetic_config(784, 28, 28, 1);
    size_t per_class[CLASSES] = {0};
    uint64_t sum = 0;
    double mean;
    struct outcome o;
    (void)state;

    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0) {
        print_message("dataset-fashion-mnist is not installed\n");
        skip();
    }
    o = run_source_well("fashion-mnist", &config);
    assert_int_equal(o.opened, DP_OK);
    assert_int_equal(o.loaded, DP_OK);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 60000);
    assert_int_equal(o.info.count[DP_SET_TEST], 10000);
    assert_memory_equal(o.labels[0], first, sizeof(first));
    assert_memory_equal(o.labels[1], test, sizeof(test));
    for (size_t row = 0; row < 60000; row++) {
        per_class[o.labels[0][row]]++;
    }
    for (int k = 0; k < CLASSES; k++) {
        assert_int_equal(per_class[k], 6000);
    }
    for (size_t i = 0; i < (size_t)60000 * 784; i++) {
        sum += o.images[0][i];
    }
    /* The known mean of the training images, 0.2860 of 255. */
    mean = (double)sum / (255.0 * 60000 * 784);
    assert_true(mean > 0.28595 && mean < 0.28605);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_has_all_functions_and_a_line_of_help),
        cmocka_unit_test(synthetic_rows_depend_on_the_seed_alone),
        cmocka_unit_test(synthetic_rows_of_any_length_are_made_whole),
        cmocka_unit_test(synthetic_rows_of_one_class_differ),
        cmocka_unit_test(synthetic_classes_are_patterns_of_four_by_four_cells),
        cmocka_unit_test(synthetic_needs_no_memory_of_readers),
        cmocka_unit_test(synthetic_has_default_counts),
        cmocka_unit_test(synthetic_rows_are_what_they_are_said_to_be),
        cmocka_unit_test(synthetic_classes_can_be_learnt),
        cmocka_unit_test(open_survives_every_failed_allocation),
        cmocka_unit_test(the_installed_fashion_mnist_has_the_known_content),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
