# SPDX-License-Identifier: Apache-2.0
"""A whole sluiced and its configuration: every way to change it while it runs, and changes that are no good."""
import os
import pathlib
import shutil
import signal

from sluiced_node import GPU, Case, main, shared, until

PLAIN = "version: v1\n"
LABEL = "nvidia.com/device-plugin.config"


class Reload(Case):
    def test_file_written_in_place(self):
        node = self.node()
        node.config(shared("timeSlicing", 2))
        agent = node.agent()
        node.wait(4)
        node.config(shared("timeSlicing", 4))
        node.wait(8)
        # One registration, one stream: shares that stay were never away.
        self.assertEqual(node.counts(), [1, 2, 0])
        node.config(PLAIN)
        node.wait(2)
        self.assertEqual(node.counts()[0], 1)
        self.assertEqual(agent.metric('sluice_config_reloads_total{result="ok"}'), 2)

    def test_from_one_pod_a_card_to_two(self):
        node = self.node("h200")
        node.config(PLAIN)
        node.agent()
        node.wait(1)
        card = node.ids()[0]
        self.assertEqual(node.allocate(card)["envs"]["NVIDIA_VISIBLE_DEVICES"], card)
        node.config(shared("timeSlicing", 2))
        node.wait(2)
        self.assertEqual(node.counts()[0], 1)
        for share in node.ids():
            self.assertEqual(node.allocate(share)["envs"]["NVIDIA_VISIBLE_DEVICES"], card)

    def test_who_holds_what(self):
        """A pod from before a change goes on using its card, and metrics go on saying so."""
        node = self.node()
        node.kubelet.ask(f"podres {node.folder}/podres.sock")
        node.config(PLAIN)
        agent = node.agent()
        node.wait(2)
        card = node.ids()[0]
        node.kubelet.ask(f"place team train main {GPU} {card}")
        node.kubelet.ask("place team other main example.com/nic nic-0")
        held = (f'sluice_device_allocated{{resource="{GPU}",device="%s",gpu="{card}",namespace="team",pod="train",'
                'container="main"}')
        until("held", lambda: agent.metric(held % card) == 1)
        node.config(shared("timeSlicing", 2).replace("2}", "2, rename: small}"))
        node.wait(4, resource="nvidia.com/small")
        self.assertEqual(agent.metric(held % card), 1)
        node.kubelet.ask("remove team train")
        node.kubelet.ask(f"place team train main {GPU} {card}::1")
        until("held", lambda: agent.metric(held % f"{card}::1") == 1)
        self.assertNotIn("nic-0", agent.get("/metrics")[1])

    def test_configmap(self):
        """As kubelet writes one: a directory of a new name, and a link renamed over the old link."""
        node = self.node()
        folder = f"{node.folder}/cm"
        os.makedirs(f"{folder}/..1")
        node.write("cm/..1/config.yaml", PLAIN)
        os.symlink("..1", f"{folder}/..data")
        os.symlink("..data/config.yaml", f"{folder}/config.yaml")
        node.config_file = f"{folder}/config.yaml"
        node.agent()
        node.wait(2)
        for n in (2, 3, 4):
            os.mkdir(f"{folder}/..{n}")
            node.write(f"cm/..{n}/config.yaml", shared("timeSlicing", n))
            os.symlink(f"..{n}", f"{folder}/..data_tmp")
            os.rename(f"{folder}/..data_tmp", f"{folder}/..data")
            node.wait(2 * n)
        self.assertEqual(node.counts()[0], 1)

    def test_sighup(self):
        node = self.node()
        # A link into another directory: inotify sees nothing there.
        os.mkdir(f"{node.folder}/elsewhere")
        node.write("elsewhere/file", PLAIN)
        os.symlink(f"{node.folder}/elsewhere/file", node.config_file)
        agent = node.agent()
        node.wait(2)
        node.write("elsewhere/file", shared("timeSlicing", 3))
        agent.process.send_signal(signal.SIGHUP)
        node.wait(6)

    def test_bad_ones_are_refused(self):
        node = self.node(api=True)
        node.config(shared("timeSlicing", 2))
        agent = node.agent()
        node.wait(4)
        bad = {
            "a word that is no key": (PLAIN + "flagz: {}\n", "config.yaml:2:1: unknown key \"flagz\""),
            "no replicas": (shared("timeSlicing", 0), "replicas"),
            "minus one": (shared("timeSlicing", -1), "replicas"),
            "one": (shared("timeSlicing", 1), "replicas"),
            "a million": (shared("timeSlicing", 1000000), "replicas"),
            "a long name": (shared("timeSlicing", 2).replace("2}", "2, rename: " + "x" * 64 + "}"), "63"),
            "a card that is not there": (shared("timeSlicing", 2).replace("2}", "2, devices: [7]}"), "7"),
            "both ways of sharing": (shared("timeSlicing", 2) + "  mps:\n    resources:\n"
                                     "    - {name: nvidia.com/gpu, replicas: 2}\n", "keep one of them"),
            "no YAML": ("version: [v1\n", "config.yaml"),
            "cut off": (PLAIN + "\0flags: {migStrategy: mixed}\n", "config.yaml:2:1"),
        }
        for i, (what, (text, words)) in enumerate(bad.items(), 1):
            with self.subTest(what):
                node.config(text)
                agent.said("the old configuration stays in force: ")
                until("counted", lambda n=i: agent.metric(
                    'sluice_config_reloads_total{result="failed"}') == n)
                last = agent.text().rsplit("the old configuration stays in force: ", 1)[1]
                self.assertIn(words, last)
                self.assertEqual(agent.metric("sluice_config_last_reload_successful"), 0)
        self.assertEqual(node.counts(), [1, 1, 0])
        self.assertTrue(node.allocate(node.ids()[0])["envs"])
        self.assertIn("Warning", [e["type"] for e in node.api.events() if e["reason"] == "ConfigRefused"])
        node.config(shared("timeSlicing", 2))  # as it was
        until("well again", lambda: agent.metric("sluice_config_last_reload_successful") == 1)
        self.assertEqual(node.counts(), [1, 1, 0])
        os.remove(node.config_file)
        until("missed", lambda: agent.metric("sluice_config_last_reload_successful") == 0)
        node.config(shared("timeSlicing", 2))
        until("found again", lambda: agent.metric("sluice_config_last_reload_successful") == 1)

    def test_bad_one_at_the_start(self):
        node = self.node()
        node.config("version: v2\n")
        agent = node.agent()
        self.assertEqual(agent.process.wait(timeout=30), 1)
        self.assertIn("config.yaml:1:10", agent.text())

    def test_good_file_for_another_node(self):
        node = self.node()
        node.config(shared("timeSlicing", 2).replace("2}", "2, devices: [7]}"))
        agent = node.agent()
        agent.said("the node continues to offer the same devices as before")
        self.assertEqual(agent.get("/healthz")[0], 200)
        status, why = agent.get("/readyz")
        self.assertEqual(status, 503)
        self.assertIn("7", why)
        self.assertEqual(agent.metric("sluice_config_last_reload_successful"), 0)
        node.config(shared("timeSlicing", 2))
        node.wait(4)
        until("ready", lambda: agent.get("/readyz")[0] == 200)
        self.assertEqual(agent.metric("sluice_config_last_reload_successful"), 1)

    def test_what_needs_a_restart_says_so(self):
        node = self.node()
        node.config(PLAIN)
        agent = node.agent()
        node.wait(2)
        node.config("version: v1\nflags: {nvidiaDevRoot: /elsewhere}\n")
        agent.said("nvidiaDevRoot has changed: the change takes effect when the agent is restarted")


    def test_fractions_while_it_runs(self):
        """The arbiter is started then, and metrics know it; pods without a promise are refused, and counted."""
        node = self.node(api=True)
        node.config(PLAIN)
        agent = node.agent()
        node.wait(2)
        arbiter = 'sluice_source_up{source="arbiter"}'
        self.assertIsNone(agent.metric(arbiter))
        node.config("version: v1\nsharing: {fractional: {enabled: true, slots: 3}}\n")
        node.wait(6)
        until("the arbiter answers", lambda: agent.metric(arbiter) == 1)
        self.assertEqual(agent.metric('sluice_prestarts_total{resource="nvidia.com/gpu",result="failed"}'), 0)
        until("registered as one to be asked", lambda: node.kubelet.ask(f"options {GPU}") == "1")
        node.wait(6)
        self.assertIn("cannot find the pod that has device", node.kubelet.ask(f"prestart {GPU} {node.ids()[0]}"))
        self.assertEqual(agent.metric('sluice_prestarts_total{resource="nvidia.com/gpu",result="failed"}'), 1)
        self.assertEqual(agent.metric('sluice_prestarts_total{resource="nvidia.com/gpu",result="ok"}'), 0)


    def test_arbiter_away(self):
        """An arbiter that is back in a moment is no event on the Node; one that cannot run is, and its return too."""
        node = self.node(api=True)
        fractional = "version: v1\nsharing: {fractional: {enabled: true, slots: 3}}\n"

        def reasons():
            return [e["reason"] for e in node.api.events()]
        node.config(fractional)
        agent = node.agent()
        until("the arbiter answers", lambda: agent.metric('sluice_source_up{source="arbiter"}') == 1)
        with open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children", encoding="ascii") as f:
            arbiter, = (int(pid) for pid in f.read().split()
                        if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "sluice-arbiter")
        os.kill(arbiter, signal.SIGKILL)
        agent.said("signal 9 ended the arbiter: the agent starts another")
        until("the arbiter answers", lambda: agent.metric('sluice_source_up{source="arbiter"}') == 1)
        node.config(PLAIN)  # an event that comes after all that were on their way
        until("an event", lambda: "ConfigAccepted" in reasons())
        self.assertNotIn("ArbiterDown", reasons())
        agent.kill(signal.SIGTERM)
        # As in a pod without the folder.
        shutil.rmtree(f"{node.folder}/arbiter")
        node.write("arbiter", "no folder")
        node.config(fractional)
        agent = node.agent()
        agent.said("cannot start the arbiter")
        until("an event", lambda: "ArbiterDown" in reasons(), 60)
        words = [e["message"] for e in node.api.events() if e["reason"] == "ArbiterDown"]
        self.assertIn("deploy/components/fractional", words[0])
        os.unlink(f"{node.folder}/arbiter")
        until("the other event", lambda: "ArbiterUp" in reasons(), 60)


