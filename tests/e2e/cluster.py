#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes node in a machine of its own (sandbox.py): etcd, kube-apiserver with RBAC, controller
manager, scheduler, containerd and kubelet.

    tests/e2e/cluster.py -- kubectl get nodes     # a cluster for one command (a shell without)
"""
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time

import binaries
import sandbox

NODE = "node-1"
OPT_PLUGIN = f"io.containerd.{'internal'}.v1.opt"  # in pieces: as one word it reads like a private host
PAUSE = "localhost/sluice-e2e-pause:1"
CONTROLLERS = (
    "daemonset-controller", "namespace-controller", "serviceaccount-controller",
    "root-ca-certificate-publisher-controller", "garbage-collector-controller",
    "pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller",
    "resourceclaim-controller", "device-taint-eviction-controller", "deployment-controller",
    "replicaset-controller", "job-controller", "statefulset-controller", "endpointslice-controller",
    "endpoints-controller")


class Failed(Exception):
    """A test's or the cluster's expectation did not come true."""


def wait(what, condition, seconds=60, every=0.1):
    """Polls until condition() gives something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            detail = what() if callable(what) else what
            raise Failed(f"waited {seconds:g} s for {detail}")
        time.sleep(every)


class Api:
    """The API server by HTTP and JSON: quicker than starting kubectl for every question."""

    def __init__(self, host, ca_file, token):
        self.host = host
        self.tls = ssl.create_default_context(cafile=ca_file)
        self.headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}

    def call(self, method, path, body=None, content_type=None, plain=False):
        """(status, object); a refused connection is status 0."""
        headers = dict(self.headers)
        if content_type:
            headers["Content-Type"] = content_type
        try:
            connection = http.client.HTTPSConnection(self.host, 443, context=self.tls, timeout=30)
            connection.request(method, path, json.dumps(body, separators=(",", ":")) if body is not None else None, headers)
            response = connection.getresponse()
            data = response.read().decode()
            return response.status, data if plain else json.loads(data)
        except (OSError, http.client.HTTPException, ValueError) as e:
            return 0, {"message": str(e)}

    def get(self, path):
        status, answer = self.call("GET", path)
        if status == 404:
            return None
        if status != 200:
            raise Failed(f"GET {path}: {status} {answer.get('message')}")
        return answer

    def create(self, path, body):
        status, answer = self.call("POST", path, body)
        if status not in (200, 201, 202):
            raise Failed(f"POST {path}: {status} {answer.get('message')}")
        return answer

    def delete(self, path, grace=1):
        # Grace 0 would take the object away while its processes still run.
        return self.call("DELETE", path, {"gracePeriodSeconds": grace})[0]

    def patch(self, path, body):
        status, answer = self.call("PATCH", path, body, "application/merge-patch+json")
        if status != 200:
            raise Failed(f"PATCH {path}: {status} {answer.get('message')}")
        return answer


