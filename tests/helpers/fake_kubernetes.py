"""As much of a Kubernetes API server as `kubectl get`, `patch` and `drain` of a node ask for, over
real HTTP: discovery, nodes with their versions, pods, and evictions with disruption budgets. It
allows only what a ClusterRole allows. No scheduler, no kubelet, nothing is ever created."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from helpers.waiting import LIMIT

Object = dict[str, Any]


def kind(group: str, name: str, what: str, namespaced: bool, *verbs: str) -> Object:
    return {"name": name, "kind": what, "namespaced": namespaced, "verbs": list(verbs)} | (
        {"group": group, "version": "v1"} if group else {}
    )


GROUPS = ("apps", "policy")
RESOURCES: dict[str, list[Object]] = {
    "/api/v1": [
        kind("", "nodes", "Node", False, "get", "list", "patch"),
        kind("", "pods", "Pod", True, "get", "list"),
        kind("policy", "pods/eviction", "Eviction", True, "create"),
    ],
    "/apis/apps/v1": [kind("", "daemonsets", "DaemonSet", True, "get")],
    "/apis/policy/v1": [],
}


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": code,
        }


class Cluster(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, rules: list[Object]) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self._rules = rules
        self.used: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()
        self._version = 1
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.evictions: list[tuple[str, int | None]] = []
        self.budget: dict[str, int] = {}  # how often the eviction of a pod is refused
        self.lingering: set[str] = set()  # pods that end only when they are told to hurry
        self.conflicts = 0  # how many patches somebody else comes before
        self.eviction_is_here = threading.Event()
        self.evictions_go_on = threading.Event()
        self.evictions_go_on.set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def unused(self) -> set[tuple[str, str, str]]:
        """What the role allows, and nobody has asked for."""
        allowed = {
            (group, resource, verb)
            for rule in self._rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        return allowed - self.used

    def node(self, name: str, provider: str = "", cordoned: bool = False) -> Object:
        spec: Object = {"providerID": provider} if provider else {}
        spec |= {"unschedulable": True} if cordoned else {}
        self.nodes[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": spec,
        }
        return self.nodes[name]

    def pod(self, name: str, node: str, owner: str = "ReplicaSet") -> None:
        owners = [{"kind": owner, "name": owner.lower(), "uid": "1", "controller": True}]
        self.pods[name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "ownerReferences": [owner | {"apiVersion": "apps/v1"} for owner in owners],
            },
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 3600},
            "status": {"phase": "Running"},
        }

    def answer(self, verb: str, path: str, query: Object, body: Object) -> Object:
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(map(group, GROUPS))}
        if path in RESOURCES:
            version = path.removeprefix("/apis/").removeprefix("/api/")
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": RESOURCES[path],
            }
        match path.strip("/").split("/"):
            case ["api", "v1", "nodes"]:
                self._may("", "nodes", "list")
                return listed("NodeList", list(self.nodes.values()))
            case ["api", "v1", "nodes", name]:
                self._may("", "nodes", "patch" if verb == "PATCH" else "get")
                node = there(self.nodes, "nodes", name)
                return self._patched(node, body) if verb == "PATCH" else node
            case ["api", "v1", "pods"]:
                self._may("", "pods", "list")
                node = query["fieldSelector"][0].removeprefix("spec.nodeName=")
                pods = [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node]
                return listed("PodList", pods)
            case ["api", "v1", "namespaces", "default", "pods", name]:
                self._may("", "pods", "get")
                return there(self.pods, "pods", name)
            case ["api", "v1", "namespaces", "default", "pods", name, "eviction"]:
                self._may("", "pods/eviction", "create")
                return self._evicted(name, body.get("deleteOptions") or {})
            case ["apis", "apps", "v1", "namespaces", "default", "daemonsets", name]:
                self._may("apps", "daemonsets", "get")
                metadata = {"name": name, "namespace": "default", "uid": "1"}
                return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
        raise Refusal(404, "NotFound", f"the server could not find {path}")

    def _may(self, group: str, resource: str, verb: str) -> None:
        for rule in self._rules:
            concerned = group in rule["apiGroups"] and resource in rule["resources"]
            if concerned and verb in rule["verbs"]:
                self.used.add((group, resource, verb))
                return
        raise Refusal(403, "Forbidden", f"cannot {verb} resource {resource!r} in group {group!r}")

    def _patched(self, node: Object, patch: Object) -> Object:
        with self._lock:
            if self.conflicts:
                self.conflicts -= 1
                self._version += 1
                node["metadata"]["resourceVersion"] = str(self._version)
            version = node["metadata"]["resourceVersion"]
            if patch.get("metadata", {}).get("resourceVersion", version) != version:
                raise Refusal(409, "Conflict", "the object has been modified")
            merge(node, patch)
            self._version += 1
            node["metadata"]["resourceVersion"] = str(self._version)
            return node

    def _evicted(self, name: str, options: Object) -> Object:
        self.eviction_is_here.set()
        self.evictions_go_on.wait(LIMIT)
        with self._lock:
            pod = there(self.pods, "pods", name)
            grace = options.get("gracePeriodSeconds")
            if self.budget.get(name, 0):
                self.budget[name] -= 1
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise Refusal(429, "TooManyRequests", message)
            self.evictions.append((name, grace))
            if name in self.lingering and grace is None:
                pod["metadata"]["deletionTimestamp"] = "2026-11-15T10:46:06Z"
            else:
                del self.pods[name]
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}


class Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        asked = urlsplit(self.path)
        cluster = self.server
        assert isinstance(cluster, Cluster)
        code = 200 if self.command != "POST" else 201
        try:
            answer = cluster.answer(self.command, asked.path, parse_qs(asked.query), body)
        except Refusal as refusal:
            answer, code = refusal.status, refusal.code
        text = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PATCH = do_POST = do_GET  # noqa: N815 - the base class wants these names

    def log_message(self, format: str, *args: object) -> None:
        pass


def group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def listed(what: str, items: list[Object]) -> Object:
    return {"kind": what, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


def there(objects: dict[str, Object], resource: str, name: str) -> Object:
    if name not in objects:
        raise Refusal(404, "NotFound", f'{resource} "{name}" not found')
    return objects[name]


def merge(target: Object, patch: Object) -> None:
    """A JSON merge patch (RFC 7396)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
