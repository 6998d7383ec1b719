#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
An arbiter that hangs beside its agent: the agent sees it, ends it, and starts another; and an agent that ends does
not wait for it. Usage: restart_sluiced.py BUILD [unittest's arguments]
"""
import os
import pathlib
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from sluiced_node import Case, main, until  # noqa: E402

FRACTIONS = "version: v1\nsharing: {fractional: {enabled: true, slots: 3}}\n"
UP = 'sluice_source_up{source="arbiter"}'


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def arbiters(agent):
    """The agent's own, by their PIDs."""
    pid = agent.process.pid
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return [int(c) for c in children
                if b"arbiter" in pathlib.Path(f"/proc/{c}/cmdline").read_bytes().split(b"\0") and alive(c)]
    except OSError:
        return []


class Stuck(Case):
    def start(self, node, **more):
        agent = node.agent(**more)
        until("the arbiter answers", lambda: agent.metric(UP) == 1)
        return agent

    def begin(self):
        node = self.node(api=True)
        node.config(FRACTIONS)
        agent = self.start(node)
        [arbiter] = arbiters(agent)
        return node, agent, arbiter

    def test_stopped(self):
        _, agent, arbiter = self.begin()
        os.kill(arbiter, signal.SIGSTOP)
        self.addCleanup(lambda: alive(arbiter) and os.kill(arbiter, signal.SIGKILL))
        agent.said(f"the arbiter (process {arbiter}) has not answered")
        until("another one is there", lambda: arbiters(agent) and arbiters(agent) != [arbiter])
        until("it answers", lambda: agent.metric(UP) == 1)
        self.assertFalse(alive(arbiter))

    def test_agent_ends(self):
        _, agent, arbiter = self.begin()
        os.kill(arbiter, signal.SIGSTOP)
        self.addCleanup(lambda: alive(arbiter) and os.kill(arbiter, signal.SIGKILL))
        self.assertEqual(agent.kill(signal.SIGTERM), 0)
        self.assertFalse(alive(arbiter))

    def test_left_behind(self):
        """By an agent that was killed; the next agent uses it, until it hangs."""
        node, agent, arbiter = self.begin()
        self.addCleanup(lambda: alive(arbiter) and os.kill(arbiter, signal.SIGKILL))
        agent.kill()
        second = self.start(node, name="second")
        self.assertTrue(alive(arbiter))
        os.kill(arbiter, signal.SIGSTOP)
        second.said(f"the arbiter (process {arbiter}) has not answered")
        until("it has one of its own", lambda: arbiters(second))
        until("it answers", lambda: second.metric(UP) == 1)
        self.assertFalse(alive(arbiter))


if __name__ == "__main__":
    main()
