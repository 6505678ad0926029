/*
 * ddp_top.c - what the jobs of this host are doing, or one run: ddp_top [RUN]
 */
#define _GNU_SOURCE /* realpath */

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/files/stdio.h"
#include "base/log.h"
#include "base/mem.h"

/* Not runtime/lockstep.h, which trains: this program only reads what runs show and leave. */
#include "runtime/report/live/live_view.h"

static const char help[] =
    "usage: ddp_top [RUN] [flags]\n"
    "\n"
    "Shows what ranks of yours on this host are doing: phase, step, samples/s, share\n"
    "of the time that waits for communication, processor, memory. With RUN, the\n"
    "folder of a run, only that run, also when it has ended. On a terminal it looks\n"
    "again each second until q is pressed; elsewhere it looks once. It costs the\n"
    "ranks nothing.\n"
    "\n"
    "flags:\n"
    "  --once        looks once, also on a terminal\n"
    "  --version     prints the version\n"
    "  --help        prints this text\n"
    "\n"
    "exit codes: 0; 64 wrong usage; 65 nothing of the run can be read; 66 there is\n"
    "no run; 74 the output cannot be written\n";

enum { PERIOD_MS = 1000, FIRST_MS = 200, PLAIN_WIDTH = 80, PLAIN_WIDTH_MOST = 200 };

/* To the screen beside the one that the shell has, without a cursor; and back. */
static const char enter_screen[] = "\033[?1049h\033[?25l", leave_screen[] = "\033[?25h\033[?1049l";

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

struct options {
    const char *run; /* NULL: all jobs */
    bool once, help, version;
};

static dp_status parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--once") == 0) {
            o->once = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
        } else if (strcmp(argv[i], "--version") == 0) {
            o->version = true;
        } else if (argv[i][0] == '-') {
            return DP_FAIL(DP_ERR_USAGE, "%s: unknown flag; see ddp_top --help", argv[i]);
        } else if (o->run == NULL) {
            o->run = argv[i];
        } else {
            return DP_FAIL(DP_ERR_USAGE, "%s: one run is enough; see ddp_top --help", argv[i]);
        }
    }
    return DP_OK;
}

/* What is looked at. */
struct top {
    struct dp_run_record *record; /* owned; NULL: all jobs */
    char folder[DP_PATH_BYTES];   /* absolute; empty: all jobs */
    struct dp_live_jobs jobs;
};

static dp_status look(struct top *top)
{
    if (top->record != NULL) {
        DP_TRY(dp_run_record_update(top->record, false));
    }
    return dp_live_jobs_look(&top->jobs, top->folder[0] != '\0' ? top->folder : NULL);
}

static int terminal_width(int *height)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        *height = 0;
        return PLAIN_WIDTH;
    }
    *height = size.ws_row;
    return size.ws_col;
}

/* Lines one after the other, as for a file. Processor time needs two looks. */
static dp_status show_once(struct top *top)
{
    struct dp_live_view view = {.out = stdout, .width = PLAIN_WIDTH_MOST, .end_line = "\n"};

    DP_TRY(look(top));
    if (top->jobs.count > 0) {
        (void)poll(NULL, 0, FIRST_MS);
        DP_TRY(look(top));
    }
    dp_live_view_print(&view, &top->jobs, top->record);
    return DP_OK;
}

/* Each line is written over the one that is there; what is below the last one is erased. */
static void show(const struct top *top)
{
    struct dp_live_view view = {.out = stdout, .end_line = "\033[K\r\n"};

    view.width = terminal_width(&view.height);
    view.height -= view.height > 1 ? 1 : 0; /* the line of the keys */
    (void)fputs("\033[H", stdout);
    dp_live_view_print(&view, &top->jobs, top->record);
    (void)fputs("q quits\033[K\033[J", stdout);
    (void)fflush(stdout);
}

/* Waits for a key for at most so long. Returns whether it is to end. */
static bool wait_for_key(int ms)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = '\0';

    if (poll(&keys, 1, ms) > 0) {
        /* One that is closed would be ready for ever. */
        return read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q';
    }
    return false;
}

/* Without echo, and without waiting for the end of a line. */
static bool take_keys(struct termios *before)
{
    struct termios now;

    if (tcgetattr(STDIN_FILENO, before) != 0) {
        return false;
    }
    now = *before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

static dp_status show_on(struct top *top)
{
    const struct sigaction end = {.sa_handler = on_signal};
    struct termios before;
    const bool keys = take_keys(&before);
    dp_status status = DP_OK;
    int ms = FIRST_MS;

    (void)sigaction(SIGINT, &end, NULL);
    (void)sigaction(SIGTERM, &end, NULL);
    (void)sigaction(SIGHUP, &end, NULL);
    (void)fputs(enter_screen, stdout);
    while (ended == 0 && status == DP_OK) {
        status = look(top);
        show(top);
        if (keys ? wait_for_key(ms) : poll(NULL, 0, ms) < 0) {
            break;
        }
        ms = PERIOD_MS;
    }
    (void)fputs(leave_screen, stdout);
    (void)fflush(stdout);
    if (keys) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    return status;
}

static dp_status answer(const struct options *o)
{
    struct top top = {0};
    dp_status status = DP_OK;

    if (o->help || o->version) {
        (void)printf("%s", o->help ? help : "lockstep " DP_VERSION "\n");
        return DP_OK;
    }
    if (o->run != NULL) {
        DP_TRY(dp_run_record_open(o->run, &top.record));
        if (realpath(o->run, top.folder) == NULL) {
            (void)snprintf(top.folder, sizeof(top.folder), "%s", o->run);
        }
    }
    status = o->once || isatty(STDOUT_FILENO) == 0 ? show_once(&top) : show_on(&top);
    dp_live_jobs_release(&top.jobs);
    dp_run_record_close(top.record);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    dp_status status = dp_stdio_open();

    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    status = parse(argc, argv, &options);
    status = status == DP_OK ? answer(&options) : status;
    return dp_status_exit(dp_stdio_finish(status, true));
}
