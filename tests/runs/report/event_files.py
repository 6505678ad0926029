"""report.tensorboard: TensorBoard itself reads the events of a run, also of one that was killed or
went on; without TensorBoard their records are checked as far as their hashes.
"""
import json
import struct
import subprocess

import harness
from harness import check, metrics, same, small_cfg, train, train_well

NAME = "events.out.tfevents.*.lockstep"
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)]
                  for tag in events.Tags()["scalars"]}))
"""


def tensorboard():
    return harness.python_with("tensorboard", "tensorboard", "setuptools<81")


def scalars(python, out):
    done = subprocess.run([python, "-c", READ, out], capture_output=True, text=True, check=False,
                          timeout=harness.PATIENCE)
    check(done.returncode == 0, f"TensorBoard failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(python, out):
    """TensorBoard's scalars are the numbers of metrics.jsonl."""
    found = scalars(python, out)
    steps, evals = metrics(out, "step"), metrics(out, "eval")
    for tag, lines, key in (("train/loss", steps, "loss"), ("train/learning_rate", steps, "lr"),
                            ("test/loss", evals, "test_loss"),
                            ("test/accuracy", evals, "test_accuracy")):
        lines = [line for line in lines if line[key] is not None]
        same([event[0] for event in found[tag]], [line["step"] for line in lines], f"{tag}: steps")
        for (_, value, time), line in zip(found[tag], lines):
            check(abs(value - line[key]) <= 1e-6 * abs(line[key]), f"{tag}: {value}, {line}")
            check(abs(time - line["time"]) < 1e-3, f"{tag}: at {time}, {line}")
    return found


def case_tensorboard_reads_a_run_and_one_that_went_on():
    python = tensorboard()
    out = harness.scratch / "out"
    flags = ("--set", "train.epochs=2", "--set", "checkpoint.every_steps=5", "--out", out)
    train_well(small_cfg(), *flags, "--steps", 14, ranks=2)
    check("speed/scaling_efficiency" in compare(python, out), "no efficiency")
    train_well(small_cfg(), *flags, "--steps", 20, "--resume")
    found = compare(python, out)
    same([event[0] for event in found["train/loss"]], list(range(1, 21)), "the steps")
    same(len(list(out.glob(NAME))), 1, "files of events")


def case_of_a_killed_run_nothing_is_torn():
    python = tensorboard()
    out = harness.scratch / "out"
    result = train(small_cfg(), "--out", out, env={"DP_FAULT": "slow:ms=300;kill:step=4"})
    same(result.code, 137, f"the exit code of\n{result}\n")
    found = scalars(python, out)
    same(set(found), {"train/loss", "train/learning_rate", "speed/samples_per_second",
                      "speed/step_ms"}, "scalars")
    check(1 <= len(found["train/loss"]) <= 4, f"{found}")
    train_well(small_cfg(), "--out", out, "--resume")  # from nothing: it begins anew
    same([event[0] for event in scalars(python, out)["train/loss"]], list(range(1, 7)), "steps")


def crc32c(data):
    """By the polynomial of Castagnoli: RFC 3720."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def case_records_have_their_hashes():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--out", out)
    data = next(out.glob(NAME)).read_bytes()
    at = count = 0
    while at < len(data):
        length, of_length = struct.unpack_from("<QI", data, at)
        same(of_length, masked(data[at:at + 8]), "the hash of a length")
        body = data[at + 12:at + 12 + length]
        same(struct.unpack_from("<I", data, at + 12 + length)[0], masked(body), "that of a record")
        check(count > 0 or b"brain.Event:2" in body, "the first record is not the version")
        at += 16 + length
        count += 1
    same(count, 1 + 6 + 2, "records: the version, six steps, an evaluation, the end")
    same(len(data), at, "bytes")


def case_without_it_there_is_no_file():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--set", "report.tensorboard=false", "--out", out)
    same(list(out.glob("events*")), [], "files of events")
    same((out / "report.html").exists(), True, "report.html")
    other = harness.scratch / "other"
    train_well(small_cfg(), "--set", "report.html=false", "--out", other)
    same(len(list(other.glob(NAME))), 1, "files of events")
    same((other / "report.html").exists(), False, "report.html")


if __name__ == "__main__":
    harness.main(globals())
