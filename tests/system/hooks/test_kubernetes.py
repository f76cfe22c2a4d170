"""The hook `kubernetes` against an API server over HTTPS with access rules: what it writes on the
Node at each stage, whom it evicts, what it takes back, and what it says if it cannot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.hooks import kubernetes, kubernetes_drain
from forewarn.agent.hooks.contract import Failure
from forewarn.agent.hooks.kubernetes_api import Api
from forewarn.agent.hooks.options import Kubernetes
from helpers.certificates import Authority
from helpers.fake_kubernetes import Refusal
from helpers.hook_runs import EVENT, Hook
from helpers.kubernetes_cluster import NODES, Cluster
from helpers.kubernetes_server import REAL, Proxy, serving
from helpers.waiting import LIMIT, until

SET = "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute"
MACHINE, NODE = "aks-pool-1234-vmss_18", "aks-pool-1234-vmss00000i"
PROVIDER = f"{SET}/virtualMachineScaleSets/aks-pool-1234-vmss/virtualMachines/18"
ID = str(EVENT["id"])
PLANNED, DRAINING, DRAINED, IN_PROGRESS = (
    f"forewarn/{name}"
    for name in ("MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress")
)
BY_DOCUMENTATION: list[Any] = [  # of servers that are newer than the real one
    (37, {}, "MaintenancePlanned"),
    (37, {"conditions": "prefixed"}, PLANNED),
]
OTHERS = [
    {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"},
    {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    {"key": "weave.works/kured-node-reboot", "effect": "PreferNoSchedule"},
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with serving(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def server(shared: Proxy) -> Iterator[Proxy]:
    yield shared
    shared.before, shared.after = lambda *_: None, lambda: None


@pytest.fixture
def cluster(server: Proxy, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.delenv("NODE_NAME", raising=False)
    for module in (kubernetes, kubernetes_drain):
        monkeypatch.setattr(module, "ROUND", 0.05)
    cluster = server.cluster
    cluster.clear()
    cluster.token_file.write_text(cluster.new_token())
    cluster.add_node("other", f"{SET}/virtualMachines/other")
    cluster.add_node(NODE, PROVIDER, taints=OTHERS)
    cluster.add_pod("web", NODE)
    cluster.add_pod("elsewhere", "other")
    return cluster


class OfNode(Hook):
    """The hook on the machine of the node."""

    def here(self, stage: str, left: float = 60.0, **more: Any) -> str:
        return super().here(stage, left, **({"machine": MACHINE} | more))


def hook(cluster: Cluster, state: Path, event: str = ID, **options: Any) -> OfNode:
    return OfNode("kubernetes", cluster.options | options, state / event, id=event)


def clean(cluster: Cluster) -> None:
    """Nothing is left on the node but conditions that are False."""
    node = cluster.node(NODE)
    assert not cluster.marks(NODE)
    assert not node["spec"].get("unschedulable")
    assert cluster.taints(NODE) == OTHERS
    assert set(cluster.conditions(NODE).values()) <= {"False"}


def test_each_stage_is_written_on_the_node_and_in_the_end_taken_back(
    cluster: Cluster, server: Proxy, tmp_path: Path
) -> None:
    cluster.add_pod("proxy", NODE, owner="DaemonSet")
    cluster.add_pod("static", NODE, owner="", annotations={"kubernetes.io/config.mirror": "x"})
    cluster.add_pod("done", NODE, owner="Job", phase="Succeeded")
    own = hook(cluster, tmp_path, taint="forewarn/maintenance=soon:NoExecute")

    line = own.here("announced")
    assert "Reboot not before 2120-11-15T10:46:06Z (Platform)" in line
    assert "restarted for 9 s: Host server is undergoing maintenance." in line
    assert cluster.conditions(NODE) == {PLANNED: "True"}
    [mark] = cluster.marks(NODE).values()
    assert (
        mark.items()
        >= {
            "type": "Reboot",
            "notBefore": EVENT["not_before"],
            "duration": 9,
            "source": "Platform",
        }.items()
    )
    [event] = cluster.events()
    assert event["involvedObject"]["name"] == event["involvedObject"]["uid"] == NODE
    assert (event["type"], event["reason"]) == ("Normal", "RebootPlanned")
    assert not cluster.cordoned(NODE), "nothing is disturbed"
    assert cluster.taints(NODE) == OTHERS

    with cluster.kubelet() as ended:
        assert own.here("prepare") == f"node {NODE} is drained, 1 pod evicted"
    assert ended == [("web", 30)]
    assert cluster.pods() == {"proxy", "static", "done", "elsewhere"}
    assert cluster.cordoned(NODE)
    assert cluster.taints(NODE)[len(OTHERS) :] == [
        {"key": "forewarn/maintenance", "value": "soon", "effect": "NoExecute"}
    ]
    assert cluster.conditions(NODE) == {PLANNED: "True", DRAINING: "False", DRAINED: "True"}

    assert own.here("started") == f"node {NODE}: Reboot has started"
    assert cluster.conditions(NODE)[IN_PROGRESS] == "True"

    assert own.here("undo") == f"node {NODE} takes pods"
    clean(cluster)
    assert len(cluster.conditions(NODE)) == 4
    assert "nothing is taken back" in own.here("finished")
    assert len(cluster.events()) == 1


def test_the_role_in_deploy_allows_what_is_asked_for_and_nothing_else(
    cluster: Cluster, server: Proxy, tmp_path: Path
) -> None:
    cluster.request("DELETE", f"{NODES}/{NODE}")
    cluster.add_node("renamed", PROVIDER)
    cluster.add_pod("app", "renamed")
    own = hook(cluster, tmp_path)
    server.used.clear()
    with cluster.kubelet():
        own.here("prepare")
    own.here("undo")
    allowed = {
        (verb, resource, group)
        for rule in cluster.rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert server.used == allowed
    needed = kubernetes.needed(Kubernetes(ca=str(cluster.ca)))
    assert {(*rule.split(" "), "") for rule in needed} == allowed


def test_the_check_asks_the_server_what_is_missing(
    cluster: Cluster, server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = hook(cluster, tmp_path)
    assert own.check() == []
    rules = cluster.rules
    cluster.rules = [rule for rule in rules if rule["resources"] != ["nodes/status"]]
    until(own.check, "the rule is gone")
    [problem] = own.check()
    assert "not allowed to patch nodes/status;" in problem
    with pytest.raises(Failure, match=r'403 nodes .* patch resource "nodes/status"'):
        own.here("prepare")
    assert own.here("undo").endswith("so it stays as it is")
    cluster.rules = rules
    until(lambda: not own.check(), "the rule is back")
    assert hook(cluster, tmp_path, conditions="off", drain=False).check() == []
    monkeypatch.setenv("NODE_NAME", "nowhere")
    assert own.check() == ["NODE_NAME is nowhere, and there is no such node"]


def test_pods_are_evicted_by_priority_and_budgets_are_kept(
    cluster: Cluster, server: Proxy, tmp_path: Path
) -> None:
    cluster.add_pod("db", NODE, "StatefulSet", priority=100)
    cluster.add_pod("low", NODE, priority=-5)
    cluster.add_budget("web", "web", 0)
    order: list[str] = []

    def note(verb: str, path: Any) -> None:
        if path.sub == "eviction":
            order.append(path.name)
            if order.count("web") == 3:
                cluster.allow("web", 1)

    server.before = note
    with cluster.kubelet():
        assert hook(cluster, tmp_path).here("prepare").endswith("3 pods evicted")
    assert order == ["low", "web", "db", "web", "web"]


def test_in_the_last_seconds_pods_are_hurried_and_a_budget_is_kept_all_the_same(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add_pod("quorum", NODE)
    cluster.add_budget("quorum", "quorum", 0)
    own = hook(cluster, tmp_path)
    with cluster.kubelet(lingering=["web"]) as ended, pytest.raises(Failure) as failure:
        own.here("prepare", left=8.0)
    assert [name for name, _ in ended] == ["web"]
    assert ended[0][1] < 30
    assert "the time is up" in str(failure.value)
    assert f"node {NODE} still has default/quorum" in str(failure.value)
    assert "disruption budget" in str(failure.value)
    assert cluster.pods() == {"quorum", "elsewhere"}
    assert cluster.cordoned(NODE)
    assert cluster.conditions(NODE) == {PLANNED: "True", DRAINING: "False"}
    own.here("undo")
    clean(cluster)


def test_a_failed_drain_can_take_everything_back(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_budget("web", "web", 0)
    own = hook(cluster, tmp_path, keep_cordoned=False, taint="forewarn/maintenance:NoSchedule")
    with pytest.raises(Failure, match="the time is up"):
        own.here("prepare", left=2.0)
    clean(cluster)
    own.here("started")
    own.here("undo")
    clean(cluster)
    assert len(cluster.conditions(NODE)) == 3


def test_a_node_is_only_cordoned_and_some_pods_are_left(cluster: Cluster, tmp_path: Path) -> None:
    cordon = hook(cluster, tmp_path, drain=False)
    assert cordon.here("prepare") == f"node {NODE} is cordoned"
    assert "web" in cluster.pods()
    cordon.here("undo")
    clean(cluster)
    cluster.add_pod("db", NODE)
    with cluster.kubelet():
        hook(cluster, tmp_path, pods="app!=db").here("prepare")
    assert cluster.pods() == {"db", "elsewhere"}
    with pytest.raises(Failure, match="api/v1/pods: 400"):
        hook(cluster, tmp_path, "2", pods="app~db").here("prepare")


@pytest.mark.parametrize(
    ("pod", "options", "says"),
    [
        ({"owner": ""}, {"force": True}, "no controller would start default/precious"),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"delete_empty_dir_data": True},
            "the emptyDir of default/precious",
        ),
    ],
)
def test_what_would_be_lost_is_evicted_only_if_the_options_say_so(
    cluster: Cluster, tmp_path: Path, pod: Any, options: dict[str, Any], says: str
) -> None:
    cluster.add_pod("precious", NODE, **pod)
    careful: dict[str, Any] = {name: not value for name, value in options.items()}
    with pytest.raises(Failure, match=says):
        hook(cluster, tmp_path, **careful).here("prepare")
    assert {"precious", "web"} <= cluster.pods()
    with cluster.kubelet():
        hook(cluster, tmp_path, **options).here("prepare")
    assert cluster.pods() == {"elsewhere"}


def test_two_thousand_pods_are_listed_in_pages_and_evicted(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2_000
    if not REAL:  # the fake server is slow
        count = 50
        monkeypatch.setattr("forewarn.agent.hooks.kubernetes_api.PAGE", 20)
    names = [f"pod-{number}" for number in range(count)]
    for name in names:
        cluster.add_pod(name, NODE)
    with cluster.kubelet() as ended:
        line = hook(cluster, tmp_path).here("prepare", left=LIMIT)
    assert line == f"node {NODE} is drained, {count + 1:,} pods evicted"
    assert sorted(name for name, _ in ended) == sorted([*names, "web"])
    assert cluster.pods() == {"elsewhere"}


@pytest.mark.parametrize("first_over", ["A", "B"])
def test_the_last_of_two_events_uncordons_the_node(
    cluster: Cluster, tmp_path: Path, first_over: str
) -> None:
    hooks = {
        name: hook(cluster, tmp_path, name, taint="forewarn/maintenance:NoSchedule")
        for name in ("A", "B")
    }
    with cluster.kubelet():
        hooks["A"].here("prepare")
        hooks["B"].here("announced")
        hooks["B"].here("prepare")
    assert cluster.marks(NODE).keys() == {"A", "B"}
    assert hooks.pop(first_over).here("undo") == f"node {NODE} stays cordoned for another event"
    assert len(cluster.taints(NODE)) == len(OTHERS) + 1
    assert cluster.conditions(NODE)[PLANNED] == "True"
    [last] = hooks.values()
    assert last.here("undo") == f"node {NODE} takes pods"
    clean(cluster)


def test_an_event_that_is_only_announced_does_not_keep_the_node_cordoned(
    cluster: Cluster, tmp_path: Path
) -> None:
    soon, later = hook(cluster, tmp_path, "soon"), hook(cluster, tmp_path, "later")
    later.here("announced")
    with cluster.kubelet():
        soon.here("prepare")
    assert soon.here("undo") == f"node {NODE} takes pods"
    assert cluster.conditions(NODE)[PLANNED] == "True"
    later.here("withdrawn")
    clean(cluster)


def test_a_node_that_somebody_else_has_cordoned_is_never_uncordoned(
    cluster: Cluster, tmp_path: Path
) -> None:
    own = hook(cluster, tmp_path, drain=False)
    own.here("announced")
    cluster.cordon(NODE, by="kured")
    own.here("prepare")
    assert cluster.marks(NODE)[ID]["cordonedBy"] == "kured"
    assert own.here("undo") == f"node {NODE} stays cordoned by kured"
    assert cluster.cordoned(NODE)
    cluster.cordon(NODE, on=False)

    own.here("prepare")
    cluster.cordon(NODE, on=False)
    cluster.cordon(NODE, by="kubectl")
    assert own.here("undo") == f"node {NODE} stays cordoned by kubectl"
    cluster.cordon(NODE, on=False)
    clean(cluster)

    own.here("prepare")
    cluster.cordon(NODE, on=False)
    assert own.here("undo") == f"node {NODE} takes pods"


def test_a_taint_of_others_and_an_annotation_that_was_removed_are_respected(
    cluster: Cluster, tmp_path: Path
) -> None:
    taint = {"key": "forewarn/maintenance", "effect": "NoSchedule"}
    cluster.change(f"{NODES}/{NODE}", {"spec": {"taints": [*OTHERS, taint]}})
    own = hook(cluster, tmp_path, taint="forewarn/maintenance:NoSchedule", drain=False)
    own.here("prepare")
    own.here("undo")
    assert cluster.taints(NODE) == [*OTHERS, taint]
    cluster.change(f"{NODES}/{NODE}", {"spec": {"taints": OTHERS}})
    own.here("prepare")
    later = {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}
    spec = {"taints": [OTHERS[0], later, *cluster.taints(NODE)[2:]]}
    cluster.change(f"{NODES}/{NODE}", {"spec": spec})
    own.here("undo")
    assert cluster.taints(NODE) == [OTHERS[0], later, *OTHERS[2:]], "as they are by now"
    own.here("prepare")
    mark = {f"forewarn/event-{ID}": None}
    cluster.change(f"{NODES}/{NODE}", {"metadata": {"annotations": mark}})
    assert own.here("undo").endswith("so it stays as it is")
    assert cluster.cordoned(NODE), "whoever has removed it answers for it"
    assert set(cluster.conditions(NODE).values()) == {"False"}


def test_a_patch_is_made_again_if_the_node_has_changed(
    cluster: Cluster, server: Proxy, tmp_path: Path
) -> None:
    def change(verb: str, path: Any) -> None:
        if verb == "patch" and len(changes) < 20:
            changes.append(path.sub)
            if len(changes) % 2:
                label = {"labels": {"changed": str(len(changes))}}
                cluster.change(f"{NODES}/{NODE}", {"metadata": label})

    changes: list[str] = []
    server.before = change
    own = hook(cluster, tmp_path, drain=False)
    own.here("prepare")
    own.here("undo")
    clean(cluster)
    assert {"", "status"} <= set(changes)
    assert cluster.node(NODE)["metadata"]["labels"]


def test_after_a_reboot_the_node_is_opened_when_its_kubelet_has_reported_ready(
    cluster: Cluster, server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.report(NODE, "True", boot="before")
    own = hook(cluster, tmp_path, wait_ready=0.3)
    with cluster.kubelet():
        own.here("prepare")
    monkeypatch.setattr(kubernetes, "boot_id", lambda: "another")
    with pytest.raises(Failure, match="has not reported since the reboot"):
        own.here("undo")
    assert cluster.cordoned(NODE)
    assert set(cluster.conditions(NODE).values()) == {"False"}
    cluster.report(NODE, "False", boot="after")
    with pytest.raises(Failure, match="is not Ready"):
        own.here("undo")
    looks: list[str] = []

    def look(verb: str, path: Any) -> None:
        looks.append(verb)
        if len(looks) == 5:
            cluster.report(NODE, "True", boot="after")

    server.before = look
    assert hook(cluster, tmp_path, wait_ready="1m").here("undo") == f"node {NODE} takes pods"
    clean(cluster)


def test_the_node_is_found_by_name_or_provider_id_and_never_guessed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = hook(cluster, tmp_path, drain=False)
    assert "nothing is taken back" in own.here("undo")
    assert "not about this machine" in own.here("prepare", mine=False)
    assert "which node is web_1? By providerID: none" in _failure(own, machine="web_1")
    monkeypatch.setenv("NODE_NAME", "nowhere")
    assert "no such node" in _failure(own)
    monkeypatch.setenv("NODE_NAME", "other")
    assert "by its providerID that is the machine other, and not aks" in _failure(own)
    monkeypatch.delenv("NODE_NAME")
    cluster.request("DELETE", f"{NODES}/{NODE}")
    cluster.add_node(NODE, PROVIDER.replace("/18", "/19"))
    assert "By providerID: none" in _failure(own)
    cluster.add_node("renamed", PROVIDER)
    assert own.here("prepare") == "node renamed is cordoned"
    cluster.request("DELETE", f"{NODES}/renamed")
    assert own.here("undo") == "there is no node renamed any more"


def _failure(own: Hook, **more: Any) -> str:
    with pytest.raises(Failure) as failure:
        own.here("prepare", **more)
    return str(failure.value)


@pytest.mark.parametrize(
    ("minor", "options", "expected"),
    [
        (20, {}, PLANNED),
        (20, {"conditions": "standard"}, "MaintenancePlanned"),
        (20, {"conditions": "off"}, None),
        *([] if REAL else BY_DOCUMENTATION),
    ],
)
def test_conditions_have_the_names_that_the_server_knows(
    cluster: Cluster,
    server: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    minor: int,
    options: dict[str, str],
    expected: str | None,
) -> None:
    if server.fake is not None:
        monkeypatch.setattr(server.fake, "minor", minor)
    own = hook(cluster, tmp_path, **options)
    with cluster.kubelet():
        own.here("prepare")  # with the evictions that the server knows
    assert (expected is None) == (not cluster.conditions(NODE))
    assert expected is None or expected in cluster.conditions(NODE)
    if server.fake is not None:
        monkeypatch.setattr(server.fake, "minor", 57 - minor)  # upgraded meanwhile
    own.here("undo")
    clean(cluster)


# What goes wrong


def test_a_token_is_read_again_and_a_bad_one_is_named(
    cluster: Cluster, server: Proxy, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    own = hook(cluster, tmp_path, token=str(token), drain=False)
    assert f"token {token} cannot be read: No such file" in _failure(own)
    assert f"token {token} cannot be read" in own.check()[0]
    token.write_text("\n")
    assert "does not contain a token" in _failure(own)
    token.write_text(cluster.new_token())
    rotated: list[str] = []

    def rotate() -> None:
        if not rotated:
            cluster.revoke()
            rotated.append(cluster.new_token())
            token.write_text(rotated[0])

    server.after = rotate
    own.here("prepare")
    cluster.revoke()
    until(lambda: cluster.request("GET", NODES, token=rotated[0])[0] == 401, "it is not cached")
    with pytest.raises(Failure, match=r"refuses the token in .* \(401\): it has expired"):
        own.here("undo")
    assert cluster.cordoned(NODE)
    token.write_text(cluster.new_token())
    own.here("undo")
    clean(cluster)


def test_a_busy_server_is_asked_again_and_one_that_is_away_is_a_failure_in_time(
    cluster: Cluster, server: Proxy, tmp_path: Path
) -> None:
    answers = [
        Refusal(429, "TooManyRequests", "later", headers={"Retry-After": "0"}),
        Refusal(503, "ServiceUnavailable", "not yet"),
        Refusal(500, "InternalError", "etcdserver: request timed out"),
    ]
    server.before = lambda *_: answers.pop(0) if answers else None
    own = hook(cluster, tmp_path, drain=False)
    own.here("prepare")
    assert not answers
    own.here("undo")
    server.before = lambda *_: Refusal(503, "ServiceUnavailable", "not today")
    with pytest.raises(Failure, match=f"the time is up: GET {NODES}/.*: 503 not today"):
        own.here("prepare", left=2.0)
    with pytest.raises(Failure, match="does not answer: Connection refused"):
        hook(cluster, tmp_path, "2", server="https://127.0.0.1:1").here("prepare", left=2.0)


def test_pages_that_have_expired_are_listed_anew(
    cluster: Cluster, server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.agent.hooks.kubernetes_api.PAGE", 1)
    cluster.add_pod("two", NODE)
    lists = 0

    def compact(verb: str, path: Any) -> None:
        nonlocal lists
        lists += (verb, path.resource) == ("list", "pods")
        if lists == 2:
            cluster.change(f"{NODES}/other", {"metadata": {"labels": {"changed": "since"}}})
            cluster.compact()

    server.before = compact
    server.statuses.clear()
    with cluster.kubelet():
        assert hook(cluster, tmp_path).here("prepare").endswith("2 pods evicted")
    assert 410 in server.statuses


def test_what_the_server_or_its_files_lack_is_a_sentence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    own = hook(cluster, tmp_path, server="")
    assert "KUBERNETES_SERVICE_HOST is not set" in own.check()[0]
    host, port = cluster.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    assert own.check() == []
    assert "ca /nowhere cannot be read" in hook(cluster, tmp_path, ca="/nowhere").check()[0]
    stranger = Authority(tmp_path, "stranger")
    [problem] = hook(cluster, tmp_path, ca=str(stranger.path)).check()
    assert "is not trusted" in problem
    long = hook(cluster, tmp_path, "x" * 80, drain=False)
    assert "422" in _failure(long)
    assert not cluster.marks(NODE)


class Killed(BaseException):
    """The process is no more: nothing of it is run after this."""


@pytest.mark.parametrize("answered", [False, True])
def test_killed_at_every_request_everything_is_undone_all_the_same(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """Before the server gets the request, or when it has done what it was asked for. Processes are
    killed by test_killed_node_agent.py; here they would take minutes."""
    point, count = 0, 0
    exchange = Api._exchange

    def killed(*arguments: Any) -> bytes:
        nonlocal count
        count += 1
        if count == point and not answered:
            raise Killed
        try:
            return exchange(*arguments)
        finally:
            if count == point:
                raise Killed

    monkeypatch.setattr(Api, "_exchange", killed)
    with cluster.kubelet():
        for stages in (("announced", "prepare"), ("prepare", "started", "undo")):
            point, was_killed = 0, True
            while was_killed:
                point, count = point + 1, 0
                own = hook(cluster, tmp_path / stages[-1] / str(point))
                with contextlib.suppress(Killed):
                    for stage in stages:
                        own.here(stage)
                if "web" not in cluster.pods():
                    cluster.add_pod("web", NODE)
                was_killed, count = count == point, point  # and never again
                own.here("undo")
                clean(cluster)
                assert "nothing is taken back" in own.here("undo")
            assert point > 8


def test_the_hook_needs_no_environment(cluster: Cluster, tmp_path: Path) -> None:
    own = hook(cluster, tmp_path, drain=False)
    result = own.program("prepare", machine=MACHINE)
    assert result == (0, f"node {NODE} is cordoned\n")
    until(lambda: cluster.cordoned(NODE))
    assert os.environ.get("NODE_NAME") is None
