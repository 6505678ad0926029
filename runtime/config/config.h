/*
 * config.h - the configuration of a run: one struct, filled from tables.
 *
 * Precedence: defaults < file < DP_* environment < --set and flags. Rank 0 reads all of these
 * (dp_config_resolve) and writes one text, which is broadcast. Every rank, also rank 0, builds its
 * configuration only from that text (dp_config_parse).
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_H
#define DP_RUNTIME_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/option.h"
#include "base/status.h"
#include "models/layers/layer.h"
#include "runtime/optim/optimizer.h"

enum { DP_MODE_SYNC, DP_MODE_ASYNC };
enum { DP_SHUFFLE_ON, DP_SHUFFLE_OFF, DP_SHUFFLE_FULL, DP_SHUFFLE_WINDOW };
enum { DP_LABEL_FIRST, DP_LABEL_LAST };
enum { DP_CACHE_AUTO, DP_CACHE_NONE, DP_CACHE_RAW, DP_CACHE_DECODED, DP_CACHE_BATCH };
enum { DP_BAD_SAMPLE_STOP, DP_BAD_SAMPLE_SKIP };
enum { DP_OVERLAP_AUTO, DP_OVERLAP_ON, DP_OVERLAP_OFF };
enum { DP_GRAPH_AUTO, DP_GRAPH_ON, DP_GRAPH_OFF };
enum { DP_TUNE_AUTO, DP_TUNE_ON, DP_TUNE_OFF };
enum { DP_DIVERGENCE_STOP, DP_DIVERGENCE_RESTORE };
enum { DP_RANK_FAILURE_STOP, DP_RANK_FAILURE_SHRINK };
enum { DP_PRICE_PER_NODE, DP_PRICE_PER_RANK };
enum { DP_METRIC_TEST_ACCURACY, DP_METRIC_TEST_LOSS, DP_METRIC_TRAIN_LOSS, DP_METRIC_TEST_ERROR };

/* Bytes become (x / 255 - mean) / std, float32 (x - mean) / std. */
struct dp_normalize_config {
    struct dp_numbers mean, std; /* one for all channels, or one for each; count 0: none */
};

struct dp_data_config {
    const char *source;
    const char *dir;
    int shuffle; /* DP_SHUFFLE_... */
    int window;  /* rows, of DP_SHUFFLE_WINDOW */
    bool drop_last;
    int samples, test_samples; /* source synthetic */
    double test_fraction;
    int label;  /* DP_LABEL_... */
    int resize; /* enum dp_resize (runtime/data/sample.h) */
    double remote_wait_s;
    const char *local_cache;
    int local_cache_mb;
    int on_bad_sample;   /* DP_BAD_SAMPLE_... */
    int cache;           /* DP_CACHE_... */
    int memory_mb;       /* 0: what the host has */
    int input_ranks;     /* ranks that only read; 0: each reads its own rows */
    const char *workers; /* "auto", or a number: dp_config_workers() */
    const char *augment; /* as dp_augment_create() takes it (runtime/data/augment/augment.h) */
    struct dp_normalize_config normalize;
};

/* Choices of train.precision. */
enum dp_precision { DP_PRECISION_FP32, DP_PRECISION_TF32, DP_PRECISION_BF16, DP_PRECISION_FP16 };

/* "bf16", and the compute type that it means. */
const char *dp_precision_text(int precision);
enum dp_type dp_precision_type(int precision);

struct dp_train_config {
    int global_batch;
    int epochs, steps; /* exactly one of them is above 0 */
    int seed;
    int loss; /* enum dp_loss_kind */
    double label_smoothing;
    double ema;
    int precision; /* DP_PRECISION_... */
    int micro_batch, lanes;
    int local_steps, local_after;
    int mode;       /* DP_MODE_... */
    int staleness;  /* of mode async, in steps */
    int eval_every; /* epochs; 0: only at the end */
    bool eval_rank; /* the last rank evaluates, and trains nothing */
    double hang_timeout_s, unseen_timeout_s;
    int check_every;     /* steps; 0: never */
    int verify_sums;     /* steps; 0: never */
    int on_divergence;   /* DP_DIVERGENCE_... */
    int on_rank_failure; /* DP_RANK_FAILURE_... */
};

