#include "runtime/run/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/option.h"
#include "base/plugin.h"
#include "base/text.h"
#include "collectives/compressors/compressor.h"
#include "collectives/exchange/sharding.h"
#include "collectives/strategies/strategy.h"
#include "kernels/device.h"
#include "models/layers/layer.h"
#include "runtime/config/config.h"
#include "runtime/config/config_print.h"
#include "runtime/config/config_synonyms.h"
#include "runtime/data/augment/augmentation.h"
#include "runtime/data/source.h"
#include "runtime/optim/optimizer.h"
#include "runtime/report/summary.h"

enum flag {
    FLAG_SET,
    FLAG_OUT,
    FLAG_STEPS,
    FLAG_SEED,
    FLAG_RESUME,
    FLAG_INIT,
    FLAG_EVALUATE,
    FLAG_JSON,
    FLAG_SYNTHETIC,
    FLAG_CACHED_INPUT,
    FLAG_DATA_ONLY,
    FLAG_CHECK,
    FLAG_DRY_RUN,
    FLAG_SELFTEST,
    FLAG_PRINT_CONFIG,
    FLAG_LIST,
    FLAG_DEVICE,
    FLAG_THREADS,
    FLAG_MAX_TIME,
    FLAG_BASELINE,
    FLAG_EXPLAIN,
    FLAG_PLAN,
    FLAG_TRACE,
    FLAG_LOG_LEVEL,
    FLAG_QUIET,
    FLAG_VERSION,
    FLAG_HELP
};

static const struct {
    const char *name, *value, *help; /* value NULL: the flag takes none */
} flags[] = {
    [FLAG_SET] = {"--set", "KEY=VALUE", "overrides a key: train.global_batch=512 (repeatable)"},
    [FLAG_OUT] = {"--out", "DIR", "folder of the run; default runs/NAME-DATE-TIME"},
    [FLAG_STEPS] = {"--steps", "N", "stops after N steps; schedules keep the config's length"},
    [FLAG_SEED] = {"--seed", "N", "the same as --set train.seed=N"},
    [FLAG_RESUME] = {"--resume", "[=PATH]",
                     "goes on from the newest whole checkpoint under --out, or PATH"},
    [FLAG_INIT] = {"--init", "FILE", "starts from the weights in a safetensors file"},
    [FLAG_EVALUATE] = {"--evaluate", "RUN", "tests the weights of a run, or of a checkpoint, only"},
    [FLAG_JSON] = {"--json", NULL, "prints what --evaluate finds as JSON"},
    [FLAG_SYNTHETIC] = {"--synthetic", NULL, "trains on generated data of the same shapes"},
    [FLAG_CACHED_INPUT] = {"--cached-input", NULL, "the first batch again and again"},
    [FLAG_DATA_ONLY] = {"--data-only", NULL, "iterates the input without training"},
    [FLAG_CHECK] = {"--check", NULL, "checks the model and prints its layers, FLOPs and memory"},
    [FLAG_DRY_RUN] = {"--dry-run", NULL, "prints ranks, binding and bucket plan, then ends"},
    [FLAG_SELFTEST] = {"--selftest", NULL, "checks that this model trains rightly here"},
    [FLAG_PRINT_CONFIG] = {"--print-config", NULL, "prints the resolved configuration"},
    [FLAG_LIST] = {"--list", "FAMILY",
                   "what there is of strategies, layers ...; a wrong name lists all"},
    [FLAG_DEVICE] = {"--device", "NAME", "cpu|cuda (or gpu)|auto; see --list devices"},
    [FLAG_THREADS] = {"--threads", "N",
                      "threads of a rank that compute; default: its share of cores"},
    [FLAG_MAX_TIME] = {"--max-time", "TIME", "saves and stops after 55m, 90s, 1h30m, or 3600 (s)"},
    [FLAG_BASELINE] = {"--baseline", "FILE", "takes the single-rank rate from that run.json"},
    [FLAG_EXPLAIN] = {"--explain", NULL, "prints at the end how the verdict was found"},
    [FLAG_PLAN] = {"--plan", "FILE", "shares gradients as the run with that config.yaml did"},
    [FLAG_TRACE] = {"--trace", "FILE",
                    "writes a trace for Perfetto; FILE:steps=A-B: of those steps"},
    [FLAG_LOG_LEVEL] = {"--log-level", "LEVEL", "error|warn|info|debug"},
    [FLAG_QUIET] = {"--quiet", NULL, "prints errors and warnings only"},
    [FLAG_VERSION] = {"--version", NULL, "prints the version"},
    [FLAG_HELP] = {"--help", NULL, "or -h: prints this, and every key of model.cfg"},
};

enum { FLAG_COUNT = sizeof(flags) / sizeof(flags[0]) };

