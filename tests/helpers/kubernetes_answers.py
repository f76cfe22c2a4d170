"""A script of requests as the hook and its tests make them, and what a real API server answered.

`kubernetes_answers.json` has the statuses and shapes of version 1.20.2. After a change of the
script, write it anew:
    tools/test-kubernetes env PYTHONPATH=tests .venv/bin/python -m helpers.kubernetes_answers
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from helpers.kubernetes_cluster import BUDGETS, EVENTS, NODES, PODS, Cluster
from helpers.kubernetes_server import serving
from helpers.waiting import until

Object = dict[str, Any]

RECORDED = Path(__file__).with_suffix(".json")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Script:
    """The answers by the names of requests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.answers: dict[str, Object] = {}
        self._token = cluster.new_token()

    def ask(
        self,
        name: str,
        method: str,
        path: str,
        body: Object | None = None,
        token: str | None = None,
        kind: str = "",
    ) -> Object:
        token = self._token if token is None else token  # empty: the admin's
        status, answer, headers = self.cluster.request(method, path, body, token, kind)
        found: Object = {"status": status, "shape": shape(answer)}
        if "Retry-After" in headers:
            found["retry_after"] = headers["Retry-After"]
        if status >= 400:
            found["reason"] = answer.get("reason")
        assert name not in self.answers
        self.answers[name] = found
        return answer

    def evict(self, name: str, pod: str, version: str = "v1beta1", **options: Any) -> None:
        eviction = {
            "apiVersion": f"policy/{version}",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "default"},
            "deleteOptions": options,
        }
        self.ask(name, "POST", f"{PODS}/{pod}/eviction", eviction)

    def run(self) -> dict[str, Object]:
        self.nodes()
        self.pods()
        self.evictions()
        self.access()
        return self.answers

    def nodes(self) -> None:
        node = f"{NODES}/one"
        self.cluster.add_node("one", "azure:///virtualMachines/one")
        self.cluster.add_node("two", taints=[{"key": "a", "effect": "NoSchedule"}])
        self.ask("the version", "GET", "/version")
        version = self.ask("a node", "GET", node)["metadata"]["resourceVersion"]
        self.ask("a node that is not there", "GET", f"{NODES}/three")
        self.ask("nodes", "GET", f"{NODES}?limit=500")
        metadata = {"resourceVersion": version, "annotations": {"forewarn/event-A": "{}"}}
        ready = {"type": "Ready", "status": "True"}
        planned = {"type": "forewarn/Planned", "status": "True", "reason": "R", "message": "M"}
        status = {"conditions": [ready, planned], "nodeInfo": {"bootID": "b"}}
        change = {"metadata": metadata, "status": status, "spec": {"unschedulable": True}}
        self.ask("a patch of the status", "PATCH", f"{node}/status", change)
        self.ask("a patch of another version", "PATCH", node, change)
        self.ask("a patch of the node", "PATCH", node, {"spec": change["spec"]})
        self.ask("a patch that changes nothing", "PATCH", node, {"spec": change["spec"]})
        taints = [{"key": "b", "value": "v", "effect": "NoExecute"}]
        spec: Object = {"taints": taints, "unschedulable": None}
        self.ask("a patch that removes and adds", "PATCH", node, {"spec": spec})
        self.ask("a patch that removes the last taint", "PATCH", node, {"spec": {"taints": None}})
        gone = {"metadata": {"annotations": {"forewarn/event-A": None}}}
        self.ask("a patch that removes the last annotation", "PATCH", node, gone)
        long = {"metadata": {"annotations": {f"forewarn/{'x' * 64}": ""}}}
        self.ask("a patch with a bad annotation", "PATCH", node, long)
        self.ask("a patch of a node that is not there", "PATCH", f"{NODES}/three", gone)
        self.ask("a patch of another kind", "PATCH", node, gone, kind="text/plain")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "forewarn.1", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "u"},
            "type": "Normal",
            "reason": "R",
            "message": "M",
            "source": {"component": "c", "host": "one"},
            "firstTimestamp": "2026-11-15T10:46:06Z",
            "lastTimestamp": "2026-11-15T10:46:06Z",
            "count": 1,
        }
        self.ask("an event", "POST", EVENTS, event)
        self.ask("an event that is there", "POST", EVENTS, event)

    def pods(self) -> None:
        for name in ("a", "b", "c"):
            self.cluster.add_pod(name, "one", priority=1, volumes=[{"name": "v", "emptyDir": {}}])
        self.cluster.add_pod("bare", "two", owner="", phase="Succeeded")
        pods = "/api/v1/pods?fieldSelector=spec.nodeName%3D"
        more = self.ask("a page of pods", "GET", f"{pods}one&limit=2")["metadata"]["continue"]
        self.ask("the last page of pods", "GET", f"{pods}one&limit=2&continue={more}")
        self.cluster.change(f"{NODES}/two", {"metadata": {"labels": {"changed": "since"}}})
        self.cluster.compact()
        self.ask("an expired page of pods", "GET", f"{pods}one&limit=2&continue={more}")
        self.ask("pods of a node that is not there", "GET", f"{pods}three&limit=2")
        self.ask("pods by labels", "GET", f"{pods}one&labelSelector=app%3Da")
        self.ask("pods but by labels", "GET", f"{pods}one&labelSelector=app%21%3Da")
        self.ask("pods by bad labels", "GET", f"{pods}one&labelSelector=app~a")
        self.ask("a pod that has ended", "GET", f"{PODS}/bare", token="")

    def evictions(self) -> None:
        cluster = self.cluster
        for name in ("budget", "two", "new", "sick", "pending"):
            cluster.add_pod(name, "one", phase="Pending" if name == "pending" else "Running")
        cluster.add_budget("sick", "sick", 0)
        unready = {"type": "Ready", "status": "False"}
        cluster.change(f"{PODS}/sick/status", {"status": {"conditions": [unready]}})
        cluster.add_budget("two", "two", 1)
        cluster.add_budget("twice", "two", 1)
        cluster.add_budget("budget", "budget", 0)
        cluster.add_budget("new", "new", 1)
        cluster.change(f"{BUDGETS}/new", {"spec": {"minAvailable": 2}})  # not seen by a controller
        uid = cluster.pod("a")["metadata"]["uid"]
        self.evict("an eviction of another pod", "a", preconditions={"uid": "another"})
        self.evict("an eviction", "a", preconditions={"uid": uid})
        self.ask("a pod that ends", "GET", f"{PODS}/a", token="")
        self.evict("an eviction once more", "a", gracePeriodSeconds=5)
        self.ask("a pod that ends sooner", "GET", f"{PODS}/a", token="")
        self.evict("an eviction of no pod", "gone")
        self.evict("an eviction against a budget", "budget")
        self.evict("an eviction against a new budget", "new")
        self.evict("an eviction against two budgets", "two")
        self.evict("an eviction of a pod that does not run", "pending")
        self.ask("a pod that did not run", "GET", f"{PODS}/pending", token="")
        self.evict("an eviction of a pod that is not ready", "sick")
        cluster.allow("budget", 1)
        self.evict("an eviction within a budget", "budget")
        self.evict("an eviction of a newer version", "b", version="v1")
        self.evict("an eviction of a pod that has ended", "bare")
        self.ask("no pod any more", "GET", f"{PODS}/bare", token="")
        now: Object = {"gracePeriodSeconds": 0}
        self.ask("the end of a pod", "DELETE", f"{PODS}/a", now, token="")

    def access(self) -> None:
        def review(**attributes: str) -> Object:
            spec = {"resourceAttributes": attributes}
            kind = "SelfSubjectAccessReview"
            return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}

        allowed = review(verb="patch", group="", resource="nodes", subresource="status")
        self.ask("a review of what is allowed", "POST", REVIEWS, allowed)
        denied = review(verb="delete", group="", resource="nodes")
        self.ask("a review of what is not allowed", "POST", REVIEWS, denied)
        self.ask("what is not allowed", "DELETE", f"{NODES}/one")
        self.ask("what is not allowed in a namespace", "GET", f"{PODS}/b")
        self.ask("a bad token", "GET", NODES, token="bad")
        self.cluster.revoke()
        until(lambda: self.cluster.request("GET", NODES, token=self._token)[0] == 401, "a refusal")
        self.ask("a token of an account that was removed", "GET", NODES)


def shape(value: Any) -> Any:
    """The keys and kinds of values; of a list, those of all elements together."""
    match value:
        case dict():
            return {key: shape(value[key]) for key in sorted(value)}
        case list():
            merged: Any = None
            for each in map(shape, value):
                both = isinstance(merged, dict) and isinstance(each, dict)
                merged = merged | each if both else each
            return [] if merged is None else [merged]
    return type(value).__name__


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory)) as server:
        assert server.fake is None, "run it with tools/test-kubernetes"
        version = server.cluster.request("GET", "/version")[1]["gitVersion"]
        answers = Script(server.cluster).run()
    text = json.dumps({"version": version, "answers": answers}, indent=1, ensure_ascii=False)
    RECORDED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
