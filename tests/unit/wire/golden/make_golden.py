"""Writes the golden files: what each version shows of one event, put together by hand.

A derivation of its own, from the table of versions and plain string formatting; it imports
nothing of the package, so that the renderer and these files can only agree by both being right.
Run it to write the files anew; a test checks that they are what it says.
"""

from pathlib import Path

HERE = Path(__file__).parent

FIRST = ["Freeze", "Reboot", "Redeploy"]
# version: the types it knows, the fields it has added to the six of the first release
VERSIONS = {
    "2017-03-01": (FIRST, []),
    "2017-08-01": (FIRST, []),
    "2017-11-01": ([*FIRST, "Preempt"], []),
    "2019-01-01": ([*FIRST, "Preempt", "Terminate"], []),
    "2019-04-01": ([*FIRST, "Preempt", "Terminate"], ["Description"]),
    "2019-08-01": ([*FIRST, "Preempt", "Terminate"], ["Description", "EventSource"]),
    "2020-07-01": (
        [*FIRST, "Preempt", "Terminate"],
        ["Description", "EventSource", "DurationInSeconds"],
    ),
}

# type: incarnation, id, machines, NotBefore as the preview and as the others write it, and the
# newer fields as they stand in JSON
EVENTS = {
    "Freeze": (
        192,
        "28512AF7-C957-4500-9BC4-842D6FB531E4",
        ["web_0", "web_2"],
        ("2016-09-19T18:29:47Z", "Mon, 19 Sep 2016 18:29:47 GMT"),
        {
            "Description": '"Virtual machine is being paused because of a memory-preserving'
            ' Live Migration operation."',
            "EventSource": '"Platform"',
            "DurationInSeconds": "5",
        },
    ),
    "Reboot": (
        7,
        "FE88BA46-96D4-432E-8AED-89A0F0E52D99",
        ["sample_4"],
        ("2018-01-24T21:20:44Z", "Wed, 24 Jan 2018 21:20:44 GMT"),
        {
            "Description": '"Virtual machine is going to be restarted as requested by'
            ' authorized user."',
            "EventSource": '"User"',
            "DurationInSeconds": "-1",
        },
    ),
    "Redeploy": (
        1,
        "602D9444-D2CD-49C7-8624-8643E7171297",
        ["sql-1"],
        ("2024-02-29T00:00:00Z", "Thu, 29 Feb 2024 00:00:00 GMT"),
        {
            "Description": '"Virtual machine has encountered a failure."',
            "EventSource": '"Platform"',
            "DurationInSeconds": "0",
        },
    ),
    "Preempt": (
        2147483648,
        "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
        ["aks-spotcpu2m8-23666972-vmss_862"],
        ("2023-06-30T22:00:16Z", "Fri, 30 Jun 2023 22:00:16 GMT"),
        {"Description": '""', "EventSource": '"Platform"', "DurationInSeconds": "-1"},
    ),
    "Terminate": (
        3,
        "00000000-0000-4000-8000-000000000001",
        ["web_1"],
        ("2026-12-05T09:08:07Z", "Sat, 05 Dec 2026 09:08:07 GMT"),
        {"Description": '""', "EventSource": '"Platform"', "DurationInSeconds": "-1"},
    ),
}


def document(version: str, status: str, kind: str) -> str:
    incarnation, id, machines, (preview_time, time), newer = EVENTS[kind]
    if version == "2017-03-01":
        machines, time = [f"_{name}" for name in machines], preview_time
    if status == "Started":
        time = ""
    names = ",".join(f'"{name}"' for name in machines)
    fields = "".join(f',"{name}":{newer[name]}' for name in VERSIONS[version][1])
    return (
        f'{{"DocumentIncarnation":{incarnation},"Events":[{{"EventId":"{id}",'
        f'"EventStatus":"{status}","EventType":"{kind}","ResourceType":"VirtualMachine",'
        f'"Resources":[{names}],"NotBefore":"{time}"{fields}}}]}}'
    )


def golden() -> dict[str, bytes]:
    """Every file by its name."""
    return {
        f"{version}.{status}.{kind}.json": document(version, status, kind).encode()
        for version, (kinds, _) in VERSIONS.items()
        for status in ("Scheduled", "Started")
        for kind in kinds
    }


if __name__ == "__main__":
    for name, text in golden().items():
        (HERE / name).write_bytes(text)
