# SPDX-License-Identifier: Apache-2.0
"""A node in processes: the DRA driver with its fault points, an arbiter, kubelet's calls, an API server."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from dra_api import GROUP, Api, claim  # noqa: E402
from waiting import until  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
WORLD = os.path.join(BUILD, "tests/agent/dra_world")
CTL = os.path.join(BUILD, "sim/sluice-sim-ctl")
SLUICE = os.path.join(BUILD, "bin/sluice")
GIB = 1 << 30
CLAIMS = GROUP + "/namespaces/default/resourceclaims/"


def uid(n):
    return f"00000000-0000-4000-8000-{n:012d}"


class Node:
    def __init__(self, spec="h200", api=None):
        self.dir = tempfile.mkdtemp(prefix="sld-", dir="/tmp")
        for name in ("registry", "state", "plugin"):
            os.mkdir(os.path.join(self.dir, name))
        # On a node these are below /run: in memory, gone with a reboot.
        self.run = tempfile.mkdtemp(prefix="sld-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.root = os.path.join(self.dir, "root")
        self.arb = os.path.join(self.run, "arb")
        self.boot()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        if "SLUICE_TEST_LOG" in os.environ:
            self.env["SLUICE_TEST_LOG"] = os.environ["SLUICE_TEST_LOG"]
        subprocess.run([CTL, "make-root", self.root, spec], check=True, env=self.env,
                       stdout=subprocess.DEVNULL)
        self.api = api or Api()
        self.node = self.arbiter = None
        self.start_arbiter()

    def boot(self):
        shutil.rmtree(self.run)
        os.mkdir(self.run)
        os.mkdir(self.arb, 0o700)
        os.mkdir(os.path.join(self.run, "cdi"))

    def start_arbiter(self):
        self.arbiter = subprocess.Popen([WORLD, "arbiter", self.arb, self.root], env=self.env,
                                        stdout=subprocess.PIPE)
        if self.arbiter.stdout.read(1) != b"R":
            raise AssertionError("the arbiter did not start")

    def start(self, fault=None, wait=True, instance=None, config=None):
        env = dict(self.env, **({"SLUICE_FAULT": fault} if fault else {}))
        if config:
            with open(self.path("config.yaml"), "w", encoding="ascii") as f:
                f.write(config)
            env["DRA_CONFIG"] = self.path("config.yaml")
        self.out = os.path.join(self.dir, "out")
        with open(self.out, "w") as out, open(self.path("log"), "a") as log:
            self.node = subprocess.Popen(
                [WORLD, "node", self.dir, self.root, self.api.url, self.arb, self.run + "/cdi"] +
                ([instance] if instance else []), env=env, stdout=out,
                stderr=None if "SLUICE_TEST_LOG" in env else log)
        if wait:
            until("slices are published",
                  lambda: "READY" in open(self.out).read() or self.node.poll() is not None)

    def stop(self, sig=signal.SIGTERM):
        if self.node and self.node.poll() is None:
            self.node.send_signal(sig)
        code = self.node.wait(30)
        self.node = None
        return code

    def end(self):
        if self.node:
            self.stop(signal.SIGKILL)
        self.arbiter.kill()
        self.arbiter.wait()
        self.api.end()
        shutil.rmtree(self.dir)
        shutil.rmtree(self.run)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def call(self, verb, *claims, version="v1", socket="dra.sock", check=True):
        run = subprocess.run([WORLD, "kubelet", self.path("plugin", socket), verb, version, *claims],
                             capture_output=True, text=True, timeout=60, env=self.env)
        if run.returncode:
            if check:
                raise AssertionError(run.stderr)
            return None
        return json.loads(run.stdout)

    def prepare(self, n, **kw):
        answer = self.call("prepare", f"default/claim-{n}/{uid(n)}", **kw)
        return answer and answer[uid(n)]

    def unprepare(self, n, **kw):
        answer = self.call("unprepare", f"default/claim-{n}/{uid(n)}", **kw)
        return answer and answer[uid(n)]

    def claim(self, n, results, **kw):
        obj = claim(f"claim-{n}", uid(n), results, **kw)
        return self.api.put(CLAIMS + f"claim-{n}", obj)

    def tenants(self):
        run = subprocess.run([SLUICE, "status", "--json", "--dir", self.arb], capture_output=True,
                             text=True, env=self.env, check=True)
        return {t["name"]: t for t in json.loads(run.stdout)["tenants"]}

    def specs(self):
        found = {}
        for p in glob.glob(self.run + "/cdi/*.json"):
            with contextlib.suppress(FileNotFoundError):  # the agent removed this spec a moment ago
                with open(p, encoding="utf-8") as f:
                    found[os.path.basename(p)] = json.load(f)
        return found

    def checkpoint(self):
        path = self.path("state", "checkpoint.json")
        if not os.path.exists(path):
            return {}
        return {c["uid"]: c for c in json.load(open(path))["data"]["claims"]}

    def mig(self):
        run = subprocess.run([CTL, "show"], capture_output=True, text=True, check=True,
                             env=dict(self.env, SLUICE_SIM="h200",
                                      SLUICE_SIM_STATE=self.path("root/state/machine")))
        return re.findall(r"\b\d+g\.\d+gb(?:\+me)?\b", run.stdout)

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def events(self):
        return open(self.out).read()


class Case(unittest.TestCase):
    spec = "h200"

    def setUp(self):
        self.node = Node(self.spec)
        self.addCleanup(self.node.end)

    def gone(self):
        n = self.node
        self.assertEqual(n.tenants(), {})
        self.assertEqual(n.specs(), {})
        self.assertEqual(n.checkpoint(), {})
        self.assertEqual(n.mig(), [])
