"""data.cache: wherever samples are kept, and whoever decodes them when, weights have the same
bits; and what is bad or gone is named when it is needed.
"""
import re
import signal

import harness
from harness import check, fashion, run_json, same, small_cfg, train, train_well, weights
from own_pictures import many, model, pictures, png
from records import ddp_data

AUGMENT = "data.augment=[random_crop: {padding: 2}, flip: {}, mixup: {}]"


def trained(cfg, name, *sets, ranks=1, flags=()):
    out = harness.scratch / name
    pairs = [word for text in (AUGMENT, *sets) for word in ("--set", text)]
    result = train_well(cfg, *pairs, *flags, "--out", out, ranks=ranks)
    return out, result


def case_samples_are_the_same_wherever_they_are_kept():
    cfg = model(pictures("kept"))
    packed = harness.scratch / "packed"
    ddp_data("pack", harness.scratch / "kept", packed, "--zstd", 3, "--source", "folder")
    records = ("data.source=records", f"data.dir={packed}")
    first, told = trained(cfg, "decoded", "data.cache=decoded")
    for number, (ranks, *sets) in enumerate((
            (1, "data.cache=raw"), (2, "data.cache=none", "data.workers=3"), (1, *records),
            (2, "data.cache=raw", *records), (1, "data.cache=none", "data.workers=2", *records),
            (4, "data.memory_mb=1", "data.workers=1", *records))):
        out, _ = trained(cfg, f"other-{number}", *sets, ranks=ranks)
        check(weights(out) == weights(first), f"{ranks} ranks, {sets}: other bits")
        same(run_json(out)["final"]["test_loss"], run_json(first)["final"]["test_loss"],
             f"the test loss of {ranks} ranks, {sets}")


def case_windows_of_rows_are_permuted_alike_on_any_number_of_ranks():
    cfg = model(pictures("windows"))
    window = ("data.shuffle=window", "data.window=20", "data.cache=none")
    first, _ = trained(cfg, "window-1", *window)
    for ranks in (2, 4):
        out, _ = trained(cfg, f"window-{ranks}", *window, ranks=ranks)
        check(weights(out) == weights(first), f"{ranks} ranks: other bits")
    packed = harness.scratch / "windows-packed"
    ddp_data("pack", harness.scratch / "windows", packed, "--source", "folder", "--zstd", 1)
    for number, (ranks, *sets) in enumerate(((1, "data.workers=3"), (2, "data.cache=raw"))):
        out, _ = trained(cfg, f"window-shared-{number}", *window, "data.source=records",
                         f"data.dir={packed}", *sets, ranks=ranks)
        check(weights(out) == weights(first), f"{ranks} ranks, {sets}: other bits")
    other, _ = trained(cfg, "window-whole", "data.shuffle=true", "data.cache=none")
    check(weights(other) != weights(first), "a window changes nothing")


def case_a_run_goes_on_in_the_middle_of_an_epoch_with_another_cache():
    cfg = model(pictures("on"))
    whole, _ = trained(cfg, "whole", "data.cache=decoded")
    out, _ = trained(cfg, "parts", "data.cache=none", flags=("--steps", 6))
    _, told = trained(cfg, "parts", "data.cache=raw", ranks=2, flags=("--resume",))
    check("training labels" not in told.out + told.err, f"other samples:\n{told}")
    check(weights(out) == weights(whole), "other bits after a resume")


def case_a_random_part_is_taken_of_the_picture_as_it_is():
    folder = pictures("parts")
    cfg, packed = model(folder), harness.scratch / "packed"
    ddp_data("pack", folder, packed, "--source", "folder")
    parts = "data.augment=[random_resized_crop: {scale: 0.2}, flip: {}]"
    records = ("data.source=records", f"data.dir={packed}")
    first, _ = trained(cfg, "auto", parts)
    for number, (ranks, *sets) in enumerate((
            (2, "data.cache=none"), (1, "data.cache=raw", "data.workers=2", *records))):
        out, _ = trained(cfg, f"other-{number}", parts, *sets, ranks=ranks)
        check(weights(out) == weights(first), f"{ranks} ranks, {sets}: other bits")
    whole, _ = trained(cfg, "whole", "data.augment=[flip: {}]")
    check(weights(whole) != weights(first), "no part is taken")
    result = train(cfg, "--set", parts, "--set", "data.cache=decoded", "--out",
                   harness.scratch / "none", ranks=2)
    same((result.code, len(result.errors)), (78, 1), f"exit code and errors of\n{result}\n")
    check("data.cache: data.augment takes parts of pictures as they are" in result.errors[0],
          f"{result}")


