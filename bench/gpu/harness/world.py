# SPDX-License-Identifier: Apache-2.0
"""Where the benchmark runs: real GPU or simulated, what is built, and how a tenant is started."""
import copy
import glob
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))


TORCH = ("train", "infer", "eager", "train5")

# tenant.c's kind of work, the length of its kernel in us, and what else it is told.
KINDS = {"fma100us": ("fma", 100), "fma20ms": ("fma", 20000), "gemm": ("fma", 170), "gemm170": ("fma", 170),
         "graph": ("graph", 100), "req": ("req", 100), "tiny": ("tiny", 100), "sync": ("sync", 100),
         "streams8": ("fma", 200, "--streams", "8", "--blocks", "132"), "copy": ("copy", 100),
         "coop": ("coop", 100), "mixed": ("mixed", 100), "kernel2s": ("sync", 2000000, "--unit-us", "2e6"),
         "eager": ("eager", 4), "train5": ("train", 170), "hostfn": ("hostfn", 100),
         "waitvalue": ("waitvalue", 100)}
# Eager programs on hosts of known speeds: so many us of the host's work before each of 150 launches.
HOSTS = (14, 17, 20, 23)
KINDS.update({f"eager{us}": ("eager", 4, "--host-us", str(us)) for us in HOSTS})


PATIENCE_S = 900  # real time; only a clock that stands still comes to that


class Broken(Exception):
    """Something did not work, as opposed to being slow or unfair."""


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Tenant:
    """One tenant: a process (or several) that says when it is ready and obeys `go` lines."""

    def __init__(self, name, command, env, log, ready_s=60, cpus=None):
        self.name = name
        self.log = log
        self.ready_s = ready_s
        self.errors = open(log, "ab")
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors,
                                        preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus
                                        else None)
        self.buffer = b""
        self.info = None

    def _line(self, seconds):
        deadline, patience = time.monotonic() + seconds, time.time() + max(seconds, PATIENCE_S)
        fd = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()  # by the benchmark's clock, which may be slower than the real one
            if left <= 0 or time.time() > patience:
                raise Broken(f"{self.name}: no answer within {seconds:.0f} s")
            if not select.select([fd], [], [], min(left, 1))[0]:
                continue
            data = os.read(fd, 1 << 16)
            if not data:
                with open(self.log, "rb") as f:
                    said = f.read().decode(errors="replace").strip().splitlines()[-3:]
                raise Broken(f"{self.name} ended early ({self.process.wait()}): {' | '.join(said)}")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def ready(self):
        if self.info is None:
            self.info = self._line(self.ready_s)
        return self.info

    def ask(self, word):
        """A line that is answered by one line."""
        self.ready()
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        return self._line(60)

    def go(self, load_from, load_until, from_ns, until_ns):
        try:
            self.process.stdin.write(f"go {load_from} {load_until} {from_ns} {until_ns}\n".encode())
            self.process.stdin.flush()
        except OSError as e:
            raise Broken(f"{self.name}: {e}") from e
        self.until_ns = load_until

    def result(self):
        return self._line(max(0, self.until_ns - now_ns()) / 1e9 + 30)

    def end(self):
        """In the middle of its work. `sluice run` hands the signal on; were it killed, its tenant would go on."""
        self.process.terminate()
        self.close()

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Mps:
    """An MPS daemon with directories of its own; the GPU's compute mode is left as it is."""

    def __init__(self, scratch):
        self.dir = tempfile.mkdtemp(prefix="mps-", dir=scratch)
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": self.dir, "CUDA_MPS_LOG_DIRECTORY": self.dir}

    def __enter__(self):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.env},
                       check=True, timeout=20, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        try:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 5\n", timeout=30,
                           env={**os.environ, **self.env}, stdout=subprocess.DEVNULL, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            print(f"bench: the MPS daemon did not quit: {e}", file=sys.stderr)