static int find_flag(const char *name, size_t length)
{
    if (length == 2 && memcmp(name, "-h", 2) == 0) {
        return FLAG_HELP;
    }
    for (int i = 0; i < FLAG_COUNT; i++) {
        if (strlen(flags[i].name) == length && memcmp(flags[i].name, name, length) == 0) {
            return i;
        }
    }
    return -1;
}

/* The flag that is meant, or NULL. */
static const char *nearest_flag(const char *name)
{
    const char *nearest = NULL;
    int best = INT_MAX;

    for (int i = 0; i < FLAG_COUNT; i++) {
        const int distance = dp_edit_distance(name, flags[i].name);
        if (distance < best && dp_looks_like(name, flags[i].name)) {
            best = distance;
            nearest = flags[i].name;
        }
    }
    return nearest;
}

static dp_status add_set(struct dp_cli *cli, const char *set)
{
    if (cli->run.set_count == DP_RUN_SETS) {
        return DP_FAIL(DP_ERR_USAGE, "more than %d --set", DP_RUN_SETS);
    }
    cli->run.sets[cli->run.set_count++] = set;
    return DP_OK;
}

/* A number above 0 and up to `most`. */
static dp_status read_number(enum flag flag, const char *value, int64_t most, int64_t *number)
{
    char *end;

    errno = 0;
    *number = strtoll(value, &end, 10);
    if (errno != 0 || *end != '\0' || end == value || *number < 1 || *number > most) {
        return DP_FAIL(DP_ERR_USAGE, "%s wants a number above 0, not '%s'", flags[flag].name,
                       value);
    }
    return DP_OK;
}

static dp_status read_threads(struct dp_cli *cli, const char *value)
{
    int64_t threads;

    DP_TRY(read_number(FLAG_THREADS, value, INT_MAX, &threads));
    cli->run.threads = (int)threads;
    return DP_OK;
}

static const double TIME_MOST = 1e9; /* seconds, which is 31 years: as nanoseconds they fit */

/* "1h30m", "90s", or a number of seconds; larger units come first, each at most once. 0: it is none
 * of these, or more than TIME_MOST. */
static double duration_s(const char *text)
{
    static const struct {
        char name;
        int seconds;
    } units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
    double sum = 0.0;
    char *end = NULL;

    for (size_t i = 0; *text != '\0'; i++) {
        const size_t digits = strspn(text, "0123456789.");
        const double value = strtod(text, &end);
        if (digits == 0 || end != text + digits || value > TIME_MOST) {
            return 0.0;
        }
        if (*end == '\0') {
            return i == 0 ? value : 0.0;
        }
        while (i < sizeof(units) / sizeof(units[0]) && units[i].name != *end) {
            i++;
        }
        if (i == sizeof(units) / sizeof(units[0])) {
            return 0.0;
        }
        sum += value * units[i].seconds;
        text = end + 1;
    }
    return sum <= TIME_MOST ? sum : 0.0;
}

static dp_status read_max_time(struct dp_cli *cli, const char *value)
{
    cli->run.max_time_s = duration_s(value);
    return cli->run.max_time_s > 0.0
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE,
                         "--max-time wants 55m, 90s, 1h30m or seconds, and %g s at most, not '%s'",
                         TIME_MOST, value);
}

static dp_status read_level(struct dp_cli *cli, const char *value)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};

    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(value, levels[i]) == 0) {
            cli->log_level = (enum dp_log_level)i;
            return DP_OK;
        }
    }
    return DP_FAIL(DP_ERR_USAGE, "--log-level wants %s, not '%s'", flags[FLAG_LOG_LEVEL].help,
                   value);
}

static dp_status apply_value(struct dp_cli *cli, enum flag flag, const char *value)
{
    switch (flag) {
    case FLAG_SET:
        return add_set(cli, value);
    case FLAG_OUT:
        cli->run.out = value;
        return DP_OK;
    case FLAG_STEPS:
        return read_number(FLAG_STEPS, value, INT64_MAX, &cli->run.steps);
    case FLAG_SEED:
        (void)snprintf(cli->seed_set, sizeof(cli->seed_set), "train.seed=%s", value);
        return add_set(cli, cli->seed_set);
    case FLAG_RESUME:
        cli->run.resume = value;
        return DP_OK;
    case FLAG_INIT:
        cli->run.init = value;
        return DP_OK;
    case FLAG_EVALUATE:
        cli->run.evaluate = value;
        return DP_OK;
    case FLAG_LIST:
        cli->list = value;
        return DP_OK;
    case FLAG_DEVICE:
        (void)snprintf(cli->device_set, sizeof(cli->device_set), "device.name=%s", value);
        return add_set(cli, cli->device_set);
    case FLAG_THREADS:
        return read_threads(cli, value);
    case FLAG_MAX_TIME:
        return read_max_time(cli, value);
    case FLAG_BASELINE:
        cli->run.baseline = value;
        return DP_OK;
    case FLAG_PLAN:
        cli->run.plan = value;
        return DP_OK;
    case FLAG_TRACE:
        return dp_trace_request_read(value, &cli->run.trace);
    default:
        return read_level(cli, value);
    }
}

