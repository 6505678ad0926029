#include "runtime/report/page_writer.h"

#include <stdbool.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"
#include "base/trace.h"
#include "runtime/report/page.h"

struct dp_page_writer {
    struct dp_run_record *record; /* owned; touched by the thread while it writes */
    struct dp_worker *worker;     /* owned */
    uint64_t next_ns;             /* when the next page is due; 0: now */
    uint64_t pages, core_ns;      /* that were written, and the processor's time for them */
};

static dp_status read_and_write(struct dp_run_record *record, bool going)
{
    DP_TRY(dp_run_record_update(record, going));
    return dp_page_write(record, NULL);
}

/* A run is not ended by its page. Only the last page warns: while the run goes on, another may
 * follow. Where it ends with an error, that stays the last word. */
static void write_page(struct dp_run_record *record, bool going)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = read_and_write(record, going);
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

/* On the thread, which may be slow: meanwhile the failure detector may have written the page of a
 * run that hung, which this one must not replace. */
static dp_status write_due(void *context)
{
    struct dp_page_writer *w = context;

    write_page(w->record, true);
    if (has_ended(w->record)) {
        write_page(w->record, false);
    }
    return DP_OK;
}

dp_status dp_page_writer_create(const char *folder, struct dp_page_writer **out)
{
    struct dp_page_writer *w = dp_zalloc(1, sizeof(*w));
    const struct dp_worker_config config = {.name = "dp-page",
                                            .task = "writes report.html",
                                            .idle = true,
                                            .run = write_due,
                                            .context = w};
    dp_status status;

    if (w == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "writer of report.html");
    }
    status = dp_run_record_create(folder, &w->record);
    status = status == DP_OK ? dp_worker_create(&config, &w->worker) : status;
    if (status != DP_OK) {
        dp_page_writer_destroy(w);
        return status;
    }
    *out = w;
    return DP_OK;
}

/* Adds up what the last page took. */
static void wait_for_page(struct dp_page_writer *w)
{
    (void)!dp_worker_wait(w->worker); /* a page that cannot be written is no failure */
    if (w->next_ns > 0) {
        w->pages++;
        w->core_ns += dp_worker_core_ns(w->worker);
    }
}

void dp_page_writer_poll(struct dp_page_writer *writer)
{
    const uint64_t now_ns = dp_now_ns();

    if (now_ns < writer->next_ns || dp_worker_busy(writer->worker)) {
        return;
    }
    wait_for_page(writer);
    writer->next_ns = now_ns + DP_PAGE_PERIOD_NS;
    dp_worker_start(writer->worker);
}

void dp_page_writer_finish(struct dp_page_writer *writer)
{
    wait_for_page(writer);
    DP_DEBUG("report.html was written %llu times beside the steps, in %.3f s of a core",
             (unsigned long long)writer->pages, (double)writer->core_ns / 1e9);
    write_page(writer->record, false);
}

void dp_page_writer_destroy(struct dp_page_writer *writer)
{
    if (writer != NULL) {
        dp_worker_destroy(writer->worker);
        dp_run_record_close(writer->record);
        dp_free(writer);
    }
}

void dp_page_write_folder(const char *folder)
{
    struct dp_run_record *record = NULL;

    if (dp_run_record_create(folder, &record) == DP_OK) {
        write_page(record, false);
    }
    dp_run_record_close(record);
}
