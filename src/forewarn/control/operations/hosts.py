"""Operations of the control API on hosts."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q

LIST_HOSTS = Operation(
    "GET /v1/hosts",
    "List hosts",
    list[s.Host],
    query=q.HostQuery,
    respects_limits=True,
    paged=True,
    command="host list",
    help="List all hosts with their health and number of machines.",
)

GET_HOST = Operation(
    "GET /v1/hosts/{name}",
    "Get a host",
    s.Host,
    respects_limits=True,
    command="host show host-a",
    help="Show one host.",
)

EXPLAIN_HOST = Operation(
    "GET /v1/hosts/{name}/explain",
    "Explain what is planned for a host and what it waits for",
    s.HostExplanation,
    respects_limits=True,
    refuses=(503,),
    command="host explain host-a",
    used_by=("host show",),
    help="Explain what is scheduled on a host, and what it is waiting for.",
)

MAINTAIN_HOST = Operation(
    "POST /v1/hosts/{name}/maintain",
    "Schedule maintenance of a host",
    s.Outcomes,
    takes=s.MaintainRequest,
    command="host maintain host-a --type Freeze",
    example={"mode": "Freeze"},
    options={"mode": "type"},
    defaults={"mode": "Freeze"},
    help=(
        "Maintain a host: the maintenance is announced to every group on it, and carried out once."
    ),
)

DEGRADE_HOST = Operation(
    "POST /v1/hosts/{name}/degrade",
    "Report that a host is expected to fail, and redeploy its machines",
    s.Outcomes,
    takes=s.DegradeRequest,
    command="host degrade host-a --notice 7d",
    example={"notice": 604800},
    help="Mark a host as degraded: every machine on it is redeployed before it fails.",
)

FAIL_HOST = Operation(
    "POST /v1/hosts/{name}/fail",
    "Report that a host has failed",
    s.Outcomes,
    takes=s.FailRequest,
    command="host fail host-a --type Reboot",
    example={"type": "Reboot", "note": "power supply"},
    help=(
        "Report a sudden failure: every machine on the host is moved to another one at once, "
        "without notice."
    ),
)

REPAIR_HOST = Operation(
    "POST /v1/hosts/{name}/repair",
    "Report that a host is repaired",
    s.Outcomes,
    command="host repair host-a",
    help="Mark a host as healthy, and cancel what was scheduled because it was not.",
    done="host '{0}' is healthy",
)

CORDON_HOST = Operation(
    "POST /v1/hosts/{name}/cordon",
    "Cordon a host",
    s.Outcomes,
    takes=s.CordonRequest,
    command="host cordon host-a",
    example={"note": "new fans"},
    help="Prevent machines from being moved to a host. The machines on it stay there.",
    done="host '{0}' is cordoned",
)

UNCORDON_HOST = Operation(
    "POST /v1/hosts/{name}/uncordon",
    "Uncordon a host",
    s.Outcomes,
    command="host uncordon host-a",
    help="Allow machines to be moved to a host again.",
    done="host '{0}' is not cordoned",
)

DRAIN_HOST = Operation(
    "POST /v1/hosts/{name}/drain",
    "Cordon a host, and move its machines to other hosts",
    s.Outcomes,
    takes=s.DrainRequest,
    command="host drain host-a",
    example={"notice": 1800},
    help="Cordon a host, and move its machines to other hosts one by one.",
    done="host '{0}' is cordoned",
)

RETURN_HOST = Operation(
    "POST /v1/hosts/{name}/return",
    "Put a host back into service",
    s.Outcomes,
    command="host return host-a",
    help="Put a host back into service: cancel what is planned to empty it, and uncordon it.",
    done="host '{0}' is back in service",
)

WITHOUT_NODE = Operation(
    "POST /v1/hosts/{name}/without-node",
    "Declare that no node serves a host",
    s.Outcomes,
    command="host without-node host-a",
    help=(
        "Declare that no node serves a host any longer, so that events do not wait for it.\n\nStop "
        "the node first. If it is only cut off, its machines are disturbed without a warning."
    ),
    done="host '{0}' is not expected to have a node",
)

REVOKE_HOST = Operation(
    "POST /v1/hosts/{name}/revoke",
    "Revoke the certificates of a host's node",
    s.Outcomes,
    command="host revoke host-a",
    help=(
        "Accept no certificate and no token of a host any longer, and disconnect its node at once."
    ),
    done="the certificates of host '{0}' are revoked",
)

ENROLL_HOSTS = Operation(
    "POST /v1/enrollments",
    "Create a token with which nodes get their certificates",
    s.Enrollment,
    takes=s.EnrollmentRequest,
    status=201,
    role="admin",
    why_no_key="its response contains a secret and is not stored; create another one",
    refuses=(404, 409),
    command="host enroll host-a",
    example={"host": "host-a"},
    options={"label": "label", "hosts": "many", "expires_in": "for"},
)
