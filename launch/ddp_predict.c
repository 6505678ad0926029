/*
 * ddp_predict.c - what the model of a run makes of single files: ddp_predict RUN FILES...
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/stdio.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/openmp.h"
#include "runtime/lockstep.h"

/* Files that belong to no data set, which a training of one's own has no use for. */
#include "runtime/data/sample_file.h"

static const char help[] =
    "usage: ddp_predict RUN FILES... [flags]\n"
    "\n"
    "Prints what the model of a run makes of each file: its class and the\n"
    "probability of that, or numbers where it was trained on numbers. RUN is the\n"
    "folder of a run, or a checkpoint; FILES are pictures (PNG, JPEG), arrays of\n"
    "numpy (.npy), or lines of numbers (CSV), in any order; - is standard input.\n"
    "Of a file with several rows each is named FILE[ROW], counted from 0.\n"
    "\n"
    "flags:\n"
    "  --format NAME  csv (with a header) or jsonl (an object a line); default csv\n"
    "  --json         the same as --format jsonl\n"
    "  --top K        the K most likely classes, most likely first; default 1\n"
    "  --batch N      rows that are computed together; default 32\n"
    "  --device NAME  cpu|cuda|auto; default auto\n"
    "  --version      prints the version\n"
    "  --help         prints this text\n"
    "\n"
    "A file that is missing or bad is one line on stderr; the others go on.\n"
    "exit codes: 0; 64 wrong usage; 65 a file was bad, or no checkpoint is whole;\n"
    "66 a file was missing, or there is no run; 69 no such device here; 74 stdout\n"
    "cannot be written; 78 the weights are of another model\n";

enum { BATCH_MOST = 1 << 20 };

struct options {
    const char *run, *device;
    char **files; /* borrowed; [count] */
    int count;
    long top, batch;
    bool jsonl, help, version;
};

/* ---- the command line ---- */

/* The value of a flag, "--top K" or "--top=K"; NULL: it is another flag, or has none. */
static const char *value_of(const char *flag, const char *name, int argc, char **argv, int *at)
{
    const size_t length = strlen(name);

    if (strncmp(flag, name, length) != 0) {
        return NULL;
    }
    if (flag[length] == '=' && flag[length + 1] != '\0') {
        return flag + length + 1;
    }
    return flag[length] == '\0' && *at + 1 < argc ? argv[++*at] : NULL;
}

static dp_status read_count(const char *name, const char *text, long *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > BATCH_MOST) {
        return DP_FAIL(DP_ERR_USAGE, "%s wants a number from 1 to %d, not '%s'", name, BATCH_MOST,
                       text);
    }
    *out = value;
    return DP_OK;
}

static dp_status read_format(const char *text, struct options *o)
{
    o->jsonl = strcmp(text, "jsonl") == 0;
    return o->jsonl || strcmp(text, "csv") == 0
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE, "--format wants csv or jsonl, not '%s'", text);
}

static dp_status read_flag(const char *flag, int argc, char **argv, int *at, struct options *o)
{
    const char *value;

    if (strcmp(flag, "--json") == 0) {
        o->jsonl = true;
    } else if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0) {
        o->help = true;
    } else if (strcmp(flag, "--version") == 0) {
        o->version = true;
    } else if ((value = value_of(flag, "--format", argc, argv, at)) != NULL) {
        return read_format(value, o);
    } else if ((value = value_of(flag, "--top", argc, argv, at)) != NULL) {
        return read_count("--top", value, &o->top);
    } else if ((value = value_of(flag, "--batch", argc, argv, at)) != NULL) {
        return read_count("--batch", value, &o->batch);
    } else if ((value = value_of(flag, "--device", argc, argv, at)) != NULL) {
        o->device = value;
    } else {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s: unknown flag, or its value is missing; see ddp_predict "
                       "--help",
                       flag);
    }
    return DP_OK;
}

/* Files are moved to the beginning of argv. */
static dp_status parse(int argc, char **argv, struct options *o)
{
    bool flags = true;

    o->files = argv;
    for (int i = 1; i < argc; i++) {
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
        } else if (flags && argv[i][0] == '-' && argv[i][1] != '\0') {
            DP_TRY(read_flag(argv[i], argc, argv, &i, o));
        } else if (o->run == NULL) {
            o->run = argv[i];
        } else {
            o->files[o->count++] = argv[i];
        }
    }
    if (!o->help && !o->version && o->count == 0) {
        return DP_FAIL(DP_ERR_USAGE, "which %s? see ddp_predict --help",
                       o->run == NULL ? "run" : "files");
    }
    return DP_OK;
}

/* ---- printing ---- */

/* The whole job. */
struct job {
    const struct options *options;
    struct dp_predictor *predictor;
    const struct dp_predictor_info *info;
    struct dp_decoder *decoder;
    char *samples;  /* owned; a batch */
    float *outputs; /* owned [batch, info->outputs] */
    struct {
        const char *file; /* borrowed */
        size_t row;
        bool has_rows;
    } * names;               /* owned [batch] */
    size_t *order;           /* owned [info->outputs] */
    size_t filled;           /* rows that wait in the batch */
    enum dp_element element; /* theirs */
    size_t top;
    bool bad, missing, headed; /* headed: the columns are printed */
};

