"""ddp_bench, as its users start it: formats, checks of results, a model's buckets, wrong usage."""
import csv
import io
import json
import math
import re

import harness
import netlab
from harness import check, little_memory, same, small_cfg, train, train_well
from refusals import side_by_side

harness.program = "ddp_bench"

KEYS = ["size", "count", "type", "strategy", "compressor", "ranks", "min_us", "median_us", "p99_us",
        "algbw", "busbw", "wrong", "wire_bytes", "max_ulp", "rel_l2", "predicted_us"]
TEXTS = {"bucket", "type", "strategy", "compressor"}
# What a second run of the same command must give again; times are not among it.
REPEATED = ["size", "count", "type", "strategy", "compressor", "ranks", "wrong", "wire_bytes"]
QUICK = ["-n", 3, "-w", 1]


def rows_of_json(text):
    return json.loads(text, parse_constant=lambda word: check(False, f"JSON with {word}"))


def rows_of_csv(text):
    return [
        {k: v if k in TEXTS else float(v) if v != "" else None for k, v in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def rows_of_table(text):
    """Rows of the table, by the names in its heading; and its comments."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    names = next(line for line in comments if " median_us " in line)[1:].split()
    rows = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        values = line.split()
        same(len(values), len(names), f"columns of {line!r}")
        rows.append({
            name: value if name in TEXTS else None if value == "-" else float(value)
            for name, value in zip(names, values)
        })
    return rows, comments


def bench(*arguments, ranks=2, **how):
    """The rows of a run in JSON, each with the documented keys."""
    result = train_well(*arguments, "--format", "json", ranks=ranks, **how)
    rows = rows_of_json(result.out)
    for row in rows:
        same([key for key in row if key in KEYS], KEYS, "keys")
        check(row["min_us"] <= row["median_us"] <= row["p99_us"], f"times of {row}")
    return rows


def usable(table):
    """Strategies that share something, of those that --list names; the others a table skips."""
    listed = re.search(r"strategies:\n((?:  .*\n)+)", train_well("--list").out)[1]
    names = [line.split()[0] for line in listed.splitlines()]
    skipped = re.findall(r"^# skipped (\S+?):? ", table, re.M)
    check("none" in skipped, f"none is compared:\n{table}")
    return [name for name in names if name not in skipped]


def case_the_program_describes_itself():
    text = train_well("--help").out
    for word in ("-b --minbytes", "--strategies", "--buckets", "busbw", "--bound"):
        check(word in text, f"no {word} in --help")
    check(all(len(line) <= 110 for line in text.splitlines()), "--help has long lines")
    same(train_well("--help", ranks=3).out, text, "--help on 3 ranks")
    check(re.fullmatch(r"lockstep \d+\.\d+\.\d+\n", train_well("--version").out), "--version")
    for word in ("ring", "zero1", "compressors:"):
        check(word in train_well("--list").out, f"no {word} in --list")


def case_three_formats_say_the_same():
    flags = ["-b", 60, "-e", "6K", "-f", 10, *QUICK]
    found = bench(*flags, ranks=3)
    printed = train_well(*flags, ranks=3).out
    table, comments = rows_of_table(printed)
    text = train_well(*flags, "--format", "csv", ranks=3).out
    same(text.splitlines()[0], ",".join(KEYS), "heading of CSV")
    names = usable(printed)
    same([row["strategy"] for row in found], names * 3, "strategies")
    same([row["size"] for row in found[:: len(names)]], [60, 600, 6000], "sizes")
    for rows in (table, rows_of_csv(text)):
        same(len(rows), len(found), "rows")
        for a, b in zip(found, rows):
            same([b[key] for key in REPEATED], [a[key] for key in REPEATED], "a row")
    check(comments[-1].startswith("# verdict: "), f"the last line is {comments[-1]}")
    check("is fastest" in comments[-1], comments[-1])


def case_results_are_right_on_any_number_of_ranks():
    for ranks in (2, 3, 4):
        for row in bench("-b", 4, "-e", "40K", "-f", 9, "-c", 2, *QUICK, ranks=ranks):
            same(row["wrong"], 0, f"wrong elements of {row}")
            same((row["ranks"], row["type"], row["compressor"]), (ranks, "float", "none"), "row")
            check(row["rel_l2"] < 1e-6 and row["max_ulp"] <= ranks, f"errors of {row}")
            check(row["wire_bytes"] <= 2 * ranks * (row["size"] + 256), f"the wire of {row}")
            bandwidth = row["size"] / row["median_us"] / 1e3
            harness.close(row["algbw"], bandwidth, 1e-6, "algbw")
            harness.close(row["busbw"], bandwidth * 2 * (ranks - 1) / ranks, 1e-6, "busbw")


def case_what_has_no_room_for_shared_memory_is_left_out():
    wrapper, env = little_memory(1024)
    size = ("-b", "1M", "-e", "1M")
    for format in ("table", "json"):
        flags = [*size, *QUICK, "--strategies", "shm,hier,ring", "--format", format]
        result = harness.Started(flags, 2, env, wrapper=wrapper).finish()
        same((result.code, result.errors), (0, []), f"exit code and errors of\n{result}\n")
        notes = result.out if format == "table" else result.err
        for name in ("shm", "hier"):
            told = rf"skipped {name} with compressor none: .*no room for shared memory"
            same(len(re.findall(told, notes)), 1, f"notes about {name} in\n{result}\n")
    # Where nothing else is left, that is why it fails.
    result = harness.Started([*size, *QUICK, "--strategies", "shm"], 2, env,
                             wrapper=wrapper).finish()
    same((result.code, len(result.errors)), (69, 1), f"exit code and errors of\n{result}\n")
    check("no strategy of 'shm' can run here" in result.errors[0], f"{result}")


def case_with_little_shared_memory_strategies_are_predicted():
    """Two ranks' messages of 16 MB do not go in, all that the strategies share does. How near
    predictions are depends on what else runs; test_cost_probe looks at what they are made of.
    """
    wrapper, env = little_memory(40 << 10)
    flags = ["-b", "64K", "-e", "16M", "-f", 256, *QUICK, "--strategies", "shm,hier"]
    result = harness.Started([*flags, "--format", "json"], 2, env, wrapper=wrapper).finish()
    same((result.code, result.errors), (0, []), f"exit code and errors of\n{result}\n")
    for row in rows_of_json(result.out):
        check(row["predicted_us"] is None or row["predicted_us"] > 0, f"the prediction of {row}")


def case_links_are_reported_whatever_the_sizes():
    for size in (4, "4K"):
        text = train_well("-b", size, "-e", size, *QUICK, "--strategies", "ring", ranks=3).out
        line = re.search(r"^# messages on a node: .*", text, re.M)[0]
        found = re.search(r"alpha (\S+) us, beta (\S+) ns/B \((\S+) GB/s", line)
        if "no line of alpha and beta fits" not in line:  # which noise may cause
            alpha, beta, rate = (float(value) for value in found.groups())
            check(0 < alpha < math.inf and 0 < beta < math.inf and rate < math.inf, line)


def case_strategies_are_chosen_by_name():
    ways = ["zero1:over=ring", "ring", "auto"]
    rows = bench("-b", "1K", "-e", "1K", *QUICK, "--strategies", ",".join(ways))
    same([row["strategy"] for row in rows], ways, "strategies")
    same([row["wrong"] for row in rows], [0, 0, 0], "wrong")
    check(rows[0]["predicted_us"] is None and rows[1]["predicted_us"] > 0, f"predictions: {rows}")
    rows = bench("-b", "1K", "-e", "1K", *QUICK, "--strategies", "ring", "-c", 0)
    same([rows[0][key] for key in ("wrong", "max_ulp", "rel_l2")], [None] * 3, "unchecked")


def case_the_bound_is_a_column_of_its_own():
    rows = bench("-b", "64K", "-e", "256K", *QUICK, "--bound", "--strategies", "ring,mpi")
    check(all(row["bound_us"] > 0 for row in rows), f"bounds of {rows}")
    same(list(rows[0]), [*KEYS, "bound_us"], "keys")
    same(rows[0]["bound_us"], rows[1]["bound_us"], "the bound of one size")
    same(list(bench("-b", 64, "-e", 64, *QUICK)[0]), KEYS, "keys without --bound")


def case_a_compressor_that_a_sharing_does_not_take_is_left_out():
    for where in (["-b", "1K", "-e", "1K"], ["--buckets", small_cfg()]):
        result = train_well(*where, *QUICK, "--strategies", "ps,zero1:over=ring", "--compressors",
                            "none,int8", ranks=2)
        rows, comments = rows_of_table(result.out)
        ways = {(row["strategy"], row["compressor"]) for row in rows}
        both = "zero1:over=ring"
        same(ways, {("ps", "none"), (both, "none"), (both, "int8")}, f"ways in\n{result}\n")
        told = [line for line in comments if "skipped ps with compressor int8: " in line]
        check(len(told) == 1 and "gradients as they are" in told[0], f"not reported:\n{result}")


def case_between_hosts_the_wire_bounds():
    size = 1 << 20
    flags = ["-b", size, "-e", size, *QUICK, "--strategies", "ring,direct", "--bound", "--format"]
    # The first is so slow that what a busy machine adds to a message is little beside its time.
    for format, mbit in (("json", 50), ("table", 200)):
        command = [harness.ROOT / "launch/mpirun", "-np", 2, harness.build / "ddp_bench", *flags]
        result = netlab.lab(2, *command, format, flags=("--rate", f"{mbit}mbit"))
        notes = result.err if format == "json" else result.out
        told = r"verdict: \S+ is fastest at 1M.*, (at \d+ % of|as fast as|beats) the wire"
        check(re.search(told, notes), f"{result}")
        if format == "json":
            # Two hosts send and get a whole size each; the first 128 KB go as fast as they can.
            wire_us = size / (mbit * netlab.MBIT) * 1e6
            bounds = {row["bound_us"] / wire_us for row in rows_of_json(result.out)}
            check(len(bounds) == 1 and 0.8 < min(bounds) < 3, f"bounds: {bounds} of the wire")


def case_alone_it_runs_too():
    rows = bench("-b", "1K", "-e", "4K", *QUICK, ranks=0)
    check(all(row["busbw"] == 0 and row["wrong"] == 0 for row in rows), f"rows of one rank: {rows}")
    check("run under mpirun" in train_well("-b", 64, "-e", 64, *QUICK).out, "no advice")


def check_buckets(rows, strategies, parameters):
    """Rows of each strategy: its buckets, the tail, their sum."""
    at = 0
    for strategy in strategies:
        end = next(i for i in range(at, len(rows)) if rows[i]["bucket"] == "sum")
        parts, total = rows[at:end], rows[end]
        names = [*map(str, range(len(parts) - 1)), "tail"]
        same([row["bucket"] for row in parts], names, f"buckets of {strategy}")
        same({row["strategy"] for row in rows[at : end + 1]}, {strategy}, "strategy")
        for key in ("size", "count", "wrong"):
            same(total[key], sum(row[key] for row in parts), f"the sum of {key}")
        sent = [row["wire_bytes"] for row in parts]
        check(max(sent) <= total["wire_bytes"] <= sum(sent), f"the busiest rank of {sent}")
        check(total["count"] - parts[-1]["count"] >= parameters, f"elements of {total}")
        check(all(row["exposed_us"] is None for row in parts), "a bucket has exposed time")
        check(math.isfinite(total["exposed_us"]), "no exposed time")
        check(total["step_us"] > total["exposed_us"], f"a step of {total['step_us']} us")
        at = end + 1
    same(at, len(rows), "rows")


def case_buckets_are_those_of_the_model():
    cfg = small_cfg()
    flags = ["--buckets", cfg, *QUICK, "--strategies", "ring,shm,zero1"]
    sets = ["--set", "comm.bucket_mb=0.004", "--set", "comm.first_bucket_mb=0.004"]
    for ranks in (2, 3):
        rows = bench(*flags, *sets, ranks=ranks)
        # conv 8x1x3x3 + 8, dense 128x16 + 16, dense 16x10 + 10
        check_buckets(rows, ["ring", "shm", "zero1"], 80 + 2064 + 170)
        check(len(rows) > 3 * 4, f"{len(rows)} rows: the buckets are not cut")
        same(list(rows[0]), ["bucket", *KEYS, "step_us", "exposed_us"], "keys")
        same([row["wrong"] for row in rows], [0] * len(rows), "wrong")
    text = train_well(*flags, *sets, ranks=2).out
    check(re.search("makes a step (least|no) longer", text.splitlines()[-1]),
          f"no verdict:\n{text}")
    check(len(re.findall(r"ms without sharing", text)) == 3, f"no steps:\n{text}")
    check(not (harness.scratch / "runs").exists(), "made runs/")


def case_the_wire_of_a_model_is_that_of_its_training():
    """Which rank sends most may differ from bucket to bucket."""
    cfg = small_cfg()
    for strategy, compressor, ranks in (("shm", "randomk", 3), ("ring", "fp16", 3),
                                        ("shm", "powersgd:rank=2", 2)):
        rows = bench("--buckets", cfg, *QUICK, "--strategies", strategy, "--compressors",
                     compressor, ranks=ranks)
        harness.program = "ddp_train"
        out = harness.scratch / f"out-{compressor}"
        train_well(cfg, "--steps", 4, "--out", out, "--set", f"comm.strategy={strategy}", "--set",
                   f"comm.compressor={compressor}", ranks=ranks)
        harness.program = "ddp_bench"
        same(rows[-1]["wire_bytes"], harness.run_json(out)["wire_bytes_per_step"],
             f"bytes of {compressor} over {strategy}")


def case_what_mpi_sends_is_estimated_in_whole_elements():
    row = bench("-b", 4, "-e", 4, *QUICK, "--strategies", "mpi", ranks=3)[0]
    same(row["wire_bytes"], 8, "4/3 of an element in bytes")


def case_a_shipped_model_on_generated_data():
    rows = bench("--buckets", harness.ROOT / "models/mlp.cfg", "--set", "data.source=synthetic",
                 "--set", "data.samples=64", "--set", "data.test_samples=8", "--set",
                 "train.global_batch=16", *QUICK, "--strategies", "shm")
    check_buckets(rows, ["shm"], 1863690)


def case_local_steps_and_lanes_are_those_of_the_model():
    cfg = small_cfg()
    flags = ["--buckets", cfg, *QUICK, "--train", 4, "--set"]
    rows = bench(*flags, "train.local_steps=3", "--strategies", "ring")
    check_buckets(rows, ["ring"], 80 + 2064 + 170)
    same(rows[-1]["wrong"], 0, "wrong")
    result = train(*flags, "train.lanes=2", "--strategies", "shm,ring", ranks=2)
    same(result.code, 0, f"the exit code of {result}\n")
    same(result.errors, [], f"errors in\n{result}\n")
    check(re.search("# skipped ring with compressor none: .*order", result.out),
          f"ring keeps no order:\n{result}")
    check(re.search("a step (least|no) longer", result.out), f"no verdict:\n{result}")


def case_training_from_one_seed_ends_alike():
    cfg = small_cfg()
    rows = bench("--buckets", cfg, *QUICK, "--strategies", "ring,shm", "--train", 8)
    ends = [row for row in rows if row["bucket"] == "sum"]
    same(len(ends), 2, "trainings")
    check(all(0 < row["loss"] < 5 and 0 <= row["accuracy"] <= 1 for row in ends), f"ends: {ends}")
    harness.close(ends[0]["loss"], ends[1]["loss"], 1e-4, "the loss of shm")
    harness.program = "ddp_train"
    out = harness.scratch / "out"
    train_well(cfg, "--steps", 8, "--out", out, "--set", "comm.strategy=shm", ranks=2)
    harness.program = "ddp_bench"
    evaluation = harness.metrics(out, "eval")[-1]
    harness.close(ends[1]["loss"], evaluation["test_loss"], 1e-5, "the loss of ddp_train")
    harness.close(ends[1]["accuracy"], evaluation["test_accuracy"], 1e-5, "its accuracy")


def case_a_training_that_diverges_is_said_to():
    flags = ["--buckets", small_cfg(), *QUICK, "--strategies", "ring", "--train", 20, "--set",
             "optimizer.lr=1e6", "--set", "optimizer.weight_decay=1"]
    ends = [row for row in bench(*flags) if row["bucket"] == "sum"]
    same([row["loss"] for row in ends], [None], "losses")
    last = train_well(*flags, ranks=2).out.splitlines()[-1]
    check("training without compressor diverged over ring" in last, last)
    check("points of accuracy" not in last, last)


def refused(code, words, *arguments, ranks=2):
    result = train(*arguments, ranks=ranks)
    same(result.code, code, f"the exit code of {result}\n")
    same(len(result.errors), 1, f"lines that say so\n{result}\n")
    for word in words:
        check(word in result.errors[0], f"no {word!r} in\n{result}")
    same(result.out.count("{"), 0, "rows")


def refused_all(ranks, rows):
    side_by_side(lambda *row: refused(*row, ranks=ranks), rows)


def case_ranks_that_disagree_are_reported():
    """Of mpirun's two commands the second differs."""
    ring = ["--strategies", "ring"]
    for first, second, text in (
        (["-e", "64K"], ["-e", "128K"], "options '131072 .*', rank 0 .* has '65536 "),
        ([], ["--strategies", "direct"], "--strategies 'direct', rank 0 .* has 'ring'"),
        (["--compressors", "fp16"], ["--compressors", "bf16"],
         "--compressors 'bf16', rank 0 .* 'fp16'"),
        ([], ["--buckets", "other.cfg"], "--buckets 'other.cfg', rank 0 .* ''"),
    ):
        both = [*ring, *first, ":", "-np", 1, harness.build / harness.program, *ring, *second]
        result = train(*both, ranks=1)
        same(result.code, 70, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check(re.search(rf"rank 1 \(\S+\) has {text}", result.errors[0]), f"{result}")
        same(result.err.strip(), result.errors[0], "all of stderr")


def case_only_steps_in_which_all_ranks_train_are_compared():
    cfg = small_cfg()
    served = harness.scratch / "served.cfg"
    served.write_text("comm: {servers: 1}\n" + cfg.read_text())
    set_servers, set_async = ["--set", "comm.servers=1"], ["--set", "train.mode=async"]
    ring = [*QUICK, "--strategies", "ring"]
    for ranks in (2, 3):
        refused_all(ranks, [
            (78, ["--set comm.servers=1", "ddp_train"], "--buckets", cfg, *set_servers, *QUICK,
             "--strategies", "ps:over=direct"),
            (78, ["--set comm.servers=1", "ddp_train"], "--buckets", cfg, *set_servers, *ring),
            (78, ["served.cfg:1", "comm.servers"], "--buckets", served, *ring),
            (78, ["train.mode", "async"], "--buckets", served, *set_async, *ring),
            (78, ["train.mode", "async"], "--buckets", cfg, *set_async, *ring)])


def case_a_way_that_the_model_does_not_allow_is_left_out():
    cfg = small_cfg()
    local, lanes = ["--set", "train.local_steps=4"], ["--set", "train.lanes=4"]
    twice = "topk:momentum=0.9"
    for flags, measured, left_out in (
        ([*local, "--strategies", "zero1:over=ring,ring"], {("ring", "none")},
         {("zero1:over=ring", "none"): "train.local_steps"}),
        ([*local, "--strategies", "ring", "--compressors", "none,topk"], {("ring", "none")},
         {("ring", "topk"): "train.local_steps"}),
        ([*lanes, "--strategies", "shm", "--compressors", "none,topk,fp16"], {("shm", "none")},
         {("shm", "topk"): "train.lanes", ("shm", "fp16"): "train.lanes"}),
        (["--train", 2, "--strategies", "ring", "--compressors", twice], {("ring", "none")},
         {("ring", twice): "optimizer.momentum"}),
    ):
        result = train_well("--buckets", cfg, *QUICK, *flags, ranks=2)
        rows, comments = rows_of_table(result.out)
        same({(row["strategy"], row["compressor"]) for row in rows}, measured, f"ways in\n{result}")
        told = [line for line in comments if line.startswith("# skipped ")]
        same(len(told), len(left_out), f"lines about them in\n{result}\n")
        for (strategy, compressor), why in left_out.items():
            start = f"# skipped {strategy} with compressor {compressor}: "
            check(any(line.startswith(start) and why in line for line in told), f"{result}")
    refused(78, ["'zero1:over=ring'", "train.local_steps", "no rank updates all weights"],
            "--buckets", cfg, *QUICK, *local, "--strategies", "zero1:over=ring")


def case_a_size_without_room_leaves_what_was_measured():
    for format, rows_of in (("json", rows_of_json), ("csv", rows_of_csv)):
        result = train("-b", "1K", "-e", "1T", "-f", 32768, "-n", 3, "--strategies", "shm",
                       "--format", format, ranks=2)
        same((result.code, len(result.errors)), (69, 1), f"exit code and errors of\n{result}\n")
        check("1048576 MB has no room" in result.errors[0], f"{result}")
        same([row["size"] for row in rows_of(result.out)], [1024, 1 << 25], "sizes")


def case_where_nothing_can_run_the_others_are_named():
    result = train("--strategies", "nccl", ranks=2)
    same((result.code, len(result.errors)), (69, 1), f"exit code and errors of\n{result}\n")
    why = re.search(r"# skipped nccl: (.*)", result.out)[1]
    can = re.search(rf"\(nccl: {re.escape(why)}\); these can: ([a-z, ]+): ", result.errors[0])
    check(can, f"{result}")
    others = usable(train_well("-b", 64, "-e", 64, *QUICK, ranks=2).out)
    same(can[1].split(", "), others, f"those that can, in\n{result}\n")


def case_what_cannot_run_is_reported_once():
    way = "hier:inner=shm,outer=shm"
    flags = ["-b", "1K", "-e", "64K", *QUICK, "--strategies"]
    command = [harness.ROOT / "launch/mpirun", "-np", 4, harness.build / "ddp_bench", *flags]
    result = netlab.lab(2, *command, f"{way},ring", "--format", "csv")
    same(result.err.count(f"skipped {way} with compressor none: "), 1, f"notes in\n{result}\n")
    same(len(rows_of_csv(result.out)), 4, "rows")
    result = netlab.lab(2, *command, way, code=69)
    same(result.out.count("skipped"), 1, f"notes in\n{result}\n")
    same(len(result.errors), 1, f"errors in\n{result}\n")
    check(f"'{way}'" in result.errors[0] and "these can: " in result.errors[0], f"{result}")


def case_auto_says_what_it_took():
    for format in ("table", "json"):
        result = train_well("--buckets", small_cfg(), *QUICK, "--strategies", "auto,ring",
                            "--format", format, ranks=2)
        told = r"^# (\S+), compressor none: sharing by (\S+) \((.+)\)$"
        found = re.findall(told, result.out if format == "table" else result.err, re.M)
        same(len(found), 1, f"notes in\n{result}\n")
        same(found[0][0], "auto", "whose choice it is")
    harness.program = "ddp_train"
    banner = train_well(small_cfg(), "--dry-run", ranks=2)
    harness.program = "ddp_bench"
    check(f"sharing by {found[0][1]} ({found[0][2]})" in banner.out + banner.err, f"{banner}")


def case_bad_input_is_one_line_and_its_code():
    cfg = small_cfg()
    broken = harness.scratch / "broken.cfg"
    broken.write_text(cfg.read_text().replace("units", "unitz", 1))
    rows = [
        (64, ["--strategiez", "--strategies"], "--strategiez", "ring"),
        (64, ["-b", "64Q"], "-b", "64Q"),
        (64, ["--buckets"], "--train", 5),
        (64, ["empty"], "--strategies", "ring,,shm"),
        (66, ["nosuch.cfg"], "--buckets", "nosuch.cfg"),
        (69, ["none"], "--strategies", "none"),
        (78, ["rign", "ring"], "--strategies", "shm,rign"),
        (78, ["speed"], "--strategies", "ring:speed=3"),
        (78, ["topp"], "--compressors", "topp"),
        (78, ["unitz", "units"], "--buckets", broken),
        (78, ["train.steps"], "--buckets", cfg, "--set", "train.steps=x"),
    ]
    for ranks in (0, 3):
        refused_all(ranks, rows)


if __name__ == "__main__":
    harness.main(globals())
