"""sweep.csv: a line for each point."""
import csv
import io

COLUMNS = ("mode", "ranks", "strategy", "compressor", "batch", "global_batch", "set", "repeat",
           "status", "exit_code", "error", "samples_per_second", "scaling_efficiency",
           "strong_efficiency", "exposed_share", "rank_spread", "samples_per_dollar",
           "used_strategy", "test_accuracy", "seconds_to_target", "seconds", "run")


def text_of(points):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in points:
        row = dict(point, set=" ".join(f"{key}={value}" for key, value in point["set"]))
        writer.writerow("" if row.get(name) is None else row[name] for name in COLUMNS)
    return out.getvalue()
