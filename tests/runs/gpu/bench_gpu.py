"""What bench_gpu prints, which tests/run_gpu makes its report of: here of GPUs that are simulated,
so that figures mean nothing, but all are there. Without device cuda it is skipped.
"""
import json
import subprocess

import harness
from gpus import gpus
from harness import check, same


def case_every_figure_of_the_report_is_printed():
    env = {**harness.os.environ, **gpus(1)}
    done = subprocess.run([harness.build / "bench_gpu", "small"], capture_output=True, text=True,
                          env=env, timeout=harness.PATIENCE, check=False)
    same(done.returncode, 0, f"exit code\n{done.stdout}{done.stderr}")
    rows = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        rows.setdefault(row["kind"], []).append(row)
    same(sorted(rows), ["choice", "conv", "dense", "limits", "pass", "transfer"], "kinds")
    convs = {(tuple(row["in"]), tuple(row["out"]), row["kernel"], row["stride"]): [] for row in
             rows["conv"]}
    for row in rows["conv"]:
        convs[tuple(row["in"]), tuple(row["out"]), row["kernel"], row["stride"]].append(row["op"])
    first, second = convs.values()  # of a model's first one there is no gradient of data
    same((first, second), (["forward", "backward weights"],
                           ["forward", "backward data", "backward weights"]), "convolutions")
    same([(row["memory"], row["to"]) for row in rows["transfer"]],
         [(memory, to) for memory in ("pinned", "pageable") for to in ("GPU", "host")], "copies")
    check(all(row["ms"] > 0 for row in rows["choice"]), f"times of {rows['choice']}")
    for what in "convolution ", "product ":
        check(any(row["what"].startswith(what) for row in rows["choice"]), f"{rows['choice']}")
    limits, = rows["limits"]
    for word in "driver", "CUDA", "cuBLASLt", "cuDNN":
        check(word in limits["machine"], f"{word} in {limits}")
    check(limits["nccl"] > 0 and limits["copy_gbps"] > 0, f"{limits}")


if __name__ == "__main__":
    harness.main(globals())
