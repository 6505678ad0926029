"""What people see while a run goes on: one rewritten line on a terminal, plain lines elsewhere,
also under mpirun, which gives its ranks a terminal of its own.
"""
import os
import pty
import re
import select
import signal
import subprocess
import time
import uuid

import harness
import streams
from harness import Started, check, same, small_cfg, train_well

PROGRESS = (r"epoch \d+/\d+ step \d+/\d+ loss \d+\.\d{4} [\d,.]+ samples/s lr \S+ "
            r"eta (?:\d+:)?\d+:\d\d")
ON_TERMINAL = (r"(?:\[[#-]+\] )?(?:epoch \d+/\d+ )?step \d+/\d+ loss \d+\.\d{4} [\d,.]+ samples/s"
               r"(?: efficiency \d+ %)?(?: lr \S+)? eta (?:\d+:)?\d+:\d\d")
STEPS = re.compile(r"^(\[[#-]+\] )?(epoch \d+/\d+ )?step \d+/\d+ loss ")
COLOUR = re.compile(r"\x1b\[\d+m")


def on_terminal(enough, *arguments, ranks=0, env=None):
    """What a run writes to a terminal that is its stdout. It is asked to stop once enough(text)."""
    master, slave = pty.openpty()
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        harness.command_of(arguments, ranks), stdin=subprocess.DEVNULL, stdout=slave,
        stderr=subprocess.STDOUT, env=harness.environment(mark, env), cwd=harness.scratch)
    os.close(slave)
    text, asked, end = "", False, time.monotonic() + harness.PATIENCE
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    read = os.read(master, 65536)
                except OSError:  # no process has the terminal open any more
                    break
                if not read:
                    break
                text += read.decode()
                if not asked and enough(text):
                    process.send_signal(signal.SIGUSR1)
                    asked = True
            elif process.poll() is not None:
                break
        same(process.wait(max(1, end - time.monotonic())), 75, f"the exit code of {text!r}")
    finally:
        harness.end_all(mark)
        process.wait()
        os.close(master)
    return text.replace("\r\n", "\n")


def shown(text):
    """What stands on the screen in the end: carriage return and erasing the line are obeyed."""
    return [re.split(r"\r\x1b\[K", line)[-1] for line in text.split("\n")]


EVALUATED = re.compile(r"^epoch \d+ step \d+: train", re.M)


def case_a_terminal_sees_one_line_that_is_rewritten():
    cfg = small_cfg()

    def enough(text):
        return (len(re.findall(ON_TERMINAL + r"\r\x1b\[K", text)) >= 2
                and EVALUATED.search("\n".join(shown(text.replace("\r\n", "\n")))))

    for ranks in (0, 2):
        text = on_terminal(enough, cfg, "--set", "train.epochs=1000000", "--set",
                           "train.eval_every=100", "--set", "checkpoint.every_steps=0",
                           "--out", harness.scratch / f"out-{ranks}", ranks=ranks,
                           env={"TERM": "xterm", "NO_COLOR": "" if ranks == 2 else "1"})
        check(enough(text), f"no rewritten line, or no evaluation, on {ranks} ranks:\n{text!r}")
        left = [line for line in shown(text) if STEPS.match(line)]
        check(len(left) <= 1, f"progress lines that stay, and not the last one alone: {left}")
        lines = [COLOUR.sub("", line) for line in shown(text)]
        check(any(line.startswith("verdict: ") for line in lines), f"no table:\n{text}")
        check(all(len(line) < 80 for line in lines if STEPS.match(line)), f"a long line:\n{text}")
        same("\x1b[1mverdict: " in text, ranks == 2, f"colour on {ranks} ranks in {text!r}")
        same(COLOUR.search(text) is not None, ranks == 2, f"any colour in {text!r}")


def case_a_report_has_colour_on_a_terminal_alone():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--out", out)
    for env, colour in ((None, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        text = streams.shown([harness.build / "ddp_report", out, "--no-page"],
                             {"TERM": "xterm", **(env or {})})
        same("\x1b[1mverdict " in text, colour, f"colour with {env} in {text!r}")


def case_a_file_and_a_pipe_get_plain_lines():
    cfg = small_cfg()
    began = time.monotonic()
    runs = {ranks: Started([cfg, "--set", "train.epochs=1000000", "--set", "train.eval_every=0",
                            "--set", "checkpoint.every_steps=0",
                            "--out", harness.scratch / f"out-{ranks}"], ranks)
            for ranks in (0, 2)}
    for ranks, started in runs.items():  # plain lines come every five seconds
        started.wait_for("a line", lambda: any(map(STEPS.match, started.printed().splitlines())))
        started.process.terminate()
        text = started.finish().out
        check(not re.search(r"[\r\x1b]", text), f"control characters on {ranks} ranks:\n{text!r}")
        lines = [line for line in text.splitlines() if STEPS.match(line)]
        most = int((time.monotonic() - began) / 5)  # it may take a while to end
        check(1 <= len(lines) <= most, f"{len(lines)} progress lines, not 1 to {most}, in\n{text}")
        for line in lines:
            check(re.fullmatch(PROGRESS, line), f"an odd line: {line}")


def case_the_lines_of_a_run_can_be_read():
    cfg = small_cfg()
    for ranks in (0, 2):
        result = train_well(cfg, "--out", harness.scratch / f"out-{ranks}", ranks=ranks)
        same(result.complaints, [], "stderr of a good run")
        for line in result.out.splitlines():
            check(line == line.rstrip() and "nan" not in line, f"a line {line!r}")
            check(len(line) <= 200, f"a long line: {line}")
        report = re.search(r"^small: finished.*(?=^files: )", result.out, re.M | re.S).group()
        check(all(len(line) <= 80 for line in report.splitlines()), f"over 80 columns:\n{report}")
        patterns = (
            rf"lockstep \S+: small on {max(ranks, 1)} ranks?, 1 node, \d+ threads? a rank; device",
            r"data idx: 600 training rows, global batch 50, 12 steps an epoch, 6 steps",
            rf"sharing by {'zero1:over=' if ranks else ''}shm .*: \d+ buckets, overlap ",
            r"epoch 1 step 6: train loss [\d.]+, test loss [\d.]+, test accuracy [\d.]+ %",
            r"small: finished after 6 steps, 0\.50 epochs, on \d ranks?",
            r"[\d,.]+ samples/s, scaling efficiency [\d.]+ %",
            r"one rank alone: [\d,.]+ samples/s \(measured; before [\d,.]+, after [\d,.]+,\s+spread"
            if ranks else r"one rank alone: [\d,.]+ samples/s \(this run\)",
            r"rank +host +cpus +threads +samples/s",
            r"rank +host +step +input",
            r"verdict: \w+",
            r"files: .*/\{run\.json,metrics\.jsonl,config\.yaml,",
        )
        for pattern in patterns:
            check(re.search(f"^{pattern}", result.out, re.M), f"no {pattern!r} in\n{result.out}")
        same(len(re.findall(r"^ *\d+ \S+ +[\d,-]+ +\d+ ", result.out, re.M)), max(ranks, 1),
             f"the ranks in\n{result.out}\n")


if __name__ == "__main__":
    harness.main(globals())