class Label(Case):
    def files(self, node, **texts):
        os.makedirs(f"{node.folder}/configs", exist_ok=True)
        for name, text in texts.items():
            node.write(f"configs/{name}", text)
        return f"--config-dir={node.folder}/configs"

    def test_label_chooses(self):
        node = self.node(api=True)
        where = self.files(node, default=PLAIN, two=shared("timeSlicing", 2), bad="version: v9\n")
        agent = node.agent(where, config=False)
        node.wait(2)
        self.assertEqual(agent.metric("sluice_config_last_reload_successful"), 1)
        node.api.label(LABEL, "two")
        node.wait(4)
        until("labels follow", lambda: node.api.labels().get("nvidia.com/gpu.replicas") == "2")
        self.assertTrue(node.api.labels()["nvidia.com/gpu.product"].endswith("-SHARED"))
        self.assertEqual(node.api.labels()["nvidia.com/gpu.sharing-strategy"], "time-slicing")
        for name in ("bad", "nowhere", "../kubeconfig"):
            node.api.label(LABEL, name)
            until(name, lambda: agent.metric("sluice_config_last_reload_successful") == 0)
            node.api.label(LABEL, "two")
            until("two again", lambda: agent.metric("sluice_config_last_reload_successful") == 1)
        self.files(node, two=shared("timeSlicing", 5))  # the file that is chosen is watched
        node.wait(10)
        node.api.label(LABEL, None)
        node.wait(2)
        self.assertEqual(node.counts()[0], 1)

    def test_first_list_is_the_labels(self):
        """No moment of the default configuration: pods would lose their devices for it."""
        node = self.node(api=True)
        where = self.files(node, default=PLAIN, two=shared("timeSlicing", 2))
        node.api.label(LABEL, "two")
        agent = node.agent(where, config=False)
        node.wait(4)
        self.assertEqual(node.counts(), [1, 1, 0])
        agent.kill()
        node.api.down = True  # and none either when nobody can say what the label is
        node.agent(where, config=False)
        until("registered again", lambda: node.counts()[0] == 2)
        until("its list", lambda: node.counts()[1] > 1)
        node.wait(4)
        self.assertEqual(node.counts()[1], 2)

    def test_remembered_label_without_its_file(self):
        node = self.node(api=True)
        where = self.files(node, default=PLAIN)
        os.mkdir(f"{node.folder}/state")
        node.write("state/config-label", "gone")
        node.api.down = True
        node.agent(where, config=False)
        node.wait(2)


