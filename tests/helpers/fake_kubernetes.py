"""A Kubernetes API server in memory, as much of it as the hook and its tests ask for, over HTTPS.

It keeps any object under the path that the real one has for it, and answers as version 1.20.2 does:
tests/system/hooks/test_kubernetes_answers.py gives both the same script, and compares. Its rules
for access are ClusterRoles that were created like everything else. There are no controllers and no
kubelet: tests play them (kubernetes_cluster.py), here as on the real one.

What 1.20 does not have is marked `BY_DOCUMENTATION`, and there only if `minor` says so.
"""

from __future__ import annotations

import copy
import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from forewarn.node.config import Tls

Object = dict[str, Any]

ADMIN = "the-admins-token"
BY_DOCUMENTATION = {"policy/v1 evictions": 22, "conditions of KEP-5683": 37}
_ANNOTATION = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
ENDED = ("Succeeded", "Failed")
_KINDS = {"nodes": "Node", "pods": "Pod", "events": "Event"}


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.headers: dict[str, str] = more.pop("headers", {})
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "code": code,
        } | more
        if reason:
            self.status["reason"] = reason

    @property
    def body(self) -> bytes:
        return json.dumps(self.status).encode()


class ResourcePath:
    """What a request is about: `/api/v1/namespaces/default/pods/web/eviction`."""

    def __init__(self, text: str) -> None:
        parts = [unquote(part) for part in text.strip("/").split("/")]
        self.group = "" if parts[0] == "api" else parts[1]
        self.version = parts[1] if parts[0] == "api" else parts[2]
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        self.namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            self.namespace, rest = rest[1], rest[2:]
        self.resource, self.name, self.sub = [*rest, "", ""][:3]

    @property
    def full(self) -> str:
        return f"{self.resource}/{self.sub}" if self.sub else self.resource

    def verb(self, method: str) -> str:
        changing = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
        return changing.get(method) or ("get" if self.name else "list")

    def key(self, name: str = "") -> tuple[str, str, str]:
        return self.resource, self.namespace, name or self.name


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tls: Tls, minor: int = 20) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.minor = minor
        self.objects: dict[tuple[str, str, str], Object] = {}
        self._tokens = {ADMIN: ("admin", "")}  # name and UID of the account
        self._version = self._compacted = 0
        self._lock = threading.RLock()
        self.url = f"https://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up is no news."""

    def compact(self) -> None:
        self._compacted = self._version

    def end(self) -> None:
        self.shutdown()
        self.server_close()

    def answer(
        self, method: str, target: str, token: str, agent: str, kind: str, body: Object
    ) -> tuple[int, Object]:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        user, uid = self._tokens.get(token, ("", ""))
        accounts = [
            one["metadata"]["uid"]
            for key, one in self.objects.items()
            if key[0] == "serviceaccounts"
        ]
        if not user or (uid and uid not in accounts):
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if url.path == "/version":
            git = f"v1.{self.minor}.2"
            return 200, {"major": "1", "minor": str(self.minor), "gitVersion": git}
        path = ResourcePath(url.path)
        verb = path.verb(method)
        with self._lock:
            self._authorize(user, verb, path)
            match verb:
                case "create":
                    return 201, self._created(user, path, body)
                case "list":
                    return 200, self._listed(path, query)
                case "get":
                    return 200, self._there(path)
                case "patch":
                    if kind != "application/merge-patch+json":
                        raise Refusal(415, "UnsupportedMediaType", "the body has another form")
                    manager = query.get("fieldManager") or agent.partition("/")[0]
                    return 200, self._patched(path, body, manager)
                case _:
                    return 200, self._deleted(path, body or {})

    # Access

    def _authorize(self, user: str, verb: str, path: ResourcePath) -> None:
        if user == "admin":
            return
        if path.resource == "selfsubjectaccessreviews" or self._may(
            user, verb, path.full, path.group
        ):
            return
        scope = f'in the namespace "{path.namespace}"' if path.namespace else "at the cluster scope"
        kind = f"{path.resource}.{path.group}" if path.group else path.resource
        named = f'{kind} "{path.name}"' if path.name else kind
        raise Refusal(
            403,
            "Forbidden",
            f'{named} is forbidden: User "{user}" cannot {verb} resource "{path.full}" in API group'
            f' "{path.group}" {scope}',
            details={"name": path.name, "kind": path.resource} if path.name else {"kind": kind},
        )

    def _may(self, user: str, verb: str, resource: str, group: str) -> bool:
        roles = {
            binding["roleRef"]["name"]
            for (kind, _, _), binding in self.objects.items()
            if kind == "clusterrolebindings"
            for subject in binding["subjects"]
            if f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}" == user
        }
        return any(
            verb in rule["verbs"]
            and resource in rule.get("resources", ())
            and group in rule.get("apiGroups", ())
            for (kind, _, name), role in self.objects.items()
            if kind == "clusterroles" and name in roles
            for rule in role["rules"]
        )

    # Objects

    def _created(self, user: str, path: ResourcePath, body: Object) -> Object:
        if path.sub == "eviction":
            return self._evicted(path, body)
        if path.sub == "token":
            path.sub = ""
            uid = self._there(path)["metadata"]["uid"]
            token = f"token-{len(self._tokens)}-of-{path.name}"
            self._tokens[token] = f"system:serviceaccount:{path.namespace}:{path.name}", uid
            return body | {"status": {"token": token}}
        if path.resource == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            sub = asked.get("subresource")
            resource = f"{asked['resource']}/{sub}" if sub else asked["resource"]
            group = asked.pop("group", "")
            asked |= {"group": group} if group else {}
            status: Object = {"allowed": self._may(user, asked["verb"], resource, group)}
            status |= {"reason": "RBAC: allowed by a role"} if status["allowed"] else {}
            return body | {"metadata": {}, "status": status}
        created = copy.deepcopy(body)
        metadata = created["metadata"]
        key = path.key(metadata["name"])
        if key in self.objects:
            message = f'{path.resource} "{metadata["name"]}" already exists'
            raise Refusal(409, "AlreadyExists", message)
        self._version += 1
        metadata |= {"uid": f"uid-{self._version}", "resourceVersion": str(self._version)}
        if path.namespace:
            metadata["namespace"] = path.namespace
        if path.resource == "poddisruptionbudgets":
            metadata["generation"] = 1
        if path.resource == "nodes":
            created["status"] = {"nodeInfo": {"bootID": ""}}
            metadata["managedFields"] = [{"manager": "unknown", "fieldsV1": {}}]
        if path.resource == "pods":
            created["status"] = {"phase": "Pending"}
            created["spec"].setdefault("terminationGracePeriodSeconds", 30)
        self.objects[key] = created
        return created

    def _there(self, path: ResourcePath) -> Object:
        if path.key() not in self.objects:
            raise Refusal(
                404,
                "NotFound",
                f'{path.resource} "{path.name}" not found',
                details={"name": path.name, "kind": path.resource},
            )
        return self.objects[path.key()]

    def _listed(self, path: ResourcePath, query: dict[str, str]) -> Object:
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        found = [
            object
            for (resource, namespace, _), object in sorted(self.objects.items())
            if resource == path.resource and path.namespace in ("", namespace)
            if not node or object["spec"].get("nodeName") == node
            if selects(query.get("labelSelector", ""), object["metadata"].get("labels") or {})
        ]
        version, _, index = query.get("continue", f"{self._version}.0").partition(".")
        if int(version) < self._compacted:
            message = "The provided continue parameter is too old to display a consistent list"
            raise Refusal(410, "Expired", message, metadata={"continue": f"{self._version}.0"})
        first = int(index)
        limit = int(query.get("limit") or len(found) or 1)
        metadata: Object = {"resourceVersion": str(self._version)}
        if first + limit < len(found):
            metadata["continue"] = f"{version}.{first + limit}"
        items = [
            {key: value for key, value in object.items() if key not in ("kind", "apiVersion")}
            for object in found[first : first + limit]
        ]
        return {
            "kind": f"{_KINDS.get(path.resource, '')}List",
            "apiVersion": path.version,
            "metadata": metadata,
            "items": items,
        }

    def _patched(self, path: ResourcePath, patch: Object, manager: str) -> Object:
        before = self._there(path)
        sent = patch.get("metadata", {}).get("resourceVersion")
        if sent not in (None, before["metadata"]["resourceVersion"]):
            raise Refusal(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {path.resource} "{path.name}": the object has'
                " been modified; please apply your changes to the latest version and try again",
                details={"name": path.name, "kind": path.resource},
            )
        after = copy.deepcopy(before)
        merge(after, patch)
        kept = "spec" if path.sub == "status" else "status"
        after.pop(kept, None)
        after |= {kept: before[kept]} if kept in before else {}
        for key in after["metadata"].get("annotations") or {}:
            if not _ANNOTATION.fullmatch(key):
                kind = _KINDS[path.resource]
                message = f'{kind} "{path.name}" is invalid: metadata.annotations: Invalid value'
                raise Refusal(422, "Invalid", message)
        if not after["metadata"].get("annotations"):
            after["metadata"].pop("annotations", None)
        if after != before:
            self._version += 1
            after["metadata"]["resourceVersion"] = str(self._version)
            if path.resource == "poddisruptionbudgets" and after["spec"] != before["spec"]:
                after["metadata"]["generation"] += 1
            if path.resource == "nodes":
                cordoned = [one.get("spec", {}).get("unschedulable") for one in (before, after)]
                if cordoned[0] != cordoned[1]:
                    fields: Object = {"f:spec": {"f:unschedulable": {}}} if cordoned[1] else {}
                    after["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}]
            self.objects[path.key()] = after
        return after

    def _deleted(self, path: ResourcePath, options: Object) -> Object:
        object = self._there(path)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted not in (None, object["metadata"]["uid"]):
            message = f'Operation cannot be fulfilled on {path.resource} "{path.name}"'
            raise Refusal(409, "Conflict", f"{message}: Precondition failed: UID in precondition")
        grace = options.get("gracePeriodSeconds")
        if path.resource == "pods" and object["status"]["phase"] not in ENDED and grace != 0:
            grace = object["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
            metadata = object["metadata"]
            if "deletionTimestamp" in metadata:
                grace = min(grace, metadata["deletionGracePeriodSeconds"])
            self._version += 1
            metadata["deletionTimestamp"] = "2026-11-15T10:46:06Z"
            metadata["deletionGracePeriodSeconds"] = grace
            metadata["resourceVersion"] = str(self._version)
            return object
        del self.objects[path.key()]
        if path.resource == "pods":
            return object
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _evicted(self, path: ResourcePath, eviction: Object) -> Object:
        version = eviction["apiVersion"].removeprefix("policy/")
        least = BY_DOCUMENTATION["policy/v1 evictions"]
        if version != "v1beta1" and self.minor < least:
            message = f'no kind "Eviction" is registered for version "policy/{version}"'
            raise Refusal(400, "BadRequest", message)
        pod = ResourcePath(f"/api/v1/namespaces/{path.namespace}/pods/{path.name}")
        object = self._there(pod)
        running = object["status"]["phase"] == "Running"
        if running and "deletionTimestamp" not in object["metadata"]:
            self._ask_budgets(object)
        self._deleted(pod, eviction.get("deleteOptions") or {})
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return success | {"code": 201}

    def _ask_budgets(self, pod: Object) -> None:
        labels = pod["metadata"].get("labels") or {}
        budgets = [
            budget
            for (resource, namespace, _), budget in self.objects.items()
            if resource == "poddisruptionbudgets" and namespace == pod["metadata"]["namespace"]
            if budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ]
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction"
            message += " subresource does not support."
            raise Refusal(500, "", message)
        ready = {"type": "Ready", "status": "True"}.items()
        healthy = any(one.items() >= ready for one in pod["status"].get("conditions") or ())
        for budget in budgets:
            status = budget.get("status") or {}
            desired = status.get("desiredHealthy", 0)
            if not healthy and status.get("currentHealthy", 0) >= desired > 0:
                continue  # it does not count
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            name = budget["metadata"]["name"]
            if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
                cause = f"The disruption budget {name} is still being processed by the server."
                details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
                raise Refusal(429, "TooManyRequests", message, details=details)
            if status.get("disruptionsAllowed", 0) <= 0:
                cause = (
                    f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy"
                    f" pods and has {status.get('currentHealthy', 0)} currently"
                )
                details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
                raise Refusal(429, "TooManyRequests", message, details=details)
            status["disruptionsAllowed"] -= 1


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Whether `a=b,c!=d` selects these labels."""
    for term in filter(None, selector.split(",")):
        name, _, value = term.partition("=")
        if not re.fullmatch(r"[\w./-]+!?", name) or "=" not in term:
            message = f'Unable to find "/v1, Resource=pods" that match label selector "{selector}"'
            raise Refusal(400, "BadRequest", message)
        equal = labels.get(name.removesuffix("!")) == value.removeprefix("=")
        if equal == name.endswith("!"):
            return False
    return True


def merge(target: Object, patch: Object) -> None:
    """A JSON merge patch (RFC 7396)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        agent, kind = self.headers.get("User-Agent") or "", self.headers.get("Content-Type") or ""
        extra: dict[str, str] = {}
        try:
            sent = json.loads(body or b"{}")
            code, answer = self.server.answer(self.command, self.path, token, agent, kind, sent)
            text = json.dumps(answer).encode()
        except Refusal as refusal:
            code, text, extra = refusal.code, refusal.body, refusal.headers
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **extra}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PATCH = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class wants these names

    def log_message(self, format: str, *args: object) -> None:
        pass
