# SPDX-License-Identifier: Apache-2.0
"""The controller's page as deploy/ brings it: through the real API server's proxy with the token, and by kubectl port-forward.
The rights are those of controller/dra: the components add none."""
import contextlib
import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request

import images
from test_dialects import apply, begin, controllers, end, gone, pod
from world import check, same, test, wait

TOKEN = "a-token-of-the-page-test"
PROXIED = "/api/v1/namespaces/sluice-system/services/https:sluice-controller:https/proxy"


@contextlib.contextmanager
def kubectl(w, *words, says):
    """A kubectl that stays; the port that it says."""
    process = subprocess.Popen([w.cluster.programs["kubectl"], "--kubeconfig", w.cluster.kubeconfig, *words],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = process.stdout.readline()
        found = re.search(says, line)
        check(found, f"kubectl {words[0]}: {line}")
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


def get(port, path, token=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"X-Sluice-Token": token} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def with_page(w):
    """controller/dra with both components, over what runs; rights are compared before and after."""
    def roles():
        return [r["rules"] for kind in ("clusterroles", "roles") for r in w.api.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}")["items"]
                if r["metadata"]["name"].startswith("sluice-controller")]
    before = roles()
    w.cluster.kubectl("-n", "sluice-system", "create", "secret", "generic", "sluice-page-token", f"--from-literal=token={TOKEN}")
    with tempfile.TemporaryDirectory(prefix="sluice-page-") as folder:
        def relative(*names):
            return os.path.relpath(os.path.join(images.TOP, "deploy", *names), os.path.realpath(folder))
        with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as f:
            json.dump({"resources": [relative("controller", "dra")],
                       "components": [relative("components", c) for c in ("page", "page-port-forward")]}, f)
        w.cluster.kubectl("apply", "-k", folder)
    w.cluster.kubectl("-n", "sluice-system", "rollout", "status", "deployment/sluice-controller", "--timeout=120s")
    wait("both replicas", lambda: controllers(w), 60)
    same("the controller's rights", roles(), before)


@test("page.through_the_api_servers_proxy_and_by_port_forward")
def page(w):
    begin(w, "dra")
    with_page(w)
    apply(w, pod("shown", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10240", "nvidia.com/gpucores": "30"}),
          pod("waits", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "900000"}))
    w.wait_running("shown")
    with kubectl(w, "proxy", "--port=0", says=r"127\.0\.0\.1:(\d+)") as port:
        # A replica that ends is among the endpoints for a moment.
        wait(lambda: f"the page through the proxy, not {get(port, PROXIED + '/ui')}",
             lambda: all(get(port, PROXIED + "/ui")[0] == 200 for _ in range(6)), 30)
        status, headers, html = get(port, PROXIED + "/ui")
        check("script-src 'sha256-" in headers["Content-Security-Policy"], f"headers through the proxy: {headers}")
        with open(os.path.join(images.TOP, "src", "page", "page.html"), "rb") as f:
            ours = f.read()
        script = re.compile(rb"<script>(.*?)</script>", re.S)
        check(script.search(html)[1] == script.search(ours)[1], "the proxy changed the script, whose hash the policy names")
        for path in ("/ui/data", "/ui/fit?memory=1Gi"):
            same(f"{path} without the token", get(port, PROXIED + path)[0], 401)
            same(f"{path} with another", get(port, PROXIED + path, TOKEN + "x")[0], 401)

        def data():
            return json.loads(get(port, PROXIED + "/ui/data", TOKEN)[2])

        def shown():
            return [(t["space"], t["name"], t["memory_mib"], t["cores"]) for c in data()["cards"] for t in c["tenants"]]
        wait(lambda: f"the claim of the pod on its card, not {shown()}", lambda: shown() == [("default", "shown", 10240, 300)], 30)
        wait(lambda: f"who waits, not {data()['waiting']}",
             lambda: [(p["name"], p["memory_mib"]) for p in data()["waiting"] if p["said"]] == [("waits", 900000)], 60)
        same("the cards", len(data()["cards"]), len(w.cards))
        fit = json.loads(get(port, PROXIED + "/ui/fit?memory=10Gi&cores=30", TOKEN)[2])
        check(fit["fits"] and fit["by"] == "scheduler" and fit["fitting"] == len(w.cards), f"what fits where: {fit}")
    with kubectl(w, "-n", "sluice-system", "port-forward", "deployment/sluice-controller", ":8090", says=r"127\.0\.0\.1:(\d+)") as port:
        same("the page by port-forward", get(port, "/ui")[0], 200)
        same("its data without the token", get(port, "/ui/data")[0], 401)
        same("its data", get(port, "/ui/data", TOKEN)[0], 200)
    gone(w, "dra", "shown", "waits")
    w.begun = None
    end(w)
    return "pods and cards through the API server's proxy and by port-forward; rights unchanged"