class Cluster:
    """One node. Everything it writes is under `work` or in the sandbox's own directories."""

    def __init__(self, work):
        self.work = work
        self.logs = os.path.join(work, "logs")
        self.programs = binaries.find()
        self.processes = {}
        self.kubeconfig = os.path.join(work, "admin.conf")
        self.tokens = {user: secrets.token_hex(16) for user in
                       ("admin", "system:kube-controller-manager", "system:kube-scheduler",
                        "system:node:" + NODE)}
        self.api = None
        os.makedirs(self.logs, exist_ok=True)

    # ---- processes

    def spawn(self, name, argv):
        log = open(os.path.join(self.logs, name + ".log"), "ab")
        path = ":".join((os.path.dirname(self.programs["containerd"]), os.path.dirname(self.programs["runc"]),
                         "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
        self.processes[name] = subprocess.Popen(
            [self.programs[name], *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.work,
            env={"PATH": path, "HOME": self.work, "TMPDIR": "/var/lib/kubelet"}, start_new_session=True)
        log.close()

    def alive(self, name):
        if self.processes[name].poll() is not None:
            with open(os.path.join(self.logs, name + ".log"), encoding="utf-8", errors="replace") as f:
                tail = "".join(f.readlines()[-15:])
            raise Failed(f"{name} ended with status {self.processes[name].returncode}:\n{tail}")
        return True

    def end(self, name, number=signal.SIGTERM):
        process = self.processes.pop(name, None)
        if not process or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def write(self, name, text):
        path = os.path.join(self.work, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text if isinstance(text, str) else json.dumps(text, indent=1))
        return path

    # ---- the control plane

    def credentials(self):
        """Tokens for people and components; a key for service accounts; a kubeconfig for each user."""
        groups = {"admin": "system:masters", "system:kube-controller-manager": "system:masters",
                  "system:node:" + NODE: "system:nodes"}
        self.write("tokens.csv", "".join(
            f'{token},{user},{user},"{groups.get(user, "")}"\n' for user, token in self.tokens.items()))
        subprocess.run(["openssl", "genrsa", "-out", os.path.join(self.work, "sa.key"), "2048"],
                       check=True, capture_output=True)

    def client_config(self, name, user):
        """Trusts the certificate that the API server made for itself."""
        return self.write(name, {
            "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {
                "server": f"https://{sandbox.SERVICE_IP}:443", "certificate-authority": self.ca}}],
            "users": [{"name": "e2e", "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}]})

    @property
    def audit_log(self):
        return os.path.join(self.logs, "audit.log")

    @property
    def ca(self):
        return os.path.join(self.work, "pki", "apiserver.crt")

    def start_control_plane(self):
        self.credentials()
        self.spawn("etcd", [
            "--data-dir", os.path.join(self.work, "machine", "etcd"), "--unsafe-no-fsync", "--log-level=warn",
            "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380"])
        self.start_api_server()

    def start_api_server(self):
        """With scheduler and controller manager."""
        key = os.path.join(self.work, "sa.key")
        # What our own service accounts do is written down: tests compare it with the rights they have.
        audit = self.write("audit.yaml", {
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
                {"level": "Metadata", "userGroups": ["system:serviceaccounts:sluice-system"]}, {"level": "None"}]})
        self.spawn("kube-apiserver", [
            "--audit-policy-file", audit, "--audit-log-path", self.audit_log,
            "--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--bind-address=0.0.0.0",
            f"--advertise-address={sandbox.NODE_IP}", "--service-cluster-ip-range=10.96.0.0/24",
            "--cert-dir", os.path.dirname(self.ca), "--token-auth-file", os.path.join(self.work, "tokens.csv"),
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
            "--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged=true",
            # There is no kube-proxy: webhooks are called at their pods' addresses, not at the Service's.
            "--kubelet-preferred-address-types=InternalIP", "--enable-aggregator-routing=true"])
        wait("the API server's certificate", lambda: self.alive("kube-apiserver") and os.path.exists(self.ca))
        self.client_config("admin.conf", "admin")

        def ready():
            self.alive("etcd")
            self.alive("kube-apiserver")
            try:
                self.api = self.api or Api(sandbox.SERVICE_IP, self.ca, self.tokens["admin"])
            except ssl.SSLError:  # the file is there before what is in it
                return False
            return self.api.call("GET", "/readyz", plain=True)[0] == 200

        wait("the API server to be ready", ready)
        self.start_scheduler()
        self.start_component("kube-controller-manager", "--service-account-private-key-file", key, "--root-ca-file",
                             self.ca, "--controllers=" + ",".join(CONTROLLERS), "--node-monitor-grace-period=60s")

    def restart_control_plane(self):
        """All of it but etcd, which has the objects."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            self.end(name)
        self.start_api_server()

    def start_component(self, name, *more):
        conf = self.client_config(name + ".conf", "system:" + name)
        self.spawn(name, ["--kubeconfig", conf, "--authentication-kubeconfig", conf,
                          "--authorization-kubeconfig", conf, "--leader-elect=false",
                          "--bind-address=127.0.0.1", *more])

    def start_scheduler(self, config=""):
        """Again, where it runs; `config` is the text of a KubeSchedulerConfiguration without a client."""
        self.end("kube-scheduler")
        if not config:
            self.start_component("kube-scheduler")
            return
        # With a file it takes its credentials from nowhere else.
        conf = os.path.join(self.work, "kube-scheduler.conf")
        self.start_component("kube-scheduler", "--config", self.write(
            "kube-scheduler.yaml", f"{config}\nclientConnection: {{kubeconfig: {conf}}}\n"))

    # ---- the node

    def start_containerd(self):
        os.makedirs("/run/cni/net.d", exist_ok=True)
        with open("/run/cni/net.d/10-e2e.conflist", "w", encoding="ascii") as f:
            json.dump({"cniVersion": "1.0.0", "name": "e2e", "plugins": [{
                "type": "bridge", "bridge": "node0", "isGateway": True, "ipMasq": False,
                "ipam": {"type": "host-local", "ranges": [[{
                    "subnet": "10.210.0.0/24", "rangeStart": "10.210.0.10", "gateway": sandbox.NODE_IP}]],
                    "routes": [{"dst": "0.0.0.0/0"}]}}]}, f)
        # restrict_oom_score_adj: root in a sandbox often lacks CAP_SYS_RESOURCE.
        config = self.write("containerd.toml", f"""version = 3
[plugins.'{OPT_PLUGIN}']
  path = '/var/lib/containerd/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{self.programs["runc"]}'
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{self.programs["cni"]}']
    conf_dir = '/run/cni/net.d'
""")
        self.spawn("containerd", ["--config", config])
        wait("containerd", lambda: self.alive("containerd") and
             self.ctr("version", check=False).returncode == 0, every=0.3)

    def ctr(self, *argv, check=True):
        return subprocess.run([self.programs["ctr"], "-n", "k8s.io", *argv], capture_output=True, text=True,
                              check=check)

    def import_image(self, path):
        done = self.ctr("images", "import", "--no-unpack", path, check=False)
        if done.returncode != 0:
            raise Failed(f"ctr images import {path}: {done.stderr.strip()}")

    def start_kubelet(self):
        config = self.write("kubelet.yaml", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + os.path.basename(self.work),
            "failCgroupV1": False, "failSwapOn": False, "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "syncFrequency": "1s", "nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1m",
            "makeIPTablesUtilChains": False, "resolvConf": "", "registerNode": True,
            "volumePluginDir": "/var/lib/kubelet/volumeplugins", "serializeImagePulls": False,
            "shutdownGracePeriod": "0s", "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "logging": {"verbosity": 2}})
        conf = self.client_config("kubelet.conf", "system:node:" + NODE)
        self.spawn("kubelet", ["--config", config, "--kubeconfig", conf, "--hostname-override", NODE,
                               "--node-ip", sandbox.NODE_IP])

    def kubelet_answers(self):
        """Whether kubelet's device-plugin socket takes connections."""
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect("/var/lib/kubelet/device-plugins/kubelet.sock")
                return True
            except OSError:
                return False

    def node(self):
        return self.api.get("/api/v1/nodes/" + NODE)

    def node_ready(self):
        node = self.alive("kubelet") and self.node()
        return node and any(c["type"] == "Ready" and c["status"] == "True"
                            for c in node["status"].get("conditions", []))

    def start(self, images):
        self.start_control_plane()
        self.start_containerd()
        for path in images:
            self.import_image(path)
        self.start_kubelet()
        wait("the node to be ready", self.node_ready, 120, every=0.3)
        wait("the default service account",
             lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default"))

    def stop(self):
        """Politely, for the logs' sake; what does not listen goes with the namespace."""
        for name in ("kubelet", "containerd", "kube-scheduler", "kube-controller-manager", "kube-apiserver",
                     "etcd"):
            self.end(name, signal.SIGTERM if name == "containerd" else signal.SIGKILL)

    # ---- for tests

    def kubectl(self, *argv, check=True, stdin=None):
        done = subprocess.run([self.programs["kubectl"], "--kubeconfig", self.kubeconfig, *argv],
                              capture_output=True, text=True, check=False, input=stdin,
                              env={"HOME": self.work, "PATH": os.environ["PATH"]})
        if check and done.returncode != 0:
            raise Failed(f"kubectl {' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if check else done

    def save_state(self, name):
        """What a person looks at after a failure: objects, events, pods' logs."""
        folder = os.path.join(self.logs, name)
        os.makedirs(folder, exist_ok=True)
        for file, argv in (("nodes.yaml", ("get", "nodes", "-o", "yaml")),
                           ("pods.yaml", ("get", "pods", "-A", "-o", "yaml")),
                           ("events.txt", ("get", "events", "-A", "--sort-by=.lastTimestamp")),
                           ("dra.yaml", ("get", "resourceslices,resourceclaims,deviceclasses", "-A", "-o",
                                         "yaml"))):
            done = self.kubectl(*argv, check=False)
            with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
                f.write(done.stdout + done.stderr)
        subprocess.run(["cp", "-rL", "/var/log/pods", os.path.join(folder, "pods")], check=False,
                       capture_output=True)
        subprocess.run(["cp", "-r", "/run/cdi", os.path.join(folder, "cdi")], check=False,
                       capture_output=True)


def main(work):
    import images  # its paths are the build's, which only a cluster with pods needs
    cluster = Cluster(work)
    argv = sys.argv[1:]
    if argv[:1] == ["--"]:
        argv = argv[1:]
    try:
        cluster.start([images.pause(work), images.test(work)])
        env = {**os.environ, "HOME": work, "KUBECONFIG": cluster.kubeconfig,
               "PATH": os.path.dirname(cluster.programs["kubectl"]) + ":" + os.environ["PATH"]}
        return subprocess.run(argv or [os.environ.get("SHELL", "/bin/sh")], env=env, check=False).returncode
    except Failed as e:
        print(f"cluster: {e}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()


if __name__ == "__main__":
    try:
        binaries.find()
        sys.exit(sandbox.run_inside(main, lambda status: False))
    except (binaries.Missing, sandbox.CannotRun) as e:
        raise SystemExit(f"cluster: {e}") from e
