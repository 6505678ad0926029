#include "launch/bench/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/option.h"
#include "base/plugin.h"
#include "base/text.h"

/* What can be compared, for --list. */
#include "collectives/compressors/compressor.h"
#include "collectives/exchange/sharding.h"
#include "collectives/strategies/strategy.h"

enum kind { KIND_SIZE, KIND_COUNT, KIND_TEXT, KIND_SET, KIND_FORMAT, KIND_SWITCH };

static const char *const formats[] = {"table", "csv", "json"};

#define OPT struct dp_bench_options

/* clang-format off */
static const struct flag {
    const char *letter, *name, *value;
    enum kind kind;
    size_t offset;
    long low; /* of a count */
    const char *help;
} flags[] = {
    {"-b", "--minbytes", "SIZE", KIND_SIZE, DP_FIELD(OPT, min_bytes, size_t), 0,
     "smallest size, in bytes or with K, M, G; default 1K"},
    {"-e", "--maxbytes", "SIZE", KIND_SIZE, DP_FIELD(OPT, max_bytes, size_t), 0,
     "largest size; default 16M"},
    {"-f", "--stepfactor", "N", KIND_COUNT, DP_FIELD(OPT, factor, int), 2,
     "each size is so many times the one before; default 4"},
    {"-n", "--iters", "N", KIND_COUNT, DP_FIELD(OPT, iterations, int), 1,
     "timed calls; with --buckets also timed steps; default 20"},
    {"-w", "--warmup_iters", "N", KIND_COUNT, DP_FIELD(OPT, warmups, int), 0,
     "calls before them; default 5"},
    {"-c", "--check", "N", KIND_COUNT, DP_FIELD(OPT, checks, int), 0,
     "rounds in which results are checked, 0: none; default 1"},
    {"", "--strategies", "LIST", KIND_TEXT, DP_FIELD(OPT, strategies, const char *), 0,
     "ring,zero1:over=ring ...; default all strategies, without shardings"},
    {"", "--compressors", "LIST", KIND_TEXT, DP_FIELD(OPT, compressors, const char *), 0,
     "topk:ratio=0.01 ..., or all; default none"},
    {"", "--buckets", "FILE", KIND_TEXT, DP_FIELD(OPT, buckets, const char *), 0,
     "the buckets of that model.cfg instead of sizes, and exposed time a step"},
    {"", "--set", "KEY=VALUE", KIND_SET, 0, 0, "overrides a key of that file (repeatable)"},
    {"", "--train", "N", KIND_COUNT, DP_FIELD(OPT, train_steps, int), 1,
     "with --buckets: final loss and accuracy of N steps, each compressor and off"},
    {"", "--bound", NULL, KIND_SWITCH, DP_FIELD(OPT, bound, bool), 0,
     "adds the bound of each size: least traffic over copy bandwidth, or the wire's"},
    {"", "--costs", "FILE", KIND_TEXT, DP_FIELD(OPT, costs, const char *), 0,
     "runs nothing: predicted times for groups and links in a JSON file, as JSON"},
    {"", "--format", "FORMAT", KIND_FORMAT, DP_FIELD(OPT, format, int), 0, "table, csv or json"},
    {"", "--list", NULL, KIND_SWITCH, DP_FIELD(OPT, list, bool), 0,
     "lists strategies, shardings and compressors"},
    {"", "--version", NULL, KIND_SWITCH, DP_FIELD(OPT, version, bool), 0, "prints the version"},
    {"-h", "--help", NULL, KIND_SWITCH, DP_FIELD(OPT, help, bool), 0, "prints this"},
};
/* clang-format on */

enum { FLAG_COUNT = sizeof(flags) / sizeof(flags[0]), MOST = 1000000 };

static const char *const columns_help =
    "\nA row: bytes, elements, type, strategy, compressor and ranks; time of a call in us (the "
    "slowest\n"
    "rank's; least, median, 99th percentile by nearest rank); algbw = bytes/time and busbw = "
    "algbw\n"
    "2(p-1)/p in GB/s (1e9); wrong elements, on all ranks together, where sums are exact, in the "
    "worst\n"
    "round; bytes on the wire of the busiest rank, an estimate for mpi and nccl; largest error in "
    "units\n"
    "in the last place of the sum of magnitudes, and relative L2 error, against a float64 sum of "
    "random\n"
    "inputs, the worst of rounds that begin without residuals; the time that the cost model "
    "predicts.\n"
    "Buffers are written anew before every call, outside of its time. --bound: sums in place can "
    "beat\n"
    "the bound of one node where they stay in caches that a copy does not fit into.\n";

