#include "runtime/run/roles/input_ranks.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/input/batch_receiver.h"
#include "runtime/trainer/input/batch_sender.h"

/* From a rank that reads, on the channel of rank 0. */
struct word {
    enum { WORD_ASKED, WORD_FINISHED } kind;
    int cause; /* enum dp_stop_cause */
    bool save;
    uint64_t work_ns, rows;
};

/* From rank 0, last. */
struct farewell {
    dp_status status;
};

static struct dp_batch_link link_of(struct dp_run_job *job)
{
    const struct dp_roles *roles = &job->world->roles;

    return (struct dp_batch_link){
        .p2p = &job->p2p,
        .trainers = roles->count[DP_ROLE_TRAIN],
        .readers = roles->count[DP_ROLE_READ],
        .first_reader = dp_role_first(roles, DP_ROLE_READ),
        .sample_bytes = job->data.sample_bytes,
        .label_words = dp_model_train_words(job->model),
        .count = job->data.train_count,
        .global_batch = (size_t)job->config->train.global_batch,
        .drop_last = job->config->data.drop_last,
        .cached = dp_run_cached_input(job),
        .batches = job->total_steps > job->resume.step ? job->total_steps - job->resume.step : 0,
    };
}

/* ---- ranks that train or serve ---- */

/* Rank 0: what it knows of a rank that reads. */
struct known {
    struct word word;
    struct dp_p2p_message message;
    struct farewell farewell;
    struct dp_p2p_message last;
    enum dp_stop_cause asked;
    bool save_asked, finished;
};

struct dp_input_ranks {
    struct dp_run_job *job;             /* borrowed */
    struct dp_batch_receiver *receiver; /* owned; NULL on servers */
    struct known *known;                /* owned; [count]; rank 0 */
    int count, first;
};

static void expect_word(struct dp_input_ranks *in, int i)
{
    struct known *k = &in->known[i];

    dp_p2p_receive(&in->job->control, &k->message, in->first + i, &k->word, sizeof(k->word));
}

static dp_status open_known(struct dp_input_ranks *in)
{
    in->known = dp_zalloc((size_t)in->count, sizeof(*in->known));
    if (in->known == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d input ranks", in->count);
    }
    for (int i = 0; i < in->count; i++) {
        expect_word(in, i);
    }
    return DP_OK;
}

static dp_status open_input(struct dp_input_ranks *in)
{
    struct dp_run_job *job = in->job;
    const struct dp_batch_link link = link_of(job);

    if (job->world->role == DP_ROLE_TRAIN) {
        DP_TRY(dp_batch_receiver_create(&link, job->world->all->rank, job->resume.step,
                                        &in->receiver));
        dp_trainer_set_receiver(job->trainer, in->receiver);
    }
    return dp_run_leads(job) ? open_known(in) : DP_OK;
}

dp_status dp_input_ranks_open(struct dp_run_job *job, struct dp_input_ranks **out)
{
    struct dp_input_ranks *in = dp_zalloc(1, sizeof(*in));
    dp_status status = in == NULL ? DP_FAIL(DP_ERR_NOMEM, "input ranks") : DP_OK;

    if (in != NULL) {
        in->job = job;
        in->count = job->world->roles.count[DP_ROLE_READ];
        in->first = dp_role_first(&job->world->roles, DP_ROLE_READ);
        status = open_input(in);
    }
    status = dp_exchange_agree(dp_trainer_exchange(job->trainer), status);
    if (status != DP_OK) {
        dp_input_ranks_close(in);
        return status;
    }
    *out = in;
    return DP_OK;
}

void dp_input_ranks_close(struct dp_input_ranks *in)
{
    if (in == NULL) {
        return;
    }
    if (in->receiver != NULL) {
        dp_trainer_set_receiver(in->job->trainer, NULL);
    }
    dp_batch_receiver_destroy(in->receiver);
    dp_free(in->known);
    dp_free(in);
}

/* Rank 0: takes what they have said. */
static void hear(struct dp_input_ranks *in)
{
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        struct known *k = &in->known[i];
        while (!k->finished && dp_p2p_done(&in->job->control, &k->message)) {
            if (k->word.kind == WORD_ASKED) {
                k->asked = k->asked == DP_STOP_NONE ? (enum dp_stop_cause)k->word.cause : k->asked;
                k->save_asked = k->save_asked || k->word.save;
                expect_word(in, i);
            } else {
                k->finished = true;
            }
        }
    }
}

enum dp_stop_cause dp_input_ranks_asked(struct dp_input_ranks *in, int *rank)
{
    hear(in);
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        if (in->known[i].asked != DP_STOP_NONE) {
            *rank = in->first + i;
            return in->known[i].asked;
        }
    }
    return DP_STOP_NONE;
}

bool dp_input_ranks_save_asked(struct dp_input_ranks *in)
{
    bool any = false;

    hear(in);
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        any = any || in->known[i].save_asked;
    }
    return any;
}

void dp_input_ranks_saving(struct dp_input_ranks *in)
{
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        in->known[i].save_asked = false;
    }
}

dp_status dp_input_ranks_finish(struct dp_input_ranks *in, uint64_t *work_ns, uint64_t *rows)
{
    *work_ns = *rows = 0;
    if (in->receiver != NULL) {
        DP_TRY(dp_batch_receiver_end(in->receiver));
    }
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        struct known *k = &in->known[i];
        while (!k->finished) {
            DP_TRY(dp_p2p_wait(&in->job->control, &k->message));
            hear(in);
        }
        *work_ns += k->word.work_ns;
        *rows += k->word.rows;
    }
    return DP_OK;
}

