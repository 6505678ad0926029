/*
 * config_tables.c - every key of model.cfg outside of `model`: name, type, range, default, help.
 */
#include <stddef.h>
#include <string.h>

#include "runtime/config/config_own.h"

#define TOP struct dp_config
#define DATA struct dp_data_config
#define NORMALIZE struct dp_normalize_config
#define TRAIN struct dp_train_config
#define OPTIMIZER struct dp_optimizer_config
#define SCHEDULE struct dp_schedule_config
#define COMM struct dp_comm_config
#define EARLY_STOP struct dp_early_stop_config
#define FAILURE_STOP struct dp_failure_stop_config
#define CHECKPOINT struct dp_checkpoint_config
#define REPORT struct dp_report_config
#define DEVICE struct dp_device_config

enum { INT_HIGH = 2147483647, BATCH_HIGH = 16777216 };

/* clang-format off */
static const struct dp_option top_options[] = {
    DP_STRING(TOP, name, "", "name of the run; default: the file's name without its ending"),
    {0},
};

static const struct dp_option data_options[] = {
    DP_STRING(DATA, source,       "fashion-mnist", "where samples come from; see --list sources",
              DP_KEY_BITS),
    DP_STRING(DATA, dir,          "/usr/share/datasets/fashion-mnist",
              "folder of the data set; of source records also several, https:// or s3://",
              DP_KEY_FOLDERS),
    DP_CHOICE(DATA, shuffle,      "true", "true|false|full|window",
              "order of an epoch: permuted, as in the file, or permuted in windows", DP_KEY_BINDS),
    DP_INT(   DATA, window,       "10000", 1, INT_HIGH,
              "rows that shuffle window permutes together"),
    DP_SWITCH(DATA, drop_last,    "false", "leave out the short last batch of an epoch",
              DP_KEY_BINDS),
    DP_INT(   DATA, samples,      "0", 0, INT_HIGH,
              "training samples of source synthetic; 0: its own number"),
    DP_INT(   DATA, test_samples, "0", 0, INT_HIGH,
              "test samples of source synthetic; 0: its own number"),
    DP_DOUBLE(DATA, test_fraction, "0", 0, 0.9,
              "share of the training set to test with, where there is no test set",
              DP_KEY_BINDS),
    DP_CHOICE(DATA, label,        "first", "first|last",
              "which field of a line of source csv is its label", DP_KEY_BITS),
    DP_CHOICE(DATA, resize,       "auto", "auto|bilinear|crop",
              "images to model.input: scaled, or cut in the middle; auto: pictures scaled",
              DP_KEY_BITS),
    DP_DOUBLE(DATA, remote_wait_s, "60", 1, 86400,
              "s without a byte after which the server of data.dir is given up"),
    DP_STRING(DATA, local_cache,  "",
              "folder of a local disk for copies of shards of source records; empty: none"),
    DP_INT(   DATA, local_cache_mb, "0", 0, INT_HIGH,
              "MB of these copies, of all jobs; 0: nine tenths of what is free there"),
    DP_CHOICE(DATA, on_bad_sample, "stop", "stop|skip",
              "a damaged sample: end, or take the next one instead (at most 1 of 1000)"),
    DP_CHOICE(DATA, cache,        "auto", "auto|none|raw|decoded|batch",
              "samples in memory: not, as in files, decoded, one batch; see docs/data.md"),
    DP_INT(   DATA, memory_mb,    "0", 0, INT_HIGH,
              "most of a host's memory for samples, in MiB; 0: what is left"),
    DP_INT(   DATA, input_ranks,  "0", 0, 4096,
              "last ranks that train nothing, but read and change samples for the others"),
    DP_STRING(DATA, workers,      "auto", "threads of a rank that prepare batches: auto, or N"),
    DP_STRING(DATA, augment,      "",
              "pictures changed at random: [flip: {}]; see --list augmentations",
              DP_KEY_BITS | DP_KEY_PLUGINS),
    {0},
};

static const struct dp_option normalize_options[] = {
    DP_NUMBERS(NORMALIZE, mean, "", -1e15, 1e15,
               "subtracted from each channel, or feature; bytes are scaled to 0..1 before",
               DP_KEY_BITS),
    DP_NUMBERS(NORMALIZE, std,  "", 1e-15, 1e15, "then divides each of them", DP_KEY_BITS),
    {0},
};

