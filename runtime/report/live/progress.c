#include "runtime/report/live/progress.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/trace.h"

static const uint64_t TERMINAL_NS = 100000000, PLAIN_NS = 5000000000;

enum { LINE_BYTES = 256, SHORT_BYTES = 32, COLUMNS = 80, BAR_LEAST = 8, BAR_MOST = 30 };

bool dp_progress_on_terminal(bool launched)
{
    struct stat own, parent;
    bool terminal;
    char path[48];
    int fd;

    if (!launched || !isatty(STDOUT_FILENO)) {
        return isatty(STDOUT_FILENO) != 0;
    }
    (void)snprintf(path, sizeof(path), "/proc/%ld/fd/1", (long)getppid());
    /* A parent that shares our stdout is a script between the launcher and us: its stdout proves
     * nothing. */
    if (fstat(STDOUT_FILENO, &own) != 0 || stat(path, &parent) != 0 || !S_ISCHR(parent.st_mode) ||
        parent.st_rdev == own.st_rdev) {
        return false;
    }
    fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    terminal = fd >= 0 && isatty(fd) != 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return terminal;
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
    char speed[DP_GROUPED_BYTES], eta[SHORT_BYTES], lr[SHORT_BYTES];
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
        line, LINE_BYTES, "%sstep %" PRId64 "/%" PRId64 " loss %.4f %s samples/s%s%s eta %s", epoch,
        step->step, step->steps, step->loss, dp_grouped(speed, step->samples_per_second), share,
        rate, duration(eta, step->left_s));
}

/* Columns of the terminal; of one that does not say, as under a launcher, 80. */
static int columns_of(FILE *out)
{
    struct winsize size;

    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

/* "[####----] " in the room that the text leaves, which is all of the line. */
static void add_bar(FILE *out, const struct dp_progress_step *step, int room)
{
    const int cells = (room - 3 < BAR_MOST ? room - 3 : BAR_MOST);
    const double part = step->steps > 0 ? (double)step->step / (double)step->steps : 0.0;
    const int full = (int)(part * cells);

    if (cells < BAR_LEAST) {
        return;
    }
    (void)fputc('[', out);
    for (int i = 0; i < cells; i++) {
        (void)fputc(i < full ? '#' : '-', out);
    }
    (void)fputs("] ", out);
}

/* A line that is rewritten must not be longer than the terminal is wide. */
static void show_on_terminal(struct dp_progress *progress, const struct dp_progress_step *step)
{
    const int columns = columns_of(progress->out) - 1;
    char line[LINE_BYTES];
    int without = WITH_ALL, length = step_text(line, step, true, without);

    while (length + BAR_LEAST + 3 > columns && ++without < SHORTEST) {
        length = step_text(line, step, true, without);
    }
    add_bar(progress->out, step, columns - length);
    (void)fprintf(progress->out, "%.*s", columns > 0 ? columns : COLUMNS, line);
}

/* Back to the beginning of the line, which is erased (ECMA-48: EL). */
static void rewind_line(struct dp_progress *progress)
{
    if (progress->open) {
        (void)fputs("\r\033[K", progress->out);
        progress->open = false;
    }
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
    rewind_line(progress);
    if (progress->terminal) {
        show_on_terminal(progress, step);
    } else {
        (void)step_text(line, step, false, WITH_ALL);
        (void)fprintf(progress->out, "%s\n", line);
    }
    progress->open = progress->terminal;
    (void)fflush(progress->out);
}

void dp_progress_line(struct dp_progress *progress, const char *format, ...)
{
    va_list args;

    if (progress->quiet) {
        return;
    }
    rewind_line(progress);
    va_start(args, format);
    dp_text_vline(progress->out, format, args);
    va_end(args);
    (void)fflush(progress->out);
}

void dp_progress_end(struct dp_progress *progress)
{
    if (progress->open) {
        (void)fputc('\n', progress->out);
        (void)fflush(progress->out);
        progress->open = false;
    }
}
