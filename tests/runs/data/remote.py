"""Records from a server: a real nginx that is slow, cut off, restarted, wrong, or not there."""
import datetime
import hashlib
import hmac
import os
import re
import resource
import shutil
import socket
import subprocess
import time

import harness
from harness import Skipped, Started, check, same, train, train_well, weights
from own_pictures import pictures, png

# Servers on this host are asked themselves, and nobody's keys are used.
os.environ.update(no_proxy="127.0.0.1,localhost", NO_PROXY="127.0.0.1,localhost")
for variable in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[variable]

MODEL = """\
data: {{source: records, dir: "{dir}", local_cache: "{cache}", remote_wait_s: {wait}}}
train: {{global_batch: 50, steps: 14, lanes: 2}}
model:
  input: [{side}, {side}, 1]
  layers:
    - flatten: {{}}
    - dense: {{units: 10}}
"""

CONF = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
  log_format all '$status|$request_uri|$http_range|$http_host|$http_authorization|'
                 '$http_x_amz_date|$http_x_amz_content_sha256|$http_x_amz_security_token';
  access_log {folder}/access.log all;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}{tls}; root {root}; {more} }}
}}
"""


class Server:
    """An nginx that serves the case's folder `files`."""

    def __init__(self, more="", tls=""):
        if shutil.which("nginx") is None and not os.access("/usr/sbin/nginx", os.X_OK):
            raise Skipped("nginx is not installed")
        self.root = harness.scratch / "files"
        self.folder = harness.scratch / "nginx"
        self.folder.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)
        self.more, self.tls, self.process = more, tls, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def __enter__(self):
        conf = self.folder / "nginx.conf"
        conf.write_text(CONF.format(folder=self.folder, port=self.port, root=self.root,
                                    more=self.more, tls=self.tls))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen([nginx, "-c", str(conf), "-e", self.folder / "error.log"],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + harness.PATIENCE
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            errors = self.folder / "error.log"
            check(self.process.poll() is None and time.monotonic() < end,
                  f"nginx did not start:\n{errors.read_text() if errors.exists() else ''}")
            time.sleep(0.01)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def requests(self):
        """Of each request: its fields, as log_format has them."""
        path = self.folder / "access.log"
        return [line.split("|") for line in path.read_text().splitlines()] if path.exists() else []

    def address(self, name="packed"):
        return f"http://127.0.0.1:{self.port}/{name}"


def ddp_data(*arguments, code=0, env=None, limit=None):
    """What the program says; a failure in one line. limit: of the length of files it writes."""
    own = harness.scratch / "tmp"
    own.mkdir(exist_ok=True)

    def set_limit():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run([harness.build / "ddp_data", *map(str, arguments)], text=True,
                          capture_output=True, timeout=harness.PATIENCE, check=False,
                          preexec_fn=set_limit,
                          env=harness.environment("remote", {"TMPDIR": str(own), **(env or {})}))
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    same((done.returncode, len(errors)), (code, 1 if code else 0), f"code, errors of\n{done}\n")
    return errors[0] if code else done.stdout + done.stderr


def packed(side=8):
    """Records in the server's folder, in two shards: of 1 MB if images are 32 pixels wide."""
    into = harness.scratch / "files/packed"
    into.parent.mkdir(exist_ok=True)
    source = harness.small_data(harness.scratch / "idx", 1000, 200, side)
    ddp_data("pack", source, into, "--shard-mb", 1)
    return into


def model(address, name="remote", wait=60, side=8):
    path = harness.scratch / f"{name}.cfg"
    path.write_text(MODEL.format(dir=address, cache=harness.scratch / "copies", wait=wait,
                                 side=side))
    return path


def case_ranks_of_a_host_fetch_each_file_once_and_get_the_same_bits():
    into = packed()
    train_well(model(into, "folder"), "--out", harness.scratch / "folder-out")
    shutil.rmtree(harness.scratch / "copies")
    with Server() as server:
        result = train_well(model(server.address()), "--out", harness.scratch / "out", ranks=2)
        same(result.warnings, [], "warnings")
        same(weights(harness.scratch / "out"), weights(harness.scratch / "folder-out"), "weights")
        asked = sorted((uri, span != "-") for _, uri, span, *_ in server.requests())
        # Of each shard the end, to open it, and then all of it: both by ranges.
        shards = [(f"/packed/{path.name}", True) for path in sorted(into.glob("*.rec"))
                  for _ in range(2)]
        same(asked, [("/packed/index.json", False), *shards], "requests")
        train_well(model(server.address()), "--out", harness.scratch / "again", ranks=2)
        same([uri for _, uri, *_ in server.requests()[len(asked):]].count("/packed/index.json"),
             len(server.requests()) - len(asked), "requests that are not for the index")


def case_a_slow_server_that_is_cut_off_and_restarted_costs_time_only():
    packed(32)
    with Server("limit_rate 600k;") as server:
        started = Started([model(server.address(), side=32), "--out", harness.scratch / "out",
                           "--steps", 3], 2)
        copies = harness.scratch / "copies"
        started.wait_for("half a shard", lambda: any(
            path.stat().st_size > 200000 for path in copies.glob("*.rec.part")))
    with server:
        result = started.finish()
    same((result.code, result.errors), (0, []), f"exit code and errors of\n{result}\n")
    check("trying again" in result.err, f"{result}")
    resumed = [span for status, _, span, *_ in server.requests()
               if status == "206" and re.fullmatch(r"bytes=[1-9]\d*-\d+", span)]
    # Of both shards the end was asked for.
    check(len(resumed) > 2, f"nothing went on where it was cut: {server.requests()}")


def case_what_is_missing_or_wrong_there_is_one_line():
    into = packed()
    shard, index = into / "shard-00001.rec", into / "index.json"
    whole, listed = shard.read_bytes(), index.read_text()
    with Server("location /secret { return 403; } location /broken { return 503; }") as server:
        said = ddp_data("verify", server.address())
        check("whole, all hashes match" in said and "set data.local_cache" in said, said)

        def refused(code, words, where="packed", ranks=0):
            shutil.rmtree(harness.scratch / "copies", ignore_errors=True)
            result = train(model(server.address(where), wait=1), "--out", harness.scratch / "none",
                           ranks=ranks)
            same((result.code, len(result.errors)), (code, 1), f"exit code, errors of\n{result}\n")
            check(words in result.errors[0], f"it does not say {words!r}:\n{result}")

        shard.write_bytes(whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
        refused(65, "packed/shard-00001.rec: its hash is another than in index.json", ranks=2)
        shard.write_bytes(whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:])
        refused(65, "shard-00001.rec: its table of blocks is damaged")
        shard.write_bytes(whole[:-100])
        refused(65, "shard-00001.rec: has ")
        shard.unlink()
        refused(66, "shard-00001.rec: is missing there (HTTP 404)", ranks=2)
        shard.write_bytes(whole)
        index.write_text(listed.replace('"level": 0', '"level": 1'))
        refused(65, "packed/index.json: was altered, its hash is another")
        index.write_text(listed[:200])
        refused(65, "packed/index.json")
        refused(66, "index.json: is missing there (HTTP 404)", "elsewhere")
        refused(66, "index.json: is refused (HTTP 403)", "secret")
        refused(66, "index.json: nothing came for 1 s (HTTP 503)", "broken")
    refused(66, "packed/index.json: nothing came for 1 s (", ranks=2)


def case_without_libcurl_one_line_says_so():
    # The dynamic loader takes this one, and finds that it is none.
    folder = harness.scratch / "libraries"
    folder.mkdir()
    (folder / "libcurl.so.4").write_text("no library")
    result = train(model("http://127.0.0.1:1"), ranks=2, env={"LD_LIBRARY_PATH": folder})
    same(result.code, 69, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check("need libcurl.so.4, which cannot be used" in result.errors[0], f"{result}")


def case_addresses_that_cannot_be_are_refused_before_anything_is_read():
    for address, words in (("https://", "names no host"),
                           ("https://me:secret@host/x", "has a user or password in it"),
                           ("http://localhost/a b", "write ' ' as %20"),
                           ("https://localhost/a?b=1", "write '?' as %3F"),
                           ("s3://-", "has no name of a bucket")):
        result = train(model(address), "--out", harness.scratch / "none")
        same((result.code, len(result.errors)), (78, 1), f"exit code, errors of\n{result}\n")
        check(words in result.errors[0] and "secret" not in result.err, f"{result}")
    result = train(model("https://localhost/x"), "--set", "data.source=csv", "--check")
    check(result.code == 78 and "needs data.source records" in result.errors[0], f"{result}")


def case_no_space_for_copies_is_exit_code_74():
    packed()
    with Server() as server:
        said = ddp_data("verify", server.address(), code=74, limit=8192)
        check("cannot write" in said and ".rec.part" in said, said)


def signature(server, request, key, secret):
    """What SigV4 makes of a request, from what the server has seen of it."""
    _, uri, span, host, authorization, date, content, token = request
    scope, signed = re.fullmatch(
        rf"AWS4-HMAC-SHA256 Credential={key}/(\d{{8}}/eu-west-3/s3/aws4_request), ?"
        r"SignedHeaders=([a-z0-9;-]+), ?Signature=[0-9a-f]{64}", authorization).groups()
    seen = {"host": host, "x-amz-date": date, "x-amz-content-sha256": content,
            "x-amz-security-token": token, "range": span}
    lines = "".join(f"{name}:{seen[name]}\n" for name in signed.split(";"))
    check({"host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}
          <= set(signed.split(";")), f"signed are {signed}")
    canonical = f"GET\n{uri}\n\n{lines}\n{signed}\n{content}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    chain = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        chain = hmac.new(chain, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}"
    moment = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ")
    check(abs((datetime.datetime.utcnow() - moment).total_seconds()) < 900, f"signed at {date}")
    return hmac.new(chain, text.encode(), hashlib.sha256).hexdigest()


def case_s3_requests_are_signed():
    packed().rename(harness.scratch / "files/my packed")
    bucket = harness.scratch / "files/pets-2"
    bucket.mkdir()
    (harness.scratch / "files/my packed").rename(bucket / "my packed")
    secrets = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalr/XUtn+FEMI",
               "AWS_SESSION_TOKEN": "short/lived+token", "AWS_REGION": "eu-west-3"}
    with Server() as server:
        point = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}/"}
        result = train_well(model("s3://pets-2/my packed/"), "--out", harness.scratch / "out",
                            env={**secrets, **point})
        seen = server.requests()
        check(len(seen) > 3, f"requests: {seen}")
        for request in seen:
            check(request[0] in ("200", "206") and request[1].startswith("/pets-2/my%20packed/"),
                  f"{request}")
            found = request[4].rpartition("Signature=")[2]
            same(signature(server, request, "AKIDEXAMPLE", "wJalr/XUtn+FEMI"), found, "signature")
        kept = "".join(path.read_text() for path in (harness.scratch / "out").glob("*.[jy]*"))
        for text in (result.out, result.err, kept):
            check(not any(value in text for name, value in secrets.items() if "REGION" not in name),
                  "a secret was written")
        ddp_data("info", "s3://pets-2/my packed", env=point)
        same(server.requests()[-1][4], "-", "signature without keys")
        said = ddp_data("info", "s3://pets-2/x", env={**point, "AWS_ACCESS_KEY_ID": "A"}, code=78)
        check("set both" in said, said)


def case_certificates_are_checked():
    if shutil.which("openssl") is None:
        raise Skipped("openssl is not installed")
    packed()
    key, certificate = harness.scratch / "key.pem", harness.scratch / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=here",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    with Server(f"ssl_certificate {certificate}; ssl_certificate_key {key};", " ssl") as server:
        address = server.address().replace("http:", "https:")
        said = ddp_data("info", address, code=66)
        check("is refused (" in said and "certificate" in said, said)
        check("classes: 10" in ddp_data("info", address, env={"AWS_CA_BUNDLE": str(certificate)}),
              "info")


LIBRARIES = 24  # MB of a rank that --check takes for them


def rows_of_numbers(into):
    source = harness.small_data(harness.scratch / "wide", 3000, 200, 32)
    ddp_data("pack", source, into, "--zstd", 1)
    return "train.steps=60", "data.shuffle=window", "data.window=1000"


def rows_of_pictures(into):
    folder = pictures("pets", (("train", 16), ("test", 4)))
    for i, path in enumerate(sorted(folder.rglob("*.png"))):
        path.write_bytes(png(500 + 10 * (i % 3), 400, lambda x, y: (x % 256, y % 256, x * y % 256)))
    ddp_data("pack", folder, into, "--source", "folder")
    return "train.global_batch=4", "train.steps=4", "model.input=[12, 16, 3]"


def case_check_predicts_what_readers_of_a_server_hold():
    (harness.scratch / "files").mkdir(exist_ok=True)
    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    with Server() as server:
        for name, make in (("numbers", rows_of_numbers), ("pictures", rows_of_pictures)):
            own = make(harness.scratch / "files" / name)
            sets = [word for text in ("data.cache=none", "data.workers=1", "train.lanes=0", *own)
                    for word in ("--set", text)]
            cfg, begin = model(server.address(name), side=32), len(server.requests())
            copies = list(harness.scratch.glob("copies/*.rec"))
            told = train_well(cfg, "--check", "--threads", 1, *sets).out
            asked = [uri for _, uri, *_ in server.requests()[begin:]]
            # Its end, and a block for each of 8 samples.
            same(asked.count(f"/{name}/shard-00000.rec"), 9, "requests of --check for the shard")
            same(list(harness.scratch.glob("copies/*.rec")), copies, "copies")
            for ranks in (1, 2):
                line = rf"^ {ranks} ranks? +(?:[\d.]+ +){{6}}([\d.]+) "
                predicted = float(re.search(line, told, re.M)[1]) - LIBRARIES
                out = harness.scratch / f"{name}-{ranks}"
                done = Started([cfg, *sets, "--out", out], ranks, wrapper=one_core).finish()
                same((done.code, done.errors), (0, []), f"exit code and errors of\n{done}\n")
                measured = harness.run_json(out)["memory"]["input"] / 2**20
                check(1.2 < measured <= predicted + 0.1 and predicted < 1.2 * measured,
                      f"{name}, {ranks}: {predicted} MB predicted, {measured} MB measured")


if __name__ == "__main__":
    harness.main(globals())