/* epochs and steps: the one that is not given is 0, which is below its range and not printed. */
static const struct dp_option train_options[] = {
    DP_INT(   TRAIN, global_batch,   "256",  1, BATCH_HIGH,
              "samples of a step, over all training ranks", DP_KEY_BINDS),
    DP_INT(   TRAIN, epochs,         "3",    1, 1000000,
              "passes over the training set; or give steps"),
    DP_INT(   TRAIN, steps,          "0",    1, INT_HIGH, "steps of training, instead of epochs"),
    DP_INT(   TRAIN, seed,           "1",    0, INT_HIGH,
              "of initial weights, batch order and dropout", DP_KEY_BINDS),
    DP_CHOICE(TRAIN, loss,           "softmax_cross_entropy",
              "softmax_cross_entropy|binary_cross_entropy|mse",
              "mean over rows and outputs, as PyTorch's; see docs/data.md", DP_KEY_BITS),
    DP_DOUBLE(TRAIN, label_smoothing, "0",   0, 1,
              "this share of a label is spread over all classes, in training", DP_KEY_BITS),
    DP_DOUBLE(TRAIN, ema,            "0",    0, 0.999999999,
              "above 0: decay of an average of the weights, which is evaluated: 0.999",
              DP_KEY_BINDS),
    DP_CHOICE(TRAIN, precision,      "fp32", "fp32|tf32|bf16|fp16",
              "of forward and backward; sums and master weights are float32",
              DP_KEY_BINDS | DP_KEY_AUTO),
    DP_INT(   TRAIN, micro_batch,    "0",    0, BATCH_HIGH,
              "above 0: rows of a pass; gradients accumulate over passes", DP_KEY_BITS),
    DP_INT(   TRAIN, lanes,          "0",    0, 1024,
              "above 0: the same bits at every world size that divides it",
              DP_KEY_BITS | DP_KEY_AUTO),
    DP_INT(   TRAIN, local_steps,    "1",    1, 1000000,
              "above 1: ranks train alone, and average weights every so many steps",
              DP_KEY_BITS | DP_KEY_AUTO),
    DP_INT(   TRAIN, local_after,    "0",    0, INT_HIGH,
              "steps in which gradients are shared before local steps begin", DP_KEY_BITS),
    DP_CHOICE(TRAIN, mode,           "sync", "sync|async",
              "async: servers (comm.servers) apply each rank's gradient as it comes",
              DP_KEY_BITS | DP_KEY_AUTO),
    DP_INT(   TRAIN, staleness,      "0",    0, 1024,
              "of mode async: steps ahead of the slowest rank; 0: as mode sync",
              DP_KEY_BITS | DP_KEY_AUTO),
    DP_INT(   TRAIN, eval_every,     "1",    0, 1000000,
              "epochs between evaluations; 0: only at the end", DP_KEY_AVERAGES),
    DP_SWITCH(TRAIN, eval_rank,      "false",
              "the last rank trains nothing: it evaluates while the others train on"),
    DP_DOUBLE(TRAIN, hang_timeout_s, "0",    0, 86400,
              "s without progress that end a run; 0: five times the slowest step, >= 10"),
    DP_DOUBLE(TRAIN, unseen_timeout_s, "300", 1, 86400,
              "the same where storage or hosts may work: start, saving, between steps"),
    DP_INT(   TRAIN, check_every,    "100",  0, INT_HIGH,
              "steps between comparisons of all weights over ranks; 0: only slices of them"),
    DP_INT(   TRAIN, verify_sums,    "0",    0, INT_HIGH,
              "steps between recomputations of one bucket's sum on all ranks; 0: never"),
    DP_CHOICE(TRAIN, on_divergence,  "stop", "stop|restore",
              "when ranks hold different weights: end, or copy the majority's"),
    DP_CHOICE(TRAIN, on_rank_failure, "stop", "stop|shrink",
              "when a rank dies: end, or go on without it (Open MPI 5, --with-ft ulfm)"),
    {0},
};

/* Those of each optimizer and schedule are in its file. */
static const struct dp_option optimizer_options[] = {
    DP_STRING(OPTIMIZER, name,      "sgd",  "update rule; see --list optimizers", DP_KEY_BINDS),
    DP_DOUBLE(OPTIMIZER, lr,        "0.05", 0, 1e6, "learning rate", DP_KEY_BITS),
    DP_DOUBLE(OPTIMIZER, clip_norm, "0",    0, 1e30,
              "largest norm of the gradient; 0: no clipping", DP_KEY_BITS),
    DP_CHOICE(OPTIMIZER, scale_lr,  "none", "none|linear|sqrt",
              "multiply lr by train.global_batch / base_batch, or by its square root",
              DP_KEY_BITS),
    DP_INT(   OPTIMIZER, base_batch, "256", 1, INT_HIGH, "of scale_lr: the batch that lr is for",
              DP_KEY_BITS),
    {0},
};

