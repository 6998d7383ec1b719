#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several users, one arbiter: `sluice arbiter --system` on a simulated GPU, with processes of several users.

usage: users_days.py BUILD_DIR [unittest options]

No user is made on this machine: processes run with numbers that no user has, in a mount namespace with a /run of its
own. That needs root, and a build folder that other users can read; else the test is skipped (exit code 77).
"""
import contextlib
import json
import os
import pathlib
import resource
import signal
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
SLUICE = str(BUILD / "bin/sluice")
ALICE, BOB, CAROL, STRANGER = 64101, 64102, 64103, 64104
GROUP = 64200
STUDENTS = 64201
DIR = "/run/sluice/sim-h200"
SOCKET = DIR + "/arbiter.sock"
STATUS, MSG_END = struct.pack("<IHHII", 0x53434C53, 1, 8, 16, 0), 14  # sluice/attach.h
MARK = "SLUICE_TEST_USERS"  # set inside the namespace


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def enter():
    """This program again, where /run is empty."""
    if MARK in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run"], check=True)
        return
    if os.geteuid() != 0:
        skip("needs root, to run programs as several users")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        skip("needs mount namespaces (unshare --mount)")
    try:
        subprocess.run([SLUICE, "version"], capture_output=True, check=True, user=ALICE, group=ALICE, extra_groups=[])
    except (OSError, subprocess.CalledProcessError):
        skip("the build is not readable for others")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "XDG_"))}
    os.execvpe("unshare", ["unshare", "--mount", sys.executable, __file__, *sys.argv[1:]], {**env, MARK: "1"})


if __name__ == "__main__":
    enter()
sys.path.insert(0, str(HERE))
import compute_days as days  # noqa: E402  takes the folder from argv

RULES = f"""\
group: {GROUP}
defaults:
  memory: 20Gi
  tenants: 3
  priority: normal
users:
  {ALICE}: {{memory: 60Gi, cores: 30}}
  {BOB}:
    memory: 60Gi
    cores: 70
    priority: high
    tenants: unlimited
groups:
  {STUDENTS}: {{memory: 4Gi}}
"""


def as_user(uid, *groups):
    return {"user": uid, "group": uid, "extra_groups": list(groups)}


def as_user_do(uid, function, *arguments, group=GROUP):
    """The text that a function returns in a process of that user, or the name of its exception."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([group])
            os.setgid(uid)
            os.setuid(uid)
            text = function(*arguments)
        except OSError as error:
            text = type(error).__name__
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def knock(path):
    """What a tenant's socket says to somebody who only connects: nothing, until the arbiter hangs up on the silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(path)
        return s.recv(4096)[20:].rstrip(b"\0").decode() or "let in"


def eventually(true, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = true()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"never came true: {true}")


class System(unittest.TestCase):
    """A system's arbiter of its own for each test."""
    limit = None  # of the arbiter's descriptors

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="sluice-users-")
        self.addCleanup(self.tmp.cleanup)
        os.chmod(self.tmp.name, 0o755)
        self.place = pathlib.Path(self.tmp.name)
        self.rules = self.place / "arbiter.yaml"
        self.log = self.place / "log"
        self.rules.write_text(RULES)
        self.dir = DIR
        self.sim = "h200"
        self.arbiter = None
        subprocess.run(["rm", "-rf", "/run/sluice"], check=True)
        self.addCleanup(self.end)
        self.start()

    def command(self, *more):
        return [SLUICE, "arbiter", "--system", "--sim", "h200", "--config", str(self.rules), *more]

    def start(self):
        limit = self.limit

        def lower():
            if limit:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        with self.log.open("a") as log:
            # pylint: disable=subprocess-popen-preexec-fn
            self.arbiter = subprocess.Popen(self.command(), stderr=log, stdin=subprocess.DEVNULL, preexec_fn=lower)
        eventually(lambda: self.serves() or self.arbiter.poll() is not None)
        self.assertIsNone(self.arbiter.poll(), self.log.read_text())

    def serves(self):
        return self.sluice(0, "status", "--json").returncode == 0 and self.status().get("arbiter_pid") == self.arbiter.pid

    def end(self, how=signal.SIGTERM):
        if self.arbiter and self.arbiter.poll() is None:
            self.arbiter.send_signal(how)
            code = self.arbiter.wait(30)
            self.assertEqual(code, 0 if how == signal.SIGTERM else -how, self.log.read_text())

    def sluice(self, uid, *words, groups=(GROUP,), **how):
        """A command of a user."""
        return subprocess.run([SLUICE, *words, "--sim", "h200"] if words[0] != "run" else
                              [SLUICE, "run", "--sim", "h200", *words[1:]],
                              capture_output=True, text=True, check=False, timeout=60, **as_user(uid, *groups), **how)

    def hold(self, uid, name, *words, groups=(GROUP,)):
        """A tenant that stays until the test ends, or until it is killed."""
        run = subprocess.Popen([SLUICE, "run", "--sim", "h200", "--name", name, *words, "--", "sleep", "600"],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **as_user(uid, *groups))

        def over():
            if run.poll() is None:
                run.terminate()
                run.wait(30)
            run.stderr.close()
        self.addCleanup(over)
        eventually(lambda: name in self.tenants() or run.poll() is not None)
        self.assertIsNone(run.poll(), run.stderr.read() if run.poll() is not None else "")
        return run

    def status(self):
        return json.loads(self.sluice(0, "status", "--json").stdout or "{}")

    def tenants(self):
        return {t["name"]: t for t in self.status().get("tenants") or []}

    def refused(self, answer, *parts, code=1):
        self.assertEqual(answer.returncode, code, answer.stderr)
        for part in parts:
            self.assertIn(part, answer.stderr)

    def line(self, text):
        """How a refusal names the line of the file that has this text."""
        lines = self.rules.read_text().splitlines()
        number = next(i for i, line in enumerate(lines, 1) if text in line)
        return f"({self.rules} line {number})"


