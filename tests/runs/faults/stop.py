"""Runs that end before their last step: asked to by a signal or a clock, or by their own decision.
All ranks leave after the same step, and run.json and the last line on stderr say why.
"""
import os
import pathlib
import re
import signal
import time

import harness
from harness import (ENDLESS, Started, begin, check, endless, metrics, mlp_layers, run_json, same,
                     small_cfg, steps_done, train)

NO_EVALUATION = ("--set", "train.eval_every=0")


def catches(pid, number):
    """Whether the process has a handler for the signal now."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return bool(int(re.search(r"^SigCgt:\s*(\w+)", status, re.M)[1], 16) >> (number - 1) & 1)


HANDLED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def threads_that_take(pid, number):
    """The ids of the threads of a process on which a handler of the signal may run."""
    return [task.name for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            if not int(re.search(r"^SigBlk:\s*(\w+)", (task / "status").read_text(), re.M)[1], 16)
            >> (number - 1) & 1]


def saved_step(out):
    return int(os.readlink(out / "checkpoints/latest").removeprefix("step-"))


def check_end(result, out, code, exit_word, reason):
    """Exit code, run.json and metrics.jsonl agree on the end; returns the last step."""
    same(result.code, code, f"the exit code of\n{result}\n")
    summary = run_json(out)
    same(summary["exit"], exit_word, f"exit of\n{result}\n")
    check(re.fullmatch(reason, summary["reason"]), f"reason {summary['reason']!r}, not {reason}")
    end = metrics(out, "end")
    same([line["exit"] for line in end], [exit_word], "exit in metrics.jsonl")
    same(metrics(out, "step")[-1]["step"], summary["steps"], "the last step in metrics.jsonl")
    same(end[0]["steps"], summary["steps"], "steps in metrics.jsonl")
    if code:
        last = result.err.splitlines()[-1]
        same(result.errors, [] if code == 75 else [last], f"the errors in\n{result}\n")
        check(last.startswith("lockstep: ") and summary["reason"] in last,
              f"no reason at the end of stderr:\n{result}")
    return summary["steps"]


def check_saved(out, step):
    same(saved_step(out), step, "the newest checkpoint")


def check_stopped(result, out, cause):
    """Asked to stop by `cause`, saved, exit code 75; returns the last step."""
    step = check_end(result, out, 75, "stopped", rf"stopped after step (\d+): {cause}")
    check_saved(out, step)
    check(f"after step {step}:" in run_json(out)["reason"], "the reason names another step")
    check(f"saved in {out}/checkpoints/step-{step:08}; go on with --resume" in result.err,
          f"not what to do next:\n{result}")
    return step


def case_a_signal_to_mpirun_stops_all_ranks():
    started, out = begin(small_cfg(), *NO_EVALUATION, ranks=3)
    started.signal(signal.SIGUSR1)
    check_stopped(started.finish(), out, r"SIGUSR1 on rank [012] \(.+\)")


def case_a_signal_to_one_rank_stops_all_after_the_same_step():
    cfg = small_cfg()
    for number, rank, strategy in ((signal.SIGUSR1, 0, "auto"), (signal.SIGHUP, 1, "ring"),
                                   (signal.SIGTERM, 0, "mpi"), (signal.SIGTERM, 2, "shm")):
        name = signal.Signals(number).name
        started, out = begin(cfg, *NO_EVALUATION, "--set", f"comm.strategy={strategy}", ranks=3,
                             name=f"{name}-{rank}")
        started.signal(number, rank)
        check_stopped(started.finish(), out, rf"{name} on rank {rank} \(.+\)")


def case_within_local_steps_the_end_waits_for_the_next_average():
    cfg = small_cfg()
    local = ("--set", "train.local_steps=40", *NO_EVALUATION)
    for number, ranks, waits in ((signal.SIGUSR1, 2, True), (signal.SIGUSR2, 3, True),
                                 (signal.SIGTERM, 2, False)):
        name = signal.Signals(number).name
        flags = local if waits else ("--set", "train.local_steps=1000000", *NO_EVALUATION)
        started, out = begin(cfg, *flags, ranks=ranks, name=name)
        if number == signal.SIGUSR2:
            started.signal(number, 1)
            started.wait_for("a checkpoint", (out / "checkpoints/latest").is_symlink)
            same(saved_step(out) % 40, 0, "the step that was saved")
            number = signal.SIGUSR1
        started.signal(number, 0)
        step = check_stopped(started.finish(), out, rf"{number.name} on rank 0 \(.+\)")
        if waits:
            same(step % 40, 0, f"after step {step}: steps since the last average")
            whole = harness.scratch / f"{name}-whole"
            more = (*endless(), "--steps", step + 25, *flags)
            for folder, resume in ((out, ["--resume"]), (whole, [])):
                harness.train_well(cfg, *more, "--out", folder, *resume, ranks=ranks)
            check(harness.weights(out) == harness.weights(whole),
                  "other weights than without a stop")


def case_every_rank_ends_after_the_step_that_is_saved():
    started, out = begin(small_cfg(), *NO_EVALUATION, "--log-level", "debug", ranks=4)
    started.signal(signal.SIGUSR1, 3)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    ends = sorted(re.findall(r"rank (\d) ends after step (\d+)", result.err))
    same(ends, [(str(rank), str(run_json(out)["steps"])) for rank in range(4)], "ends of ranks")


def case_signals_are_taken_on_a_thread_that_does_not_compute():
    for ranks in (0, 2):
        started, out = begin(small_cfg(), *NO_EVALUATION, ranks=ranks, name=f"out-{ranks}")
        for pid in started.ranks().values() if ranks else [started.process.pid]:
            takers = {tuple(threads_that_take(pid, number)) for number in HANDLED}
            same([len(taker) for taker in takers], [1],
                 f"threads of {pid} that take signals: {takers}")
            check(str(pid) not in takers.pop(), "the main thread takes signals")
        started.signal(signal.SIGUSR1)
        check_stopped(started.finish(), out, r"SIGUSR1 on rank \d \(.+\)")


def case_many_signals_in_products_of_matrices_change_no_bit():
    cfg = small_cfg(mlp_layers(2048))
    flags = ("--synthetic", "--set", "data.samples=10000", "--set", "train.global_batch=10000",
             "--set", "train.micro_batch=250", *NO_EVALUATION)  # steps are long, saves few
    started, out = begin(cfg, *flags, ranks=0, steps=1)
    for _ in range(400):
        started.signal(signal.SIGUSR2)
        time.sleep(0.003)
    started.signal(signal.SIGUSR1)
    step = check_stopped(started.finish(), out, r"SIGUSR1 on rank 0 \(.+\)")
    whole = harness.scratch / "whole"
    harness.train_well(cfg, *endless(), "--steps", step, *flags, "--out", whole)
    check(harness.weights(out) == harness.weights(whole), "other weights than without signals")


# Rank 0 begins when it is asked to: until then no other rank comes to a step.
HOLD_RANK_0 = 'test "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 0 || kill -STOP $$; exec "$@"'


def case_a_request_before_the_first_step_is_heard_after_it():
    out = harness.scratch / "out"
    words = [small_cfg(), *NO_EVALUATION, "--set", f"train.steps={ENDLESS}", "--out", out]
    started = Started(words, wrapper=[str(harness.ROOT / "launch/mpirun"), "-np", "2", "sh", "-c",
                                      HOLD_RANK_0, "sh"])
    started.wait_for("rank 1", lambda: catches(started.ranks().get(1, 0), signal.SIGUSR1))
    started.signal(signal.SIGUSR1, 1)
    started.wait_for("rank 0", lambda: 0 in started.ranks())
    started.signal(signal.SIGCONT, 0)
    same(check_stopped(started.finish(), out, r"SIGUSR1 on rank 1 \(.+\)"), 1, "the last step")
    same(run_json(out)["baseline"]["source"], "not measured", "source of the baseline")


# Passes of one row, so many that nobody waits for the last one.
ENDLESS_ROWS = 4000000
ENDLESS_STEP = ("--synthetic", "--set", f"data.samples={ENDLESS_ROWS}", "--set",
                f"train.global_batch={ENDLESS_ROWS}", "--set", "train.micro_batch=1")
ENDLESS_EVALUATION = ("--synthetic", "--set", "data.samples=50", "--set",
                      f"data.test_samples={ENDLESS_ROWS}", "--set", "train.micro_batch=1")


def case_alone_the_first_interrupt_stops_and_the_second_ends():
    cfg = small_cfg()
    started, out = begin(cfg, *NO_EVALUATION, ranks=0)
    started.signal(signal.SIGINT)
    check_stopped(started.finish(), out, r"SIGINT on rank 0 \(.+\)")
    started, out = begin(cfg, *ENDLESS_STEP, ranks=0, steps=0, name="twice")
    pid = started.process.pid
    started.wait_for("the first step", (out / "metrics.jsonl").exists)
    started.signal(signal.SIGTERM)
    started.wait_for("the default action", lambda: not catches(pid, signal.SIGTERM))
    check(not catches(pid, signal.SIGINT), "SIGINT is still handled")
    started.signal(signal.SIGINT)
    same(started.finish().code, 128 + signal.SIGINT, "the exit code")


def case_a_run_whose_output_nobody_reads_any_more_is_saved_and_stopped():
    cfg = small_cfg()
    for ranks in (0, 2):
        for both in ("", " 2>&1"):
            out = harness.scratch / f"out-{ranks}{len(both)}"
            # Each rank has a pipe of its own; Python ignores SIGPIPE, a shell does not.
            leaves = ["env", "--default-signal=PIPE", "bash", "-c",
                      f'exec "$0" "$@" > >(head -n 1 > {out}.head){both}']
            mpirun = [str(harness.ROOT / "launch/mpirun"), "-np", str(ranks)] if ranks else []
            result = Started([cfg, *endless(), "--out", out],  # evaluations are lines
                             wrapper=[*mpirun, *leaves]).finish()
            cause = r"its output has no reader any more \(SIGPIPE\) on rank 0 \(.+\)"
            same(result.code, 75, f"the exit code of\n{result}\n")
            if both:
                same(run_json(out)["exit"], "stopped", f"exit of\n{result}\n")
                check_saved(out, run_json(out)["steps"])
            else:
                check_stopped(result, out, cause)
            same(len(pathlib.Path(f"{out}.head").read_text().splitlines()), 1, "lines of head")


def case_a_request_to_save_is_carried_out_and_the_run_goes_on():
    cfg = small_cfg()
    for ranks, rank in ((0, None), (3, None), (3, 2)):
        started, out = begin(cfg, *NO_EVALUATION, ranks=ranks, name=f"out-{ranks}-{rank}")
        started.signal(signal.SIGUSR2, rank)
        started.wait_for("a checkpoint", (out / "checkpoints/latest").is_symlink)
        saved = saved_step(out)
        check(saved >= 5, f"the checkpoint is of step {saved}")
        started.wait_for("a later step", lambda: steps_done(out) > saved)
        started.signal(signal.SIGUSR1, rank)
        last = check_stopped(started.finish(), out, r"SIGUSR1 on rank \d \(.+\)")
        kept = sorted(path.name for path in (out / "checkpoints").iterdir())
        check({"latest", f"step-{saved:08}", f"step-{last:08}"} <= set(kept),
              f"checkpoints: {kept}")
        # mpirun passes a signal on to each rank, and they need not get it in the same step.
        heard = ranks if ranks > 0 and rank is None else 1
        check(len(kept) <= 2 + heard, f"{heard} ranks got the signal, checkpoints: {kept}")


def case_a_request_to_save_what_cannot_be_saved_is_answered_once():
    started, out = begin(small_cfg(), *NO_EVALUATION, "--set", "comm.strategy=none")
    for steps in (5, 100, 200):
        started.wait_for(f"step {steps}", lambda: steps_done(out) >= steps)
        started.signal(signal.SIGUSR2 if steps < 200 else signal.SIGUSR1, 1)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    same(sum("asked to save: nothing can be" in line for line in result.warnings), 1, "warnings")


def case_the_time_allowed_counts_from_the_start():
    cfg = small_cfg()
    for ranks in (0, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *endless(), *NO_EVALUATION, "--max-time", "2.5s", "--out", out,
                       ranks=ranks)
        check_stopped(result, out, r"--max-time is over on rank 0 \(.+\)")
        check(run_json(out)["seconds"] > 2.4, f"{run_json(out)['seconds']} s")
    out = harness.scratch / "short"
    result = train(cfg, *endless(), "--max-time", "0.001", "--out", out, ranks=2)
    same(check_stopped(result, out, r"--max-time is over on rank 0 \(.+\)"), 1, "the last step")
    same(train(cfg, "--max-time", "5 minutes").code, 64, "a time that is none")


def case_an_evaluation_is_broken_off_on_all_ranks():
    cfg = small_cfg()
    for ranks, rank in ((0, None), (2, 0), (2, 1)):
        started, out = begin(cfg, *ENDLESS_EVALUATION, ranks=ranks, steps=1,
                             name=f"out-{ranks}-{rank}")
        # Until it evaluates; a request that is heard before ends it in the same way.
        time.sleep(0.3)
        started.signal(signal.SIGUSR1, rank)
        result = started.finish()
        same(check_stopped(result, out, rf"SIGUSR1 on rank {rank or 0} \(.+\)"), 1, "the last step")
        same(metrics(out, "eval"), [], "evaluations that were recorded")
        final = run_json(out)["final"]
        same((final["test_loss"], final["test_accuracy"]), (None, None), "what was not evaluated")
        check(final["train_loss"] > 0, "the loss of the step is lost")


def while_measuring(number, rank, nth):
    """Two slow steps: a signal to a rank during the nth measurement, which comes after a step.
    Once more with slower steps, where that was measured to its end before the signal was heard."""
    for rows in (20000, 100000, 500000):
        out = harness.scratch / f"out-{rank}-{rows}"
        started = Started([small_cfg(), "--synthetic", "--set", f"data.samples={rows}", "--set",
                           f"train.global_batch={rows}", "--set", "train.micro_batch=1", "--set",
                           "train.steps=2", *NO_EVALUATION, "--out", out], 2)
        started.wait_for("measuring", lambda: started.printed().count("measuring one") >= nth)
        started.signal(number, rank)
        result = started.finish()
        if run_json(out)["baseline"]["after" if nth == 2 else "before"] is None:
            return result, out
    raise AssertionError(f"measured to the end:\n{result}")


def case_measuring_is_broken_off_on_all_ranks():
    for rank in (0, 1):
        result, out = while_measuring(signal.SIGUSR1, rank, 1)
        same(check_stopped(result, out, rf"SIGUSR1 on rank {rank} \(.+\)"), 1, "the last step")
        summary = run_json(out)
        same([summary[key] for key in ("single_rank_samples_per_second", "scaling_efficiency")],
             [None, None], "what was not measured")
        check("samples/s, scaling efficiency -" in result.out, f"no table:\n{result}")


def case_a_run_that_has_done_its_steps_finishes_when_asked_to_stop():
    result, out = while_measuring(signal.SIGTERM, 1, 2)
    same(result.code, 0, f"the exit code of\n{result}\n")
    same((len(result.errors), len(result.warnings)), (0, 1), f"errors and warnings of\n{result}\n")
    check("after the last step" in result.warnings[0], f"no word of it:\n{result}")
    summary = run_json(out)
    same((summary["exit"], summary["reason"]), ("finished", None), "the end")
    check(summary["final"]["test_loss"] > 0, "the last evaluation is lost")
    check_saved(out, 2)


def case_training_that_does_not_improve_stops_early():
    cfg = small_cfg()
    for ranks, metric in ((0, "test_loss"), (2, "test_accuracy"), (3, "train_loss")):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *endless(), "--set", "optimizer.lr=0", "--set", "early_stop.patience=2",
                       "--set", f"early_stop.metric={metric}", "--set", "early_stop.min_delta=0.01",
                       "--out", out, ranks=ranks)
        reason = rf"stopped early after step 36: 2 evaluations without a better {metric} than \S+"
        same(check_end(result, out, 0, "early_stopped", reason), 36, "the last step")
        same(result.errors, [], f"errors of\n{result}\n")
        check_saved(out, 36)
        same(len(metrics(out, "eval")), 3, "evaluations")
        before = {path: path.lstat().st_mtime_ns for path in sorted(out.rglob("*"))}
        result = train(cfg, *endless(), "--set", "early_stop.patience=2", "--out", out, "--resume",
                       ranks=ranks)
        same((result.code, result.errors), (0, []), f"the end of\n{result}\n")
        check(f"stopped early after step 36 of {ENDLESS}: nothing is left to do" in result.out,
              f"not reported:\n{result}")
        same({path: path.lstat().st_mtime_ns for path in sorted(out.rglob("*"))}, before, "files")
    out = harness.scratch / "learns"
    result = train(cfg, "--steps", 36, "--set", "early_stop.patience=2", "--out", out)
    same((result.code, run_json(out)["exit"]), (0, "finished"), f"the end of\n{result}\n")


def check_diverged(result, out, reason, good=None):
    """Exit code 77, and nothing saved after `good`."""
    step = check_end(result, out, 77, "diverged", reason)
    if good is None:
        check(not (out / "checkpoints").exists(), f"something was saved:\n{result}")
        check("no checkpoint was written before" in result.errors[0], f"{result}")
    else:
        check_saved(out, good)
        check(f"the last good checkpoint is {out}/checkpoints/step-{good:08}:" in result.errors[0],
              f"{result}")
    return step


def case_weights_that_are_no_numbers_are_not_saved():
    cfg = small_cfg(mlp_layers())
    # The schedule multiplies the rate by 1000 after steps 10, 20 ..., until numbers overflow.
    flags = ("--set", "optimizer.schedule.name=step", "--set", "optimizer.schedule.step_size=10",
             "--set", "optimizer.schedule.gamma=1000", *NO_EVALUATION)
    for every in (1, 5):
        out = harness.scratch / f"out-{every}"
        result = train(cfg, *endless()[:2], *flags, "--set", f"checkpoint.every_steps={every}",
                       "--out", out, ranks=2)
        latest = saved_step(out)
        step = check_diverged(result, out, r"step \d+: (the loss is not a number|weights are not "
                              r"numbers any more); try a lower optimizer\.lr.*", latest)
        check(step - every <= latest < step, f"saved at {latest}, diverged at {step}")
        for name, (_, _, data) in harness.safetensors(
                out / "checkpoints/latest/model.safetensors").items():
            exponents = {data[i + 3] & 0x7F == 0x7F and data[i + 2] & 0x80
                         for i in range(0, len(data), 4)}
            check(not any(exponents), f"{name} of step {latest} has values that are no numbers")


def case_a_loss_that_shoots_up_is_divergence():
    cfg = small_cfg()
    flags = ("--set", "optimizer.schedule.name=step", "--set", "optimizer.schedule.step_size=60",
             "--set", "optimizer.schedule.gamma=100", "--set", "failure_stop.spike_window=20",
             "--set", "checkpoint.every_steps=50", *NO_EVALUATION)
    for ranks in (0, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *endless()[:2], *flags, "--set", "failure_stop.spike_sigma=6", "--out",
                       out, ranks=ranks)
        reason = (r"step \d+: the loss of \S+ is more than 6 deviations of \S+ above its mean of "
                  r"\S+ \(failure_stop\.spike_sigma\); try a lower .*")
        check(60 < check_diverged(result, out, reason, 50) < 100, f"{result}")


def case_training_that_only_guesses_is_divergence():
    cfg = small_cfg()
    flags = ("--set", "failure_stop.chance_steps=24", *NO_EVALUATION)
    for ranks in (0, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *endless(), *flags, "--synthetic", "--set", "data.samples=600", "--set",
                       "optimizer.lr=0", "--out", out, ranks=ranks)
        reason = (r"step 24: no progress: \S+ % of 600 training answers were right, by chance "
                  r"alone it is 10\.00 % \(failure_stop\.chance_steps\); .*")
        same(check_diverged(result, out, reason), 24, "the last step")
    out = harness.scratch / "learns"
    result = train(cfg, "--steps", 30, *flags, "--out", out)
    same((result.code, run_json(out)["exit"]), (0, "finished"), f"the end of\n{result}\n")


def case_a_run_on_a_slow_machine_is_saved_and_stopped():
    cfg = small_cfg()
    for ranks in (0, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *endless(), *NO_EVALUATION, "--out", out, "--set",
                       "failure_stop.min_samples_per_second=1e12", ranks=ranks)
        step = check_stopped(result, out, r"\d+ samples/s, under 1e\+12 "
                             r"\(failure_stop\.min_samples_per_second\), on rank 0 \(.+\)")
        check(step >= 20, f"judged by {step} steps")


if __name__ == "__main__":
    harness.main(globals())