static dp_status apply_plain(struct dp_cli *cli, enum flag flag)
{
    switch (flag) {
    case FLAG_SYNTHETIC:
        return add_set(cli, "data.source=synthetic");
    case FLAG_CACHED_INPUT:
        cli->run.cached_input = true;
        break;
    case FLAG_DATA_ONLY:
        cli->run.data_only = true;
        break;
    case FLAG_CHECK:
        cli->check = true;
        break;
    case FLAG_DRY_RUN:
        cli->run.dry_run = true;
        break;
    case FLAG_SELFTEST:
        cli->run.selftest = true;
        break;
    case FLAG_PRINT_CONFIG:
        cli->run.print_config = true;
        break;
    case FLAG_JSON:
        cli->run.json = true;
        break;
    case FLAG_EXPLAIN:
        cli->run.explain = true;
        break;
    case FLAG_QUIET:
        cli->run.quiet = true;
        break;
    case FLAG_VERSION:
        cli->version = true;
        break;
    default:
        cli->help = true;
        break;
    }
    return DP_OK;
}

/* One argument, "--flag", "--flag=value" or "--flag" followed by its value. */
static dp_status read_flag(struct dp_cli *cli, int argc, char **argv, int *i)
{
    const char *argument = argv[*i];
    const size_t length = strcspn(argument, "=");
    const int flag = find_flag(argument, length);
    const char *value = argument[length] == '=' ? argument + length + 1 : NULL;

    if (flag < 0) {
        char name[64], set[64];
        const char *nearest;
        (void)snprintf(name, sizeof(name), "%.*s", (int)(length < 63 ? length : 63), argument);
        nearest = dp_config_flag_meant(name, set, sizeof(set));
        nearest = nearest != NULL ? nearest : nearest_flag(name);
        return nearest != NULL
                   ? DP_FAIL(DP_ERR_USAGE, "unknown flag %s (did you mean %s?)", name, nearest)
                   : DP_FAIL(DP_ERR_USAGE, "unknown flag %s; --help lists all", name);
    }
    if (flags[flag].value == NULL) {
        return value == NULL ? apply_plain(cli, (enum flag)flag)
                             : DP_FAIL(DP_ERR_USAGE, "%s takes no value", flags[flag].name);
    }
    if (value == NULL && flag == FLAG_RESUME) {
        value = "auto"; /* a path is only read after '=' */
    } else if (value == NULL && *i + 1 < argc &&
               find_flag(argv[*i + 1], strcspn(argv[*i + 1], "=")) < 0) {
        value = argv[++*i];
    } else if (value == NULL && flag == FLAG_TRACE) {
        value = ""; /* a file in the folder of the run */
    } else if (value == NULL || *value == '\0') {
        return DP_FAIL(DP_ERR_USAGE, "%s wants %s", flags[flag].name, flags[flag].value);
    }
    return apply_value(cli, (enum flag)flag, value);
}

/* With "--resume PATH", PATH looks like a second model. */
static dp_status refuse_second(const struct dp_cli *cli, int argc, char **argv, const char *second)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], flags[FLAG_RESUME].name) == 0 && argv[i + 1][0] != '-') {
            return DP_FAIL(DP_ERR_USAGE, "--resume %s: a path goes after '=': --resume=%s",
                           argv[i + 1], argv[i + 1]);
        }
    }
    return DP_FAIL(DP_ERR_USAGE, "two configurations: %s and %s", cli->run.config, second);
}

/* What would have no effect on an evaluation, or makes none. */
static dp_status check_evaluate(const struct dp_cli *cli)
{
    const struct dp_run_options *run = &cli->run;
    const struct {
        bool given;
        enum flag flag;
    } others[] = {
        {run->out != NULL, FLAG_OUT},
        {run->steps > 0, FLAG_STEPS},
        {run->resume != NULL, FLAG_RESUME},
        {run->init != NULL, FLAG_INIT},
        {run->cached_input, FLAG_CACHED_INPUT},
        {run->data_only, FLAG_DATA_ONLY},
        {cli->check, FLAG_CHECK},
        {run->dry_run, FLAG_DRY_RUN},
        {run->selftest, FLAG_SELFTEST},
        {run->print_config, FLAG_PRINT_CONFIG},
        {run->max_time_s > 0.0, FLAG_MAX_TIME},
        {run->baseline != NULL, FLAG_BASELINE},
        {run->explain, FLAG_EXPLAIN},
        {run->plan != NULL, FLAG_PLAN},
        {run->trace.on, FLAG_TRACE},
    };

    if (run->evaluate == NULL) {
        return run->json ? DP_FAIL(DP_ERR_USAGE, "--json needs --evaluate RUN; the figures of a "
                                                 "training are in run.json, and ddp_report --json "
                                                 "prints them")
                         : DP_OK;
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (others[i].given) {
            return DP_FAIL(DP_ERR_USAGE, "--evaluate only tests weights: leave out %s",
                           flags[others[i].flag].name);
        }
    }
    return DP_OK;
}