class Rights(System):
    def test_each_changes_only_their_own(self):
        self.hold(ALICE, "a", "--memory", "2Gi", "--cores", "10")
        for words in (("set", "a", "--memory", "1Gi"), ("set", "a", "--priority", "low"), ("pause", "a"), ("resume", "a")):
            self.refused(self.sluice(BOB, *words), "belongs to another user", str(ALICE))
        tenant = self.tenants()["a"]
        self.assertEqual(tenant["gpus"][0]["memory_limit_bytes"], 2 << 30)
        self.assertEqual((tenant["uid"], tenant["priority"]), (ALICE, "normal"))
        self.assertEqual(self.sluice(ALICE, "set", "a", "--memory", "1Gi").returncode, 0)
        self.assertEqual(self.sluice(ALICE, "pause", "a").returncode, 0)
        self.assertEqual(self.sluice(0, "resume", "a").returncode, 0)
        self.assertEqual(self.sluice(0, "set", "a", "--memory", "100Gi").returncode, 0)  # root may do anything
        self.refused(self.sluice(BOB, "run", "--name", "a", "--memory", "1Gi", "--", "true"), "choose another", code=125)

    def test_all_see_all(self):
        self.hold(ALICE, "a", "--memory", "2Gi", "--cores", "10")
        self.hold(BOB, "b", "--memory", "2Gi")
        seen = self.sluice(CAROL, "status")
        self.assertRegex(seen.stdout, rf"a +{ALICE} ")
        self.assertRegex(seen.stdout, rf"b +{BOB} ")
        self.assertLessEqual(max(map(len, seen.stdout.splitlines())), 80)
        self.assertIn(f"of user {ALICE}", self.sluice(BOB, "status", "a").stdout)

    def test_history_is_ones_own(self):
        """Names, commands and exit codes of others are nobody's business, also after a restart."""
        def ended(uid):
            return {e["name"] for e in json.loads(self.sluice(uid, "history", "--json").stdout)["entries"]}
        for uid, name in ((ALICE, "a"), (BOB, "b")):
            run = self.sluice(uid, "run", "--name", name, "--memory", "1Gi", "--", "true")
            self.assertEqual(run.returncode, 0, run.stderr)
        eventually(lambda: ended(0) == {"a", "b"})
        for _ in range(2):
            self.assertEqual((ended(ALICE), ended(BOB), ended(CAROL)), ({"a"}, {"b"}, set()))
            self.refused(self.sluice(BOB, "history", "a"), "no ended tenant is named")
            self.end(signal.SIGKILL)
            self.assertNotIn(" a ", self.sluice(BOB, "history").stdout)  # nor from the file
            self.start()

    def test_nobody_joins_another_users_tenant(self):
        self.hold(ALICE, "a", "--memory", "2Gi", "--cores", "10")
        self.assertEqual(as_user_do(ALICE, knock, DIR + "/t/a.sock"), "let in")
        self.assertEqual(as_user_do(BOB, knock, DIR + "/t/a.sock"), "PermissionError")
        for path in (DIR + "/t", DIR + "/u", DIR + "/k"):
            with self.assertRaises(subprocess.CalledProcessError):
                subprocess.run(["ls", path], check=True, stderr=subprocess.DEVNULL, **as_user(ALICE, GROUP))

    def test_a_lease_is_its_makers(self):
        folders = {}
        for uid in (ALICE, BOB):
            folders[uid] = self.place / str(uid)
            folders[uid].mkdir(0o700)
            os.chown(folders[uid], uid, uid)
            with contextlib.suppress(FileNotFoundError):
                subprocess.run(["rm", "-rf", f"/tmp/sluice-{uid}"], check=True)
            self.addCleanup(subprocess.run, ["rm", "-rf", f"/tmp/sluice-{uid}"], check=True)
        made = self.sluice(ALICE, "lease", "create", "l", "--memory", "2Gi", "--cdi-dir", str(folders[ALICE]))
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("ready", self.sluice(ALICE, "lease", "list", "--cdi-dir", str(folders[ALICE])).stdout)
        self.assertIn("another user's", self.sluice(BOB, "lease", "list", "--cdi-dir", str(folders[BOB])).stdout)
        self.refused(self.sluice(BOB, "lease", "delete", "l", "--cdi-dir", str(folders[BOB])), "belongs to another user")
        # Its socket is open to the uids of Alice's containers; who connects, the kernel says.
        self.assertEqual(as_user_do(ALICE, knock, DIR + "/u/l/attach.sock"), "let in")
        self.assertIn("belongs to another user", as_user_do(BOB, knock, DIR + "/u/l/attach.sock"))
        if os.path.exists("/etc/subuid"):  # the uids of Alice's own containers
            mine = self.place / "subuid"
            mine.write_text(f"{ALICE}:300000:10\n")
            subprocess.run(["mount", "--bind", str(mine), "/etc/subuid"], check=True)
            self.addCleanup(subprocess.run, ["umount", "/etc/subuid"], check=True)
            self.assertEqual(as_user_do(300003, knock, DIR + "/u/l/attach.sock"), "let in")
            self.assertIn("belongs to another user", as_user_do(300010, knock, DIR + "/u/l/attach.sock"))
        self.end(signal.SIGKILL)
        self.start()
        self.refused(self.sluice(BOB, "lease", "delete", "l", "--cdi-dir", str(folders[BOB])), "belongs to another user")
        gone = self.sluice(ALICE, "lease", "delete", "l", "--cdi-dir", str(folders[ALICE]))
        self.assertEqual(gone.returncode, 0, gone.stderr)
        self.assertEqual(self.tenants(), {})

    def test_owners_survive_a_kill(self):
        self.hold(ALICE, "a", "--memory", "2Gi", "--cores", "10")
        self.hold(BOB, "b", "--memory", "2Gi")
        for _ in range(3):
            self.end(signal.SIGKILL)
            self.start()
            self.assertEqual({n: t["uid"] for n, t in self.tenants().items()}, {"a": ALICE, "b": BOB})
            self.refused(self.sluice(BOB, "set", "a", "--memory", "1Gi"), "belongs to another user")
            self.refused(self.sluice(ALICE, "run", "--memory", "59Gi", "--", "true"), self.line(f"{ALICE}:"), code=125)
            self.assertEqual(self.sluice(ALICE, "set", "a", "--memory", "2Gi").returncode, 0)

    def test_who_is_not_in_the_group(self):
        told = self.sluice(STRANGER, "run", "--memory", "1Gi", "--", "true", groups=())
        self.refused(told, f"usermod -aG {GROUP} {STRANGER}", "log in again", code=125)
        self.refused(self.sluice(STRANGER, "status", groups=()), "usermod -aG")
        doctor = self.sluice(STRANGER, "doctor", groups=())
        self.assertRegex(doctor.stdout, r"problem +arbiter .*usermod")
        self.assertRegex(self.sluice(ALICE, "doctor").stdout, rf"ok +arbiter +the system's, in {DIR}")
        # The socket's mode is not all: the arbiter asks the kernel, too.
        os.chmod(SOCKET, 0o666)
        self.refused(self.sluice(STRANGER, "status", groups=()), f"group {GROUP}", "usermod")


