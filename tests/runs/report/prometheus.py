"""report.prometheus: a file that Prometheus' own parser reads, replaced while the run goes on."""
import json
import os
import re
import signal
import subprocess

import harness
from harness import begin, check, metrics, run_json, same, small_cfg, train, train_well

READ = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
text = open(sys.argv[1]).read()
print(json.dumps([[f.name, f.type, f.documentation, [[s.name, s.labels, s.value]
                  for s in f.samples]] for f in text_string_to_metric_families(text)]))
"""


def figures(path):
    """Name -> value, by Prometheus' parser, which must find one sample with its labels in each."""
    python = harness.python_with("prometheus", "prometheus_client")
    done = subprocess.run([python, "-c", READ, path], capture_output=True, text=True, check=False,
                          timeout=harness.PATIENCE)
    check(done.returncode == 0, f"it cannot be read:\n{done.stderr}\n{path.read_text()}")
    found = {}
    for name, kind, help_text, samples in json.loads(done.stdout):
        same(len(samples), 1, f"samples of {name}")
        check(kind in ("gauge", "counter") and help_text.endswith("."), f"{name}: {kind}, help")
        same(sorted(samples[0][1]), ["run", "strategy"], f"labels of {name}")
        found[samples[0][0]] = (samples[0][2], samples[0][1]["run"])
    return found


def case_a_finished_run_has_its_figures():
    out, path = harness.scratch / "out", harness.scratch / "lockstep.prom"
    name = 'odd \\ "name" {}'
    train_well(small_cfg(), "--out", out, "--set", f"report.prometheus={path}", "--set",
               "name=" + json.dumps(name), ranks=2)
    found = figures(path)
    steps, summary = metrics(out, "step"), run_json(out)
    same({run for _, run in found.values()}, {name}, "the name of the run")
    found = {key: value for key, (value, _) in found.items()}
    same(found["lockstep_steps_total"], steps[-1]["step"], "steps")
    same(found["lockstep_running"], 0, "whether it goes on")
    same(found["lockstep_ranks"], 2, "ranks")
    check(abs(found["lockstep_test_loss"] - summary["final"]["test_loss"]) < 1e-6, "test loss")
    check(abs(found["lockstep_scaling_efficiency"] - summary["scaling_efficiency"]) < 1e-6,
          "efficiency")
    last = steps[-1:]  # a tenth of six steps
    harness.close(found["lockstep_samples_per_second"], last[0]["samples_per_second"], 1e-5, "rate")
    harness.close(found["lockstep_step_seconds"], last[0]["step_ms"] / 1e3, 1e-5, "a step")
    harness.close(found["lockstep_train_loss"], last[0]["loss"], 1e-6, "the loss")


def case_a_name_as_long_as_names_may_be_is_whole():
    path = harness.scratch / "lockstep.prom"
    for name in (64 * "\u00e9", 128 * '"'):
        train_well(small_cfg(), "--out", harness.scratch / "out", "--set",
                   f"report.prometheus={path}", "--set",
                   "name=" + json.dumps(name, ensure_ascii=False))
        same({run for _, run in figures(path).values()}, {name}, "the name of the run")
        harness.shutil.rmtree(harness.scratch / "out")


def case_a_run_that_goes_on_is_seen():
    path = harness.scratch / "lockstep.prom"
    started, _ = begin(small_cfg(), "--set", f"report.prometheus={path}", ranks=2)
    started.wait_for("a step", lambda: re.search(r"^lockstep_steps_total\S* [1-9]",
                                                 path.read_text(), re.M))
    check(re.search(r"^lockstep_running\{.*\} 1$", path.read_text(), re.M), path.read_text())
    started.process.terminate()
    started.finish()


def killed(name, path):
    """Whether the other rank had the time to say that it ended; mpirun ends that rank soon, too."""
    started, _ = begin(small_cfg(), "--set", f"report.prometheus={path}", ranks=2, name=name)
    started.signal(signal.SIGKILL, 1)
    same(started.finish().code, 137, "the exit code")
    return re.search(r"^lockstep_running\{.*\} 0$", path.read_text(), re.M) is not None


def case_a_run_that_lost_a_rank_does_not_go_on():
    path = harness.scratch / "lockstep.prom"
    check(any(killed(f"out-{i}", path) for i in range(3)), f"it goes on:\n{path.read_text()}")
    steps = figures(path)["lockstep_steps_total"][0]
    check(steps >= 5, f"only {steps} steps, as of the beginning")


def case_a_run_that_is_killed_whole_is_known_by_its_last_update():
    path, now = harness.scratch / "lockstep.prom", harness.time.time()
    started, _ = begin(small_cfg(), "--set", f"report.prometheus={path}", ranks=2)
    harness.end_all(started.mark)
    started.finish()
    found = figures(path)
    same(found["lockstep_running"][0], 1, "whether it goes on, as far as anybody could say")
    updated = found["lockstep_last_update_timestamp_seconds"][0]
    check(now - 1 <= updated <= harness.time.time(), f"{updated}, not after {now}")


def case_what_a_killed_process_left_is_deleted():
    path = harness.scratch / "lockstep.prom"
    left = [f"{path}.tmp-999999999-0", f"{path}.tmp-999999999-7"]
    stays = [f"{path}.tmp-{os.getpid()}-0", f"{path}.tmp", f"{harness.scratch}/other.prom.tmp-9-0"]
    for name in left + stays:
        harness.pathlib.Path(name).write_text("lockstep_")
    train_well(small_cfg(), "--out", harness.scratch / "out", "--set", f"report.prometheus={path}")
    same([name for name in left + stays if os.path.exists(name)], stays, "what stays")


def case_a_file_that_cannot_be_written_is_one_line():
    result = train(small_cfg(), "--out", harness.scratch / "out", "--set",
                   "report.prometheus=/nowhere/x.prom")
    same((result.code, len(result.errors)), (74, 1), f"exit code and errors of\n{result}\n")
    check("/nowhere/x.prom" in result.errors[0], f"{result}")


if __name__ == "__main__":
    harness.main(globals())