bool dp_bench_size(const char *text, size_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    double value;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    value = strtod(text, &end);
    if ((size_t)(end - text) > strspn(text, "0123456789.")) { /* 1e6, 0x40 */
        return false;
    }
    for (int i = 0; units[i] != '\0' && end[0] != '\0' && end[1] == '\0'; i++) {
        if ((end[0] & ~0x20) == units[i]) {
            value *= (double)((size_t)1 << (10 * (i + 1)));
            end++;
        }
    }
    if (errno != 0 || *end != '\0' || !(value >= 4.0 && value <= 1099511627776.0)) {
        return false;
    }
    *bytes = (size_t)value;
    return true;
}

static const struct flag *find_flag(const char *name, size_t length)
{
    for (int i = 0; i < FLAG_COUNT; i++) {
        const char *const names[] = {flags[i].letter, flags[i].name};
        for (int k = 0; k < 2; k++) {
            if (strlen(names[k]) == length && memcmp(names[k], name, length) == 0) {
                return &flags[i];
            }
        }
    }
    return NULL;
}

static dp_status refuse_flag(const char *argument, size_t length)
{
    const char *nearest = NULL;
    int best = INT_MAX;
    char name[64];

    (void)snprintf(name, sizeof(name), "%.*s", (int)(length < 63 ? length : 63), argument);
    for (int i = 0; i < FLAG_COUNT; i++) {
        const int distance = dp_edit_distance(name, flags[i].name);
        if (distance < best && dp_looks_like(name, flags[i].name)) {
            best = distance;
            nearest = flags[i].name;
        }
    }
    return nearest != NULL
               ? DP_FAIL(DP_ERR_USAGE, "unknown flag %s (did you mean %s?)", name, nearest)
               : DP_FAIL(DP_ERR_USAGE, "unknown flag %s; --help lists all", name);
}

static dp_status read_count(const struct flag *flag, const char *value, int *out)
{
    char *end;
    long count;

    errno = 0;
    count = strtol(value, &end, 10);
    if (errno != 0 || *end != '\0' || end == value || count < flag->low || count > MOST) {
        return DP_FAIL(DP_ERR_USAGE, "%s wants a number from %ld to %d, not '%s'",
                       *flag->letter != '\0' ? flag->letter : flag->name, flag->low, MOST, value);
    }
    *out = (int)count;
    return DP_OK;
}

static dp_status read_format(const char *value, int *out)
{
    for (int i = 0; i < (int)(sizeof(formats) / sizeof(formats[0])); i++) {
        if (strcmp(value, formats[i]) == 0) {
            *out = i;
            return DP_OK;
        }
    }
    return DP_FAIL(DP_ERR_USAGE, "--format wants table, csv or json, not '%s'", value);
}

static dp_status apply(struct dp_bench_options *o, const struct flag *flag, const char *value)
{
    void *field = (char *)o + flag->offset;

    switch (flag->kind) {
    case KIND_SIZE:
        return dp_bench_size(value, field)
                   ? DP_OK
                   : DP_FAIL(DP_ERR_USAGE, "%s wants a size such as 65536, 64K or 16M, not '%s'",
                             flag->letter, value);
    case KIND_COUNT:
        return read_count(flag, value, field);
    case KIND_FORMAT:
        return read_format(value, field);
    case KIND_SET:
        if (o->set_count == DP_BENCH_SETS) {
            return DP_FAIL(DP_ERR_USAGE, "more than %d --set", DP_BENCH_SETS);
        }
        o->sets[o->set_count++] = value;
        return DP_OK;
    default:
        *(const char **)field = value;
        return DP_OK;
    }
}

/* Flags about the compared sizes. A model's buckets have their own. */
static bool of_sizes(const struct flag *flag)
{
    return flag->kind == KIND_SIZE || flag->offset == offsetof(OPT, factor) ||
           flag->offset == offsetof(OPT, bound);
}