static const struct dp_option schedule_options[] = {
    DP_STRING(SCHEDULE, name,         "constant",
              "how the learning rate changes after warm-up; see --list schedules", DP_KEY_BITS),
    DP_INT(   SCHEDULE, warmup_steps, "0", 0, INT_HIGH, "steps of linear warm-up", DP_KEY_BITS),
    {0},
};

static const struct dp_option comm_options[] = {
    DP_STRING(COMM, strategy,        "auto", "how gradients are summed; see --list strategies"),
    DP_INT(   COMM, servers,         "0",    0, 4096,
              "last ranks that do not train, but sum and update: comm.strategy ps",
              DP_KEY_BITS | DP_KEY_AUTO),
    DP_STRING(COMM, compressor,      "none", "gradient compression; see --list compressors",
              DP_KEY_BITS | DP_KEY_AUTO),
    DP_DOUBLE(COMM, bucket_mb,       "25",   0.004, 4096,
              "most of a gradient bucket, in MiB; a larger tensor has its own", DP_KEY_AUTO),
    DP_DOUBLE(COMM, first_bucket_mb, "1",    0.004, 4096, "size of the first bucket, in MiB",
              DP_KEY_AUTO),
    DP_CHOICE(COMM, overlap,         "auto", "auto|on|off", "sum buckets while backward runs"),
    DP_INT(   COMM, outage_s,        "30",   1, 86400,
              "seconds without a sign of life from a host until the job ends"),
    DP_SWITCH(COMM, plan_cache,      "true",
              "strategy auto, algorithms of GPUs: use what was measured earlier"),
    DP_SWITCH(COMM, checksum,        "false", "messages have checksums, which receivers compare"),
    {0},
};

static const struct dp_option early_stop_options[] = {
    DP_CHOICE(EARLY_STOP, metric,    "test_accuracy",
              "test_accuracy|test_loss|train_loss|test_mean_absolute_error",
              "what must improve"),
    DP_INT(   EARLY_STOP, patience,  "0", 0, 1000000,
              "evaluations without improvement until training stops; 0: never"),
    DP_DOUBLE(EARLY_STOP, min_delta, "0", 0, 1e30, "smaller changes are no improvement"),
    {0},
};

static const struct dp_option failure_stop_options[] = {
    DP_SWITCH(FAILURE_STOP, nan,                    "true",
              "stop when the loss is not finite; such weights are never saved"),
    DP_DOUBLE(FAILURE_STOP, spike_sigma,            "0", 0, 1e6,
              "stop when the loss is this many deviations above its mean; 0: never"),
    DP_INT(   FAILURE_STOP, spike_window,           "100", 2, 1000000,
              "steps of this mean; the first check comes after as many"),
    DP_INT(   FAILURE_STOP, chance_steps,           "0", 0, INT_HIGH,
              "stop when answers are still guesses after this step; 0: never"),
    DP_DOUBLE(FAILURE_STOP, min_samples_per_second, "0", 0, 1e15,
              "save and stop when training is slower; 0: never"),
    {0},
};

static const struct dp_option checkpoint_options[] = {
    DP_INT(CHECKPOINT, every_steps, "500", 0, INT_HIGH,
           "steps between checkpoints; 0: only at the end", DP_KEY_AVERAGES),
    DP_INT(CHECKPOINT, keep,        "3",   1, 1000000, "newest checkpoints to keep"),
    DP_INT(CHECKPOINT, keep_every,  "0",   0, INT_HIGH,
           "above 0: checkpoints of multiples of this step are kept, too"),
    {0},
};

static const struct dp_option report_options[] = {
    DP_DOUBLE(REPORT, price_per_hour, "null", 1e-6, 1e6, "dollars, for samples per dollar"),
    DP_CHOICE(REPORT, price_per,      "node", "node|rank", "what the price is for"),
    DP_SWITCH(REPORT, html,           "true", "writes report.html, now and then and at the end"),
    DP_SWITCH(REPORT, tensorboard,    "true", "writes events for TensorBoard"),
    DP_SWITCH(REPORT, resources,      "true", "counts processor, memory and disks while it trains"),
    DP_STRING(REPORT, prometheus,     "", "file for node_exporter's textfile collector"),
    DP_DOUBLE(REPORT, target_accuracy, "null", 0, 1,
              "test accuracy, of 1: time and dollars until it was reached"),
    DP_INT(   REPORT, memory_budget_mb, "0", 0, INT_HIGH,
              "warns when a rank has more memory resident; 0: never"),
    {0},
};