def case_check_predicts_what_is_kept():
    cfg = model(pictures("checked"))
    found = {}
    for cache in ("decoded", "raw", "none"):
        told = train_well(cfg, "--check", "--set", f"data.cache={cache}").out
        found[cache] = float(re.search(r"and the data set, ([\d.]+) MB, once", told)[1])
    files = sum(p.stat().st_size for p in (harness.scratch / "checked").rglob("*.png")) / 2**20
    same(found, {"decoded": round(64 * (12 * 16 * 3 + 4) / 2**20, 1), "raw": round(files, 1),
                 "none": 0.0}, "MB of the data set")


def case_queues_take_the_memory_that_check_predicts():
    folder = pictures("queued")
    cfg = harness.scratch / "queued.cfg"
    cfg.write_text(f"""\
data: {{source: folder, dir: {folder}, cache: none, workers: 2}}
train: {{global_batch: 4, steps: 8}}
model: {{input: [224, 224, 3], layers: [global_avgpool: {{}}, dense: {{units: 2}}]}}
""")
    predicted, measured = {}, {}
    for rows in (4, 40):
        batch = ("--set", f"train.global_batch={rows}", "--set", "train.eval_every=0")
        told = train_well(cfg, "--check", *batch).out
        predicted[rows] = float(re.search(r"^ 2 ranks +(?:[\d.]+ +){6}([\d.]+) ", told, re.M)[1])
        train_well(cfg, *batch, "--out", harness.scratch / f"queued-{rows}", ranks=2)
        found = run_json(harness.scratch / f"queued-{rows}")["memory"]["input"]
        measured[rows] = found / 2**20
    more = predicted[40] - predicted[4]
    check(8 < more < 9, f"3 batches of 18 more rows of 147 KB, 6 test rows: {predicted}")
    check(abs(measured[40] - measured[4] - more) < 0.3 and measured[40] < predicted[40],
          f"predicted {predicted}, measured {measured}")


LIBRARIES = 24  # MB of a rank that --check takes for them


def case_what_threads_decode_in_is_predicted():
    folder = pictures("wide", (("train", 8), ("test", 4)))
    wide = png(700, 500, lambda x, y: (x % 256, y % 256, x * y % 256))
    for path in folder.rglob("*.png"):
        path.write_bytes(wide)
    packed = harness.scratch / "wide-packed"
    ddp_data("pack", folder, packed, "--source", "folder", "--zstd", 1)
    records = ("--set", "data.source=records", "--set", f"data.dir={packed}")
    for sets in ((), records, (*records, "--set", "data.shuffle=window")):
        sets = (*sets, "--set", "data.cache=none", "--set", "data.workers=2")
        told = train_well(model(folder), "--check", *sets).out
        predicted = float(re.search(r"^ 1 rank +(?:[\d.]+ +){6}([\d.]+) ", told, re.M)[1])
        out = harness.scratch / f"wide-{len(sets)}"
        train_well(model(folder), *sets, "--steps", 4, "--out", out, ranks=1)
        measured = run_json(out)["memory"]["input"] / 2**20
        check(3 < measured <= predicted - LIBRARIES + 0.1 and
              predicted - LIBRARIES < 1.2 * measured,
              f"{sets}: {predicted} MB predicted, {measured} MB measured")


def case_the_input_alone_is_timed_by_stage():
    cfg = model(pictures("alone"))
    for cache, stages in (("none", ["read", "decode", "augment"]), ("raw", ["decode", "augment"]),
                          ("decoded", ["augment"]), ("batch", [])):
        told = train_well(cfg, "--data-only", "--set", AUGMENT, "--set", f"data.cache={cache}",
                          "--set", "report.price_per_hour=2", ranks=2).out
        check("input alone: 12 batches, " in told, told)
        same(" samples per dollar" in told, cache != "batch", f"a price of data.cache {cache}")
        found = [line.split()[0] for line in told.split("\nstage ")[-1].splitlines()[1:]
                 if " % " in line] if "\nstage " in told else []
        same(found, stages, f"stages of data.cache {cache} in\n{told}\n")
        check(not stages or re.search(r"what limits: (read|decode|augment) ", told), told)