class NodeFeature(Case):
    """Labels by way of Node Feature Discovery, and what becomes of those that are on the Node."""
    COUNT, OWNED = "nvidia.com/gpu.replicas", "sluice.io/owned-labels"
    BY_FEATURE = ("--node-feature", "--pod-namespace=gpu")

    def owned(self, node):
        return node.api.objects["/api/v1/nodes/node-1"]["metadata"]["annotations"].get(self.OWNED)

    def test_not_installed(self):
        node = self.node(api=True)
        node.config(PLAIN)
        agent = node.agent(*self.BY_FEATURE)
        until("labels on the Node", lambda: node.api.labels().get(self.COUNT) == "1")
        said = until("an event", lambda: [e for e in node.api.events() if e["reason"] == "NodeFeatureRefused"])
        self.assertIn("could not find the requested resource", said[0]["message"])
        self.assertIn("the labels are written to the Node", said[0]["message"])
        until("said", lambda: agent.metric("sluice_node_labels_current") == 1)
        self.assertIn(self.COUNT, self.owned(node))

    def test_taken(self):
        node = self.node(api=True)
        node.config(PLAIN)
        agent = node.agent()
        until("labels on the Node", lambda: node.api.labels().get(self.COUNT) == "1")
        agent.kill()
        node.api.nfd = True
        agent = node.agent(*self.BY_FEATURE)
        until("labels in the object", lambda: (node.api.feature() or {}).get(self.COUNT) == "1")
        until("the Node's are nobody's", lambda: self.owned(node) is None)
        self.assertEqual(node.api.labels()[self.COUNT], "1")  # they stay for Node Feature Discovery's master
        until("said", lambda: agent.metric("sluice_node_labels_current") == 1)
        before = len([1 for m, p, _ in node.api.log if m == "PATCH" and p == "/api/v1/nodes/node-1"])
        node.config(shared("timeSlicing", 3))
        until("labels follow", lambda: node.api.feature()[self.COUNT] == "3")
        self.assertEqual(node.api.labels()[self.COUNT], "1")  # its master's business
        self.assertEqual(len([1 for m, p, _ in node.api.log if m == "PATCH" and p == "/api/v1/nodes/node-1"]), before)
        node.config(shared("timeSlicing", 2, "flags: {useNodeFeatureAPI: false}\n"))
        until("the object is gone", lambda: node.api.feature() is None)
        until("labels are ours again", lambda: node.api.labels()[self.COUNT] == "2")
        self.assertIn(self.COUNT, self.owned(node))
        node.config(PLAIN)
        until("in the object again", lambda: (node.api.feature() or {}).get(self.COUNT) == "1")

    def test_as_a_file(self):
        node = self.node()
        path = f"{node.folder}/features.d/gfd"
        os.mkdir(f"{node.folder}/features.d")
        node.config(f"version: v1\nflags: {{gfd: {{outputFile: {path}, noTimestamp: true}}}}\n")
        agent = node.agent("--nfd")
        until("a file", lambda: os.path.exists(path))
        with open(path, encoding="ascii") as file:
            self.assertIn("nvidia.com/gpu.count=2\n", file.readlines())
        self.assertEqual(agent.kill(signal.SIGTERM), 0)
        self.assertFalse(os.path.exists(path))

    def test_no_such_node(self):
        node = self.node(api=True)
        node.config(PLAIN)
        agent = node.agent("--node-name=node-7")
        agent.said("node node-7: cannot watch it: there is no Node with this name: check NODE_NAME")
        node.wait(2)
        self.assertEqual(agent.metric("sluice_node_labels_current"), 0)

    def test_nowhere_else(self):
        node = self.node(api=True)
        node.config(PLAIN)
        agent = node.agent(*self.BY_FEATURE, "--labels=false")
        agent.said("the labels are not published")
        self.assertEqual(agent.metric("sluice_node_labels_current"), 0)
        self.assertEqual(node.api.labels(), {})
        node = self.node()
        node.config(PLAIN)
        agent = node.agent("--node-feature")
        self.assertEqual(agent.process.wait(timeout=30), 1)
        self.assertIn("--node-feature needs the API server", agent.text())


