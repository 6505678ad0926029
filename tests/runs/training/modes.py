"""Every flag and every kind of run, as --help describes it."""
import json
import os
import pathlib
import re
import subprocess
import time

import harness
from harness import (Started, check, close, metrics, run_json, same, small_cfg, train,
                     train_well)

FAMILIES = {
    "strategies": {"shm", "ring", "mpi", "none"},
    "compressors": {"none", "fp16", "bf16", "int8", "onebit", "topk", "randomk",
                    "powersgd"},
    "layers": {"dense", "conv2d", "batchnorm", "relu", "gelu", "silu", "leaky_relu",
               "groupnorm", "layernorm", "maxpool", "avgpool",
               "global_avgpool", "dropout", "flatten", "residual"},
    "optimizers": {"sgd", "adamw", "lars", "lamb"},
    "schedules": {"constant", "step", "cosine", "linear"},
    "sources": {"fashion-mnist", "idx", "synthetic"},
    "devices": {"cpu"},
    "faults": {"flip", "kill", "stop", "slow", "exit", "leak"},
}


def case_the_program_describes_itself():
    for family, names in FAMILIES.items():
        lines = train_well("--list", family).out.splitlines()
        listed = {line.split()[0] for line in lines}
        check(names <= listed, f"--list {family} has no {names - listed}")
        check(all(len(line.split()) > 2 for line in lines), f"no help in {lines}")
    check(re.fullmatch(r"lockstep \d+\.\d+\.\d+\n", train_well("--version").out), "--version")
    text = train_well("--help").out
    for word in ("--set", "--out", "--baseline", "report.html", "train.global_batch",
                 "layer conv2d", "shortcut"):
        check(word in text, f"no {word} in --help")
    same(text.count("keys of model.cfg"), 1, "headings of the keys")
    check(all(len(line) <= 110 for line in text.splitlines()), "--help has long lines")
    same(train_well("--help", ranks=3).out, text, "--help on 3 ranks")


def case_strategies_of_gpus_are_marked_where_there_is_none():
    for gpus in ("1", "0"):  # what builds of DP_CUDA=host pretend
        env = {**os.environ, "DP_CUDA_GPUS": gpus}
        devices, train_list, bench_list = (
            subprocess.run([harness.build / command[0], "--list", *command[1:]], env=env,
                           check=True, capture_output=True, text=True).stdout.splitlines()
            for command in (("ddp_train", "devices"), ("ddp_train", "strategies"), ("ddp_bench",)))
        here = any(line.startswith("cuda ") and "; not here: " not in line for line in devices)
        for lines in (train_list, bench_list):
            marked = {line.split()[0] for line in lines if "; not here: " in line}
            same(marked, set() if here else {"nccl", "ipc", "staged"}, f"what is marked in {lines}")


def case_check_reports_parameters_of_every_shipped_model():
    totals = {"mlp": 1863690, "lenet": 1663370, "resnet20": 272186, "resnet50": 25557032}
    for name, parameters in totals.items():
        text = train_well(harness.ROOT / f"models/{name}.cfg", "--check").out
        total = re.search(r"^total +([\d.]+) ([kM])", text, re.M)
        shown = float(total[1]) * {"k": 1e3, "M": 1e6}[total[2]]
        close(shown, parameters, 1e-3, f"the parameters of {name}")
        for ranks in (1, 2, 4, 8):
            check(re.search(rf"^ {ranks} ranks? +[\d.]+ +[\d.]+", text, re.M),
                  f"no {ranks}:\n{text}")
    for compressor, residuals, snapshot in (("none", 0, 2), ("topk", 1, 6), ("onebit", 2, 10)):
        text = train_well(harness.ROOT / "models/mlp.cfg", "--check", "--set",
                          f"comm.compressor={compressor}").out
        row = [float(word) for word in re.search(r"^ 4 ranks +(.*?) *\(", text, re.M)[1].split()]
        close(row[4], residuals * row[0], 0.02, f"residuals of {compressor}")
        close(row[5], snapshot * row[0], 0.02, f"the snapshot with {compressor}")
    same(train(small_cfg(), "--check", "--set", "comm.strategy=rign").code, 78, "a bad strategy")
    text = train_well(small_cfg(), "--check", ranks=2).out
    same(len(re.findall("^total", text, re.M)), 1, "tables of 2 ranks")