class Limits(System):
    def test_over_the_limit_with_file_and_line(self):
        for words, line in ((("--memory", "21Gi"), "memory: 20Gi"), ((), "memory: 20Gi"),
                            (("--memory", "1Gi", "--priority", "high"), "priority: normal")):
            self.refused(self.sluice(CAROL, "run", *words, "--", "true"), self.line(line), code=125)
        self.refused(self.sluice(ALICE, "run", "--memory", "1Gi", "--cores", "31", "--", "true"), self.line(f"{ALICE}:"),
                     "31", code=125)
        student = self.sluice(CAROL, "run", "--memory", "5Gi", "--", "true", groups=(GROUP, STUDENTS))
        self.refused(student, self.line(f"{STUDENTS}:"), code=125)
        self.assertEqual(self.sluice(0, "run", "--memory", "100Gi", "--priority", "high", "--", "true").returncode, 0)
        self.assertEqual(self.sluice(BOB, "run", "--memory", "60Gi", "--priority", "high", "--", "true").returncode, 0)

    def test_the_sum_of_a_user(self):
        self.hold(CAROL, "c1", "--memory", "12Gi")
        over = self.sluice(CAROL, "run", "--memory", "9Gi", "--", "true")
        self.refused(over, "has 12.0 GiB", self.line("memory: 20Gi"), "--wait", code=125)
        self.hold(ALICE, "a", "--memory", "50Gi")  # another user's sum
        self.hold(CAROL, "c2", "--memory", "1Gi")
        self.hold(CAROL, "c3", "--memory", "1Gi")
        self.refused(self.sluice(CAROL, "run", "--memory", "1Gi", "--", "true"), self.line("tenants: 3"), code=125)
        self.refused(self.sluice(CAROL, "set", "c2", "--memory", "9Gi"), self.line("memory: 20Gi"))
        self.refused(self.sluice(CAROL, "set", "c2", "--priority", "high"), self.line("priority: normal"))
        self.assertEqual(self.sluice(CAROL, "set", "c1", "--memory", "4Gi").returncode, 0)
        self.assertEqual(self.sluice(CAROL, "set", "c2", "--memory", "9Gi").returncode, 0)

    def test_waiting_for_oneself(self):
        first = self.hold(CAROL, "c1", "--memory", "12Gi")
        self.refused(self.sluice(CAROL, "run", "--wait", "--memory", "21Gi", "--", "true"), self.line("memory: 20Gi"), code=125)
        waits = subprocess.Popen([SLUICE, "run", "--sim", "h200", "--wait", "--memory", "9Gi", "--", "true"],
                                 stderr=subprocess.PIPE, text=True, **as_user(CAROL, GROUP))
        self.addCleanup(waits.stderr.close)
        told = waits.stderr.readline()
        self.assertIn("waiting: place 1 of 1; you may have 20.0 GiB of memory (arbiter.yaml line 3), have 12.0 GiB", told)
        # Nobody else waits for Carol.
        self.assertEqual(self.sluice(ALICE, "run", "--memory", "1Gi", "--", "true").returncode, 0)
        self.assertEqual(self.sluice(ALICE, "run", "--wait=20s", "--memory", "1Gi", "--", "true").returncode, 0)
        self.assertIsNone(waits.poll())
        first.terminate()
        self.assertEqual(waits.wait(30), 0)


