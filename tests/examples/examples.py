#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of examples/, used as docs/programs.md says, on a simulated GPU.

usage: examples.py BUILD_DIR [unittest options]

Jupyter, supervisord, systemd and Slurm come from the distribution's packages (python3-ipykernel, supervisor, systemd,
slurmd and slurmctld).
This is no part of `make test`: see docs/testing.md.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import folders  # noqa: E402
import waiting  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build"
EXAMPLES = ROOT / "examples"
GIB = 1 << 30

# Asks the driver for memory until it refuses, by ctypes: what a notebook's framework does below.
HOW_MUCH = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address, got = ctypes.c_void_p(), ctypes.c_uint64(), 0
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
while cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 27)) == 0:
    got += 1
print(got / 8)
"""
SERVER = """#!/usr/bin/env python3
import ctypes, signal
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
signal.pause()
"""


class Example(unittest.TestCase):
    def setUp(self):
        world = folders.world("sluice-ex-")
        self.folder = pathlib.Path(world.__enter__())
        self.addCleanup(world.__exit__, None, None, None)
        self.env = {**os.environ, "SLUICE_DIR": str(self.folder / "d"), "SLUICE_SIM": "h200",
                    "PATH": f"{BUILD}/bin:/usr/bin:/bin", "HOME": str(self.folder),
                    "IPYTHONDIR": str(self.folder / "ipython")}
        self.env.pop("CUDA_VISIBLE_DEVICES", None)

    def tenants(self):
        out = subprocess.run([f"{BUILD}/bin/sluice", "status", "--json"], env=self.env, check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        return {t["name"]: t for t in json.loads(out)["tenants"]}

    def server(self):
        path = self.folder / "server"
        path.write_text(SERVER, encoding="ascii")
        path.chmod(0o755)
        return path


class Jupyter(Example):
    def kernel(self):
        try:
            from jupyter_client import KernelManager  # pylint: disable=import-outside-toplevel
            from jupyter_client.kernelspec import KernelSpecManager  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("no jupyter_client for this python3 (Debian: python3-ipykernel, python3-jupyter-client)")
        spec = self.folder / "kernels" / "sluice"
        spec.mkdir(parents=True)
        shutil.copy(EXAMPLES / "jupyter" / "kernel.json", spec)
        manager = KernelManager(kernel_name="sluice",
                                kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(self.folder / "kernels")]))
        manager.start_kernel(env=self.env, cwd=str(self.folder))
        self.addCleanup(manager.shutdown_kernel, now=True)
        client = manager.client()
        client.start_channels()
        self.addCleanup(client.stop_channels)
        client.wait_for_ready(timeout=60)
        return manager, client

    def run_cell(self, client, code):
        said = []
        reply = client.execute_interactive(code, timeout=60, output_hook=lambda m: said.append(m["content"]))
        return reply["content"], "".join(c.get("text", "") for c in said)

    def test_a_notebook_has_its_limit(self):
        manager, client = self.kernel()
        content, said = self.run_cell(client, HOW_MUCH)
        self.assertEqual(content["status"], "ok", content)
        # 8 GiB are the limit; the context takes its part of them.
        self.assertTrue(7 <= float(said) < 8, said)
        tenant, = self.tenants().values()
        self.assertEqual(tenant["gpus"][0]["memory_limit_bytes"], 8 * GIB)
        self.assertEqual(tenant["cores_request_percent"], 30)
        manager.shutdown_kernel()
        waiting.until("the notebook's tenant is gone", lambda: not self.tenants(), 20)

    def test_a_cell_can_be_interrupted(self):
        manager, client = self.kernel()
        message = client.execute("import time\nopen('began', 'w').close()\ntime.sleep(600)", stop_on_error=False)
        waiting.until("the cell runs", (self.folder / "began").exists, 60)
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=60)
        while reply["parent_header"]["msg_id"] != message:  # answers to what was asked before the cell
            reply = client.get_shell_msg(timeout=60)
        self.assertEqual(reply["content"]["ename"], "KeyboardInterrupt")
        content, said = self.run_cell(client, "print(6 * 7)")
        self.assertEqual((content["status"], said), ("ok", "42\n"))  # the kernel lives


class Supervisor(Example):
    def program_of(self, pid):
        """The server that this `sluice run` started. It may have started the arbiter, too."""
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return next(int(c) for c in children if b"./server" in pathlib.Path(f"/proc/{c}/cmdline").read_bytes())

    def test_starts_restarts_and_stops(self):
        if not shutil.which("supervisord"):
            self.skipTest("no supervisord (Debian: supervisor)")
        self.server()
        conf = self.folder / "supervisord.conf"
        conf.write_text(f"[supervisord]\nlogfile={self.folder}/log\npidfile={self.folder}/pid\n"
                        f"childlogdir={self.folder}\n[unix_http_server]\nfile={self.folder}/sock\n"
                        "[rpcinterface:supervisor]\n"
                        "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n"
                        f"[supervisorctl]\nserverurl=unix://{self.folder}/sock\n"
                        f"[include]\nfiles = {EXAMPLES}/supervisor/serve.conf\n", encoding="ascii")
        daemon = subprocess.Popen(["supervisord", "-n", "-c", conf], env=self.env, cwd=self.folder,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self.addCleanup(daemon.wait, 30)
        self.addCleanup(daemon.terminate)
        serve = waiting.until("serve is a tenant", lambda: self.tenants().get("serve"), 60)
        waiting.until("its program has a context", lambda: self.tenants()["serve"]["processes"] == 1, 60)
        self.assertEqual(serve["gpus"][0]["memory_limit_bytes"], 20 * GIB)
        self.assertEqual(serve["priority"], "high")
        os.kill(self.program_of(serve["creator_pid"]), signal.SIGKILL)  # it crashes
        waiting.until("another sluice run", lambda: self.tenants().get("serve", serve)["creator_pid"]
                      not in (0, serve["creator_pid"]), 60)
        subprocess.run(["supervisorctl", "-c", conf, "stop", "serve"], env=self.env, check=True,
                       stdout=subprocess.DEVNULL)
        waiting.until("the tenant is gone", lambda: not self.tenants(), 30)


class Systemd(Example):
    def test_the_unit_is_well_formed(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze (Debian: systemd)")
        unit = self.folder / "serve.service"
        text = (EXAMPLES / "systemd" / "serve.service").read_text(encoding="ascii")
        unit.write_text(text.replace("/usr/local/bin/sluice", f"{BUILD}/bin/sluice").replace("%h/serve/server",
                        str(self.server())), encoding="ascii")
        done = subprocess.run(["systemd-analyze", "--user", "verify", unit], env={**self.env, "XDG_RUNTIME_DIR":
                              str(self.folder)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.returncode, 0)
        # What systemd would run.
        command = next(line for line in unit.read_text(encoding="ascii").splitlines() if line.startswith("ExecStart="))
        with subprocess.Popen(command.removeprefix("ExecStart=").split(), env=self.env) as service:
            self.addCleanup(service.wait, 30)
            self.addCleanup(service.kill)
            waiting.until("serve is a tenant with a process",
                          lambda: self.tenants().get("serve", {}).get("processes") == 1, 60)
            service.terminate()  # as `systemctl stop` does
            waiting.until("the tenant is gone", lambda: not self.tenants(), 30)
            self.assertEqual(service.wait(30), -signal.SIGTERM)


# Slurm's daemons want an address that is not 127.0.0.1 before they look up any name. All of it ends with the shell.
SLURM_DAEMONS = """
ip link set lo up && ip addr add 10.9.9.1/32 dev lo
munged -F --force --key-file=munge/key --socket=munge/socket --pid-file=munge/pid --log-file=munge/log \
    --seed-file=munge/seed &
