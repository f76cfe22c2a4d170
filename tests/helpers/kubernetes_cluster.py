"""A cluster for tests, behind an API server: the fake one, or a real one. What controllers and
kubelets would do in it, the tests do, with the token of an admin and over HTTPS."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from helpers.paths import ROOT

Object = dict[str, Any]

DEPLOY = ROOT / "deploy" / "kubernetes"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
BUDGETS = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
}
MERGE = "application/merge-patch+json"


class Cluster:
    def __init__(
        self, url: str, ca: Path, admin: str, directory: Path, compact: Callable[[], None]
    ) -> None:
        self.url, self.ca, self.token_file = url, ca, directory / "token"
        self.direct = url  # behind a proxy that `url` is of
        self.admin, self._server = admin, urlsplit(url)
        self.compact = compact  # forget all that the cluster has been before
        self.context = ssl.create_default_context(cafile=str(ca))
        self._idle: list[http.client.HTTPSConnection] = []
        for part in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()):
            self.create(_PATHS[part["kind"]], part)
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(self.new_token())

    @property
    def options(self) -> dict[str, str]:
        """Of the hook."""
        return {"server": self.url, "ca": str(self.ca), "token": str(self.token_file)}

    def request(
        self, method: str, path: str, body: Object | None = None, token: str = "", kind: str = ""
    ) -> tuple[int, Object, http.client.HTTPMessage]:
        """Status, body and headers of an answer, whatever it is."""
        if self._idle:
            connection = self._idle.pop()
        else:
            host, port = self._server.hostname or "", self._server.port
            connection = http.client.HTTPSConnection(host, port, context=self.context)
        kind = kind or (MERGE if method == "PATCH" else "application/json")
        headers = {"Authorization": f"Bearer {token or self.admin}", "Content-Type": kind}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        self._idle.append(connection)
        return answer.status, content, answer.headers

    def close(self) -> None:
        for connection in self._idle:
            connection.close()

    def _ok(self, method: str, path: str, body: Object | None = None) -> Object:
        status, answer, _ = self.request(method, path, body)
        assert 200 <= status < 300, (method, path, status, answer)
        return answer

    def create(self, path: str, body: Object) -> Object:
        return self._ok("POST", path, body)

    def new_token(self) -> str:
        path = f"{_PATHS['ServiceAccount']}/forewarn-agent/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.create(path, review)["status"]["token"])

    def revoke(self) -> None:
        """All tokens: the account is another one from now on."""
        path = _PATHS["ServiceAccount"]
        account = self._ok("GET", f"{path}/forewarn-agent")
        self._ok("DELETE", f"{path}/forewarn-agent")
        metadata = {key: account["metadata"][key] for key in ("name", "namespace")}
        self.create(path, {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata})

    @property
    def rules(self) -> list[Object]:
        """Of the role."""
        found: list[Object] = self._ok("GET", f"{_PATHS['ClusterRole']}/forewarn-agent")["rules"]
        return found

    @rules.setter
    def rules(self, rules: list[Object]) -> None:
        self.change(f"{_PATHS['ClusterRole']}/forewarn-agent", {"rules": rules})

    def clear(self) -> None:
        for path in (PODS, NODES, EVENTS, BUDGETS):
            for name in self.names(path):
                self.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})

    def names(self, path: str) -> set[str]:
        return {item["metadata"]["name"] for item in self._ok("GET", path)["items"]}

    # Nodes

    def add_node(self, name: str, provider: str = "", **spec: Any) -> None:
        spec |= {"providerID": provider} if provider else {}
        self.create(NODES, {"kind": "Node", "metadata": {"name": name}, "spec": spec})
        self.report(name, "True")

    def report(self, name: str, ready: str, boot: str = "") -> None:
        """As its kubelet."""
        conditions = [
            one
            for one in self.node(name).get("status", {}).get("conditions") or ()
            if one["type"] != "Ready"
        ]
        status: Object = {"conditions": [*conditions, {"type": "Ready", "status": ready}]}
        status |= {"nodeInfo": {"bootID": boot}} if boot else {}
        self.change(f"{NODES}/{name}/status", {"status": status})

    def node(self, name: str) -> Object:
        return self._ok("GET", f"{NODES}/{name}")

    def change(self, path: str, patch: Object) -> Object:
        return self._ok("PATCH", path, patch)

    def cordon(self, name: str, on: bool = True, by: str = "somebody-else") -> None:
        path = f"{NODES}/{name}?fieldManager={by}"
        self.change(path, {"spec": {"unschedulable": True if on else None}})

    def cordoned(self, name: str) -> bool:
        return bool(self.node(name)["spec"].get("unschedulable"))

    def conditions(self, name: str) -> dict[str, str]:
        """By type: those that are not kubelet's."""
        every = self.node(name)["status"].get("conditions") or ()
        return {one["type"]: one["status"] for one in every if one["type"] != "Ready"}

    def reasons(self, name: str) -> dict[str, str]:
        """The same, why they are so."""
        every = self.node(name)["status"].get("conditions") or ()
        return {one["type"]: one.get("reason", "") for one in every if one["type"] != "Ready"}

    def marks(self, name: str) -> dict[str, Object]:
        """What the hook has noted, by event."""
        notes = self.node(name)["metadata"].get("annotations") or {}
        prefix = "forewarn/event-"
        return {
            key.removeprefix(prefix): json.loads(value)
            for key, value in notes.items()
            if key.startswith(prefix)
        }

    def taints(self, name: str) -> list[Object]:
        found: list[Object] = self.node(name)["spec"].get("taints") or []
        return [taint for taint in found if not taint["key"].startswith("node.kubernetes.io/")]

    def events(self) -> list[Object]:
        items: list[Object] = self._ok("GET", EVENTS)["items"]
        return items

    # Pods

    def add_pod(
        self,
        name: str,
        node: str,
        owner: str = "ReplicaSet",
        *,
        labels: dict[str, str] | None = None,
        phase: str = "Running",
        **more: Any,
    ) -> None:
        owners = (
            [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "1"}] if owner else []
        )
        metadata: Object = {"name": name, "labels": labels or {"app": name}}
        if owners:
            metadata["ownerReferences"] = [one | {"controller": True} for one in owners]
        metadata["annotations"] = more.pop("annotations", {})
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **more}
        self.create(PODS, {"kind": "Pod", "metadata": metadata, "spec": spec})
        ready = {"type": "Ready", "status": str(phase == "Running")}
        self.change(f"{PODS}/{name}/status", {"status": {"phase": phase, "conditions": [ready]}})

    def pod(self, name: str) -> Object:
        return self._ok("GET", f"{PODS}/{name}")

    def pods(self) -> set[str]:
        return self.names(PODS)

    def end(self, name: str) -> None:
        """As kubelet, when the containers of a pod have ended."""
        self.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    @contextmanager
    def kubelet(self, lingering: Sequence[str] = ()) -> Iterator[list[tuple[str, int]]]:
        """Ends pods that are to end, those that linger only if they are given less than their own
        grace period; notes each with the grace period it ended with."""
        ended: list[tuple[str, int]] = []
        over = threading.Event()

        def work() -> None:
            while not over.wait(0.02):
                for pod in self._ok("GET", PODS)["items"]:
                    name, metadata = pod["metadata"]["name"], pod["metadata"]
                    if "deletionTimestamp" not in metadata:
                        continue
                    grace = metadata["deletionGracePeriodSeconds"]
                    own = pod["spec"]["terminationGracePeriodSeconds"]
                    if name not in lingering or grace < own:
                        ended.append((name, grace))
                        self.end(name)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield ended
        finally:
            over.set()
            thread.join()

    # Budgets

    def add_budget(self, name: str, app: str, allowed: int) -> None:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        body = {"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        self.create(BUDGETS, body | {"apiVersion": "policy/v1beta1"})
        self.allow(name, allowed)

    def allow(self, name: str, disruptions: int) -> None:
        """As the disruption controller."""
        generation = self._ok("GET", f"{BUDGETS}/{name}")["metadata"]["generation"]
        status = {"observedGeneration": generation, "disruptionsAllowed": disruptions}
        status |= {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        self.change(f"{BUDGETS}/{name}/status", {"status": status})
