#include "runtime/report/files/report_writer.h"

#include <stdbool.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"
#include "base/trace.h"
#include "runtime/report/files/event_file.h"
#include "runtime/report/files/prometheus.h"
#include "runtime/report/page/page.h"

struct dp_report_writer {
    struct dp_run_record
        *record; /* owned; touched by the thread while it writes; NULL: it is not needed */
    bool html;
    const char *prometheus;       /* borrowed; NULL: none */
    struct dp_event_file *events; /* owned; likewise; NULL: none */
    struct dp_worker *worker;     /* owned */
    uint64_t next_ns;             /* when the next time is due; 0: now */
    uint64_t times, core_ns;      /* how often it wrote, and the processor's time for it */
};

static dp_status write_both(const struct dp_run_record *record, bool html, const char *prometheus)
{
    /* The short one first: of a run that lost a rank mpirun ends this process soon. */
    const dp_status text = prometheus != NULL ? dp_prometheus_write(record, prometheus) : DP_OK;
    const dp_status page = html ? dp_page_write(record, NULL) : DP_OK;

    return page != DP_OK ? page : text;
}

/* A run is not ended by its page. Only the last page warns: while the run goes on, another may
 * follow. Where it ends with an error, that stays the last word. */
static void write_record(struct dp_run_record *record, bool going, bool html,
                         const char *prometheus)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_run_record_update(record, going);
    status = status == DP_OK ? write_both(record, html, prometheus) : status;
    dp_log_capture_end(&capture, status == DP_OK || going || dp_log_errors() > 0 ? DP_LOG_DROP
                                                                                 : DP_LOG_SOFTEN);
}

/* A run deletes the run.json of its earlier part before it creates its writer. */
static bool has_ended(const struct dp_run_record *record)
{
    struct stat info;
    char path[DP_PATH_BYTES];

    return dp_file_join(path, record->path, "run.json") == DP_OK && stat(path, &info) == 0;
}

static void write_events(struct dp_event_file *events, bool going)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_event_file_update(events);
    dp_log_capture_end(&capture, status == DP_OK || going || dp_log_errors() > 0 ? DP_LOG_DROP
                                                                                 : DP_LOG_SOFTEN);
}

/* On the thread, which may be slow: meanwhile the failure detector may have written the page of a
 * run that hung, which this one must not replace. */
static dp_status write_due(void *context)
{
    struct dp_report_writer *w = context;

    if (w->record != NULL) {
        write_record(w->record, true, w->html, w->prometheus);
        if (has_ended(w->record)) {
            write_record(w->record, false, w->html, w->prometheus);
        }
    }
    if (w->events != NULL) {
        write_events(w->events, true);
    }
    return DP_OK;
}

dp_status dp_report_writer_create(const struct dp_report_writer_config *config,
                                  struct dp_report_writer **out)
{
    struct dp_report_writer *w = dp_zalloc(1, sizeof(*w));
    /* Not idle: it needs some milliseconds of a core every ten seconds, and a killed process would
     * not end before a starved thread. */
    const struct dp_worker_config worker = {
        .name = "dp-report", .task = "writes report.html", .run = write_due, .context = w};
    dp_status status = DP_OK;

    if (w == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "writer of report.html");
    }
    w->html = config->html;
    if (config->prometheus != NULL && config->prometheus[0] != '\0') {
        w->prometheus = config->prometheus;
    }
    if (w->html || w->prometheus != NULL) {
        status = dp_run_record_create(config->folder, &w->record);
    }
    if (status == DP_OK && w->prometheus != NULL) {
        dp_prometheus_clean(w->prometheus);
        status = dp_prometheus_write(w->record, w->prometheus);
    }
    if (status == DP_OK && config->tensorboard) {
        status = dp_event_file_create(config->folder, &w->events);
    }
    status = status == DP_OK ? dp_worker_create(&worker, &w->worker) : status;
    if (status != DP_OK) {
        dp_report_writer_destroy(w);
        return status;
    }
    *out = w;
    return DP_OK;
}

/* Adds up what the last time took. */
static void wait_for_last(struct dp_report_writer *w)
{
    (void)!dp_worker_wait(w->worker); /* what cannot be written is no failure */
    if (w->next_ns > 0) {
        w->times++;
        w->core_ns += dp_worker_core_ns(w->worker);
    }
}

void dp_report_writer_poll(struct dp_report_writer *writer)
{
    const uint64_t now_ns = dp_now_ns();

    if (now_ns < writer->next_ns || dp_worker_busy(writer->worker)) {
        return;
    }
    wait_for_last(writer);
    writer->next_ns = now_ns + DP_REPORT_PERIOD_NS;
    dp_worker_start(writer->worker);
}

void dp_report_writer_finish(struct dp_report_writer *writer)
{
    wait_for_last(writer);
    DP_DEBUG("reports were written %llu times beside the steps, in %.3f s of a core",
             (unsigned long long)writer->times, (double)writer->core_ns / 1e9);
    if (writer->record != NULL) {
        write_record(writer->record, false, writer->html, writer->prometheus);
    }
    if (writer->events != NULL) {
        write_events(writer->events, false);
    }
}

void dp_report_writer_destroy(struct dp_report_writer *writer)
{
    if (writer != NULL) {
        dp_worker_destroy(writer->worker);
        dp_run_record_close(writer->record);
        dp_event_file_destroy(writer->events);
        dp_free(writer);
    }
}

void dp_report_write_now(const char *folder, bool html, const char *prometheus)
{
    const bool told = prometheus != NULL && prometheus[0] != '\0';
    struct dp_run_record *record = NULL;

    if ((html || told) && dp_run_record_create(folder, &record) == DP_OK) {
        write_record(record, false, html, told ? prometheus : NULL);
    }
    dp_run_record_close(record);
}