dp_status dp_input_ranks_end(struct dp_input_ranks *in, dp_status status)
{
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        struct known *k = &in->known[i];
        k->farewell.status = status;
        dp_p2p_send(&in->job->control, &k->last, in->first + i, &k->farewell, sizeof(k->farewell));
    }
    for (int i = 0; in->known != NULL && i < in->count; i++) {
        DP_TRY(dp_p2p_wait(&in->job->control, &in->known[i].last));
    }
    return DP_OK;
}

/* ---- a rank that reads ---- */

struct dp_reader {
    struct dp_augment *augment; /* owned */
    struct dp_loader *loader;   /* owned */
    struct dp_run_job *job;     /* borrowed, while it serves */
    struct word asked, finished;
    struct dp_p2p_message asked_message, finished_message, last;
    struct farewell farewell;
    enum dp_stop_cause told; /* to rank 0 */
};

static dp_status open_reader(const struct dp_run_job *job, struct dp_reader *r)
{
    const struct dp_roles *roles = &job->world->roles;
    struct dp_loader_config config;

    DP_TRY(dp_dataset_augment(&job->data, job->config, &r->augment));
    config = dp_dataset_loader(&job->data, job->config, job->model, r->augment, job->device,
                               job->threads);
    config.global_batch = (size_t)job->config->train.global_batch;
    config.rank = job->world->all->rank - dp_role_first(roles, DP_ROLE_READ);
    config.ranks = roles->count[DP_ROLE_READ];
    config.cached = dp_run_cached_input(job);
    config.first_step = job->resume.step;
    config.total_steps = job->total_steps;
    return dp_loader_create(&config, &r->loader);
}

dp_status dp_reader_create(const struct dp_run_job *job, struct dp_reader **out)
{
    struct dp_reader *r = dp_zalloc(1, sizeof(*r));
    const dp_status status =
        r == NULL ? DP_FAIL(DP_ERR_NOMEM, "a rank that reads") : open_reader(job, r);

    if (status != DP_OK) {
        dp_reader_destroy(r);
        return status;
    }
    *out = r;
    return DP_OK;
}

void dp_reader_destroy(struct dp_reader *r)
{
    if (r != NULL) {
        dp_loader_destroy(r->loader);
        dp_augment_destroy(r->augment);
        dp_free(r);
    }
}

/* Passes on what this rank was asked to do. */
static dp_status look(void *context)
{
    struct dp_reader *r = context;
    struct dp_p2p *control = &r->job->control;
    const enum dp_stop_cause cause = dp_stop_asked(r->job->stop);
    const bool save = dp_stop_save_asked(r->job->stop);
    bool more;

    if ((cause != r->told || save) && dp_p2p_done(control, &r->asked_message)) {
        if (save) {
            dp_stop_saving(r->job->stop);
        }
        r->told = cause;
        memset(&r->asked, 0, sizeof(r->asked));
        r->asked.kind = WORD_ASKED;
        r->asked.cause = (int)cause;
        r->asked.save = save;
        dp_p2p_send(control, &r->asked_message, 0, &r->asked, sizeof(r->asked));
    }
    return dp_p2p_poll(control, &more);
}

static void report(struct dp_reader *r)
{
    struct dp_loader_report done;

    dp_loader_report(r->loader, &done);
    memset(&r->finished, 0, sizeof(r->finished));
    r->finished.kind = WORD_FINISHED;
    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        r->finished.work_ns += done.stages.ns[i];
    }
    r->finished.rows = done.stages.rows;
    dp_p2p_send(&r->job->control, &r->finished_message, 0, &r->finished, sizeof(r->finished));
}

static dp_status await_end(struct dp_reader *r)
{
    DP_SPAN(DP_PHASE_IDLE, 0);
    const struct timespec nap = {0, 2000000};
    bool more;

    DP_TRY(dp_p2p_wait(&r->job->control, &r->asked_message));
    report(r);
    dp_p2p_receive(&r->job->control, &r->last, 0, &r->farewell, sizeof(r->farewell));
    for (;;) {
        DP_TRY(dp_p2p_poll(&r->job->control, &more));
        if (!more) {
            return DP_OK;
        }
        if (atomic_load(r->job->beside->cancel) != 0) {
            return DP_ERR_CANCELLED;
        }
        (void)nanosleep(&nap, NULL);
    }
}

static dp_status send_batches(struct dp_reader *r)
{
    struct dp_batch_link link = link_of(r->job);
    struct dp_batch_sender *sender;
    dp_status status;

    if (dp_run_cached_input(r->job) && link.batches > 1) {
        link.batches = 1;
    }
    DP_TRY(dp_batch_sender_create(&link, r->job->world->all->rank - link.first_reader, r->loader,
                                  &sender));
    status = dp_batch_sender_run(sender, look, r);
    dp_batch_sender_destroy(sender);
    return status;
}

dp_status dp_reader_serve(struct dp_reader *r, struct dp_run_job *job, dp_status *end)
{
    r->job = job;
    DP_TRY(send_batches(r));
    DP_TRY(await_end(r));
    *end = r->farewell.status;
    return DP_OK;
}