def case_what_a_source_cannot_do_is_refused():
    fashion()
    for cfg, sets, text in (
            (small_cfg(), "data.cache=none", "data.cache: source idx is read from front to back"),
            (small_cfg(), "data.workers=none", "data.workers: expected auto, or a number"),
            (model(pictures("large")), "data.workers=0", "data.workers: expected auto, or a")):
        result = train(cfg, "--set", sets, "--out", harness.scratch / "none", ranks=2)
        same((result.code, len(result.errors)), (78, 1), f"exit code and errors of\n{result}\n")
        check(text in result.errors[0], f"{result}")


def case_a_bad_picture_ends_all_ranks_when_it_is_needed():
    folder, paths = many("bad", 60)
    paths[7].write_bytes(b"no picture")
    for ranks, cache in ((1, "none"), (2, "raw"), (2, "none")):
        result = train(model(folder), "--set", f"data.cache={cache}", "--out",
                       harness.scratch / f"{cache}-{ranks}", ranks=ranks)
        same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
        check(f"{paths[7]}: is no PNG and no JPEG" in result.errors[0], f"{result}")


def case_test_pictures_that_are_bad_on_every_rank_are_one_line():
    folder = pictures("bad-tests")
    paths = sorted((folder / "test").rglob("*.png"))
    for path in paths:
        path.write_bytes(b"no picture")
    for ranks, cache, *more in ((0, "none"), (2, "none"), (2, "raw", "train.lanes=0"), (4, "none"),
                                (3, "none", "train.eval_rank=true")):
        sets = [word for text in (f"data.cache={cache}", *more) for word in ("--set", text)]
        result = train(model(folder), *sets, "--out", harness.scratch / f"tests-{ranks}-{cache}",
                       ranks=ranks)
        same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
        check(f"{paths[0]}: is no PNG and no JPEG" in result.errors[0], f"{result}")


def case_a_bad_picture_is_replaced_alike_wherever_samples_are_kept():
    folder, paths = many("skipped", 1000)
    paths[700].write_bytes(b"no picture")
    cfg = model(folder)
    skip = ("data.on_bad_sample=skip", "train.epochs=1")
    first, _ = trained(cfg, "decoded", *skip)
    for ranks, cache in ((1, "none"), (2, "raw")):
        out, told = trained(cfg, f"{cache}-{ranks}", f"data.cache={cache}", *skip, ranks=ranks)
        check(weights(out) == weights(first), f"{ranks} ranks, {cache}: other bits")
        report = run_json(out)
        same((report["skipped_samples"], report["steps"]), (1, 84), "bad samples, and steps")
        check(1 <= told.err.count(f"{paths[700]}: is no PNG") <= ranks, f"warnings of\n{told}\n")
    paths[3].write_bytes(b"")
    result = train(cfg, *(word for text in ("data.cache=none", *skip) for word in ("--set", text)),
                   "--out", harness.scratch / "more", ranks=2)
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
    check("2 of 1000 samples are bad so far in this epoch: data.on_bad_sample" in result.errors[0],
          f"{result}")


def case_a_folder_that_vanishes_in_the_middle_of_an_epoch_ends_all_ranks():
    folder = pictures("vanishing")
    started, _ = harness.begin(model(folder), "--set", "train.eval_every=0", "--set",
                               "data.cache=none")
    folder.rename(harness.scratch / "elsewhere")
    result = started.finish()
    same((result.code, len(result.errors)), (66, 1), f"exit code and errors of\n{result}\n")
    check(f"{folder}/train/" in result.errors[0], f"{result}")


RECORDS = """\
data: {{source: records, dir: "{dir}", cache: none}}
train: {{global_batch: 50, eval_every: 0}}
model: {{input: [32, 32, 1], layers: [flatten: {{}}, dense: {{units: 10}}]}}
"""


def case_blocks_that_are_kept_are_no_leak():
    source = harness.small_data(harness.scratch / "rows", 8000, 50, 32)
    packed, cfg = harness.scratch / "packed", harness.scratch / "kept.cfg"
    ddp_data("pack", source, packed)
    cfg.write_text(RECORDS.format(dir=packed))
    result = train_well(cfg, "--set", "data.shuffle=window", "--set", "train.global_batch=8",
                        "--steps", 150, "--out", harness.scratch / "out", ranks=2)
    check(run_json(harness.scratch / "out")["memory"]["input"] > 7 * 2**20, "too little is kept")
    check("memory grows" not in result.err, f"{result}")