/* A field of CSV, in quotes where it must be. */
static void print_field(const char *text)
{
    if (strpbrk(text, ",\"\n\r") == NULL) {
        (void)fputs(text, stdout);
        return;
    }
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            (void)putchar('"');
        }
        (void)putchar(*text);
    }
    (void)putchar('"');
}

static void class_text(const struct job *job, size_t class, char *text, size_t size)
{
    if (job->info->class_names != NULL) {
        (void)snprintf(text, size, "%s", job->info->class_names[class]);
    } else {
        (void)snprintf(text, size, "%zu", class);
    }
}

/* The columns of CSV. */
static void print_header(const struct job *job)
{
    const struct dp_predictor_info *info = job->info;
    const char *word = info->kind == DP_PREDICT_SHARES ? "probability" : "value";

    (void)fputs("file", stdout);
    if (info->kind == DP_PREDICT_CLASSES) {
        (void)fputs(",class,probability", stdout);
        for (size_t i = 2; i <= job->top; i++) {
            (void)printf(",class_%zu,probability_%zu", i, i);
        }
    } else if (info->class_names != NULL) {
        for (size_t i = 0; i < info->outputs; i++) {
            (void)putchar(',');
            print_field(info->class_names[i]);
        }
    } else {
        for (size_t i = 0; i < info->outputs; i++) {
            (void)printf(info->outputs == 1 ? ",%s" : ",%s_%zu", word, i);
        }
    }
    (void)putchar('\n');
}

static void print_csv(const struct job *job, size_t at, const float *out)
{
    const struct dp_predictor_info *info = job->info;
    char text[4096];

    if (job->names[at].has_rows) {
        (void)snprintf(text, sizeof(text), "%.4000s[%zu]", job->names[at].file, job->names[at].row);
    } else {
        (void)snprintf(text, sizeof(text), "%.4000s", job->names[at].file);
    }
    print_field(text);
    if (info->kind == DP_PREDICT_CLASSES) {
        for (size_t i = 0; i < job->top; i++) {
            class_text(job, job->order[i], text, sizeof(text));
            (void)putchar(',');
            print_field(text);
            (void)printf(",%.7g", (double)out[job->order[i]]);
        }
    } else {
        for (size_t i = 0; i < info->outputs; i++) {
            (void)printf(",%.7g", (double)out[i]);
        }
    }
    (void)putchar('\n');
}

static dp_status fill_class(const struct job *job, size_t class, double probability,
                            struct dp_json *object)
{
    char text[512];

    class_text(job, class, text, sizeof(text));
    DP_TRY(dp_json_set_text(object, "class", text));
    return dp_json_set_real(object, "probability", probability);
}

static dp_status fill_json(const struct job *job, size_t at, const float *out,
                           struct dp_json *object)
{
    const struct dp_predictor_info *info = job->info;
    const bool classes = info->kind == DP_PREDICT_CLASSES;
    const char *word = classes                           ? "top"
                       : info->kind == DP_PREDICT_SHARES ? "probabilities"
                                                         : "values";
    struct dp_json *array;

    DP_TRY(dp_json_set_text(object, "file", job->names[at].file));
    if (job->names[at].has_rows) {
        DP_TRY(dp_json_set_int(object, "row", (int64_t)job->names[at].row));
    }
    if (classes) {
        DP_TRY(fill_class(job, job->order[0], (double)out[job->order[0]], object));
    }
    if (classes && job->top == 1) {
        return DP_OK;
    }
    array = dp_json_set_array(object, word);
    for (size_t i = 0; i < (classes ? job->top : info->outputs); i++) {
        DP_TRY(classes ? fill_class(job, job->order[i], (double)out[job->order[i]],
                                    dp_json_push_object(array))
                       : dp_json_push_real(array, (double)out[i]));
    }
    return DP_OK;
}

static dp_status print_json(const struct job *job, size_t at, const float *out)
{
    struct dp_json *object = dp_json_create();
    char *text = NULL;
    dp_status status = fill_json(job, at, out, object);

    status = status == DP_OK ? dp_json_dump(object, 0, 7, &text) : status;
    if (status == DP_OK) {
        (void)printf("%s\n", text);
    }
    dp_free(text);
    dp_json_destroy(object);
    return status;
}

/* The job->top largest outputs come first; of equal ones the first class. */
static void sort_top(const struct job *job, const float *out)
{
    for (size_t i = 0; i < job->info->outputs; i++) {
        job->order[i] = i;
    }
    for (size_t i = 0; i < job->top; i++) {
        size_t best = i;
        for (size_t k = i + 1; k < job->info->outputs; k++) {
            if (out[job->order[k]] > out[job->order[best]] ||
                (out[job->order[k]] == out[job->order[best]] && job->order[k] < job->order[best])) {
                best = k;
            }
        }
        const size_t moved = job->order[i];
        job->order[i] = job->order[best];
        job->order[best] = moved;
    }
}