def case_flags_that_train_nothing_write_nothing():
    cfg = small_cfg()
    for flag, words in (
        ("--check", ["0 ", "conv2d", "128"]),
        ("--print-config", ["name: small", "overlap: auto"]),
        ("--dry-run", ["rank 1: host", "bucket 0: ", "sharing by"]),
        ("--data-only", ["input alone: 6 batches", "samples/s"]),
    ):
        out = harness.scratch / "out"
        text = train_well(cfg, flag, "--out", out, ranks=2, cwd=harness.scratch).out
        for word in words:
            check(word in text, f"no {word!r} in what {flag} prints:\n{text}")
        check(not out.exists(), f"{flag} makes a folder")
    check(not (harness.scratch / "runs").exists(), "made runs/")


def case_print_config_is_its_own_model_cfg():
    for name in ("mlp", "lenet", "resnet20", "resnet50"):
        cfg = harness.ROOT / f"models/{name}.cfg"
        text = train_well(cfg, "--print-config", "--set", "optimizer.lr=0.0123").out
        again = harness.scratch / f"{name}-again.cfg"
        again.write_text(text)
        same(train_well(again, "--print-config").out, text, f"--print-config of {name}")
        check("lr: 0.0123" in text, "--set is lost")


def case_precedence_is_file_environment_flags():
    cfg = small_cfg()
    env = {"DP_OPTIMIZER_LR": "0.02", "DDP_TRAIN_SEED": "9"}
    for extra, lr, seed in (((), 0.02, 9),
                            (("--set", "optimizer.lr=0.03", "--seed", "4"), 0.03, 4)):
        text = train_well(cfg, "--print-config", *extra, env=env).out
        check(f"lr: {lr}\n" in text and f"seed: {seed}\n" in text, text)


def case_steps_and_epochs_are_counted_from_the_beginning():
    cfg = small_cfg()  # 600 rows in batches of 50: 12 steps an epoch
    for flags, steps, evaluations in (
        (["--steps", 1], 1, [1]),
        (["--steps", 2], 2, [2]),
        ([], 6, [6]),
        (["--set", "train.epochs=2"], 24, [12, 24]),
        (["--set", "train.epochs=3", "--set", "train.eval_every=2"], 36, [24, 36]),
        (["--set", "train.epochs=3", "--set", "train.eval_every=0"], 36, [36]),
        (["--steps", 14], 14, [12, 14]),
        (["--set", "train.global_batch=250", "--set", "train.epochs=2"], 6, [3, 6]),
        (["--set", "train.global_batch=250", "--set", "train.epochs=2", "--set",
          "data.drop_last=true"], 4, [2, 4]),
        (["--set", "train.global_batch=1000", "--set", "train.epochs=2"], 2, [1, 2]),
    ):
        for ranks in (0, 2) if "train.global_batch=250" in flags else (0,):
            out = harness.scratch / f"out-{'-'.join(map(str, flags))}-{ranks}"
            train_well(cfg, *flags, "--out", out, ranks=ranks)
            same(run_json(out)["steps"], steps, f"the steps of {flags}")
            same([o["step"] for o in metrics(out, "eval")], evaluations, f"evals of {flags}")
    refused = train(cfg, "--set", "train.global_batch=1000", "--set", "data.drop_last=true")
    same(refused.code, 78, f"a run of no steps\n{refused}\n")


def case_schedules_keep_the_length_of_the_configuration():
    cfg = small_cfg()
    cosine = [0.1 * (1 + x) / 2 for x in (1, 0.75 ** 0.5, 0.5, 0, -0.5, -(0.75 ** 0.5))]
    for flags, expected in (
        (["optimizer.schedule.name=cosine"], cosine),
        (["optimizer.schedule.name=linear"], [0.1 * (1 - s / 6) for s in range(6)]),
        (["optimizer.schedule.name=step", "optimizer.schedule.step_size=2"],
         [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]),
        (["optimizer.schedule.warmup_steps=4"], [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]),
    ):
        sets = [part for flag in flags for part in ("--set", flag)]
        for steps in (3, 6, 9):
            out = harness.scratch / f"{flags[0]}-{steps}"
            train_well(cfg, *sets, "--steps", steps, "--out", out)
            rates = [o["lr"] for o in metrics(out, "step")]
            for a, b in zip(rates, expected):
                close(a, b, 1e-5, f"a learning rate of {flags}")
            check(all(rate <= expected[-1] * 1.00001 for rate in rates[6:]), f"{flags}: {rates}")


