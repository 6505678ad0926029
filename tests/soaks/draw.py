"""What a soak does, drawn from a seed: the run of a case, its attempts, and the fault of each. Case
C of seed S is the same on every machine, and does not depend on the cases before it.
"""
import dataclasses
import random

STEPS = 40
SETUPS = 32  # runs of a seed; cases share them, and each has one run without faults
LANES = 8

# Layers, and the tensors that a flip may name: name -> elements.
MODELS = {
    "conv": ("""\
    - conv2d: {filters: 8, kernel: 3, padding: 1}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dense: {units: 16}
    - relu: {}
    - dense: {units: 10}
""", {"0.weight": 72, "0.bias": 8, "4.weight": 2048, "4.bias": 16, "6.weight": 160, "6.bias": 10}),
    "mlp": ("""\
    - flatten: {}
    - dense: {units: 64}
    - relu: {}
    - dropout: {rate: 0.2}
    - dense: {units: 10}
""", {"1.weight": 4096, "1.bias": 64, "4.weight": 640, "4.bias": 10}),
    "norm": ("""\
    - conv2d: {filters: 6, kernel: 3, padding: 1, bias: false}
    - batchnorm: {}
    - relu: {}
    - avgpool: {size: 2}
    - flatten: {}
    - dense: {units: 10}
""", {"0.weight": 54, "1.weight": 6, "1.bias": 6, "1.running_mean": 6, "1.running_var": 6,
      "5.weight": 960, "5.bias": 10}),
}
OPTIMIZERS = (
    ("optimizer.lr=0.05",),
    ("optimizer.lr=0.05", "optimizer.nesterov=true", "optimizer.weight_decay=0.001"),
    ("optimizer.name=adamw", "optimizer.lr=0.002"),
    ("optimizer.lr=0.05", "optimizer.clip_norm=0.5"),
    ("optimizer.lr=0.05", "optimizer.schedule.name=cosine", "optimizer.schedule.warmup_steps=5"),
)
# Where strategies can run, and whether they keep the order of sums, which lanes need.
ON_ONE_NODE = ("zero1:over=shm", "shm", "zero1:over=direct", "direct", "rhd", "doubling", "ps",
               "auto")
ON_HOSTS = ("direct", "rhd", "doubling", "zero1:over=direct", "auto")
WITHOUT_LANES = ("ring", "tree", "mpi", "zero1:over=ring", "hier")
COMPRESSORS = ("none", "none", "none", "int8", "onebit", "topk:ratio=0.1", "powersgd:rank=4",
               "bf16")
# Those in which each rank has weights of its own, and those whose sums are messages of ours.
OWN_WEIGHTS = ("shm", "direct", "rhd", "doubling", "ring", "tree", "mpi", "zero1:over=direct",
               "zero1:over=ring")
MESSAGES = ("direct", "rhd", "doubling", "ring", "tree")
REPLICATED = ("shm", "direct", "rhd", "doubling", "ring", "tree", "mpi")


@dataclasses.dataclass(frozen=True)
class Setup:
    """A run without faults: `flags` are its --set, `hosts` 0 where all ranks are on this one."""
    model: str
    flags: tuple
    strategy: str
    compressor: str
    ranks: int
    hosts: int
    lanes: int
    every: int  # steps between checkpoints


@dataclasses.dataclass(frozen=True)
class Fault:
    """`at` is the part of what is left of the run after which it happens."""
    kind: str
    at: float
    rank: float  # the part of the ranks
    numbers: tuple  # more random numbers from 0 to 1, for what the kind needs


@dataclasses.dataclass(frozen=True)
class Attempt:
    ranks: int
    faults: tuple


@dataclasses.dataclass(frozen=True)
class Case:
    name: str  # SEED:CASE
    setup: Setup
    supervised: bool
    attempts: tuple


