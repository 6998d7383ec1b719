# SPDX-License-Identifier: Apache-2.0
"""As much of a Kubernetes API server as the DRA driver talks to: objects by path, list, watch, status."""
import http.server
import json
import queue
import re
import threading
import urllib.parse

GROUP = "/apis/resource.k8s.io/v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"


class Api:
    def __init__(self):
        self.lock = threading.Lock()
        self.version = 100
        self.objects = {}  # path → object
        self.watchers = []  # (collection, selector, queue)
        self.patches = []  # (path, body)
        self.down = False  # every request fails
        self.no_apply = False  # patches are refused, as where they would change what is not ours
        self.protobuf = {}  # path → a claim's bytes, for who asks for them
        self.updates = []  # (path, bytes) of what came as protobuf
        self.conflicts = 0  # so many updates find that the claim has changed
        self.log = []
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do(self):
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size) if size else None
                if api.no_apply and self.command == "PATCH":
                    return self.answer(422, {"kind": "Status", "message": "status.allocation: Forbidden"})
                if PROTOBUF in self.headers.get("accept", "") or PROTOBUF in self.headers.get("content-type", ""):
                    return api.serve_bytes(self, self.command, self.path.split("?")[0], body)
                body = json.loads(body) if body else None
                return api.serve(self, self.command, self.path, body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

            def answer(self, status, body):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", PROTOBUF if isinstance(body, bytes) else "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()

    # --- objects ---

    def next(self):
        self.version += 1
        return str(self.version)

    @staticmethod
    def collection(path):
        return path.rsplit("/", 1)[0]

    @staticmethod
    def selected(obj, selector):
        for term in filter(None, selector.split(",")):
            key, value = term.split("=", 1)
            at = obj
            for part in key.split("."):
                at = at.get(part, {}) if isinstance(at, dict) else {}
            if at != value:
                return False
        return True

    def put(self, path, obj, event=None):
        with self.lock:
            event = event or ("MODIFIED" if path in self.objects else "ADDED")
            obj["metadata"]["resourceVersion"] = self.next()
            self.objects[path] = obj
            self.tell(event, path, obj)
            return obj

    def delete(self, path):
        with self.lock:
            obj = self.objects.pop(path, None)
            if obj:
                obj["metadata"]["resourceVersion"] = self.next()
                self.tell("DELETED", path, obj)
            return obj

    def tell(self, event, path, obj):
        for collection, selector, q in list(self.watchers):
            if self.collection(path) == collection and self.selected(obj, selector):
                q.put({"type": event, "object": json.loads(json.dumps(obj))})

    def slices(self):
        with self.lock:
            return [o for p, o in sorted(self.objects.items()) if "/resourceslices/" in p]

    # --- requests ---

    def serve(self, handler, method, path, body):
        split = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(split.query))
        path = split.path
        self.log.append((method, path, query))
        if self.down:
            return handler.answer(503, {"kind": "Status", "message": "the API server is down"})
        if method == "GET" and re.search(r"/(resourceslices|resourceclaims)$", path):
            return self.watch(handler, path, query) if query.get("watch") else self.list(
                handler, path, query)
        if method == "GET":
            with self.lock:
                obj = self.objects.get(path)
            return handler.answer(200, obj) if obj else handler.answer(
                404, {"kind": "Status", "message": f"{path} not found"})
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return handler.answer(409, {"kind": "Status", "message": "already exists"})
            return handler.answer(201, self.put(path, body))
        if method == "PUT":
            have = self.objects.get(path)
            if not have or have["metadata"]["resourceVersion"] != body["metadata"].get(
                    "resourceVersion"):
                return handler.answer(409, {"kind": "Status", "message": "changed meanwhile"})
            return handler.answer(200, self.put(path, body))
        if method == "DELETE":
            return handler.answer(200 if self.delete(path) else 404, {"kind": "Status", "message": ""})
        self.patches.append((path, body))
        return handler.answer(200, {})

    def serve_bytes(self, handler, method, path, body):
        self.log.append((method, path, {}))
        if method == "GET":
            found = self.protobuf.get(path)
            return handler.answer(200, found) if found else handler.answer(404, b"k8s\0")
        self.updates.append((path, body))
        if self.conflicts:
            self.conflicts -= 1
            return handler.answer(409, {"kind": "Status", "message": "changed meanwhile"})
        return handler.answer(200, {})

    def list(self, handler, path, query):
        with self.lock:
            items = [o for p, o in sorted(self.objects.items()) if self.collection(p) == path
                     and self.selected(o, query.get("fieldSelector", ""))]
            body = {"kind": "List", "metadata": {"resourceVersion": str(self.version)},
                    "items": json.loads(json.dumps(items))}
        handler.answer(200, body)

    def watch(self, handler, path, query):
        q = queue.Queue()
        entry = (path, query.get("fieldSelector", ""), q)
        with self.lock:
            since = int(query.get("resourceVersion") or 0)
            for p, o in sorted(self.objects.items()):
                if (self.collection(p) == path and self.selected(o, entry[1])
                        and int(o["metadata"]["resourceVersion"]) > since):
                    q.put({"type": "ADDED", "object": json.loads(json.dumps(o))})
            self.watchers.append(entry)
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        handler.close_connection = True
        try:
            while True:
                data = (json.dumps(q.get()) + "\n").encode()
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                handler.wfile.flush()
        except OSError:
            with self.lock:
                self.watchers.remove(entry)


def share(request="gpu", device="gpu-0-share", memory="10Gi", cores="30", share_id="share-1"):
    return {"request": request, "driver": "gpu.sluice.io", "pool": "node-1", "device": device,
            "shareID": share_id, "consumedCapacity": {"memory": memory, "cores": cores}}


def device(request, name):
    return {"request": request, "driver": "gpu.sluice.io", "pool": "node-1", "device": name}


def claim(name, uid, results, config=None, annotations=None, pod="pod-1", pod_uid=None):
    """A claim of a pod of its own, unless pod_uid says that another claim is the same pod's."""
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": uid,
                         "annotations": annotations or {}},
            "status": {"reservedFor": [{"resource": "pods", "name": pod, "uid": pod_uid or "u-" + name}],
                       "allocation": {"devices": {"results": results, "config": config or []}}}}


def config(**parameters):
    return {"source": "FromClaim", "requests": [],
            "opaque": {"driver": "gpu.sluice.io",
                       "parameters": {"apiVersion": "gpu.sluice.io/v1alpha1", "kind": "ShareConfig",
                                      **parameters}}}


def by_class(**parameters):
    """The same, as the scheduler copies it from a DeviceClass."""
    return {**config(**parameters), "source": "FromClass"}
