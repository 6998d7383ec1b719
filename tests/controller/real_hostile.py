# SPDX-License-Identifier: Apache-2.0
"""real.py's part `hostile`: clients that never finish, send nonsense, too much, or have no business there."""
import random
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

from real_world import CONTEXT, DIR, call, certificate, controller, free_port, until


def raw(port, data, wait=1.0, tls=True):
    """What comes back for these bytes, b"" for nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        s = CONTEXT.wrap_socket(plain) if tls else plain
        s.settimeout(wait)
        out = b""
        try:
            s.sendall(data)
            while True:
                more = s.recv(65536)
                if not more:
                    return out
                out += more
        except OSError:
            return out


def post(path, body, length=None):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n\r\n").encode() + body


def authority(name):
    """A CA that signs clients."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout",
                    DIR / f"{name}.key", "-out", DIR / f"{name}.pem"], check=True, stderr=subprocess.DEVNULL)


def client_certificate(ca, name, usage="clientAuth", days=2):
    at = DIR / f"client-{ca}-{usage}-{days}-{name.replace(':', '-')}"
    (DIR / "usage").write_text(f"extendedKeyUsage={usage}\n")
    quiet = {"check": True, "stderr": subprocess.DEVNULL}
    subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/O=x/CN={name}", "-keyout", f"{at}.key", "-out",
                    f"{at}.csr"], **quiet)
    subprocess.run(["openssl", "x509", "-req", "-in", f"{at}.csr", "-CA", DIR / f"{ca}.pem", "-CAkey", DIR / f"{ca}.key",
                    "-CAcreateserial", "-days", str(days), "-extfile", DIR / "usage", "-out", f"{at}.pem"], **quiet)
    return f"{at}.pem", f"{at}.key"


def strangers():
    """With --extender-client-ca the extender is the scheduler's alone, and the webhook still everybody's."""
    authority("cluster")
    authority("other")
    port = free_port()
    process, _ = controller(
        "--admission", "extender", "--extender", "choose", "--listen", f"127.0.0.1:{port}", "--cert-file", DIR / "cert.pem",
        "--key-file", DIR / "key.pem", "--leader-election", "off", "--extender-client-ca", DIR / "cluster.pem",
        "--extender-client", "system:kube-scheduler")

    def ask(path, pair=None):
        context = ssl._create_unverified_context()
        if pair:
            context.load_cert_chain(*pair)
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", method="POST", data=b"{}")
        try:
            with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
    known = client_certificate("cluster", "system:kube-scheduler")
    for path in ("/filter", "/prioritize", "/bind"):
        assert ask(path, known)[0] == 200, (path, ask(path, known))
        for pair in (None, client_certificate("cluster", "someone"), client_certificate("other", "system:kube-scheduler"),
                     client_certificate("cluster", "system:kube-scheduler", usage="serverAuth"),
                     client_certificate("cluster", "system:kube-scheduler", days=-1)):
            status, text = ask(path, pair)
            assert status == 403 and "only the scheduler may do this" in text, (path, pair, status, text)
    for pair in (None, known):
        assert ask("/mutate", pair)[0] == 400, ask("/mutate", pair)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def hostile():
    certificate()
    strangers()
    port, plain = free_port(), free_port()
    process, metrics = controller(
        "--admission", "extender", "--extender", "choose", "--listen", f"127.0.0.1:{port}", "--cert-file",
        DIR / "cert.pem", "--key-file", DIR / "key.pem", "--extender-http", f"127.0.0.1:{plain}", "--leader-election", "off")
    rng = random.Random(3)
    slow = []
    for _ in range(50):  # clients that never finish, left open
        s = socket.create_connection(("127.0.0.1", plain))
        s.sendall(post("/filter", b"{", 1000)[:rng.randrange(1, 100)])
        slow.append(s)
    for path in ("/mutate", "/filter", "/prioritize", "/bind", "/metrics", "/nothing"):
        for body in (b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'{"Pod":{}}', b'{"a":' * 3000, b"9" * 5000,
                     b'{"Pod":null,"NodeNames":[1]}', b'{"Pod":{"metadata":5},"NodeNames":["n"]}'):
            answer = raw(port, post(path, body))
            assert answer.startswith(b"HTTP/1.1 "), (path, body[:20], answer[:100])
    for path in ("/mutate", "/filter", "/bind"):
        answer = raw(port, post(path, b" " * (10 << 20)), 5)
        assert answer == b"" or b" 413 " in answer[:40], answer[:100]
    for _ in range(60):
        raw(port, rng.randbytes(rng.randrange(1, 400)), 0.2, tls=rng.random() < 0.5)
    assert b" 200 " in raw(plain, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 5, tls=False)
    # An expired certificate is refused by who checks it; a new pair of files is served without a restart.
    quiet = {"check": True, "stderr": subprocess.DEVNULL}
    subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=old", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", DIR / "key.pem", "-out", DIR / "old.csr"], **quiet)
    subprocess.run(["openssl", "x509", "-req", "-in", DIR / "old.csr", "-signkey", DIR / "key.pem", "-days", "-1",
                    "-copy_extensions", "copy", "-out", DIR / "cert.pem"], **quiet)

    def trusted():
        context = ssl.create_default_context(cafile=DIR / "cert.pem")
        try:
            with socket.create_connection(("127.0.0.1", port)) as s:
                context.wrap_socket(s, server_hostname="127.0.0.1").close()
            return True
        except ssl.SSLError:
            return False
    assert not trusted()
    certificate()
    until("the new certificate", trusted, 20)
    assert process.poll() is None
    text = call("GET", "/metrics", base=f"http://127.0.0.1:{metrics}")[1]
    assert 'result="unreadable"' in text
    for s in slow:
        s.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    print("hostile clients: answered or dropped; certificates replaced while running")
