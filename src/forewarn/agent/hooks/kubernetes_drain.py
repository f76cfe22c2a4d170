"""Draining a node: its pods are evicted, and it is waited until they are gone."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.agent.hooks.contract import Failure, wait
from forewarn.agent.hooks.kubernetes_api import EVICT, LIST_PODS, Api, Refused, TimeUp
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


class _Owner(msgspec.Struct, frozen=True):
    kind: str
    controller: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []
    deletion_timestamp: str | None = None


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    empty_dir: dict[str, Any] | None = None


class _Spec(msgspec.Struct, frozen=True):
    priority: int = 0
    volumes: list[_Volume] = []


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def ends(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def controllers(self) -> list[str]:
        return [owner.kind for owner in self.metadata.owner_references if owner.controller]

    @property
    def stays(self) -> bool:
        """Whether a drain leaves it: it would be back at once, or does not run any more."""
        mirror = _MIRROR in self.metadata.annotations
        return mirror or "DaemonSet" in self.controllers or self.status.phase in _FINISHED

    @property
    def has_empty_dir(self) -> bool:
        return any(volume.empty_dir is not None for volume in self.spec.volumes)


def drain(api: Api, options: Kubernetes, node: str, until: float) -> int:
    """Evict the node's pods, wait until none is left, and return how many were evicted. Raises
    Failure if some are left at `until`, in guard time."""
    return _Drain(api, options, node, until).run()


class _Drain:
    def __init__(self, api: Api, options: Kubernetes, node: str, until: float) -> None:
        self._api, self._options, self._node, self._until = api, options, node, until
        self._last = min(LAST, (until - guard.monotonic()) * LAST_SHARE)
        self._version = "v1" if api.version() >= NEW_EVICTION else "v1beta1"
        # By the UIDs of pods:
        self._evicted: set[str] = set()
        self._hurried: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._not_until: dict[str, float] = {}

    def run(self) -> int:
        pods: list[Pod] = []
        try:
            while pods := self._pods():
                self._refuse_what_would_be_lost([pod for pod in pods if not pod.ends])
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
        return self._until - guard.monotonic()

    def _pods(self) -> list[Pod]:
        query = {"fieldSelector": f"spec.nodeName={self._node}"}
        if self._options.pods:
            query["labelSelector"] = self._options.pods
        pods = self._api.objects("/api/v1/pods", LIST_PODS, Pod, **query)
        return [pod for pod in pods if not pod.stays]

    def _refuse_what_would_be_lost(self, pods: list[Pod]) -> None:
        cannot = f"node {self._node} cannot be drained"
        bare = [pod for pod in pods if not pod.controllers]
        if bare and not self._options.force:
            raise Failure(
                f"{cannot}: no controller would start {_names(bare)} elsewhere; set force = true to"
                " delete such pods, or pods to leave them"
            )
        local = [pod for pod in pods if pod.has_empty_dir]
        if local and not self._options.delete_empty_dir_data:
            raise Failure(
                f"{cannot}: the emptyDir of {_names(local)} would be lost; set"
                " delete_empty_dir_data = true, or pods to leave them"
            )

    def _evict_if_due(self, pod: Pod) -> None:
        uid, hurry = pod.metadata.uid, self._left() <= self._last
        done = uid in self._hurried if hurry else pod.ends
        if done or guard.monotonic() < self._not_until.get(uid, 0.0):
            return
        try:
            self._evict(pod, max(1, int(self._last / 2)) if hurry else None)
        except Refused as refused:
            if refused.status not in _NOT_NOW:
                raise
            self._refusals[uid] = str(refused)
            self._not_until[uid] = guard.monotonic() + (refused.retry_after or 0.0)
            return
        self._evicted.add(uid)
        self._refusals.pop(uid, None)
        if hurry:
            self._hurried.add(uid)

    def _evict(self, pod: Pod, grace: int | None) -> None:
        metadata = pod.metadata
        options: dict[str, Any] = {"preconditions": {"uid": metadata.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        eviction = {
            "apiVersion": f"policy/{self._version}",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": options,
        }
        try:
            self._api.create(path, EVICT, eviction, patient=False)
        except Refused as refused:
            if refused.status not in (404, 409):  # it is gone, or another has its name
                raise


def _names(pods: list[Pod]) -> str:
    more = f" and {len(pods) - NAMED} more" if len(pods) > NAMED else ""
    return ", ".join(pod.name for pod in pods[:NAMED]) + more
