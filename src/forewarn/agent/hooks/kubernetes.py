"""The hook `kubernetes`: says on this machine's Node what is coming, cordons and drains the node
before it, and lets pods in again after it.

What it does is written on the Node first, in an annotation for each event (`kubernetes_node.py`),
and undo takes back what is written there. So it may be killed between any two requests.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec

from forewarn.agent.hooks import kubernetes_node as nodes
from forewarn.agent.hooks.contract import Failure, Run, wait
from forewarn.agent.hooks.kubernetes_api import MANAGER, Api, Refused
from forewarn.agent.hooks.kubernetes_drain import ROUND, Drain
from forewarn.agent.hooks.kubernetes_node import Mark, Node, name_of
from forewarn.agent.hooks.options import Kubernetes, seconds
from forewarn.support import guard
from forewarn.support.system import boot_id
from forewarn.support.text import counted, listing

CHECK = 20.0  # seconds for `check`
RESERVE = 3.0  # seconds at the end of a failed drain in which that is written on the Node
RESERVE_SHARE = 0.2  # of the time at most
CONFLICT_PAUSE = 0.1  # seconds before a patch is made again, because the Node has changed
STANDARD_CONDITIONS = (1, 37)  # the first version with the conditions of KEP-5683
STATE = "kubernetes"  # the name of what is saved for undo

_NODES = "/api/v1/nodes"
_EVENTS = "/api/v1/namespaces/default/events"  # of objects without a namespace
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Saved(msgspec.Struct, frozen=True):
    """What undo needs, and the Node does not say."""

    node: str
    prefix: str | None  # of the conditions
    boot: str = ""  # of this machine, and as its kubelet has reported it
    reported_boot: str = ""


def act(run: Run, options: Kubernetes) -> list[str]:
    if not run.call.mine:
        return ["the event is not about this machine, so its node is not changed"]
    if run.call.stage in ("undo", "finished", "withdrawn") and run.load(STATE, Saved) is None:
        return ["the node was not changed, so nothing is taken back"]
    with closing(Api(options, run.end)) as api:
        hook = _Hook(run, options, api)
        stages = {"announced": hook.announce, "prepare": hook.prepare, "started": hook.start}
        return [stages.get(run.call.stage, hook.release)()]


def check(options: Kubernetes) -> list[str]:
    try:
        with closing(Api(options, guard.monotonic() + CHECK)) as api:
            missing = [rule for rule in needed(options) if not _allows(api, rule)]
            if missing:
                may = f"the service account is not allowed to {listing(missing)}"
                return [f"{may}; a ClusterRole has to allow it"]
            name = os.environ.get("NODE_NAME", "")
            if name and api.get(f"{_NODES}/{name}") is None:
                return [f"NODE_NAME is {name}, and there is no such node"]
    except Failure as failure:
        return [str(failure)]
    return []


def needed(options: Kubernetes) -> list[str]:
    """Return what RBAC has to allow for a hook with these options: verbs and resources."""
    needed = ["get nodes", "patch nodes", "create events"]
    needed += [] if os.environ.get("NODE_NAME") else ["list nodes"]
    needed += [] if options.conditions == "off" else ["patch nodes/status"]
    return needed + (["list pods", "create pods/eviction"] if options.drain else [])


def _allows(api: Api, rule: str) -> bool:
    verb, _, name = rule.partition(" ")
    resource, _, subresource = name.partition("/")
    attributes = {"verb": verb, "resource": resource, "subresource": subresource}
    attributes |= {"namespace": "default"} if resource == "events" else {}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(api.ask("POST", _REVIEWS, review)["status"].get("allowed"))


class _Hook:
    """One stage of one event, on one Node."""

    def __init__(self, run: Run, options: Kubernetes, api: Api) -> None:
        self._run, self._options, self._api = run, options, api
        self._id, self._saved = run.call.event.id, run.load(STATE, Saved)

    # The stages

    def announce(self) -> str:
        node = self._announced(self._node())
        return f"node {name_of(node)}: {nodes.describe(nodes.marks_of(node)[self._id])}"

    def prepare(self) -> str:
        node = self._announced(self._node())
        stage: nodes.Stage = "draining" if self._options.drain else "cordoned"

        def cordon(node: Node) -> Node:
            mark = self._mark(node, stage=stage, drained=False)
            return nodes.cordon_patch(node, self._id, mark, self._options.taint)

        node = self._change(node, cordon)
        name = name_of(node)
        self._set(node, stage=stage)
        if not self._options.drain:
            return f"node {name} is cordoned"
        self._api.end -= min(RESERVE, self._run.left() * RESERVE_SHARE)
        try:
            evicted = Drain(self._api, self._options, name).run()
        except Failure as failure:
            self._api.end = self._run.end
            self._give_up(name, str(failure))
            raise
        self._api.end = self._run.end
        self._set(node, "Drained", stage="cordoned", drained=True)
        return f"node {name} is drained, {counted(evicted, 'pod')} evicted"

    def start(self) -> str:
        node = self._announced(self._node())
        self._set(node, stage="started")
        return f"node {name_of(node)}: {self._run.call.event.type} has started"

    def release(self) -> str:
        line = self._released("EventOver")
        self._run.forget(STATE)
        return line

    def _give_up(self, name: str, why: str) -> None:
        """Write on the Node that the drain failed, if the API server is there."""
        try:
            if not self._options.keep_cordoned:
                self._released("DrainFailed", why)
            elif (node := self._get(name)) is not None:
                self._set(node, "DrainFailed", why, stage="cordoned")
        except Failure:
            pass  # the drain's own failure says more

    def _released(self, reason: str, why: str = "") -> str:
        assert self._saved is not None
        name, id, saved = self._saved.node, self._id, self._saved
        if (node := self._get(name)) is None:
            return f"there is no node {name} any more"
        if id not in nodes.marks_of(node):
            if patch := nodes.conditions_patch(node, saved.prefix, reason):
                self._api.patch(f"{_NODES}/{name}/status", patch)
            return f"node {name} has no annotation of this event, so it stays as it is"
        node = self._set(node, reason, why, stage="over")
        if nodes.opens(node, id):
            node = self._wait_until_ready(node, saved)
        node = self._change(node, lambda node: nodes.release_patch(node, id))
        if not nodes.is_cordoned(node):
            return f"node {name} takes pods"
        if any(mark.held for mark in nodes.marks_of(node).values()):
            return f"node {name} stays cordoned for another event"
        return f"node {name} stays cordoned by {nodes.cordoned_by(node)}"

    # Its parts

    def _announced(self, node: Node) -> Node:
        """Write on the Node what is coming, once."""
        if (mark := nodes.marks_of(node).get(self._id)) is None:
            prefix = self._prefix()
            if self._saved is None:
                self._saved = Saved(name_of(node), prefix, boot_id(), nodes.boot_id(node))
                self._run.save(STATE, self._saved)
            mark = first = nodes.mark_of(self._run.call, prefix)

            def announce(node: Node) -> Node:
                mark = msgspec.structs.replace(first, cordoned_by=nodes.cordoned_by(node))
                return nodes.mark_patch(node, self._id, mark, "")

            node = self._change(node, announce, status=True)
        if mark.stage == "announced":
            self._record(node, nodes.describe(mark))
        return node

    def _set(self, node: Node, reason: str = "", why: str = "", **changes: Any) -> Node:
        """Change mark and conditions; `reason` and `why` are of those that become False."""
        reason = reason or str(changes["stage"]).capitalize()

        def change(node: Node) -> Node:
            return nodes.mark_patch(node, self._id, self._mark(node, **changes), reason, why)

        return self._change(node, change, status=True)

    def _mark(self, node: Node, **changes: Any) -> Mark:
        if (mark := nodes.marks_of(node).get(self._id)) is None:
            raise Failure(f"somebody has removed the annotation of this event from {name_of(node)}")
        return msgspec.structs.replace(mark, **changes)

    def _change(self, node: Node, patch: Callable[[Node], Node], status: bool = False) -> Node:
        """Return the Node after the patch, made again if the Node has changed meanwhile."""
        name = name_of(node)
        part = "/status" if status and self._options.conditions != "off" else ""
        while True:
            try:
                return self._api.patch(f"{_NODES}/{name}{part}", patch(node))
            except Refused as refused:
                if refused.status != 409 or self._api.end - guard.monotonic() < CONFLICT_PAUSE:
                    raise
            wait(CONFLICT_PAUSE)
            node = self._required(name)

    def _record(self, node: Node, message: str) -> None:
        """Create a Node event, whose name every attempt has in common."""
        call, name, now = self._run.call, name_of(node), nodes.now()
        digest = hashlib.sha256(f"{name}\0{call.event.id}".encode()).hexdigest()
        node_uid = name  # as kubelet does: `kubectl describe` of 1.20 finds no others
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"forewarn.{digest[:32]}", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid},
            "type": "Normal",
            "reason": f"{call.event.type}Planned",
            "message": message[: nodes.MAX_MESSAGE],
            "source": {"component": MANAGER, "host": name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.request("POST", _EVENTS, event)
        except Refused as refused:
            if refused.status != 409:  # an earlier attempt has created it
                raise

    def _prefix(self) -> str | None:
        names: str = self._options.conditions
        if names == "auto":
            names = "standard" if self._api.version() >= STANDARD_CONDITIONS else "prefixed"
        return {"off": None, "standard": "", "prefixed": nodes.PREFIX}[names]

    def _wait_until_ready(self, node: Node, saved: Saved) -> Node:
        """Wait until kubelet says Ready, and after a reboot, until it says so since the reboot."""
        name = name_of(node)
        until = self._run.at_most(seconds(self._options.wait_ready))
        rebooted, known = saved.boot not in ("", boot_id()), saved.reported_boot
        while True:
            stale = rebooted and nodes.boot_id(node) == known != ""
            if nodes.condition(node, "Ready") in ("True", None) and not stale:
                return node
            if guard.monotonic() + ROUND > until:
                state = "has not reported since the reboot" if stale else "is not Ready"
                raise Failure(f"node {name} stays cordoned: its kubelet {state}")
            wait(ROUND)
            node = self._required(name)

    def _node(self) -> Node:
        """Return this machine's Node: by NODE_NAME, else the one that is called as the machine is,
        else by its providerID. Never one whose providerID names another machine."""
        machine = self._run.call.machine
        if self._saved is not None:
            return self._required(self._saved.node)
        if name := os.environ.get("NODE_NAME", ""):
            if (node := self._get(name)) is None:
                raise Failure(f"NODE_NAME is {name}, and there is no such node")
            if nodes.is_another(node, machine):
                raise Failure(
                    f"NODE_NAME is {name}, but by its providerID that is the machine"
                    f" {nodes.machine_of(node)}, and not {machine}"
                )
            return node
        from forewarn.client.identity import host_name  # rarely needed

        node = self._get(host_name(machine) or machine.lower())
        if node is not None and not nodes.is_another(node, machine):
            return node
        every = self._api.objects(_NODES, dict)
        found = [node for node in every if nodes.machine_of(node) == machine.lower()]
        if len(found) != 1:
            names = listing([name_of(node) for node in found]) if found else "none"
            raise Failure(f"which node is {machine}? By providerID: {names}; set NODE_NAME")
        return found[0]

    def _get(self, name: str) -> Node | None:
        return self._api.get(f"{_NODES}/{name}")

    def _required(self, name: str) -> Node:
        if (node := self._get(name)) is None:
            raise Failure(f"there is no node {name} any more")
        return node
