#include "runtime/report/live/progress.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/trace.h"

static const uint64_t TERMINAL_NS = 100000000, PLAIN_NS = 5000000000;

enum { LINE_BYTES = 256, SHORT_BYTES = 32, COLUMNS = 80, BAR_LEAST = 8, BAR_MOST = 30 };

/* Back to the beginning of the line, which is erased (ECMA-48: EL). */
static const char ERASE[] = "\r\033[K";

/* The one whose line the terminal shows, or NULL; protected, since any thread may log. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dp_progress *on_screen;

/* Whether what we write there is shown on a terminal. */
static bool leads_to_terminal(int stream, bool launched)
{
    struct stat own, parent;
    bool terminal;
    char path[48];
    int fd;

    if (!launched || fstat(stream, &own) != 0) {
        return isatty(stream) != 0;
    }
    (void)snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)getppid(), stream);
    /* A parent that shares our stream is a script between the launcher and us: its stream proves
     * nothing. */
    if (stat(path, &parent) != 0 || !S_ISCHR(parent.st_mode) || parent.st_rdev == own.st_rdev) {
        return false;
    }
    fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    terminal = fd >= 0 && isatty(fd) != 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return terminal;
}

bool dp_progress_on_terminal(bool launched)
{
    return isatty(STDOUT_FILENO) != 0 && leads_to_terminal(STDOUT_FILENO, launched);
}

/* A terminal that is held (Ctrl-S) may hold a thread with the mutex: errors do not wait for it. */
static bool lock_screen(void)
{
    struct timespec end;

    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec++;
    if (pthread_mutex_timedlock(&mutex, &end) != 0) {
        return false;
    }
    if (on_screen == NULL) {
        (void)pthread_mutex_unlock(&mutex);
        return false;
    }
    return true;
}

static void draw_again(void)
{
    (void)fputs(ERASE, on_screen->out); /* should it come before the line of the log */
    (void)fputs(on_screen->shown, on_screen->out);
    (void)fflush(on_screen->out);
    (void)pthread_mutex_unlock(&mutex);
}

void dp_progress_make_way(bool launched)
{
    static const struct dp_log_screen screen = {lock_screen, draw_again};
    struct stat own;

    /* Of a launcher: a pipe to it, or a pseudo-terminal of its own. */
    if (fstat(STDERR_FILENO, &own) == 0 && (S_ISFIFO(own.st_mode) || S_ISCHR(own.st_mode)) &&
        leads_to_terminal(STDERR_FILENO, launched)) {
        dp_log_set_screen(&screen);
    }
}

void dp_progress_init(struct dp_progress *progress, FILE *out, bool terminal, bool quiet)
{
    *progress = (struct dp_progress){
        .out = out,
        .terminal = terminal,
        .quiet = quiet,
        .next_ns = dp_now_ns() + (terminal ? TERMINAL_NS : PLAIN_NS),
    };
}