struct dp_comm_config {
    const char *strategy, *compressor;
    int servers; /* number of ranks, the last ones, that only sum and update */
    double bucket_mb, first_bucket_mb;
    int overlap;     /* DP_OVERLAP_... */
    int outage_s;    /* seconds that a host may be silent */
    bool plan_cache; /* see plan.h */
    bool checksum;   /* of messages: message_check.h */
    bool recalled;   /* strategy was chosen by auto in an earlier run: if it cannot run any more,
                      * auto chooses another one */
};

struct dp_early_stop_config {
    int metric; /* DP_METRIC_... */
    int patience;
    double min_delta;
};

/* See stop_criteria.h; 0: off. */
struct dp_failure_stop_config {
    bool nan;
    double spike_sigma;
    int spike_window; /* steps */
    int chance_steps;
    double min_samples_per_second;
};

struct dp_checkpoint_config {
    int every_steps, keep, keep_every;
};

struct dp_report_config {
    double price_per_hour; /* NaN: null, no price */
    int price_per;         /* DP_PRICE_PER_... */
    bool html, tensorboard, resources;
    const char *prometheus; /* a file; empty: none */
    double target_accuracy; /* of 1; NaN: null, none */
    int memory_budget_mb;   /* of a rank; 0: none */
};

struct dp_device_config {
    const char *name; /* auto, or one of --list devices */
    int graph;        /* DP_GRAPH_... */
    int conv;         /* enum dp_conv_engine */
    int tune;         /* DP_TUNE_... */
};

/* What a different value of a key means (struct dp_option.flags). */
enum dp_key_flag {
    DP_KEY_BINDS = 1,    /* a checkpoint with another value belongs to another run */
    DP_KEY_BITS = 2,     /* the weights get other bits */
    DP_KEY_AVERAGES = 4, /* as BITS, if ranks train alone: the key decides when weights are
                          * averaged */
    DP_KEY_AUTO = 8,     /* comm.strategy auto may choose another strategy */
    DP_KEY_PLUGINS = 16, /* not about values: the text is a list of plug-ins (config_plugins.c) */
    DP_KEY_FOLDERS = 32  /* likewise: it may be a list of folders (base/files/folder_list.h) */
};

struct dp_model_config {
    struct dp_shape input;
    struct dp_layer_spec *layers; /* unrolled; all of it belongs to the configuration */
    int layer_count;
    int recompute; /* parts (models/model_parts.h); DP_RECOMPUTE_OFF or _AUTO */
};

enum { DP_RECOMPUTE_AUTO = -1, DP_RECOMPUTE_OFF = 0, DP_RECOMPUTE_MOST = 1000 };

struct dp_yaml_node;

struct dp_config {
    const char *name; /* default: the file's stem */
    struct dp_data_config data;
    struct dp_train_config train;
    struct dp_optimizer_config optimizer;
    struct dp_comm_config comm;
    struct dp_early_stop_config early_stop;
    struct dp_failure_stop_config failure_stop;
    struct dp_checkpoint_config checkpoint;
    struct dp_report_config report;
    struct dp_device_config device;
    struct dp_model_config model;
    struct dp_yaml_node *root; /* the parsed text with its places: for dp_config_where() */
    void *texts;               /* owned: the memory of all of the above, including this struct */
};

/* Threads that prepare batches; 0: auto. Below 0: the text is neither. */
int dp_config_workers(const struct dp_config *config);

/* Whether ranks train at their own pace: async.h. Staleness 0 is the synchronous step. */
static inline bool dp_config_stale(const struct dp_config *config)
{
    return config->train.mode == DP_MODE_ASYNC && config->train.staleness > 0;
}

/* Whether ranks go on without one that dies (runtime/run/shrink.h): then every rank has all state,
 * and no step changes any of it before its last message. */
static inline bool dp_config_shrinks(const struct dp_config *config)
{
    return config->train.on_rank_failure == DP_RANK_FAILURE_SHRINK;
}

#endif