/* Computes the rows that wait, and prints them. */
static dp_status flush(struct job *job)
{
    if (job->filled == 0) {
        return DP_OK;
    }
    DP_TRY(dp_predictor_run(job->predictor, job->element, job->samples, job->filled, job->outputs));
    if (!job->headed && !job->options->jsonl) {
        print_header(job);
    }
    job->headed = true;
    for (size_t i = 0; i < job->filled; i++) {
        const float *out = job->outputs + i * job->info->outputs;
        sort_top(job, out);
        if (job->options->jsonl) {
            DP_TRY(print_json(job, i, out));
        } else {
            print_csv(job, i, out);
        }
    }
    job->filled = 0;
    return DP_OK;
}

/* ---- reading ---- */

/* Says what is wrong with a file. Only what concerns all files ends the job. */
static dp_status tell(struct job *job, const char *file, dp_status status,
                      const struct dp_problem *problem)
{
    if (status == DP_ERR_NOMEM) {
        return DP_FAIL(status, "%s: %s", file, problem->text);
    }
    job->missing = job->missing || status == DP_ERR_NOINPUT;
    job->bad = job->bad || status != DP_ERR_NOINPUT;
    dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s: %s", file, problem->text);
    return DP_OK;
}

static dp_status take_rows(struct job *job, const char *file, const struct dp_sample_file *from)
{
    const struct dp_sample_file_info *info = dp_sample_file_info(from);
    const size_t bytes = job->info->input.count * dp_element_bytes(info->element);
    struct dp_problem problem;

    for (size_t row = 0; row < info->rows; row++) {
        if (job->filled == (size_t)job->options->batch || info->element != job->element) {
            DP_TRY(flush(job));
            job->element = info->element;
        }
        const dp_status status = dp_sample_file_read(from, job->decoder, row,
                                                     job->samples + job->filled * bytes, &problem);
        if (status != DP_OK) {
            DP_TRY(tell(job, file, status, &problem));
            continue;
        }
        job->names[job->filled].file = file;
        job->names[job->filled].row = row;
        job->names[job->filled].has_rows = info->has_rows;
        job->filled++;
    }
    return DP_OK;
}

static dp_status take_file(struct job *job, const char *file)
{
    const struct dp_sample_file_form form = {.input = job->info->input,
                                             .outputs = job->info->outputs,
                                             .resize = job->info->resize,
                                             .label_last = job->info->label_last};
    struct dp_sample_file *from = NULL;
    struct dp_problem problem;
    dp_status status = dp_sample_file_open(file, &form, &from, &problem);

    if (status != DP_OK) {
        return tell(job, file, status, &problem);
    }
    status = take_rows(job, file, from);
    dp_sample_file_close(from);
    return status;
}

/* ---- the job ---- */

static dp_status open_job(struct job *job)
{
    const struct options *o = job->options;
    const struct dp_predictor_options options = {
        .run = o->run, .device = o->device, .batch = (size_t)o->batch};
    const size_t batch = (size_t)o->batch;

    DP_TRY(dp_predictor_open(&options, &job->predictor));
    job->info = dp_predictor_info(job->predictor);
    job->top = (size_t)o->top < job->info->outputs ? (size_t)o->top : job->info->outputs;
    DP_TRY(dp_decoder_create(&job->decoder));
    job->samples = dp_zalloc(batch * job->info->input.count, sizeof(float));
    job->outputs = dp_zalloc(batch * job->info->outputs, sizeof(float));
    job->names = dp_zalloc(batch, sizeof(*job->names));
    job->order = dp_zalloc(job->info->outputs, sizeof(*job->order));
    return job->samples != NULL && job->outputs != NULL && job->names != NULL && job->order != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "%zu rows: give a smaller --batch", batch);
}

static dp_status predict(struct job *job)
{
    DP_TRY(open_job(job));
    for (int i = 0; i < job->options->count; i++) {
        DP_TRY(take_file(job, job->options->files[i]));
    }
    DP_TRY(flush(job));
    return job->bad ? DP_ERR_DATA : job->missing ? DP_ERR_NOINPUT : DP_OK;
}

static dp_status answer(const struct options *o)
{
    struct job job = {.options = o};
    dp_status status;

    if (o->help || o->version) {
        (void)printf("%s", o->help ? help : "lockstep " DP_VERSION "\n");
        return DP_OK;
    }
    status = predict(&job);
    dp_decoder_destroy(job.decoder);
    dp_free(job.order);
    dp_free(job.names);
    dp_free(job.outputs);
    dp_free(job.samples);
    dp_predictor_close(job.predictor);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {.top = 1, .batch = 32};
    dp_status status = dp_stdio_open();

    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    dp_openmp_spin_briefly(argv);
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error, as a full disk is */
    status = parse(argc, argv, &options);
    status = status == DP_OK ? answer(&options) : status;
    return dp_status_exit(dp_stdio_finish(status, true));
}