const char *dp_grouped(char text[DP_GROUPED_BYTES], double value)
{
    char digits[SHORT_BYTES];
    size_t length, used = 0;

    if (!isfinite(value) || fabs(value) >= 1e18) {
        (void)snprintf(text, DP_GROUPED_BYTES, isfinite(value) ? "%.3g" : "-", value);
        return text;
    }
    if (fabs(value) < 99.95) {
        (void)snprintf(text, DP_GROUPED_BYTES, fabs(value) < 9.995 ? "%.2f" : "%.1f", value);
        return text;
    }
    length = (size_t)snprintf(digits, sizeof(digits), "%.0f", fabs(value));
    if (value < 0) {
        text[used++] = '-';
    }
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

const char *dp_grouped_count(char text[DP_GROUPED_BYTES], uint64_t count)
{
    if (count >= 100) {
        return dp_grouped(text, (double)count);
    }
    (void)snprintf(text, DP_GROUPED_BYTES, "%" PRIu64, count);
    return text;
}

/* "0:21", "12:05", "3:04:05", or "-". */
static const char *duration(char text[SHORT_BYTES], double seconds)
{
    long long whole;

    if (!isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        (void)snprintf(text, SHORT_BYTES, "-");
        return text;
    }
    whole = llround(seconds);
    if (whole < 3600) {
        (void)snprintf(text, SHORT_BYTES, "%lld:%02lld", whole / 60, whole % 60);
    } else {
        (void)snprintf(text, SHORT_BYTES, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                       whole % 60);
    }
    return text;
}

const char *dp_loss_text(char text[DP_GROUPED_BYTES], double loss)
{
    (void)snprintf(text, DP_GROUPED_BYTES, fabs(loss) < 1e6 ? "%.4f" : "%.3e", loss);
    return text;
}

/* "0.0500", and "3.1e-06" where that would show zeros. */
static const char *rate_text(char text[SHORT_BYTES], double lr)
{
    (void)snprintf(text, SHORT_BYTES, lr == 0 || fabs(lr) >= 1e-3 ? "%.4f" : "%.1e", lr);
    return text;
}

/* What a line may leave out where there is little room, in this order. */
enum { WITH_ALL, WITHOUT_LR, WITHOUT_EPOCH, WITHOUT_EFFICIENCY, SHORTEST };

/* efficiency: of a terminal. Returns the length. */
static int step_text(char line[LINE_BYTES], const struct dp_progress_step *step, bool efficiency,
                     int without)
{
    char speed[DP_GROUPED_BYTES], eta[SHORT_BYTES], lr[SHORT_BYTES], loss[DP_GROUPED_BYTES];
    char epoch[SHORT_BYTES] = "", share[SHORT_BYTES] = "", rate[2 * SHORT_BYTES] = "";

    if (step->epochs > 0 && without < WITHOUT_EPOCH) {
        (void)snprintf(epoch, sizeof(epoch), "epoch %d/%d ", step->epoch, step->epochs);
    }
    if (efficiency && isfinite(step->efficiency) && without < WITHOUT_EFFICIENCY) {
        (void)snprintf(share, sizeof(share), " efficiency %.0f %%", 100.0 * step->efficiency);
    }
    if (without < WITHOUT_LR) {
        (void)snprintf(rate, sizeof(rate), " lr %s", rate_text(lr, step->lr));
    }
    return snprintf(
        line, LINE_BYTES, "%sstep %" PRId64 "/%" PRId64 " loss %s %s samples/s%s%s eta %s", epoch,
        step->step, step->steps, dp_loss_text(loss, step->loss),
        dp_grouped(speed, step->samples_per_second), share, rate, duration(eta, step->left_s));
}

/* Columns of the terminal; of one that does not say, as under a launcher, 80. */
static int columns_of(FILE *out)
{
    struct winsize size;

    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

/* "[####----] " in the room that the text leaves, which is all of the line; or nothing. */
static void bar_text(char text[BAR_MOST + SHORT_BYTES], const struct dp_progress_step *step,
                     int room)
{
    const int cells = (room - 3 < BAR_MOST ? room - 3 : BAR_MOST);
    const double part = step->steps > 0 ? (double)step->step / (double)step->steps : 0.0;
    const int full = (int)((part < 1.0 ? part : 1.0) * cells);

    text[0] = '\0';
    if (cells < BAR_LEAST) {
        return;
    }
    text[0] = '[';
    memset(text + 1, '-', (size_t)cells);
    memset(text + 1, '#', (size_t)full);
    memcpy(text + 1 + cells, "] ", sizeof("] "));
}

/* A line that is rewritten must not be longer than the terminal is wide. */
static void make_line(struct dp_progress *progress, const struct dp_progress_step *step)
{
    const int columns = columns_of(progress->out) - 1;
    char line[LINE_BYTES], bar[BAR_MOST + SHORT_BYTES];
    int without = WITH_ALL, length = step_text(line, step, true, without);

    while (length + BAR_LEAST + 3 > columns && ++without < SHORTEST) {
        length = step_text(line, step, true, without);
    }
    bar_text(bar, step, columns - length);
    (void)snprintf(progress->shown, sizeof(progress->shown), "%s%.*s", bar,
                   columns > 0 ? columns : COLUMNS, line);
}

/* Locks the screen; whether this line stands on it, which is over now. */
static bool take_line(const struct dp_progress *progress)
{
    bool open;

    (void)pthread_mutex_lock(&mutex);
    open = on_screen == progress;
    on_screen = open ? NULL : on_screen;
    return open;
}

/* Begins a line, on the terminal in the place of the one that stands there. */
static void begin_line(struct dp_progress *progress)
{
    if (take_line(progress)) {
        (void)fputs(ERASE, progress->out);
    }
}

static void end_line(const struct dp_progress *progress)
{
    (void)fflush(progress->out);
    (void)pthread_mutex_unlock(&mutex);
}

static void show(struct dp_progress *progress)
{
    (void)fputs(progress->shown, progress->out);
    on_screen = progress;
}

void dp_progress_step(struct dp_progress *progress, const struct dp_progress_step *step)
{
    char line[LINE_BYTES];
    uint64_t now_ns;

    if (progress->quiet) {
        return;
    }
    now_ns = dp_now_ns();
    if (now_ns < progress->next_ns) {
        return;
    }
    progress->next_ns = now_ns + (progress->terminal ? TERMINAL_NS : PLAIN_NS);
    begin_line(progress);
    if (progress->terminal) {
        make_line(progress, step);
        show(progress);
    } else {
        (void)step_text(line, step, false, WITH_ALL);
        (void)fprintf(progress->out, "%s\n", line);
    }
    end_line(progress);
}

void dp_progress_rewrite(struct dp_progress *progress, const char *format, ...)
{
    va_list args;

    begin_line(progress);
    va_start(args, format);
    dp_text_format(progress->shown, sizeof(progress->shown), format, args);
    va_end(args);
    show(progress);
    end_line(progress);
}

void dp_progress_erase(struct dp_progress *progress)
{
    begin_line(progress);
    end_line(progress);
}

void dp_progress_line(struct dp_progress *progress, const char *format, ...)
{
    va_list args;

    if (progress->quiet) {
        return;
    }
    begin_line(progress);
    va_start(args, format);
    dp_text_vline(progress->out, format, args);
    va_end(args);
    end_line(progress);
}

void dp_progress_end(struct dp_progress *progress)
{
    if (take_line(progress)) {
        (void)fputc('\n', progress->out);
        (void)fflush(progress->out);
    }
    (void)pthread_mutex_unlock(&mutex);
}