def case_a_shard_that_is_cut_off_or_overwritten_while_it_is_read_ends_all_ranks():
    source = harness.small_data(harness.scratch / "rows", 1000, 50, 32)
    cfg = harness.scratch / "cut.cfg"
    for number, (damage, flags, words) in enumerate((
            ("cut", (), r"{shard}: block \d+ \(samples \d+ to \d+ of the training set, "
             r"counted from 0\): the file ends before byte \d+, it was longer when the run began"),
            ("zeros", (), r"{shard}: block \d+ \(samples \d+ to \d+ of the training set, "
             r"counted from 0\): is damaged"),
            ("cut", ("--set", "data.on_bad_sample=skip"), r"\d+ of 1000 samples are bad so far"))):
        packed = harness.scratch / f"cut-{number}"
        ddp_data("pack", source, packed)
        cfg.write_text(RECORDS.format(dir=packed))
        started, _ = harness.begin(cfg, *flags, name=f"cut-out-{number}")
        shard = packed / "shard-00000.rec"
        half = shard.stat().st_size // 2
        with shard.open("r+b") as file:
            file.seek(half)
            if damage == "cut":
                file.truncate()
            else:
                file.write(bytes(half - 4000))
        result = started.finish()
        same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
        words = words.format(shard=re.escape(str(shard)))
        check(re.search(words, result.errors[0]), f"no {words!r} in\n{result}")
        check(not flags or f"{shard}: block " in result.err, f"no block is named:\n{result}")


def case_a_shard_that_is_damaged_for_all_is_one_line_at_ranks_own_pace():
    source = harness.small_data(harness.scratch / "rows", 1000, 50, 32)
    packed, cfg = harness.scratch / "packed", harness.scratch / "async.cfg"
    ddp_data("pack", source, packed)
    cfg.write_text(RECORDS.format(dir=packed))
    started, _ = harness.begin(cfg, "--set", "train.mode=async", "--set", "comm.servers=1", "--set",
                               "train.staleness=2", ranks=4)
    shard = packed / "shard-00000.rec"
    with shard.open("r+b") as file:
        file.write(bytes(shard.stat().st_size))
    result = started.finish()
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
    check(f"{shard}: block " in result.errors[0], f"{result}")


def case_a_copy_that_is_cut_off_or_overwritten_while_it_is_read_is_made_again():
    source = harness.small_data(harness.scratch / "rows", 1000, 50, 32)
    packed, copies = harness.scratch / "packed", harness.scratch / "copies"
    ddp_data("pack", source, packed, "--shard-mb", 1)
    cfg = harness.scratch / "copied.cfg"
    cfg.write_text(RECORDS.format(dir=packed))
    started, out = harness.begin(cfg, "--set", f"data.local_cache={copies}")
    for number, damage in enumerate(("cut", "zeros"), 1):
        for path in copies.glob("*.rec"):
            with path.open("r+b") as file:
                if damage == "cut":
                    file.truncate(4000)
                else:
                    file.write(bytes(path.stat().st_size))
        started.wait_for("a new copy", lambda: started.complained().count("it is made again")
                         >= number)
        done = harness.steps_done(out)
        started.wait_for("steps with it", lambda: harness.steps_done(out) > done + 40)
    started.signal(signal.SIGUSR1, 0)
    result = started.finish()
    same((result.code, result.errors), (75, []), f"exit code and errors of\n{result}\n")
    check(len(result.warnings) >= 2 and all("its copy in data.local_cache was damaged" in line
                                            for line in result.warnings), f"{result}")


def case_copies_that_are_made_again_and_again_are_told():
    source = harness.small_data(harness.scratch / "rows", 1000, 50, 32)  # 1.03 MB
    packed, copies = harness.scratch / "packed", harness.scratch / "copies"
    ddp_data("pack", source, packed, "--shard-mb", 1)
    cfg = harness.scratch / "copied.cfg"
    cfg.write_text(RECORDS.format(dir=packed))
    for size, *more, told in ((1, True), (2, False), (1, "data.shuffle=full", True),
                              (1, "data.shuffle=window", False), (1, "data.shuffle=false", False),
                              (1, "data.cache=raw", False), (1, "data.cache=decoded", False)):
        sets = [word for text in (f"data.local_cache={copies}", f"data.local_cache_mb={size}",
                                  *more) for word in ("--set", text)]
        result = train_well(cfg, *sets, "--dry-run", ranks=2 if size == 2 else 0)
        same(len(result.warnings), told, f"warnings of {size} MB, {more}:\n{result}\n")
        check(not told or "data.local_cache_mb: 1 MB do not hold" in result.err
              and "set at least 2, or data.shuffle=window" in result.err, f"{result}")


if __name__ == "__main__":
    harness.main(globals())
