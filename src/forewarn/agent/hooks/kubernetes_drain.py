"""Draining a node: its pods are evicted, and it is waited until they are gone."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.agent.hooks.contract import Failure, wait
from forewarn.agent.hooks.kubernetes_api import Api, Refused, TimeUp
from forewarn.agent.hooks.options import Kubernetes
from forewarn.support import guard

ROUND = 2.0  # seconds between two looks at the node and its pods
LAST = 30.0  # the last seconds, in which pods have half of the time that is left
LAST_SHARE = 1 / 3  # of the time at most, if there is less
LEAST = 0.5  # seconds for the last look
NAMED = 5  # pods that a message names
NEW_EVICTION = (1, 22)  # the first version with policy/v1 for evictions

_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")
_NOT_NOW = (429, 500, 503)  # of one pod: a budget, or more than one


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}
    owner_references: list[dict[str, Any]] = []
    deletion_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True):
    priority: int = 0
    volumes: list[dict[str, Any]] = []


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()

    @property
    def controllers(self) -> list[str]:
        owners = self.metadata.owner_references
        return [str(owner["kind"]) for owner in owners if owner.get("controller")]

    @property
    def stays(self) -> bool:
        """Whether a drain leaves it: it would be back at once, or does not run any more."""
        mirror = _MIRROR in self.metadata.annotations
        return mirror or "DaemonSet" in self.controllers or self.status.phase in _FINISHED


class Drain:
    """Evicts the pods of a node, until the time of the API is up."""

    def __init__(self, api: Api, options: Kubernetes, node: str) -> None:
        self._api, self._options, self._node = api, options, node
        self._last = min(LAST, self._left() * LAST_SHARE)
        self._version = "v1" if api.version() >= NEW_EVICTION else "v1beta1"
        # By the UIDs of pods:
        self._evicted: set[str] = set()
        self._hurried: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._not_until: dict[str, float] = {}

    def run(self) -> int:
        """Return how many pods were evicted, once none is left."""
        pods: list[Pod] = []
        try:
            while pods := self._pods():
                self._refuse_what_would_be_lost(
                    [pod for pod in pods if not pod.metadata.deletion_timestamp]
                )
                if self._left() < LEAST:
                    raise TimeUp("the time is up")
                for pod in sorted(pods, key=lambda pod: pod.spec.priority):
                    self._evict_if_due(pod)
                wait(max(0.0, min(ROUND, self._left() - LEAST)))
        except TimeUp as late:
            if not pods:
                raise
            uids = [pod.metadata.uid for pod in pods]
            reasons = [self._refusals[uid] for uid in uids if uid in self._refusals]
            left = f"{late}; node {self._node} still has {_names(pods)}"
            raise Failure("; ".join([left, *reasons[:1]])) from None
        return len(self._evicted)

    def _left(self) -> float:
        return self._api.end - guard.monotonic()

    def _pods(self) -> list[Pod]:
        query = {"fieldSelector": f"spec.nodeName={self._node}"}
        if self._options.pods:
            query["labelSelector"] = self._options.pods
        pods = self._api.objects("/api/v1/pods", Pod, **query)
        return [pod for pod in pods if not pod.stays]

    def _refuse_what_would_be_lost(self, pods: list[Pod]) -> None:
        cannot = f"node {self._node} cannot be drained"
        bare = [pod for pod in pods if not pod.controllers]
        if bare and not self._options.force:
            raise Failure(
                f"{cannot}: no controller would start {_names(bare)} elsewhere; set force = true to"
                " delete such pods, or pods to leave them"
            )
        local = [pod for pod in pods if any("emptyDir" in it for it in pod.spec.volumes)]
        if local and not self._options.delete_empty_dir_data:
            raise Failure(
                f"{cannot}: the emptyDir of {_names(local)} would be lost; set"
                " delete_empty_dir_data = true, or pods to leave them"
            )

    def _evict_if_due(self, pod: Pod) -> None:
        uid, hurry = pod.metadata.uid, self._left() <= self._last
        done = uid in self._hurried if hurry else pod.metadata.deletion_timestamp
        if done or guard.monotonic() < self._not_until.get(uid, 0.0):
            return
        metadata, grace = pod.metadata, max(1, int(self._last / 2)) if hurry else None
        eviction = {
            "apiVersion": f"policy/{self._version}",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}, "gracePeriodSeconds": grace},
        }
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        try:
            self._api.request("POST", path, eviction, patient=False)
        except Refused as refused:
            if refused.status in _NOT_NOW:
                self._refusals[uid] = str(refused)
                self._not_until[uid] = guard.monotonic() + refused.retry_after
                return
            if refused.status not in (404, 409):  # it is gone, or another has its name
                raise
        self._evicted.add(uid)
        self._refusals.pop(uid, None)
        if hurry:
            self._hurried.add(uid)


def _names(pods: list[Pod]) -> str:
    more = f" and {len(pods) - NAMED} more" if len(pods) > NAMED else ""
    named = (f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods[:NAMED])
    return ", ".join(named) + more
