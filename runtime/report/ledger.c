#include "runtime/report/ledger.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum dp_step_part part_of(enum dp_phase phase)
{
    switch (phase) {
    case DP_PHASE_INPUT:
        return DP_PART_INPUT;
    case DP_PHASE_COPY:
        return DP_PART_COPY;
    case DP_PHASE_FORWARD:
        return DP_PART_FORWARD;
    case DP_PHASE_BACKWARD:
        return DP_PART_BACKWARD;
    case DP_PHASE_WAIT:
        return DP_PART_EXPOSED;
    case DP_PHASE_OPTIMIZER:
        return DP_PART_OPTIMIZER;
    case DP_PHASE_CHECKPOINT:
        return DP_PART_CHECKPOINT;
    default:
        return DP_PART_OTHER;
    }
}

uint64_t dp_ledger_unsteady(uint64_t steps)
{
    return steps < 40 ? steps / 4 : 10;
}

void dp_ledger_init(struct dp_ledger *ledger, uint64_t unsteady, uint64_t comm_ns)
{
    memset(ledger, 0, sizeof(*ledger));
    ledger->unsteady = unsteady;
    dp_ledger_restart(ledger, comm_ns);
}

void dp_ledger_restart(struct dp_ledger *ledger, uint64_t comm_ns)
{
    dp_trace_totals(ledger->base_ns);
    ledger->comm_base_ns = comm_ns;
}

void dp_ledger_mark(struct dp_ledger *ledger, uint64_t samples, uint64_t rows, uint64_t comm_ns)
{
    uint64_t now_ns[DP_PHASE_COUNT], waited_ns = 0;
    const bool steady = ledger->unsteady == 0;

    dp_trace_totals(now_ns);
    ledger->last_ns = 0;
    for (int i = 0; i < DP_PHASE_COUNT; i++) {
        const uint64_t spent_ns = now_ns[i] - ledger->base_ns[i];
        ledger->last_ns += spent_ns;
        waited_ns += part_of((enum dp_phase)i) == DP_PART_EXPOSED ? spent_ns : 0;
        ledger->sum_ns[part_of((enum dp_phase)i)] += steady ? spent_ns : 0;
        ledger->base_ns[i] = now_ns[i];
    }
    if (steady) {
        const double own_ms = (double)(ledger->last_ns - waited_ns) / 1e6;
        ledger->square_ms2 += own_ms * own_ms;
        ledger->steps++;
        ledger->samples += samples;
        ledger->rows += rows;
        ledger->comm_ns += comm_ns - ledger->comm_base_ns;
    } else {
        ledger->unsteady--;
    }
    ledger->comm_base_ns = comm_ns;
}

void dp_ledger_means(const struct dp_ledger *ledger, double step_ms[DP_STEP_PART_COUNT])
{
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        step_ms[i] =
            ledger->steps == 0 ? 0.0 : (double)ledger->sum_ns[i] / 1e6 / (double)ledger->steps;
    }
}

double dp_ledger_spread_ms(const struct dp_ledger *ledger)
{
    const double steps = (double)ledger->steps;
    double sum_ms = 0.0;

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        sum_ms += i == DP_PART_EXPOSED ? 0.0 : (double)ledger->sum_ns[i] / 1e6;
    }
    const double variance =
        steps > 1.0 ? (ledger->square_ms2 - sum_ms * sum_ms / steps) / (steps - 1.0) : 0.0;
    return variance > 0.0 ? sqrt(variance) : 0.0;
}

double dp_ledger_seconds(const struct dp_ledger *ledger)
{
    double seconds = 0.0;

    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        seconds += (double)ledger->sum_ns[i] / 1e9;
    }
    return seconds;
}

double dp_ledger_hidden_ms(const struct dp_ledger *ledger)
{
    const uint64_t exposed_ns = ledger->sum_ns[DP_PART_EXPOSED];

    if (ledger->steps == 0 || ledger->comm_ns <= exposed_ns) {
        return 0.0;
    }
    return (double)(ledger->comm_ns - exposed_ns) / 1e6 / (double)ledger->steps;
}

double dp_compute_ms(const double step_ms[DP_STEP_PART_COUNT])
{
    return step_ms[DP_PART_COPY] + step_ms[DP_PART_FORWARD] + step_ms[DP_PART_BACKWARD] +
           step_ms[DP_PART_OPTIMIZER];
}

double dp_process_age_s(void)
{
    struct timespec now;
    unsigned long long start_ticks = 0;
    char text[1024];
    const char *at;
    FILE *file = fopen("/proc/self/stat", "r");
    const size_t length = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    if (file != NULL) {
        (void)fclose(file);
    }
    text[length] = '\0';
    /* Field 22, counted after the program's name, which may hold anything but ends with ')'. */
    at = strrchr(text, ')');
    if (at == NULL ||
        sscanf(at, /* NOLINT(cert-err34-c): the kernel wrote it */
               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
               "%llu",
               &start_ticks) != 1) {
        return 0.0;
    }
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 -
           (double)start_ticks / (double)sysconf(_SC_CLK_TCK);
}
