/*
 * embed.c - a program that trains on data of its own: points in three spiral arms, made as it needs
 * them.
 *
 *     mpirun -np 2 ./embed [OUT]
 *
 * OUT is a folder for checkpoints; where it holds one, training goes on from it.
 */
#include <math.h>
#include <stdio.h>

#include <lockstep.h>

enum { ARMS = 3, TRAIN_ROWS = 3000, TEST_ROWS = 600, EVERY = 50 };

static const char model[] =
    "data: {source: spirals}\n"
    "train: {global_batch: 100, epochs: 10, seed: 1}\n"
    "optimizer: {name: adamw, lr: 0.01}\n"
    "model:\n"
    "  input: [2]\n"
    "  layers:\n"
    "    - dense: {units: 64}\n"
    "    - relu: {}\n"
    "    - dense: {units: 64}\n"
    "    - relu: {}\n"
    "    - dense: {units: 3}\n";

/* ---- the source ---- */

static dp_status spirals_open(void *state, const struct dp_source_config *config,
                              struct dp_source_info *info)
{
    (void)state;
    if (config->input.count != 2 || config->classes != ARMS) {
        return DP_FAIL(DP_ERR_DATA, "spirals: 2 numbers in %d classes do not fit this model", ARMS);
    }
    *info = (struct dp_source_info){.count = {TRAIN_ROWS, TEST_ROWS},
                                    .shape = {.count = 2, .element = DP_ELEMENT_FLOAT},
                                    .classes = ARMS};
    return DP_OK;
}

/* Row number `row` of both sets. Every rank makes the same ones. */
static void make_point(unsigned row, float point[2], int32_t *label)
{
    const double along = (row * 2654435761u >> 8) / (double)(1 << 24); /* any mixture will do */
    const double noise = (row * 2246822519u >> 8) / (double)(1 << 24) - 0.5;
    double angle;

    *label = (int32_t)(row % ARMS);
    angle = 2.1 * *label + 4.0 * along + 0.4 * noise;
    point[0] = (float)((0.1 + along) * cos(angle));
    point[1] = (float)((0.1 + along) * sin(angle));
}

static dp_status spirals_load(void *state, uint8_t *const samples[DP_SETS],
                              int32_t *const labels[DP_SETS])
{
    float *train = (float *)(void *)samples[DP_SET_TRAIN];
    float *test = (float *)(void *)samples[DP_SET_TEST];

    (void)state;
    for (unsigned i = 0; i < TRAIN_ROWS; i++) {
        make_point(i, train + 2 * i, &labels[DP_SET_TRAIN][i]);
    }
    for (unsigned i = 0; i < TEST_ROWS; i++) {
        make_point(TRAIN_ROWS + i, test + 2 * i, &labels[DP_SET_TEST][i]);
    }
    return DP_OK;
}

static void spirals_close(void *state)
{
    (void)state;
}

static const struct dp_source spirals = {
    .plugin = {.name = "spirals", .help = "points in three spiral arms", .state_bytes = 1},
    .open = spirals_open,
    .load = spirals_load,
    .close = spirals_close,
};

/* ---- training ---- */

static dp_status train(struct dp_world *world, struct dp_lockstep *training, bool save)
{
    const bool prints = dp_lockstep_rank(world) == 0;
    struct dp_lockstep_step step;
    double loss, accuracy;

    while (!dp_lockstep_done(training)) {
        DP_TRY(dp_lockstep_step(training, &step));
        if (prints && step.step % EVERY == 0) {
            printf("step %3d: loss %.4f\n", (int)step.step, step.loss);
        }
    }
    DP_TRY(dp_lockstep_evaluate(training, &loss, &accuracy));
    if (prints) {
        printf("%d ranks: test accuracy %.1f %%\n", dp_lockstep_ranks(world), 100.0 * accuracy);
    }
    return save ? dp_lockstep_save(training) : DP_OK;
}

int main(int argc, char **argv)
{
    struct dp_lockstep_options options = {.text = model, .config = "embed"};
    struct dp_lockstep *training = NULL;
    struct dp_world *world = NULL;
    dp_status status;

    dp_openmp_spin_briefly(argv);
    if (argc > 1) {
        options.out = argv[1];
        options.resume = "auto";
    }
    status = dp_lockstep_join(&world);
    status = status == DP_OK ? dp_lockstep_add_source(&spirals) : status;
    status = status == DP_OK ? dp_lockstep_create(world, &options, &training) : status;
    status = status == DP_OK ? train(world, training, options.out != NULL) : status;
    dp_lockstep_destroy(training);
    return dp_lockstep_leave(world, status);
}