def case_every_strategy_trains_and_none_writes_no_checkpoint():
    cfg = small_cfg()
    for strategy in FAMILIES["strategies"]:
        out = harness.scratch / strategy
        train_well(cfg, "--set", f"comm.strategy={strategy}", "--out", out, ranks=3)
        same(run_json(out)["strategy"], strategy, "strategy")
        same((out / "checkpoints").exists(), strategy != "none", f"a checkpoint of {strategy}")
        train_well(cfg, "--set", f"comm.strategy={strategy}", "--out", out / "alone")


def case_every_compressor_trains_and_reports_what_it_sends():
    cfg = small_cfg()
    for number, compressor in enumerate(sorted(FAMILIES["compressors"])):
        for strategy, ranks in (("ring", 3), ("auto", 2)):
            out = harness.scratch / f"{number}-{strategy}"
            text = train_well(cfg, "--set", f"comm.strategy={strategy}", "--set",
                              f"comm.compressor={compressor}", "--out", out, ranks=ranks).out
            same(run_json(out)["compressor"], compressor, "compressor")
            check((f"compressor {compressor}: rank 0 sends" in text) == (compressor != "none"),
                  text)
    train_well(cfg, "--set", "comm.compressor=topk", "--out", harness.scratch / "alone")
    for number, (strategy, compressor, ranks, says) in enumerate((
        ("ring", "topk:ratio=0.9", 2, "MORE than the"),
        ("ring", "topk:ratio=0.1", 2, "not"),
        ("ring", "topk:ratio=0.3", 5, "MORE than the"),
        ("ring", "randomk:ratio=1", 2, "as much as the"),
        ("zero1:over=ring", "randomk:ratio=1", 2, "MORE than the"),
        ("zero1:over=ring", "powersgd:rank=64", 2, "MORE than the"),
    )):
        text = train_well(cfg, "--steps", 2, "--set", f"comm.strategy={strategy}", "--set",
                          f"comm.compressor={compressor}", "--out", harness.scratch / f"m{number}",
                          ranks=ranks).out
        told = re.search(rf"{compressor}: rank 0 sends (\S+) MiB of gradients a step, {says} "
                         r"(\S+)", text)
        check(told, f"not {says!r}:\n{text}")
        sends, without = float(told[1]), float(told[2])
        check((sends > without, sends < without) == ("MORE" in says, says == "not"), told[0])


def case_every_kind_of_training_runs():
    norms = """\
    - conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}
    - batchnorm: {}
    - gelu: {}
    - silu: {}
    - groupnorm: {groups: 2}
    - leaky_relu: {slope: 0.1}
    - avgpool: {size: 2}
    - residual: {body: [{conv2d: {filters: 4, kernel: 3, padding: 1}}, {batchnorm: {}}]}
    - dropout: {rate: 0.2}
    - global_avgpool: {}
    - flatten: {}
    - layernorm: {}
    - dense: {units: 10}
"""
    cfg = small_cfg(norms, "norms.cfg")
    for number, values in enumerate((
        ["optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.clip_norm=0.5"],
        ["model.layers[1].batchnorm.sync=true"],
        ["train.micro_batch=6"],
        ["data.normalize.mean=[0.3]", "data.normalize.std=[0.4]"],
        ["data.shuffle=full", "data.drop_last=true", "train.global_batch=77"],
        ["optimizer.nesterov=true", "optimizer.weight_decay=0.01"],
        ["device.name=ref", "train.global_batch=10"],
        ["optimizer.name=lars", "optimizer.lr=0.5", "optimizer.scale_lr=sqrt",
         "train.global_batch=64", "optimizer.base_batch=16"],
        ["optimizer.name=lamb", "optimizer.lr=0.01", "optimizer.no_decay=[bias]"],
    )):
        sets = [part for value in values for part in ("--set", value)]
        out = harness.scratch / f"out-{number}"
        text = train_well(cfg, *sets, "--out", out, ranks=2).out
        scaled = "optimizer.scale_lr=sqrt" in values
        check(("learning rate 1: optimizer.lr 0.5 of batch 16, scaled (sqrt) to 64" in text)
              == scaled, text)
        check(not scaled or metrics(out, "step")[0]["lr"] == 1, "the rate is not scaled")
    for flag in ("--synthetic", "--cached-input"):
        out = harness.scratch / flag
        train_well(cfg, flag, "--steps", 30, "--out", out, ranks=2)
        losses = [o["loss"] for o in metrics(out, "step")]
        check(losses[-1] < losses[0], f"{flag} learns nothing: {losses}")


