/*
 * ddp_export.c - the model of a run for PyTorch: ddp_export RUN FILE.py
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/files/stdio.h"
#include "base/log.h"
#include "base/text.h"

/* Not runtime/lockstep.h, which trains. */
#include "runtime/run/use/torch_module.h"

static const char help[] =
    "usage: ddp_export RUN FILE.py\n"
    "\n"
    "Writes a module of Python with the model of a run: model() is the nn.Sequential\n"
    "that takes its weights with load_state_dict(strict=True), load() does that (it\n"
    "needs the package safetensors), and preprocess() makes its input of samples, with\n"
    "the run's normalisation; CLASSES has the names of the classes. RUN is the folder\n"
    "of a run, or a checkpoint. FILE.py is replaced.\n"
    "\n"
    "flags:\n"
    "  --version  prints the version\n"
    "  --help     prints this text\n"
    "\n"
    "exit codes: 0; 64 wrong usage; 65 no checkpoint is whole; 66 there is no run; 74\n"
    "the file cannot be written; 78 a layer that PyTorch does not have\n";

struct options {
    const char *run, *file;
    bool help, version;
};

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);

    return length > size && strcmp(text + length - size, end) == 0;
}

static dp_status parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
        } else if (strcmp(argv[i], "--version") == 0) {
            o->version = true;
        } else if (argv[i][0] == '-') {
            return DP_FAIL(DP_ERR_USAGE, "%s: unknown flag; see ddp_export --help", argv[i]);
        } else if (o->run == NULL) {
            o->run = argv[i];
        } else if (o->file == NULL) {
            o->file = argv[i];
        } else {
            return DP_FAIL(DP_ERR_USAGE, "%s: one file is written; see ddp_export --help", argv[i]);
        }
    }
    if (o->help || o->version) {
        return DP_OK;
    }
    if (o->file == NULL) {
        return DP_FAIL(DP_ERR_USAGE, "which %s? see ddp_export --help",
                       o->run == NULL ? "run" : "file");
    }
    return ends_with(o->file, ".py")
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE,
                         "%s: a module of Python is written: give a name that ends "
                         "in .py",
                         o->file);
}

static dp_status answer(const struct options *o)
{
    if (o->help || o->version) {
        (void)printf("%s", o->help ? help : "lockstep " DP_VERSION "\n");
        return DP_OK;
    }
    DP_TRY(dp_torch_module_write(o->run, o->file));
    dp_text_line(stdout, "%s: load() gives the model of %s", o->file, o->run);
    return DP_OK;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    dp_status status = dp_stdio_open();

    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error, as a full disk is */
    status = parse(argc, argv, &options);
    status = status == DP_OK ? answer(&options) : status;
    return dp_status_exit(dp_stdio_finish(status, true));
}
