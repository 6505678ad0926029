#define _GNU_SOURCE /* syscall, SYS_gettid */

#include "base/system/stacks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include "base/system/symbol.h"

enum {
    THREADS = 64,     /* at most so many are looked at */
    FRAMES = 28,      /* and so many functions of each */
    OWN_FRAMES = 1,   /* the handler's */
    ANSWER_MS = 100,  /* a thread that does not answer by then has blocked the signal */
    STACK = 1 << 16,  /* of handlers: the processor's registers take up to 11 KB of it */
    NAME_BYTES = 160, /* of a function */
    SIGNAL_OFFSET = 7 /* after SIGRTMIN */
};

/* What a thread answers. A late one writes only its own answer. */
struct answer {
    atomic_int given;
    int count;
    uintptr_t frames[FRAMES];
};

static struct answer answers[THREADS];
static _Alignas(16) char handler_stack[STACK];
static atomic_int stack_owner; /* the thread that has it; 0: none yet */

static int own_thread(void)
{
    return (int)syscall(SYS_gettid);
}

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *argument)
{
    struct answer *answer = argument;
    int before = 0;
    const uintptr_t next = _Unwind_GetIPInfo(context, &before);

    if (answer->count == FRAMES) {
        return _URC_END_OF_STACK;
    }
    answer->frames[answer->count++] = before != 0 ? next : next - 1; /* it is behind the call */
    return _URC_NO_REASON;
}

/* The value says which answer is this thread's. */
static void on_question(int number, siginfo_t *info, void *context)
{
    const int saved = errno, at = info->si_value.sival_int;
    (void)number;
    (void)context;

    if (info->si_code == SI_QUEUE && at >= 0 && at < THREADS &&
        atomic_load_explicit(&answers[at].given, memory_order_acquire) == 0) {
        (void)_Unwind_Backtrace(note_frame, &answers[at]);
        atomic_store_explicit(&answers[at].given, 1, memory_order_release);
    }
    errno = saved;
}

void dp_stacks_init(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof(handler_stack)};
    stack_t has = {0};

    action.sa_sigaction = on_question;
    (void)sigaction(SIGRTMIN + SIGNAL_OFFSET, &action, NULL);
    if (sigaltstack(NULL, &has) == 0 && (has.ss_flags & SS_DISABLE) != 0) {
        (void)sigaltstack(&stack, NULL);
    }
    atomic_store(&stack_owner, own_thread());
}

/* Reads a small file of a thread of this process; false: there is none any more. */
static bool read_file(int thread, const char *file, char *text, size_t size)
{
    char path[64];
    ssize_t got = -1;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/%s", thread, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, size - 1);
        (void)close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Whether a handler may run on that thread now. */
static bool may_ask(int thread)
{
    char text[256];
    const char *state;

    if (thread == atomic_load(&stack_owner)) {
        return true;
    }
    state = read_file(thread, "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
    return state != NULL && state[1] == ' ' && strchr("SD", state[2]) != NULL;
}

static bool ask(int thread, int at)
{
    siginfo_t info = {.si_code = SI_QUEUE, .si_pid = getpid(), .si_uid = getuid()};

    if (!may_ask(thread)) {
        return false;
    }
    info.si_value.sival_int = at;
    answers[at].count = 0;
    atomic_store(&answers[at].given, 0);
    return syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, SIGRTMIN + SIGNAL_OFFSET, &info) == 0;
}

static bool wait_for(const struct answer *answer)
{
    const struct timespec nap = {0, 1000000};

    for (int ms = 0; ms < ANSWER_MS; ms++) {
        if (atomic_load_explicit(&answer->given, memory_order_acquire) != 0) {
            return true;
        }
        (void)nanosleep(&nap, NULL);
    }
    return false;
}

/* Numbers of threads, ascending, so that the first one of the process is the first: at most
 * THREADS. Without opendir(), which takes memory. */
static int list_threads(int out[THREADS])
{
    struct entry {
        uint64_t inode;
        int64_t offset;
        unsigned short bytes;
        unsigned char type;
        char name[];
    };
    _Alignas(8) char block[4096];
    const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = 0;
    long got = 0;

    while (folder >= 0 && (got = syscall(SYS_getdents64, folder, block, sizeof(block))) > 0) {
        for (long at = 0; at < got;) {
            const struct entry *entry = (const void *)(block + at);
            const int thread = (int)strtol(entry->name, NULL, 10);
            if (thread > 0 && thread != own_thread() && count < THREADS) {
                out[count++] = thread;
            }
            at += entry->bytes;
        }
    }
    if (folder >= 0) {
        (void)close(folder);
    }
    return count;
}

/* Appends text as far as it fits. */
static void append(char *out, size_t size, size_t *used, const char *text)
{
    const int length = snprintf(out + *used, size - *used, "%s", text);

    *used += (size_t)length < size - *used ? (size_t)length : size - *used - 1;
}

/* Down to main(), or to the last function of a thread that has a name. */
static void print_frames(const struct answer *answer, char *out, size_t size, size_t *used)
{
    char name[NAME_BYTES] = "";
    size_t named = *used;

    /* After the handler's own the kernel's, which calls it. */
    for (int i = OWN_FRAMES + 1; i < answer->count && strcmp(name, "main") != 0; i++) {
        dp_symbol_name(answer->frames[i], name, sizeof(name));
        append(out, size, used, i == OWN_FRAMES + 1 ? " " : " < ");
        append(out, size, used, name);
        if (i == OWN_FRAMES + 1 || strpbrk(name, "?+") == NULL) {
            named = *used;
        }
    }
    *used = named;
    out[named] = '\0';
}

void dp_stacks_print(char *out, size_t size)
{
    int threads[THREADS];
    const int count = list_threads(threads);
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < count; i++) {
        char name[32];
        const bool alive = read_file(threads[i], "comm", name, sizeof(name));

        if (!alive || (threads[i] != getpid() && strncmp(name, "dp-", 3) != 0)) {
            continue;
        }
        name[strcspn(name, "\n")] = '\0';
        append(out, size, &used, used == 0 ? "" : "\n");
        append(out, size, &used, name);
        append(out, size, &used, ":");
        if (ask(threads[i], i) && wait_for(&answers[i])) {
            print_frames(&answers[i], out, size, &used);
        } else {
            append(out, size, &used, " not known");
        }
    }
}