static dp_status read_all(int argc, char **argv, struct dp_cli *cli)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            DP_TRY(read_flag(cli, argc, argv, &i));
        } else if (cli->run.config == NULL) {
            cli->run.config = argv[i];
        } else {
            return refuse_second(cli, argc, argv, argv[i]);
        }
    }
    if (cli->help || cli->version || cli->list != NULL) {
        return DP_OK;
    }
    if (cli->run.config == NULL && cli->run.evaluate == NULL) {
        return DP_FAIL(DP_ERR_USAGE, "no model.cfg given; see --help");
    }
    return check_evaluate(cli);
}

dp_status dp_cli_parse(int argc, char **argv, bool silent, struct dp_cli *cli)
{
    struct dp_log_capture capture = {0};
    struct dp_log_capture *const silenced = silent ? &capture : NULL;
    dp_status status;

    memset(cli, 0, sizeof(*cli));
    cli->log_level = DP_LOG_INFO;
    cli->run.own_folder = true;
    dp_log_capture_begin(silenced, DP_LOG_DEBUG);
    status = read_all(argc, argv, cli);
    dp_log_capture_end(silenced, DP_LOG_DROP);
    return status;
}

void dp_cli_version(void)
{
    printf("lockstep %s\n", DP_VERSION);
}

void dp_cli_help(void)
{
    printf("usage: mpirun -np N ddp_train model.cfg [flags]\n\n"
           "Trains a model on N ranks; without mpirun, on one.\n\nflags:\n");
    for (int i = 0; i < FLAG_COUNT; i++) {
        const char *value = flags[i].value == NULL ? "" : flags[i].value;
        char both[32];

        (void)snprintf(both, sizeof(both), "%s%s%s", flags[i].name,
                       value[0] == '\0' || value[0] == '[' ? "" : " ", value);
        printf("  %-18s  %s\n", both, flags[i].help);
    }
    printf("\n" DP_FAULT_VARIABLE "=FAULT:KEY=VALUE,... in the environment breaks something on "
           "purpose; see --list faults\n\n");
    dp_config_help();
}

/* One line. Devices and strategies also say why they cannot be used here. */
static void list_plugin(const struct dp_plugin_family *family, const struct dp_plugin *plugin)
{
    const char *why_not = NULL;
    char text[512];

    if (family == &dp_devices && ((const struct dp_device *)plugin)->available(&why_not)) {
        why_not = NULL;
    } else if (family == &dp_strategies) {
        why_not = dp_strategy_not_here((const struct dp_strategy *)plugin);
    }
    dp_plugin_describe(plugin, text, sizeof(text));
    dp_text_line(stdout, "%-15s %s%s%s", plugin->name, text, why_not != NULL ? "; not here: " : "",
                 why_not != NULL ? why_not : "");
}

dp_status dp_cli_list(const char *family)
{
    static const struct {
        const char *name;
        const struct dp_plugin_family *family;
    } families[] = {
        {"strategies", &dp_strategies},   {"strategies", &dp_shardings},
        {"compressors", &dp_compressors}, {"layers", &dp_layers},
        {"optimizers", &dp_optimizers},   {"schedules", &dp_schedules},
        {"sources", &dp_sources},         {"augmentations", &dp_augmentations},
        {"devices", &dp_devices},         {"faults", &dp_fault_kinds},
    };
    enum { FAMILIES = sizeof(families) / sizeof(families[0]) };
    const struct dp_plugin *plugin;
    bool found = strcmp(family, "report") == 0;
    char names[256] = "";
    size_t used = 0;

    if (found) {
        dp_run_summary_list();
    }
    for (size_t i = 0; i < FAMILIES; i++) {
        if (i == 0 || strcmp(families[i].name, families[i - 1].name) != 0) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s|", families[i].name);
        }
        const bool wanted = strcmp(family, families[i].name) == 0;
        for (int k = 0; wanted && (plugin = dp_plugin_at(families[i].family, k)) != NULL; k++) {
            list_plugin(families[i].family, plugin);
        }
        if (wanted && families[i].family == &dp_layers) { /* the configuration unrolls it */
            printf("%-15s %s\n", "repeat", "its layers again and again: {times: 3, layers: [...]}");
        }
        found = found || wanted;
    }
    return found ? DP_OK : DP_FAIL(DP_ERR_USAGE, "--list wants %sreport, not '%s'", names, family);
}
