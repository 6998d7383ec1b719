# SPDX-License-Identifier: Apache-2.0
"""A cluster that exists only as objects of an API server, for sluice-controller to look at."""
import http.server
import json
import random
import threading
import time
import urllib.parse

MODELS = (("NVIDIA H200", 143771), ("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA L40S", 46068), ("NVIDIA L4", 23034))
NAMES = ("train-resnet", "llama-serve", "notebook", "embed", "whisper", "rag-index", "sd-render", "eval-suite", "tune-lora", "asr-batch")
SPACES = ("research", "prod", "batch", "vision", "speech")
EVIL = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"


def node(name, cards, model, mib):
    gpus = [{"uuid": f"GPU-{name[:24]}-{i}", "memoryMiB": mib, "cores": 100, "model": model, "numa": 0, "healthy": True} for i in range(cards)]
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": {"sluice.io/gpus": json.dumps(gpus)}},
            "status": {"allocatable": {"cpu": "128"}}, "_gpus": gpus}


def pod(number, name, space, where, shares):
    """shares: [(gpu, MiB, percent)] on the node `where`."""
    lease = {"version": 1, "node": where, "containers": [{"name": "main", "gpus": [
        {"uuid": g["uuid"], "memoryMiB": mib, "cores": cores} for g, mib, cores in shares]}]}
    return {"metadata": {"name": name, "namespace": space, "uid": f"pod-{number}", "annotations": {"sluice.io/lease": json.dumps(lease)}},
            "spec": {"nodeName": where, "containers": [{"name": "main"}]}, "status": {"phase": "Running"}}


def request(mib, cores, count=1):
    return json.dumps({"version": 1, "containers": 1, "parts": [{"container": "main", "index": 0, "gpus": count, "memoryMiB": mib, "cores": cores}]})


def waiting(number, name, space, mib, cores, said):
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 40 - 97 * number))
    return {"metadata": {"name": name, "namespace": space, "uid": f"wait-{number}", "creationTimestamp": since,
                         "annotations": {"sluice.io/request": request(mib, cores)}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]}}


class Cluster:
    """Nodes and pods; the same for the same numbers."""

    def __init__(self, nodes, cards_each, hostile=False):
        self.nodes, self.pods, number, luck = [], [], 0, random.Random(7)
        for n in range(nodes):
            model, mib = MODELS[(n // 3) % len(MODELS)] if nodes > 1 else MODELS[0]
            cards = cards_each(n) if callable(cards_each) else cards_each
            self.nodes.append(node(f"gpu-node-{n + 1}", cards, model, mib))
        if hostile:
            for n in self.nodes[:1]:
                evil = node(EVIL, 2, EVIL[:60], 81920)
                self.nodes.append(evil)
                self.pods.append(pod("evil", EVIL, "a-space", evil["metadata"]["name"], [(evil["_gpus"][0], 20480, 30)]))
                self.pods.append(waiting(90, EVIL, "b-space", 900000, 30, EVIL))
        if nodes == 1:
            card, name = self.nodes[0]["_gpus"][0], self.nodes[0]["metadata"]["name"]
            for k, (who, space, part, cores) in enumerate((("train-resnet-0", "research", 51200, 40), ("llama-serve", "prod", 40960, 30), ("notebook-7", "research", 20480, 10))):
                self.pods.append(pod(f"one-{k}", who, space, name, [(card, part, cores)]))
        for n in self.nodes[:nodes if nodes > 1 else 0]:
            for i, gpu in enumerate(n["_gpus"]):
                mib, left_mib, left_cores = gpu["memoryMiB"], gpu["memoryMiB"], 100
                for k in range(luck.choice((0, 0, 1, 2, 3, 3, 4, 5, 6))):
                    part = mib // luck.choice((3, 4, 5, 8, 10))
                    cores = luck.choice((10, 15, 20, 25, 30))
                    if part > left_mib or cores > left_cores:
                        break
                    self.pods.append(pod(f"{number}-{k}", f"{luck.choice(NAMES)}-{number}{'abcdef'[k]}", luck.choice(SPACES),
                                         n["metadata"]["name"], [(gpu, part, cores)]))
                    left_mib, left_cores = left_mib - part, left_cores - cores
                if left_mib == mib and luck.random() < 0.3:
                    self.pods.append(pod(f"{number}-w", f"pretrain-{number}", "research", n["metadata"]["name"], [(gpu, mib, 100)]))
                number += 1
        for i in range(min(45, max(1, number // 12))):
            self.pods.append(waiting(i, f"{NAMES[i % len(NAMES)]}-big-{i}", SPACES[i % len(SPACES)], 200000 if i % 2 == 0 else 143771, 80,
                                     f"0/{nodes} nodes are available: {nodes} not enough free GPU memory or cores."))

    def lists(self):
        clean = [{k: v for k, v in n.items() if k != "_gpus"} for n in self.nodes]
        return {"/api/v1/nodes": clean, "/api/v1/pods": self.pods}


class Api:
    """Lists, and watches that report what is added later."""

    def __init__(self, lists):
        self.lists, self.events, self.changed = lists, [], threading.Condition()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                query = urllib.parse.parse_qs(url.query)
                if "watch" in query:
                    return api.watch(self, url.path)
                body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": api.lists.get(url.path, [])}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def watch(self, handler, path):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        sent = 0
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: len(self.events) > sent, timeout=5)
                    new, sent = self.events[sent:], len(self.events)
                for where, kind, thing in new:
                    if where == path:
                        data = json.dumps({"type": kind, "object": thing}).encode() + b"\n"
                        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                handler.wfile.flush()
        except OSError:
            pass

    def tell(self, path, kind, thing):
        thing["metadata"]["resourceVersion"] = str(2 + len(self.events))
        with self.changed:
            self.events.append((path, kind, thing))
            self.changed.notify_all()