class Reload(System):
    def reload(self, text):
        before = self.log.read_text()
        self.rules.write_text(text)
        self.arbiter.send_signal(signal.SIGHUP)
        return eventually(lambda: str(self.rules) in self.log.read_text()[len(before):] and self.log.read_text()[len(before):])

    def test_a_new_file_and_a_wrong_one(self):
        self.refused(self.sluice(CAROL, "run", "--memory", "21Gi", "--", "true"), code=125)
        self.assertIn("is in force as it is now", self.reload(RULES.replace("20Gi", "30Gi")))
        self.assertEqual(self.sluice(CAROL, "run", "--memory", "21Gi", "--", "true").returncode, 0)
        said = self.reload(RULES.replace("memory: 20Gi", "memory: 2OGi"))
        self.assertIn(f"{self.rules}:3:11: ", said)
        self.assertIn("not in force", said)
        self.assertEqual(self.sluice(CAROL, "run", "--memory", "21Gi", "--", "true").returncode, 0)
        self.rules.unlink()
        self.assertIn("not in force", self.reload_without())
        self.assertEqual(self.sluice(CAROL, "run", "--memory", "21Gi", "--", "true").returncode, 0)

    def reload_without(self):
        before = self.log.read_text()
        self.arbiter.send_signal(signal.SIGHUP)
        return eventually(lambda: "No such file" in self.log.read_text()[len(before):] and self.log.read_text()[len(before):])

    def test_another_group(self):
        self.assertIn("in force", self.reload(RULES.replace(f"group: {GROUP}", f"group: {STUDENTS}")))
        self.refused(self.sluice(ALICE, "status"), f"usermod -aG {STUDENTS}")
        self.assertEqual(self.sluice(ALICE, "status", groups=(STUDENTS,)).returncode, 0)

    def test_a_lower_limit_takes_nothing_away(self):
        self.hold(CAROL, "c", "--memory", "15Gi")
        self.assertIn("in force", self.reload(RULES.replace("memory: 20Gi", "memory: 10Gi")))
        self.assertEqual(self.tenants()["c"]["gpus"][0]["memory_limit_bytes"], 15 << 30)
        self.assertEqual(self.sluice(CAROL, "set", "c", "--memory", "14Gi").returncode, 0)
        self.refused(self.sluice(CAROL, "set", "c", "--memory", "15Gi"), self.line("memory: 10Gi"))

    def test_a_wrong_file_at_the_start(self):
        self.end()
        for text, part in ((RULES.replace("defaults", "default"), "arbiter.yaml:2:1: "), ("users:\n\ta: {}\n", ":2:1: a tab"),
                           ("group: no-such-group-here\n", "groupadd --system no-such-group-here")):
            self.rules.write_text(text)
            for words in (self.command(), [SLUICE, "arbiter", "check", str(self.rules)]):
                told = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
                self.refused(told, part)
        self.rules.write_text(RULES)
        self.rules.chmod(0o666)
        self.refused(subprocess.run(self.command(), capture_output=True, text=True, check=False, timeout=60), "chmod go-w")
        told = subprocess.run([SLUICE, "arbiter", "--system", "--sim", "h200"], capture_output=True, text=True, check=False,
                              timeout=60, **as_user(ALICE, GROUP))
        self.refused(told, "root")