static const struct dp_option device_options[] = {
    DP_STRING(DEVICE, name,  "auto", "what computes; see --list devices"),
    DP_CHOICE(DEVICE, graph, "auto", "auto|on|off", "a GPU records a step once and replays it"),
    DP_CHOICE(DEVICE, conv,  "auto", "auto|cublas|cudnn",
              "what computes convolutions on a GPU; auto: cudnn where it is found", DP_KEY_BITS),
    DP_CHOICE(DEVICE, tune,  "auto", "auto|on|off",
              "measure libraries' algorithms; auto: where they are kept, no lanes",
              DP_KEY_BITS),
    {0},
};

const struct dp_option dp_config_repeat_options[] = {
    DP_INT(struct dp_config_repeat, times, NULL, 1, 1000, "number of repetitions"),
    {0},
};

const struct dp_option dp_config_model_options[] = {
    DP_NUMBERS(struct dp_config_model, input, NULL, 1, BATCH_HIGH,
               "[features], or [height, width, channels]"),
    DP_STRING(struct dp_config_model, recompute, "off",
              "parts whose activations backward computes again; auto: as few as fit"),
    {0},
};

#define SECTION(name, rows, member, what) \
    {.path = (name), .options = (rows), .offset = offsetof(TOP, member), .help = (what)}
#define PLUGINS(name, rows, member, what, plugins, choice_of, rows_before)               \
    {.path = (name), .options = (rows), .offset = offsetof(TOP, member), .help = (what), \
     .family = (plugins), .choice = offsetof(TOP, choice_of), .before = (rows_before)}

/* Sections in the order of the printed configuration. */
static const struct dp_config_section sections[] = {
    {.path = "", .options = top_options, .help = ""},
    SECTION("data", data_options, data, "samples and their order"),
    SECTION("data.normalize", normalize_options, data.normalize,
            "one number for all channels (of a flat input: features), or one for each"),
    SECTION("train", train_options, train, "length and shape of training"),
    PLUGINS("optimizer", optimizer_options, optimizer, "how gradients become new weights",
            &dp_optimizers, optimizer.chosen, 2),
    PLUGINS("optimizer.schedule", schedule_options, optimizer.schedule,
            "learning rate over steps", &dp_schedules, optimizer.schedule.chosen, 2),
    SECTION("comm", comm_options, comm, "how gradients become sums"),
    SECTION("early_stop", early_stop_options, early_stop, "stopping when nothing improves"),
    SECTION("failure_stop", failure_stop_options, failure_stop, "stopping when it goes wrong"),
    SECTION("checkpoint", checkpoint_options, checkpoint, "saving"),
    SECTION("report", report_options, report, "what is written about the run"),
    SECTION("device", device_options, device, "what computes"),
};
/* clang-format on */

enum { SECTION_COUNT = sizeof(sections) / sizeof(sections[0]) };

const struct dp_config_section *dp_config_section_at(int i)
{
    return i >= 0 && i < SECTION_COUNT ? &sections[i] : NULL;
}

const struct dp_config_section *dp_config_section_find(const char *path)
{
    for (int i = 0; i < SECTION_COUNT; i++) {
        if (strcmp(sections[i].path, path) == 0) {
            return &sections[i];
        }
    }
    return NULL;
}

const char *dp_config_section_inside(int i, const char *path)
{
    const size_t length = strlen(path);
    const char *name = sections[i].path;

    if (length > 0) {
        if (strncmp(name, path, length) != 0 || name[length] != '.') {
            return NULL;
        }
        name += length + 1;
    }
    return name[0] != '\0' && strchr(name, '.') == NULL ? name : NULL;
}

const char *dp_precision_text(int precision)
{
    static const char *const texts[] = {"fp32", "tf32", "bf16", "fp16"};

    return texts[precision];
}

enum dp_type dp_precision_type(int precision)
{
    return precision == DP_PRECISION_BF16   ? DP_TYPE_BF16
           : precision == DP_PRECISION_FP16 ? DP_TYPE_F16
                                            : DP_TYPE_F32;
}