def draw_setup(seed, number):
    chance = random.Random(f"{seed} setup {number}")
    hosts = chance.choice((0, 0, 0, 2, 2, 3)) if number % 4 else 2
    lanes = LANES if chance.random() < 0.6 else 0
    ranks = chance.choice((2, 4, 8) if lanes else (2, 3, 4, 5, 6, 7, 8))
    ranks = max(ranks, hosts)
    if lanes and ranks not in (2, 4, 8):
        ranks = 4
    strategies = ON_HOSTS if hosts else ON_ONE_NODE
    strategy = chance.choice(strategies if lanes else
                             WITHOUT_LANES + tuple(s for s in strategies if s != "auto"))
    compressor = "none" if lanes or strategy not in MESSAGES else chance.choice(COMPRESSORS)
    precision = "fp32" if compressor != "none" else chance.choice(("fp32", "fp32", "bf16", "fp16"))
    every = chance.choice((4, 6, 10))
    settings = [f"comm.strategy={strategy}", f"comm.compressor={compressor}",
                f"train.lanes={lanes}", f"train.precision={precision}",
                f"checkpoint.every_steps={every}", f"checkpoint.keep={chance.choice((1, 2, 3))}",
                f"train.eval_every={chance.choice((0, 1))}",
                f"comm.overlap={chance.choice(('auto', 'on', 'off'))}",
                *chance.choice(OPTIMIZERS)]
    if chance.random() < 0.5:
        settings += ["comm.bucket_mb=0.008", "comm.first_bucket_mb=0.004"]
    if chance.random() < 0.2:
        settings.append("train.micro_batch=5")
    if chance.random() < 0.3 and strategy in MESSAGES:
        settings.append("comm.checksum=true")
    model = chance.choice(tuple(MODELS))
    return Setup(model, tuple(settings), strategy, compressor, ranks, hosts, lanes, every)


def kinds_of(setup):
    """What can happen to an attempt of this run, each as often as it stands here."""
    kinds = ["kill step", "kill bucket", "kill write", "torn write", "full disk", "i/o error",
             "no memory", "stop", "stop in a bucket", "slow", "slow in a bucket", "exit",
             "exit in a bucket", "SIGKILL to a rank", "SIGKILL to mpirun", "SIGTERM to a rank",
             "SIGTERM to mpirun", "SIGINT to mpirun", "SIGUSR1 to mpirun", "SIGUSR1 to a rank",
             "SIGUSR2 to a rank", "SIGSTOP, SIGCONT", "all suspended", "leak"]
    # Where ranks own parts, none has all master weights of narrow ones.
    if setup.strategy in REPLICATED or (setup.strategy in OWN_WEIGHTS and
                                        "train.precision=fp32" in setup.flags):
        kinds += ["flip weight"]
    if setup.strategy in REPLICATED and setup.compressor == "none":
        kinds += ["flip optimizer"]
    if setup.strategy in MESSAGES and setup.compressor == "none":
        kinds += ["flip message", "flip gradient"]
    if setup.hosts:
        kinds = [kind for kind in kinds if "mpirun" in kind or not kind.startswith(("SIG", "all"))]
        kinds += 3 * ["link cut", "link cut for a while", "link slow"]
    return kinds


RESTARTED = ("kill step", "kill bucket", "exit", "exit in a bucket", "flip weight",
             "stop", "link cut")


def draw_fault(chance, kind):
    return Fault(kind, chance.random(), chance.random(), tuple(chance.random() for _ in range(4)))


def draw_case(seed, number):
    chance = random.Random(f"{seed} case {number}")
    setup = draw_setup(seed, chance.randrange(SETUPS))
    supervised = chance.random() < 0.25
    kinds = kinds_of(setup)
    if supervised:
        kinds = [kind for kind in kinds if kind in RESTARTED]
        if not setup.lanes or setup.hosts != 2:  # without a host there are fewer ranks
            kinds = [kind for kind in kinds if kind != "link cut"]
    attempts = []
    for _ in range(chance.choice((1, 2, 2, 3))):
        ranks = setup.ranks
        if setup.lanes and not setup.hosts and not supervised:
            ranks = chance.choice((2, 4, 8))
        faults = [draw_fault(chance, chance.choice(kinds))]
        if chance.random() < 0.15:
            faults.append(draw_fault(chance, "slow"))
        attempts.append(Attempt(ranks, tuple(faults)))
    if supervised:  # one after the other, so that each time something is gained
        attempts = attempts[:1] if attempts[0].faults[0].kind == "link cut" else [
            attempt for attempt in attempts if attempt.faults[0].kind != "link cut"]
    return Case(f"{seed}:{number}", setup, supervised, tuple(attempts))
