/*
 * ddp_report.c - the report of a run, from its files: ddp_report RUN [RUN2]
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/stdio.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

/* Not runtime/lockstep.h, which trains: this program only reads what a run has left. */
#include "runtime/report/colour.h"
#include "runtime/report/files/mlflow.h"
#include "runtime/report/page/page.h"
#include "runtime/report/record/comparison_print.h"
#include "runtime/report/record/record_json.h"
#include "runtime/report/record/record_print.h"
#include "runtime/report/verdict.h"

static const char help[] =
    "usage: ddp_report RUN [RUN2] [flags]\n"
    "\n"
    "Prints the report of a run, and writes RUN/report.html. RUN is the folder of a\n"
    "run that has ended, goes on, or was killed; what is missing is said. With RUN2\n"
    "it compares: what was changed from RUN to RUN2, and which figures and parts of\n"
    "the step changed by more than noise.\n"
    "\n"
    "flags:\n"
    "  --json        prints the figures as JSON\n"
    "  --explain     prints how the verdict on RUN was found\n"
    "  --csv FILE    writes the steps of RUN to FILE; -: prints them, and no more\n"
    "  --mlflow DIR  adds RUN to a store of MLflow's, in files\n"
    "  --no-page     writes no report.html\n"
    "  --version     prints the version\n"
    "  --help        prints this text\n"
    "\n"
    "exit codes: 0; 64 wrong usage; 65 nothing of the run can be read; 66 there is\n"
    "no run; 74 a file cannot be written\n";

enum { RUNS_MOST = 2 };

struct options {
    const char *runs[RUNS_MOST];
    int count;
    const char *csv, *mlflow; /* files to write; NULL: none */
    bool json, explain, no_page, help, version;
};

/* The value of a flag, "--csv FILE" or "--csv=FILE"; NULL: it is another flag, or has none. */
static const char *value_of(const char *flag, const char *name, int argc, char **argv, int *at)
{
    const size_t length = strlen(name);

    if (strncmp(flag, name, length) != 0) {
        return NULL;
    }
    if (flag[length] == '=' && flag[length + 1] != '\0') {
        return flag + length + 1;
    }
    return flag[length] == '\0' && *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0
               ? argv[++*at]
               : NULL;
}

static dp_status parse_flag(const char *flag, int argc, char **argv, int *at, struct options *o)
{
    const char *value;

    if (strcmp(flag, "--json") == 0) {
        o->json = true;
    } else if (strcmp(flag, "--explain") == 0) {
        o->explain = true;
    } else if (strcmp(flag, "--no-page") == 0) {
        o->no_page = true;
    } else if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0) {
        o->help = true;
    } else if (strcmp(flag, "--version") == 0) {
        o->version = true;
    } else if ((value = value_of(flag, "--csv", argc, argv, at)) != NULL) {
        o->csv = value;
    } else if ((value = value_of(flag, "--mlflow", argc, argv, at)) != NULL) {
        o->mlflow = value;
    } else {
        const bool lacks = strncmp(flag, "--csv", 5) == 0 || strncmp(flag, "--mlflow", 8) == 0;
        return DP_FAIL(DP_ERR_USAGE, "%s: %s; see ddp_report --help", flag,
                       lacks ? "a path must follow" : "unknown flag");
    }
    return DP_OK;
}

static dp_status parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            DP_TRY(parse_flag(argv[i], argc, argv, &i, o));
        } else if (o->count < RUNS_MOST) {
            o->runs[o->count++] = argv[i];
        } else {
            return DP_FAIL(DP_ERR_USAGE, "%s: two runs are enough; see ddp_report --help", argv[i]);
        }
    }
    if (o->count == 0 && !o->help && !o->version) {
        return DP_FAIL(DP_ERR_USAGE, "which run? see ddp_report --help");
    }
    return DP_OK;
}

/* What is reported: one run, or two. */
struct report {
    struct dp_run_record *runs[RUNS_MOST]; /* owned; the second may be NULL */
    struct dp_comparison *comparison;      /* owned; NULL of one run */
};

static dp_status fill_json(const struct report *r, struct dp_json *object)
{
    DP_TRY(dp_json_set_text(object, "schema", DP_RECORD_SCHEMA));
    if (r->comparison == NULL) {
        return dp_record_put(r->runs[0], object);
    }
    DP_TRY(dp_record_put(r->runs[0], dp_json_set_object(object, "a")));
    DP_TRY(dp_record_put(r->runs[1], dp_json_set_object(object, "b")));
    return dp_comparison_put(r->comparison, object);
}

static dp_status print_json(const struct report *r)
{
    struct dp_json *object = dp_json_create();
    char *text = NULL;
    dp_status status = fill_json(r, object);

    status = status == DP_OK ? dp_json_dump(object, 2, DP_JSON_READABLE + 3, &text) : status;
    if (status == DP_OK) {
        (void)printf("%s\n", text);
    }
    dp_free(text);
    dp_json_destroy(object);
    return status;
}

static dp_status print_report(const struct options *o, const struct report *r)
{
    if (o->json) {
        return print_json(r);
    }
    if (r->comparison != NULL) {
        dp_comparison_print(r->comparison, stdout);
    } else {
        dp_record_print(r->runs[0], stdout);
    }
    if (o->explain) {
        dp_verdict_explain(&r->runs[0]->summary, r->comparison == NULL, stdout);
    }
    return DP_OK;
}

static dp_status write_page(const struct options *o, const struct report *r)
{
    DP_TRY(dp_page_write(r->runs[0], r->comparison));
    if (!o->json) {
        dp_text_line(stdout, "page: %s/report.html", r->runs[0]->path);
    }
    return DP_OK;
}

/* What cannot be made, as the steps of a run that was killed before its first one, keeps nothing
 * else from being made; the first failure is the result. */
static dp_status show(const struct options *o, const struct report *r)
{
    const struct dp_run_record *run = r->runs[0];
    const bool steps_alone = o->csv != NULL && strcmp(o->csv, "-") == 0;
    const dp_status made[] = {
        steps_alone ? DP_OK : print_report(o, r),
        o->csv != NULL ? dp_record_write_csv(run, o->csv) : DP_OK,
        o->mlflow != NULL ? dp_mlflow_write(run, o->mlflow) : DP_OK,
        o->no_page || steps_alone ? DP_OK : write_page(o, r),
    };

    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        DP_TRY(made[i]);
    }
    return DP_OK;
}

static dp_status open_runs(const struct options *o, struct report *r)
{
    for (int i = 0; i < o->count; i++) {
        DP_TRY(dp_run_record_open(o->runs[i], &r->runs[i]));
    }
    return o->count == RUNS_MOST ? dp_comparison_create(r->runs[0], r->runs[1], &r->comparison)
                                 : DP_OK;
}

static dp_status answer(const struct options *o)
{
    struct report report = {0};
    dp_status status;

    if (o->help || o->version) {
        (void)printf("%s", o->help ? help : "lockstep " DP_VERSION "\n");
        return DP_OK;
    }
    status = open_runs(o, &report);
    status = status == DP_OK ? show(o, &report) : status;
    dp_free(report.comparison);
    dp_run_record_close(report.runs[1]);
    dp_run_record_close(report.runs[0]);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    dp_status status = dp_stdio_open();

    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error, as a full disk is */
    dp_colour_allow(isatty(STDOUT_FILENO) != 0);
    status = parse(argc, argv, &options);
    status = status == DP_OK ? answer(&options) : status;
    return dp_status_exit(dp_stdio_finish(status, true));
}