class Activation(System):
    def start(self):
        """As systemd does: the socket is there first, and the arbiter gets it as descriptor 3."""
        if not os.path.exists(SOCKET):
            os.makedirs(DIR, exist_ok=True)
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(self.listener.close)
            self.listener.bind(SOCKET)
            os.chown(SOCKET, 0, GROUP)
            os.chmod(SOCKET, 0o660)
            self.listener.listen(64)

    def activate(self, listener, count=1):
        fd = listener.fileno()

        def become():
            os.dup2(fd, 3)
            os.set_inheritable(3, True)  # where it was 3 already
            os.environ["LISTEN_PID"] = str(os.getpid())
            os.environ["LISTEN_FDS"] = str(count)
            os.execv(SLUICE, self.command())
        with self.log.open("a") as log:
            # pylint: disable=subprocess-popen-preexec-fn
            self.arbiter = subprocess.Popen(["never"], executable=SLUICE, stderr=log, stdin=subprocess.DEVNULL,
                                            preexec_fn=become, close_fds=False)

    def test_the_first_command_waits_for_the_arbiter(self):
        with subprocess.Popen([SLUICE, "run", "--sim", "h200", "--memory", "1Gi", "--", "echo", "ran"], stdout=subprocess.PIPE,
                              text=True, **as_user(ALICE, GROUP)) as run:
            readable = socket.socket.fileno(self.listener)
            eventually(lambda: select.select([readable], [], [], 0)[0])
            self.activate(self.listener)
            self.assertEqual(run.communicate(timeout=60)[0], "ran\n")
        self.hold(ALICE, "a", "--memory", "1Gi")
        self.assertEqual(self.status()["arbiter_pid"], self.arbiter.pid)  # the kernel names it, not who made the socket
        self.end()
        self.assertTrue(os.path.exists(SOCKET))
        with subprocess.Popen([SLUICE, "status", "--sim", "h200", "--json"], stdout=subprocess.PIPE, text=True,
                              **as_user(BOB, GROUP)) as status:
            self.activate(self.listener)
            told = json.loads(status.communicate(timeout=60)[0])
        self.assertEqual([t["uid"] for t in told["tenants"]], [ALICE])

    def test_another_socket_is_refused(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wrong:
            wrong.bind("/run/wrong.sock")
            wrong.listen(1)
            self.activate(wrong)
            self.assertEqual(self.arbiter.wait(60), 1)
        os.unlink("/run/wrong.sock")
        self.activate(self.listener, count=2)
        self.assertEqual(self.arbiter.wait(60), 1)
        self.assertEqual(self.log.read_text().count("ListenSequentialPacket=" + SOCKET), 2)


class OwnArbiter(System):
    def command(self, *more):
        return [SLUICE, "arbiter", "--system", "--dir", "/run/sluice", "--sim", "h200", "--config", str(self.rules), *more]

    def serves(self):
        told = subprocess.run([SLUICE, "--dir", "/run/sluice", "status", "--json"], capture_output=True, text=True, check=False)
        return told.returncode == 0 and json.loads(told.stdout).get("arbiter_pid") == self.arbiter.pid

    def test_none_beside_the_systems(self):
        own = self.place / "own"
        own.mkdir(0o700)
        os.chown(own, ALICE, ALICE)
        for words in (("arbiter", "--dir", str(own)), ("run", "--dir", str(own), "--memory", "1Gi", "--", "true")):
            told = subprocess.run([SLUICE, *words], capture_output=True, text=True, check=False, timeout=60, **as_user(ALICE, GROUP))
            self.assertNotEqual(told.returncode, 0)
            self.assertIn("the system's arbiter (/run/sluice) serves the GPUs of this machine", told.stderr)
        # Killed, it is not replaced by a user's own, nor by root's.
        self.end(signal.SIGKILL)
        for uid in (ALICE, 0):
            told = subprocess.run([SLUICE, "run", "--memory", "1Gi", "--", "true"], capture_output=True, text=True, check=False,
                                  timeout=60, **as_user(uid, GROUP))
            self.refused(told, "systemctl start sluice-arbiter", code=125)
        # Ended in good order, it leaves the machine to its users.
        self.start()
        self.end()
        self.assertFalse(os.path.exists("/run/sluice/arbiter.sock"))
        told = subprocess.run([SLUICE, "status"], capture_output=True, text=True, check=False, timeout=60,
                              **as_user(ALICE, GROUP), env={**os.environ, "XDG_RUNTIME_DIR": str(own)})
        self.assertIn(f"{own}/sluice", told.stdout)


class Floods(System):
    limit = 256

    def flood(self, attack):
        """Bob attacks in a process of his own, until the test ends. `attack` returns when the attack stands."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                os.setgroups([GROUP])
                os.setgid(BOB)
                os.setuid(BOB)
                attack()
                os.write(writer, b"ready")
                signal.pause()
            finally:
                os._exit(1)
        os.close(writer)

        def over():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.addCleanup(over)
        with os.fdopen(reader) as said:
            self.assertEqual(said.read(5), "ready")

    def works(self):
        for _ in range(5):
            told = self.sluice(ALICE, "run", "--memory", "1Gi", "--", "true")
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertEqual(self.sluice(CAROL, "status").returncode, 0)

    @staticmethod
    def connect():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(SOCKET)
        return s

    def test_connections(self):
        kept = []
        self.flood(lambda: kept.extend(self.connect() for _ in range(400)))
        self.works()

    def test_requests(self):
        """One user gets so many answers a second, with any number of connections."""
        answers = []

        def ask(until):
            with self.connect() as s:
                while time.monotonic() < until:
                    s.send(STATUS)
                    while struct.unpack("<IHHII", s.recv(65536)[:16])[2] != MSG_END:
                        pass
                    answers.append(1)

        def attack(seconds):
            began = time.monotonic()
            threads = [threading.Thread(target=ask, args=(began + seconds,), daemon=True) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return f"{len(answers)} {time.monotonic() - began}"
        count, seconds = map(float, as_user_do(BOB, attack, 3).split())
        self.assertLess(count, 600 + 600 * seconds)
        self.flood(lambda: threading.Thread(target=attack, args=(600,), daemon=True).start())
        self.works()

    def test_connects_and_hangs_up(self):
        def knock_on():
            while True:
                with contextlib.suppress(OSError):
                    self.connect().close()

        def attack():
            for _ in range(4):
                threading.Thread(target=knock_on, daemon=True).start()
            time.sleep(0.5)
        self.flood(attack)
        self.works()

    def test_tenants(self):
        """As many tenants as he gets: descriptors are left for the others."""
        many = []

        def attack():
            for _ in range(60):
                many.append(subprocess.Popen([SLUICE, "run", "--sim", "h200", "--memory", "1Mi", "--", "sleep", "600"],
                                             stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.flood(attack)
        eventually(lambda: len(self.tenants()) >= 5)
        self.works()


class Shares(System):
    """Two users' jobs hold their shares against each other. The control runs alone, on a simulated machine of its own."""
    share = staticmethod(days.World.share)
    at_once = days.World.at_once
    assertShare = days.World.assertShare

    def test_30_70(self):
        elsewhere = days.types.SimpleNamespace(dir=str(self.place / "alone"), sim="h200", addCleanup=self.addCleanup)
        self.addCleanup(days.folders.end_arbiters, str(self.place))
        control = days.World.steady(elsewhere, "control", 7)

        def steady(uid, name, cores):
            prefix = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--groups", str(GROUP)]
            return days.World.steady(self, name, 6, cores=cores, memory="10Gi", prefix=prefix)
        a, b = steady(ALICE, "a", 30), steady(BOB, "b", 70)
        self.assertEqual({n: t["uid"] for n, t in self.tenants().items()}, {"a": ALICE, "b": BOB})
        self.refused(self.sluice(BOB, "set", "a", "--cores", "1"), "belongs to another user")
        self.refused(self.sluice(ALICE, "set", "a", "--cores", "31"), self.line(f"{ALICE}:"))
        told = self.sluice(CAROL, "run", "--memory", "21Gi", "--", "true")
        self.refused(told, self.line("memory: 20Gi"), code=125)
        got_a, got_b = a.result(), b.result()
        self.assertShare(a, got_a, 30, control, (1.5, 5.5))
        self.assertShare(b, got_b, 70, control, (1.5, 5.5))
        print(f"a asked for 30 and got {self.share(got_a, 1.5, 5.5):.1f} %, b asked for 70 and got "
              f"{self.share(got_b, 1.5, 5.5):.1f} %; the control got {self.share(control.said, 1.5, 5.5):.1f} %")


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
