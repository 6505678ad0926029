#!/usr/bin/env python3
"""What a program makes of the streams that its caller gives it: closed ones and full ones."""
import harness
from harness import Started, check, same, small_cfg, train_well

MPIRUN = [str(harness.ROOT / "launch/mpirun"), "-np", "2"]


# ---- closed and full streams ----


def case_closed_streams_end_up_in_no_file():
    cfg = small_cfg()
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    for ranks, wrapper in ((0, closed), (2, [*MPIRUN, *closed])):
        like, out = (harness.scratch / f"{name}-{ranks}" for name in ("like", "out"))
        train_well(cfg, "--out", like, ranks=ranks)
        result = Started([cfg, "--out", out], wrapper=wrapper).finish()
        same((result.code, result.out, result.err), (0, "", ""), f"the end of\n{result}\n")
        same(harness.weights(out), harness.weights(like), f"the weights in {out}")
        kinds, others = ([line["type"] for line in harness.metrics(run)] for run in (out, like))
        same(kinds, others, f"the lines of metrics.jsonl in {out}")
        same(harness.run_json(out)["exit"], "finished", "how it ended")
        same((out / "config.yaml").read_text(), (like / "config.yaml").read_text(), "config.yaml")


def case_an_answer_that_cannot_be_written_is_an_error():
    cfg = small_cfg()
    full = ["sh", "-c", 'exec "$@" >/dev/full', "sh"]
    sums = ["-b", 64, "-e", 256, "-n", 1]
    for program, *flags in (
        ("ddp_train", "--help"), ("ddp_train", "--version"), ("ddp_train", "--list", "layers"),
        ("ddp_train", cfg, "--check"), ("ddp_train", cfg, "--print-config"),
        ("ddp_train", cfg, "--dry-run"), ("ddp_train", cfg, "--data-only"),
        ("ddp_bench", "--help"), ("ddp_bench", "--version"), ("ddp_bench", "--list"),
        ("ddp_bench", *sums), ("ddp_bench", *sums, "--format", "csv"),
        ("ddp_bench", *sums, "--format", "json"),
    ):
        harness.program = program
        result = Started(flags, wrapper=full).finish()
        same(result.code, 74, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"lines that say why\n{result}\n")
        check("cannot write" in result.errors[0], f"no cause in\n{result}")
    harness.program = "ddp_train"
    result = Started([cfg, "--out", harness.scratch / "out"], wrapper=full).finish()
    same((result.code, len(result.warnings)), (0, 1), f"a run that has its files\n{result}\n")
    check("not all of the output" in result.warnings[0], f"another warning in\n{result}")
    same(harness.run_json(harness.scratch / "out")["exit"], "finished", "how it ended")


if __name__ == "__main__":
    harness.main(globals())
