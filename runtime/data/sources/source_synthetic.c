/*
 * source_synthetic.c - rows made up on the spot: no file is needed, and they can be learnt.
 *
 * Each class has a coarse pattern, a grid of 4x4 random grey values for each channel that is spread
 * over the image. A row is a quarter of its class's pattern plus three quarters of noise. Coarse,
 * so that convolutions and pools see it too; all is a function of the seed and the row's number.
 */
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/trace.h"
#include "runtime/data/source.h"

enum {
    GRID = 4,
    BLOCK_BYTES = 16,
    DEFAULT_TRAIN = 60000,
    DEFAULT_TEST = 10000,
    DEFAULT_CLASSES = 10
};

/* Sequences of random numbers: the `step` of dp_random_block(). */
enum { TRAIN_PIXELS, TEST_PIXELS, TRAIN_LABELS, TEST_LABELS, PATTERNS };

struct synthetic {
    struct dp_source_info info;
    uint64_t seed;
    int classes;
    size_t cells;   /* in the grid of a class */
    uint8_t *grids; /* owned; [classes, cells]: grey values, divided by 4 already */
    uint32_t *cell; /* owned; [pixels]: which cell a byte of an image belongs to */
};

/* Fills `cell`. A flat input is one line of pixels. */
static void lay_out_cells(struct synthetic *s, const struct dp_source_config *c)
{
    const struct dp_sample_shape *input = &c->input;
    const bool flat = input->height == 0;
    const size_t height = flat ? 1 : (size_t)input->height;
    const size_t width = flat ? input->count : (size_t)input->width;
    const size_t channels = flat ? 1 : (size_t)input->channels;
    const size_t across = flat ? (size_t)GRID * GRID : GRID;

    for (size_t i = 0; i < input->count; i++) {
        const size_t channel = i % channels, x = i / channels % width, y = i / channels / width;
        const size_t place = y * GRID / height * across + x * across / width;
        s->cell[i] = (uint32_t)(place * channels + channel);
    }
}

static void synthetic_close(void *state)
{
    struct synthetic *s = state;

    dp_free(s->cell);
    dp_free(s->grids);
}

static dp_status synthetic_open(void *state, const struct dp_source_config *config,
                                struct dp_source_info *info)
{
    struct synthetic *s = state;
    const struct dp_sample_shape *input = &config->input;
    const size_t channels = input->height == 0 ? 1 : (size_t)input->channels;

    s->seed = config->seed;
    s->classes = config->classes > 0 ? config->classes : DEFAULT_CLASSES;
    s->cells = (size_t)GRID * GRID * channels;
    s->grids = dp_zalloc((size_t)s->classes, s->cells);
    s->cell = dp_zalloc(input->count, sizeof(*s->cell));
    if (s->grids == NULL || s->cell == NULL) {
        synthetic_close(s);
        return DP_FAIL(DP_ERR_NOMEM, "patterns of %d classes", s->classes);
    }
    for (size_t i = 0; i < (size_t)s->classes * s->cells; i++) {
        s->grids[i] = (uint8_t)(dp_random_u32(s->seed, DP_RANDOM_SYNTHETIC, PATTERNS, i) >> 26);
    }
    lay_out_cells(s, config);
    s->info.count[DP_SET_TRAIN] = config->samples != 0 ? config->samples : DEFAULT_TRAIN;
    s->info.count[DP_SET_TEST] = config->test_samples != 0 ? config->test_samples : DEFAULT_TEST;
    s->info.shape = *input;
    s->info.shape.element = DP_ELEMENT_BYTE;
    s->info.classes = s->classes;
    *info = s->info;
    return DP_OK;
}

/* Three quarters of each byte of `word`, all four at once: a half and a quarter, rounded down. */
static uint32_t three_quarters(uint32_t word)
{
    return (word >> 1 & 0x7f7f7f7fu) + (word >> 2 & 0x3f3f3f3fu);
}

/* Bytes [begin, begin + count) of an image: noise from `block`, plus the pattern. */
static void make_block(const struct synthetic *s, const uint8_t *grid, const uint32_t block[4],
                       uint8_t *image, size_t begin, size_t count)
{
    const uint32_t *cell = s->cell + begin;
    uint32_t noise[4];

    for (int w = 0; w < 4; w++) {
        noise[w] = three_quarters(block[w]);
    }
    for (size_t i = 0; i < count; i++) {
        image[begin + i] = (uint8_t)((noise[i / 4] >> 8 * (i % 4)) + grid[cell[i]]);
    }
}

static void make_rows(const struct synthetic *s, uint32_t pixels, uint32_t label_numbers,
                      size_t rows, uint8_t *images, int32_t *labels)
{
    const size_t bytes = s->info.shape.count;
    const size_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    uint32_t block[4];

    for (size_t row = 0; row < rows; row++) {
        const uint64_t number = dp_random_u32(s->seed, DP_RANDOM_SYNTHETIC, label_numbers, row);
        const size_t label = (size_t)(number * (uint64_t)s->classes >> 32);
        const uint8_t *grid = s->grids + label * s->cells;
        uint8_t *image = images + row * bytes;

        dp_trace_beat();
        labels[row] = (int32_t)label;
        for (size_t b = 0; b < blocks; b++) {
            const size_t begin = b * BLOCK_BYTES;
            dp_random_block(s->seed, DP_RANDOM_SYNTHETIC, pixels, row * blocks + b, block);
            /* A constant count lets the compiler unroll. */
            if (bytes - begin >= BLOCK_BYTES) {
                make_block(s, grid, block, image, begin, BLOCK_BYTES);
            } else {
                make_block(s, grid, block, image, begin, bytes - begin);
            }
        }
    }
}

static dp_status synthetic_load(void *state, uint8_t *const samples[DP_SETS],
                                int32_t *const labels[DP_SETS])
{
    static const uint32_t pixels[DP_SETS] = {TRAIN_PIXELS, TEST_PIXELS};
    static const uint32_t numbers[DP_SETS] = {TRAIN_LABELS, TEST_LABELS};
    const struct synthetic *s = state;

    for (int set = 0; set < DP_SETS; set++) {
        make_rows(s, pixels[set], numbers[set], s->info.count[set], samples[set], labels[set]);
    }
    return DP_OK;
}

const struct dp_source dp_source_synthetic = {
    .plugin = {.name = "synthetic",
               .help =
                   "made up from the seed, and learnable; data.samples + data.test_samples rows",
               .options = NULL,
               .state_bytes = sizeof(struct synthetic)},
    .open = synthetic_open,
    .load = synthetic_load,
    .close = synthetic_close,
};