class Mig(Case):
    def test_none_single_mixed(self):
        node = self.node("h200x2")
        node.ctl("mig", "0", "1g.18gb", "1g.18gb", "1g.18gb")
        node.ctl("mig", "1", "1g.18gb", "1g.18gb")
        node.config(PLAIN)
        agent = node.agent()
        node.wait(2)
        self.assertTrue(all(i.startswith("GPU-") for i in node.ids()))
        self.assertIsNotNone(agent.metric("sluice_mig_memory_used_bytes"))
        node.config("version: v1\nflags: {migStrategy: single}\n")
        node.wait(5)
        self.assertTrue(all(i.startswith("MIG-") for i in node.ids()))
        mig = node.ids()[0]
        self.assertEqual(node.allocate(mig)["envs"]["NVIDIA_VISIBLE_DEVICES"], mig)
        node.config("version: v1\nflags: {migStrategy: mixed}\n")
        node.wait(5, resource="nvidia.com/mig-1g.18gb")
        node.wait(0)
        self.assertEqual(node.allocate(mig, resource="nvidia.com/mig-1g.18gb")["envs"]
                         ["NVIDIA_VISIBLE_DEVICES"], mig)
        node.config(PLAIN)
        node.wait(2)

    def test_a_card_left_out_is_an_event(self):
        """A card without instances under `single`: the Node says that it is not offered, once."""
        node = self.node("h200x2", api=True)
        node.ctl("mig", "0", "1g.18gb", "1g.18gb")
        node.config("version: v1\nflags: {migStrategy: single}\n")
        agent = node.agent()
        node.wait(2)

        def words():
            return [(e["message"], e.get("count", 1)) for e in node.api.events() if e["reason"] == "ConfigWarning"]
        until("an event", words)
        self.assertIn("GPU 1 ", words()[0][0])
        agent.process.send_signal(signal.SIGHUP)
        node.ctl("mig", "0", "1g.18gb", "1g.18gb", "1g.18gb")
        agent.process.send_signal(signal.SIGHUP)
        node.wait(3)
        self.assertEqual([count for _, count in words()], [1])

    def test_instances_change_while_it_runs(self):
        node = self.node("h200x2")
        node.ctl("mig", "1", "1g.18gb")
        node.config("version: v1\nflags: {migStrategy: mixed}\n")
        agent = node.agent()
        node.wait(1)
        node.wait(1, resource="nvidia.com/mig-1g.18gb")
        node.ctl("mig", "1", "3g.71gb", "1g.18gb", "1g.18gb")
        agent.process.send_signal(signal.SIGHUP)
        node.wait(1, resource="nvidia.com/mig-3g.71gb")
        node.wait(2, resource="nvidia.com/mig-1g.18gb")
        # Two profiles under `single` stop nothing.
        node.config("version: v1\nflags: {migStrategy: single}\n")
        node.wait(2)
        self.assertEqual(node.counts(GPU)[0], 1)


if __name__ == "__main__":
    main()