until [ -S munge/socket ]; do sleep 0.05; done
slurmctld -D -f "$SLURM_CONF" & slurmd -D -f "$SLURM_CONF" &
wait
"""


class Shard(Example):
    """sluice-shard on several nodes: what it passes on."""

    def asked(self, tasks, node, shards, **more):
        shown = self.folder / "sluice"
        shown.write_text('#!/bin/sh\necho "$@"\n', encoding="ascii")
        shown.chmod(0o755)
        env = {"PATH": f"{self.folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3",
               "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": str(node), "SLURM_SHARDS_ON_NODE": str(shards), **more}
        return subprocess.run([EXAMPLES / "slurm" / "sluice-shard", "true"], env=env, check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def test_tasks_of_this_node_are_counted(self):
        for tasks, node, memory, cores in (("1", 0, "60%", "60.0:100"), ("2(x3),1", 0, "30%", "30.0:100"),
                                           ("2(x3),1", 2, "30%", "30.0:100"), ("2(x3),1", 3, "60%", "60.0:100"),
                                           ("1,7(x2)", 1, "8%", "8.5:100"), ("4", 0, "15%", "15.0:100")):
            self.assertEqual(self.asked(tasks, node, 60), f"run --name slurm-7.0.3 --memory {memory} --cores {cores} -- true\n")
        self.assertIn("--cores 20 ", self.asked("2", 0, 60, SLUICE_CORES="20"))


class Slurm(Example):
    """A cluster of one node, in namespaces of its own."""

    def setUp(self):
        super().setUp()
        programs = ("slurmctld", "slurmd", "munged", "srun", "unshare")
        missing = [p for p in programs if not shutil.which(p, path="/usr/sbin:/usr/bin")]
        if missing:
            self.skipTest(f"no {', '.join(missing)} (Debian: slurmctld, slurmd, munge)")
        if os.geteuid() != 0:
            self.skipTest("slurmd is started by root only")
        self.env["PATH"] = f"{EXAMPLES}/slurm:{self.env['PATH']}:/usr/sbin:/sbin"
        self.env["SLURM_CONF"] = str(self.folder / "slurm.conf")
        self.write_files()
        self.shell = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             SLURM_DAEMONS],
            env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(self.shell.wait, 30)
        self.addCleanup(self.shell.kill)
        children = pathlib.Path(f"/proc/{self.shell.pid}/task/{self.shell.pid}/children")
        self.init, = waiting.until("the namespaces are there", lambda: children.read_text(encoding="ascii").split(), 30)
        waiting.until("the node is ready", lambda: "idle" in self.answer("sinfo", "-h", "-o", "%t"), 60)

    def write_files(self):
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        (self.folder / "munge" / "key").write_bytes(os.urandom(1024))
        (self.folder / "munge" / "key").chmod(0o400)
        (self.folder / "cgroup.conf").touch()
        gres = (EXAMPLES / "slurm" / "gres.conf").read_text(encoding="ascii")
        (self.folder / "gres.conf").write_text(gres.replace("/dev/nvidia0", "/dev/zero"), encoding="ascii")
        host = os.uname().nodename.split(".")[0]
        (self.folder / "slurm.conf").write_text(
            f"ClusterName=try\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nAuthType=auth/munge\n"
            f"AuthInfo=socket={self.folder}/munge/socket\nStateSaveLocation={self.folder}/state\n"
            f"SlurmdSpoolDir={self.folder}/spool\nSlurmctldPidFile={self.folder}/ctld.pid\n"
            f"SlurmdPidFile={self.folder}/d.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "SwitchType=switch/none\nMpiDefault=none\nReturnToService=2\n"
            f"NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=500 Gres=gpu:1,shard:100\n"
            f"PartitionName=all Nodes={host} Default=YES State=UP OverSubscribe=FORCE:8\n" +
            (EXAMPLES / "slurm" / "slurm.conf.part").read_text(encoding="ascii"), encoding="ascii")

    def inside(self, *command):
        """Starts a command in the namespaces, and returns it."""
        return subprocess.Popen(["nsenter", "--net", "--mount", "--pid", "--target", self.init, *command],
                                env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def answer(self, *command):
        with self.inside(*command) as child:
            return child.communicate(timeout=60)[0]

    def tenants(self):
        return {t["name"]: t for t in json.loads(self.answer(f"{BUILD}/bin/sluice", "status", "--json"))["tenants"]}

    def test_jobs_have_the_parts_they_asked_for(self):
        program = self.folder / "how_much.py"
        program.write_text(HOW_MUCH, encoding="ascii")
        server = str(self.server())
        jobs = [self.inside("srun", "-J", name, f"--gres=shard:{shards}", "sluice-shard", server)
                for name, shards in (("a", 30), ("b", 60))]
        try:
            waiting.until("two tenants with a process each",
                          lambda: [t["processes"] for t in self.tenants().values()] == [1, 1], 60)
            there = self.tenants()
            card = 139.7 * GIB
            self.assertEqual(sorted(t["cores_request_percent"] for t in there.values()), [30, 60])
            for t in there.values():
                part = t["gpus"][0]["memory_limit_bytes"] / card * 100
                self.assertAlmostEqual(part, t["cores_request_percent"], delta=1.5)
                self.assertTrue(t["name"].startswith("slurm-"), t["name"])
            # Ten parts are left: a job of twenty waits in Slurm's own line, one of ten runs and has a tenth.
            self.assertIn("queued", self.answer("srun", "--immediate=3", "--gres=shard:20", "true"))
            got = float(self.answer("srun", "--gres=shard:10", "sluice-shard", "/usr/bin/python3",
                                    str(program)))
            self.assertTrue(0.1 * 139 - 1.5 < got <= 0.1 * 141, got)
        finally:
            self.answer("scancel", "--me")
            for job in jobs:
                job.communicate(timeout=60)
        waiting.until("nothing is left", lambda: not self.tenants(), 30)

    def test_a_batch_script_and_the_tasks_of_its_steps(self):
        """What a job asked for is what all of its tasks on a node have together."""
        server = str(self.server())
        script = self.folder / "job.sh"
        script.write_text("#!/bin/sh\n"
                          f"sluice-shard {server} & alone=$!\n"  # the script itself, without srun
                          f"until [ -e {self.folder}/next ]; do sleep 0.05; done\n"
                          "kill $alone; wait $alone\n"
                          f"srun -n2 sluice-shard {server}\n", encoding="ascii")
        script.chmod(0o755)
        job = self.inside("sbatch", "--wait", "-n2", "--gres=shard:31", "-o", f"{self.folder}/said", str(script))

        def parts():
            return sorted((name.split(".", 1)[1], t["cores_request_percent"], t["processes"], round(
                t["gpus"][0]["memory_limit_bytes"] / (139.7 * GIB) * 100)) for name, t in self.tenants().items())
        try:
            waiting.until("the script's own tenant", lambda: parts() == [("batch.0", 31, 1, 31)], 60)
            (self.folder / "next").touch()
            waiting.until("a tenant for each task", lambda: parts() == [("0.0", 15.5, 1, 15), ("0.1", 15.5, 1, 15)], 60)
        except AssertionError as error:
            said = self.folder / "said"
            raise AssertionError(f"{error}: {parts()} {said.read_text() if said.exists() else ''}") from error
        finally:
            self.answer("scancel", "--me")
            job.communicate(timeout=60)
        waiting.until("nothing is left", lambda: not self.tenants(), 30)

    def test_fewer_parts_than_tasks(self):
        self.assertIn("--gres=shard:2", self.answer("srun", "-n2", "--gres=shard:1", "sluice-shard", "true"))

    def test_a_job_without_a_part_hears_what_to_do(self):
        said = self.answer("srun", "sluice-shard", "true")
        self.assertIn("--gres=shard:30", said)


if __name__ == "__main__":
    unittest.main()