class World:
    def __init__(self, sim, build, scratch):
        self.sim = sim
        self.scratch = scratch
        self.build = os.path.abspath(build)
        self.dir = tempfile.mkdtemp(prefix="d-", dir=scratch)
        self.log = os.path.join(scratch, "log")
        self.sluice = os.path.join(self.build, "bin", "sluice")
        self.tenant = os.path.join(scratch, "tenant")
        self.serial = 0
        self.iters = {}
        self.unit_us = {}
        self.cublas = None if sim else find_cublas()
        self.torch = not sim and importlib.util.find_spec("torch") is not None
        self.has_mps = not sim and bool(shutil.which("nvidia-cuda-mps-control"))
        if not os.access(self.sluice, os.X_OK):
            raise Broken(f"{self.sluice} is not built: run `make core` (or name the build with --build)")
        # An arbiter that `sluice run` starts goes by the real clock: it is given no LD_PRELOAD.
        self.clock = "SLUICE_BENCH_CLOCK" in os.environ
        self.arbiter = self.start_arbiter() if self.clock else None

    def start_arbiter(self):
        errors = open(self.log, "ab")
        arbiter = subprocess.Popen(self.sluice_command("arbiter", "--idle-exit", "0"), stdout=errors, stderr=errors)
        errors.close()
        socket = os.path.join(self.dir, "arbiter.sock")
        while not os.path.exists(socket):
            if arbiter.poll() is not None:
                raise Broken("the arbiter did not start")
            time.sleep(0.01)
        return arbiter

    def aside(self):
        """The same with an arbiter of its own, whose tenants may ask for all of the GPU once more."""
        other = copy.copy(self)
        other.dir = tempfile.mkdtemp(prefix="d-", dir=self.scratch)
        other.arbiter = other.start_arbiter() if self.clock else None
        return other

    def close(self):
        if self.arbiter:
            self.arbiter.terminate()
            self.arbiter.wait()

    def build_tenant(self):
        ptx = os.path.join(ROOT, "tests", "common", "kernels.ptx")
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu17", "-O2", "-fno-strict-aliasing",
                        "-D_GNU_SOURCE", f'-DKERNELS_PTX="{ptx}"',
                        f'-DSTAMPED_PTX="{os.path.join(HERE, "stamped.ptx")}"',
                        "-I", os.path.join(ROOT, "include"),
                        "-o", self.tenant, *sorted(glob.glob(os.path.join(HERE, "tenant*.c"))),
                        "-ldl", "-lpthread"], check=True)

    def native_env(self):
        env = dict(os.environ)
        if self.sim:
            env["SLUICE_SIM"] = self.sim
            env["SLUICE_SIM_STATE"] = os.path.join(self.dir, "native-state")
            path = os.path.join(self.build, "sim")
            old = env.get("LD_LIBRARY_PATH")
            env["LD_LIBRARY_PATH"] = f"{path}:{old}" if old else path
        return env

    def sluice_command(self, verb, *args):
        sim = ["--sim", self.sim] if self.sim else []
        return [self.sluice, "--dir", self.dir, verb, *sim, *args]

    def start(self, work, mode="native", cores=None, priority=None, percent=None, mps=None,
              extra=()):
        """Starts a tenant doing `work`. mode: native, mps or sluice. Returns at once."""
        command = self.command(work) + list(extra)
        self.serial += 1
        name = f"{work}-{self.serial}"
        env = self.native_env()
        if mode == "mps":
            env.update(mps.env)
            if percent:
                env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
        elif mode == "sluice":
            args = ["--name", name]
            args += ["--cores", str(cores)] if cores else []
            args += ["--priority", priority] if priority else []
            command = self.sluice_command("run", *args, "--", *command)
            env = dict(os.environ)
        if self.sim:  # the simulated GPU would move the bytes of a copy on the host, at the host's speed
            env["SLUICE_SIM_FAULT"] = "copies=empty"
        return Tenant(name, command, env, self.log, 180 if work in TORCH else 60, self.cpus_for(work))

    def cpus_for(self, work):
        """
        The same processors for a kind of work however it is started, where there are enough: a step of eager
        inference takes 2 to 4 ms by where it runs, and that must not decide between Sluice and the rest.
        """
        every = sorted(os.sched_getaffinity(0))
        if len(every) < 12:
            return None
        at = {"eager": 0, "train5": 1}.get(work)
        return every[2 * at:2 * at + 2] if at is not None else every[4:]

    def command(self, work):
        if work in ("train", "infer"):
            return [sys.executable, os.path.join(HERE, f"torch_{work}.py")]
        if work in ("eager", "train5") and self.torch:
            return [sys.executable, os.path.join(HERE, "torch_loop.py"), work.rstrip("5")]
        unit = ["--unit-us", f"{self.unit_us[work]:.4f}"] if work in self.unit_us else []
        if work in ("gemm", "gemm170") and not self.sim:
            return [self.tenant, "--work", "gemm", *(["--ones"] if work == "gemm170" else []),
                    *(["--cublas", self.cublas] if self.cublas else []), *unit]
        kind, length, *more = KINDS[work]
        return [self.tenant, "--work", kind, "--iters", str(self.iters_for(length)), *more, *unit]

    def iters_for(self, length_us):
        """Iterations of the FMA kernel that make it this long here; found once, then the same."""
        if length_us not in self.iters:
            run = subprocess.run([self.tenant, "--work", "fma", "--calibrate", "--target-us",
                                  str(length_us)], env=self.native_env(), capture_output=True,
                                 timeout=60, check=False)
            if run.returncode != 0:
                raise Broken(f"calibrating: {run.stderr.decode(errors='replace').strip()}")
            self.iters[length_us] = json.loads(run.stdout)["iters"]
        return self.iters[length_us]

    def set_cores(self, name, cores):
        run = subprocess.run(self.sluice_command("set", name, "--cores", str(cores)),
                             capture_output=True, timeout=30, check=False)
        if run.returncode != 0:
            raise Broken(f"sluice set: {run.stderr.decode(errors='replace').strip()}")

    def status(self):
        """What the arbiter says; nothing where it does not answer."""
        run = subprocess.run(self.sluice_command("status", "--json"), capture_output=True, timeout=30,
                             check=False)
        return json.loads(run.stdout) if run.returncode == 0 else {"gpus": [], "tenants": []}

    def slices_us(self):
        return {t["name"]: t["slice_us"] for t in self.status()["tenants"]}

    def fallbacks(self):
        """GPUs that are not shared by slices, and why: a figure of theirs is one of turns."""
        return [f"GPU {g['index']} is shared by {g['compute']}: {g['compute_reason']}"
                for g in self.status()["gpus"] if g.get("compute") != "slices"]

    def describe(self):
        info = {"sim": self.sim, "torch": self.torch, "mps": self.has_mps, "cublas": self.cublas,
                "cpus": os.cpu_count(), "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
        info["kernel"] = os.uname().release
        info["command"] = " ".join(sys.argv)
        if shutil.which("git"):
            run = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True,
                                 check=False)
            info["commit"] = run.stdout.strip()
        run = subprocess.run([self.sluice, "--version"], capture_output=True, text=True, check=False)
        info["sluice"] = run.stdout.strip()
        if not self.sim and shutil.which("nvidia-smi"):
            run = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,"
                                  "memory.total,compute_mode", "--format=csv,noheader", "-i", "0"],
                                 capture_output=True, text=True, timeout=60, check=False)
            info["gpu"] = run.stdout.strip()
        return info


def find_cublas():
    """cuBLAS with its path, where the loader would not find it by name: beside torch, in a toolkit."""
    places = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    for base in sys.path:
        places += glob.glob(os.path.join(base, "nvidia", "*", "lib"))
    for version in ("13", "12"):
        for place in places:
            path = os.path.join(place, f"libcublas.so.{version}")
            if os.path.exists(path):
                return path
    return None