/* "--flag", "--flag=value", or a flag followed by its value. */
static dp_status read_flag(int argc, char **argv, int *i, struct dp_bench_options *o)
{
    const char *argument = argv[*i];
    const size_t length = strcspn(argument, "=");
    const struct flag *flag = find_flag(argument, length);
    const char *value = argument[length] == '=' ? argument + length + 1 : NULL;

    if (argument[0] != '-') {
        return DP_FAIL(DP_ERR_USAGE, "'%s' is no flag; a model goes to --buckets", argument);
    }
    if (flag == NULL) {
        return refuse_flag(argument, length);
    }
    if (of_sizes(flag) && o->sized == NULL) {
        o->sized = *flag->letter != '\0' ? flag->letter : flag->name;
    }
    if (flag->kind == KIND_SWITCH) {
        *(bool *)(void *)((char *)o + flag->offset) = true;
        return value == NULL ? DP_OK : DP_FAIL(DP_ERR_USAGE, "%s takes no value", flag->name);
    }
    if (value == NULL && *i + 1 < argc) {
        value = argv[++*i];
    }
    if (value == NULL || *value == '\0') {
        return DP_FAIL(DP_ERR_USAGE, "%s wants %s", flag->name, flag->value);
    }
    return apply(o, flag, value);
}

/* Flags that cannot be used with the buckets of a model. */
static dp_status check_model(const struct dp_bench_options *o)
{
    static const char *const ways[][2] = {{"comm.strategy", "--strategies"},
                                          {"comm.compressor", "--compressors"}};

    if (o->sized != NULL) {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s is about sizes, and --buckets has those of a model: leave out one of "
                       "them",
                       o->sized);
    }
    for (int i = 0; i < o->set_count; i++) {
        const size_t length = strcspn(o->sets[i], "=");

        for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
            if (strlen(ways[k][0]) == length && memcmp(o->sets[i], ways[k][0], length) == 0) {
                return DP_FAIL(DP_ERR_USAGE, "--set %s: give %s what is to be compared", o->sets[i],
                               ways[k][1]);
            }
        }
    }
    return DP_OK;
}

static dp_status read_all(int argc, char **argv, struct dp_bench_options *o)
{
    for (int i = 1; i < argc; i++) {
        DP_TRY(read_flag(argc, argv, &i, o));
    }
    if (o->min_bytes > o->max_bytes) {
        return DP_FAIL(DP_ERR_USAGE, "-b %zu is above -e %zu", o->min_bytes, o->max_bytes);
    }
    if (o->buckets == NULL && (o->train_steps > 0 || o->set_count > 0)) {
        return DP_FAIL(DP_ERR_USAGE, "%s needs a model: give --buckets model.cfg",
                       o->train_steps > 0 ? "--train" : "--set");
    }
    return o->buckets != NULL ? check_model(o) : DP_OK;
}

dp_status dp_bench_parse(int argc, char **argv, bool silent, struct dp_bench_options *options)
{
    struct dp_log_capture capture = {0};
    struct dp_log_capture *const silenced = silent ? &capture : NULL;
    dp_status status;

    *options = (struct dp_bench_options){
        .min_bytes = (size_t)1 << 10,
        .max_bytes = (size_t)16 << 20,
        .factor = 4,
        .iterations = 20,
        .warmups = 5,
        .checks = 1,
        .strategies = "all",
        .compressors = dp_plugin_at(&dp_compressors, 0)->name,
    };
    dp_log_capture_begin(silenced, DP_LOG_DEBUG);
    status = read_all(argc, argv, options);
    dp_log_capture_end(silenced, DP_LOG_DROP);
    return status;
}

void dp_bench_version(void)
{
    printf("lockstep %s\n", DP_VERSION);
}

void dp_bench_help(void)
{
    printf("usage: mpirun -np N ddp_bench [flags]\n\n"
           "Compares ways to share gradients, on N ranks: strategies and compressors.\n\nflags:\n");
    for (int i = 0; i < FLAG_COUNT; i++) {
        printf("  %-2s %-14s %-9s %s\n", flags[i].letter, flags[i].name,
               flags[i].value == NULL ? "" : flags[i].value, flags[i].help);
    }
    (void)fputs(columns_help, stdout);
}

static void list_family(const char *title, const struct dp_plugin_family *family)
{
    const struct dp_plugin *plugin;
    const char *why_not = NULL;
    char text[512];

    printf("%s:\n", title);
    for (int i = 0; (plugin = dp_plugin_at(family, i)) != NULL; i++) {
        if (family == &dp_strategies) {
            why_not = dp_strategy_not_here((const struct dp_strategy *)plugin);
        }
        dp_plugin_describe(plugin, text, sizeof(text));
        dp_text_line(stdout, "  %-15s %s%s%s", plugin->name, text,
                     why_not != NULL ? "; not here: " : "", why_not != NULL ? why_not : "");
    }
}

void dp_bench_list(void)
{
    list_family("strategies", &dp_strategies);
    list_family("shardings, over a strategy", &dp_shardings);
    list_family("compressors", &dp_compressors);
}