def case_the_shipped_resnet_takes_a_few_steps():
    out = harness.scratch / "out"
    train_well(harness.ROOT / "models/resnet20.cfg", "--synthetic", "--set", "data.samples=256",
               "--set", "data.test_samples=64", "--set", "train.global_batch=32", "--steps", 4,
               "--out", out, ranks=2)
    same(run_json(out)["steps"], 4, "the steps")


def case_a_resume_without_out_leaves_a_run_of_the_same_second_alone():
    cfg = small_cfg()
    for second in range(30):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() + second))
        folder = harness.scratch / "runs" / f"small-{stamp}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    taken = {path.name for path in (harness.scratch / "runs").iterdir()}
    for number in (2, 3):
        train_well(cfg, *(["--resume"] if number == 2 else []), cwd=harness.scratch)
    made = [path for path in (harness.scratch / "runs").iterdir() if path.name not in taken]
    check(made and all(re.fullmatch(r"small-\d{8}-\d{6}-[23]", path.name) for path in made),
          f"made {made}")
    same([json.loads((path / "run.json").read_text())["exit"] for path in made],
         ["finished"] * 2, "exit")
    for name in taken:
        folder = harness.scratch / "runs" / name
        same([path.name for path in folder.iterdir()], ["run.json"], f"what is in {name}")


def case_runs_that_begin_at_once_have_folders_of_their_own():
    cfg = small_cfg()
    started = [harness.Started([cfg]) for _ in range(4)]
    results = [one.finish() for one in started]
    same([result.code for result in results], [0] * 4, f"exit codes of\n{results[-1]}")
    same(len(list((harness.scratch / "runs").glob("*/run.json"))), 4, "folders")


def case_without_out_a_run_gets_a_folder_of_its_own():
    cfg = small_cfg()
    result = train_well(cfg, ranks=2, cwd=harness.scratch)
    (folder,) = (harness.scratch / "runs").iterdir()
    check(re.fullmatch(r"small-\d{8}-\d{6}", folder.name), f"the name {folder.name}")
    check(f"runs/{folder.name}/" in result.out, f"the folder is not reported:\n{result.out}")
    same(json.loads((folder / "run.json").read_text())["exit"], "finished", "exit")


def spin_count(**settings):
    """How long threads of a program spin, as their OpenMP says once it has read its settings."""
    wanted = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    plain = [f"-u{name}" for name in wanted]
    result = Started(["--version"], env={"OMP_DISPLAY_ENV": "verbose"},
                     wrapper=["env", *plain, *(f"{k}={v}" for k, v in settings.items())]).finish()
    same(result.code, 0, f"the exit code of\n{result}\n")
    told = re.findall(r"GOMP_SPINCOUNT = '(\w+)'", result.err)
    if not told:
        raise harness.Skipped("this OpenMP has no GOMP_SPINCOUNT")
    return told[-1]


def case_threads_spin_briefly_unless_the_user_says_otherwise():
    # Two runs on the same cores would otherwise wait for each other's spinning.
    same(spin_count(), "5000", "the turns of a program started plainly")
    same(spin_count(GOMP_SPINCOUNT="777"), "777", "the turns that a user asks for")
    same(spin_count(OMP_WAIT_POLICY="passive"), "0", "the turns of threads that are not to spin")


def case_the_dynamic_loader_starts_the_program():
    maps = pathlib.Path("/proc/self/maps").read_text()
    loaders = re.findall(r"(/\S*/ld-linux\S*)$", maps, re.M)
    if not loaders:
        raise harness.Skipped("no ld-linux starts programs here")
    out = harness.scratch / "out"
    result = Started([small_cfg(), "--out", out, "--quiet"], wrapper=loaders[:1]).finish()
    same((result.code, result.complaints), (0, []), f"the end of\n{result}\n")
    same(run_json(out)["exit"], "finished", "how it ended")


if __name__ == "__main__":
    harness.main(globals())
