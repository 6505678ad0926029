#include "runtime/run/roles/evaluation.h"

#include "base/log.h"
#include "base/trace.h"
#include "runtime/run/results/run_end.h"
#include "runtime/run/roles/eval_rank.h"

uint64_t dp_evaluation_period(const struct dp_run_job *job)
{
    return (uint64_t)job->config->train.eval_every * job->steps_per_epoch;
}

bool dp_evaluation_scheduled(const struct dp_run_job *job, uint64_t step)
{
    const uint64_t steps = dp_evaluation_period(job);

    return steps > 0 && step % steps == 0;
}

static bool is_pending(const struct dp_run_job *job)
{
    return job->eval != NULL && dp_eval_rank_pending(job->eval);
}

bool dp_evaluation_due(const struct dp_training *run, uint64_t step)
{
    const struct dp_run_job *job = &run->job;

    return step > 0 && run->outcome.stop_criteria.evaluated_at != step &&
           !(is_pending(job) && dp_eval_rank_step(job->eval) == step) &&
           (step == job->total_steps || dp_evaluation_scheduled(job, step));
}

/* ---- by the ranks that train ---- */

static dp_status evaluate_here(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const uint64_t begin_ns = dp_now_ns();
    struct dp_eval_answer answer = {.step = dp_trainer_steps(job->trainer)};
    dp_status status;

    status = dp_trainer_evaluate(job->trainer, &answer.found);
    if (status != DP_OK) {
        return status == DP_STOPPED ? dp_run_judge_stop(run) : status;
    }
    answer.seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
    dp_figures_end_losses(&run->figures);
    run->outcome.stop_criteria.evaluated_at = answer.step;
    DP_TRY(dp_figures_add_evaluation(&run->figures, job, &answer));
    dp_run_judge_evaluation(job, &run->figures, &run->outcome);
    dp_run_judge_improvement(job, &run->outcome);
    dp_figures_restart(&run->figures, job);
    return DP_OK;
}

/* ---- by a rank of its own ---- */

/* What was pending is broken off; if its weights are gone, a resumed run cannot make it. */
static void note_lost(const struct dp_run_job *job)
{
    const uint64_t step = dp_eval_rank_step(job->eval);

    if (dp_run_leads(job) && step != dp_trainer_steps(job->trainer)) {
        DP_WARN("the evaluation after step %llu is left out, since the run ends at once",
                (unsigned long long)step);
    }
}

/* Takes what is pending. A request may break that off. */
static dp_status take(struct dp_training *run, enum dp_eval_patience patience)
{
    const struct dp_run_job *job = &run->job;
    struct dp_eval_answer answer;
    dp_status status;

    dp_resources_pause(&run->figures.resources);
    status = dp_eval_rank_take(job->eval, patience, &answer);

    if (status == DP_STOPPED) {
        note_lost(job);
        return dp_run_judge_stop(run);
    }
    DP_TRY(status);
    run->outcome.stop_criteria.evaluated_at = answer.step;
    DP_TRY(dp_figures_add_evaluation(&run->figures, job, &answer));
    dp_run_judge_evaluation(job, &run->figures, &run->outcome);
    dp_figures_restart(&run->figures, job);
    return DP_OK;
}

/* The last weights of a run are waited for. */
static dp_status evaluate_there(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const uint64_t step = dp_trainer_steps(job->trainer);

    DP_TRY(is_pending(job) ? take(run, DP_EVAL_HURRIES) : DP_OK);
    dp_run_judge_improvement(job, &run->outcome);
    if (run->outcome.late_stop ||
        (run->outcome.exit != DP_RUN_FINISHED && run->outcome.exit != DP_RUN_EARLY_STOPPED)) {
        return DP_OK;
    }
    dp_figures_end_losses(&run->figures);
    DP_TRY(dp_eval_rank_hand_over(job->eval, step));
    return step == job->total_steps || run->outcome.exit == DP_RUN_EARLY_STOPPED
               ? take(run, DP_EVAL_BREAKS_OFF)
               : DP_OK;
}

dp_status dp_run_evaluate(struct dp_training *run)
{
    dp_resources_pause(&run->figures.resources);
    DP_TRY(dp_trainer_sync_weights(run->job.trainer));
    return run->job.eval != NULL ? evaluate_there(run) : evaluate_here(run);
}

dp_status dp_evaluation_settle(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;

    return is_pending(job) && dp_eval_rank_step(job->eval) != dp_trainer_steps(job->trainer)
               ? take(run, DP_EVAL_HURRIES)
               : DP_OK;
}

/* A process that gets SIGTERM or SIGINT is likely to be killed soon. */
static bool in_a_hurry(const struct dp_training *run)
{
    return run->outcome.stop_cause == DP_STOP_TERM || run->outcome.stop_cause == DP_STOP_INT;
}

dp_status dp_evaluation_finish(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const enum dp_run_exit exit = run->outcome.exit;

    if (exit != DP_RUN_DIVERGED && exit != DP_RUN_ERROR && !in_a_hurry(run)) {
        DP_TRY(dp_evaluation_settle(run));
    }
    if (!is_pending(job)) {
        return DP_OK;
    }
    note_lost(job);
    return dp_eval_rank_break_off(job->eval);
}

dp_status dp_evaluation_poll(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_eval_answer *answer = NULL;

    if (job->eval != NULL && dp_run_leads(job)) {
        DP_TRY(dp_eval_rank_poll(job->eval, &answer));
    }
    return answer != NULL ? dp_figures_add_evaluation(&run->figures, job, answer) : DP_OK;
}
