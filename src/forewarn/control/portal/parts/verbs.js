// What can be done to events, machines, hosts, rollouts and the whole fleet. Each verb is declared once: for which
// states it is offered, what it causes, and what it asks. The service decides whether it happens.
//
// A kind: path of the API (its ETag is sent along, unless it is no resource of its own), page, name, state in words,
// more that is read for the confirmation, and whom it concerns. A verb that is typed asks for the name; one with sure
// has to be ticked.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { get, serviceTime } from "../api.js";
import { address } from "../router.js";
import { useSession } from "../session.js";
import { Dialog } from "./dialog.js";
import { nameOf } from "./event-table.js";
import { RolloutPlan } from "./rollout-plan.js";
import { at, duration, listed, plural } from "./text.js";

const MOST_NAMES = 500; // that a field proposes
const NOTE = { name: "note", label: "Note", help: "It is recorded in the history." };
const REASON = { name: "reason", label: "Reason", help: "It is recorded in the history." };
const NOTICE = { name: "notice", label: "Notice", type: "duration", help: "From the announcement to the start; by default, the minimum notice of the type." };
const SHORT_NOTICE = { name: "short_notice", label: "Allow less than the minimum notice", type: "check" };
const IGNORE_WINDOWS = { name: "ignore_windows", label: "Ignore maintenance windows and blackouts", type: "check" };
const DESCRIPTION = { name: "description", label: "Description", help: "Guests see it." };
const TICKET = { name: "ticket", label: "Ticket", help: "Your reference, such as a change request. Guests do not see it." };

const unique = (names) => [...new Set(names)].sort();

// A host's maintenance has an event for each group, which belong together.
async function eventsTogether(event) {
  if (!event.host) return [event];
  try {
    const { data } = await get(`${address("v1", "hosts", event.host)}/explain`);
    return data.plans.map((plan) => plan.events).find((events) => events.some(({ id }) => id === event.id)) ?? [event];
  } catch {
    return [event]; // the host is none of the caller's
  }
}

const concernedEvents = (events) => ({
  machines: unique(events.flatMap((event) => event.machines)),
  groups: unique(events.map((event) => event.group)),
  hosts: unique(events.map((event) => event.host).filter(Boolean)),
});

// Names to choose from; whoever may not see them, or has more of them, writes the name.
async function names(list) {
  try {
    return (await get(`${list}?limit=${MOST_NAMES}`)).data.map(({ name }) => name);
  } catch {
    return [];
  }
}

const KINDS = {
  event: {
    path: (event) => address("v1", "events", event.id),
    page: (event) => address("events", event.id),
    name: nameOf,
    state: (event) => `${event.held || event.status}${event.status === "Scheduled" ? `, NotBefore ${at(event.not_before)}` : ""}`,
    more: async (event) => {
      const { data } = await get(`${address("v1", "events", event.id)}/explain`);
      const moved = data.advice.find((advice) => advice.kind === "finish" && advice.event === event.id)?.moved ?? [];
      return { together: await eventsTogether(event), moved, hosts: moved.length ? await names("/v1/hosts") : [] };
    },
    concerned: (event, { together }) => concernedEvents(together),
    verbs: [
      {
        operation: "approveEvent",
        label: "Approve",
        action: "approve",
        offered: (event) => event.status === "Scheduled" && !event.approved,
        concerned: (event) => concernedEvents([event]),
        effect: (event) => {
          const left = Date.parse(event.not_before) - serviceTime();
          return `It starts now instead of ${at(event.not_before)}${left > 0 ? `, ${duration(left)} earlier` : ""}, as soon as nothing else holds it.`;
        },
        fields: (event, more, session) => (session.limited ? [] : [{ ...IGNORE_WINDOWS, query: true }]),
      },
      {
        operation: "postponeEvent",
        label: "Postpone",
        action: "postpone",
        offered: (event) => event.status === "Scheduled",
        effect: (event, { together }) =>
          `NotBefore moves on from ${at(event.not_before)}, as far and as often as the policy of the group allows, and into a maintenance window.${
            together.length > 1 ? " All events of this maintenance move together." : ""
          }`,
        fields: () => [{ name: "by", label: "By how much", type: "duration", required: true }],
      },
      {
        operation: "cancelEvent",
        label: "Cancel",
        confirm: "Cancel the event",
        action: "cancel",
        offered: (event) => event.status === "Scheduled",
        effect: (event, { together }) =>
          `It does not happen, and guests no longer see it.${together.length > 1 ? ` All ${together.length} events of this maintenance are cancelled.` : ""}`,
        fields: () => [REASON],
      },
      {
        operation: "retryEvent",
        label: "Retry",
        action: "retry",
        offered: (event) => event.status === "Started",
        effect: () => "The driver carries it out again. Choose this if it did not happen.",
      },
      {
        operation: "finishEvent",
        label: "Finish",
        action: "finish",
        offered: (event) => event.status === "Started",
        concerned: (event) => concernedEvents([event]),
        effect: () => "It counts as carried out, and is over for its guests. Nothing more is done to the machines.",
        fields: (event, { moved, hosts }) => [
          { ...REASON, required: true },
          ...moved.map((name) => ({ name: `moved.${name}`, within: "moved", key: name, label: `Host that ${name} is on now`, choices: hosts })),
        ],
      },
    ],
  },

  machine: {
    path: (machine) => address("v1", "machines", machine.name),
    page: (machine) => address("machines", machine.name),
    name: (machine) => machine.name,
    state: (machine) =>
      machine.gone ? `It no longer exists: ${machine.gone}` : machine.events.length ? `It has ${plural(machine.events.length, "active event")}.` : "It has no active event.",
    more: async () => ({ hosts: await names("/v1/hosts") }),
    concerned: (machine) => ({ machines: [machine.name], groups: [machine.group], hosts: machine.host ? [machine.host] : [] }),
    verbs: [
      {
        operation: "restartMachine",
        label: "Restart",
        action: "restart",
        offered: (machine) => !machine.gone,
        effect: () => "It is announced to its group as a Reboot, and restarts when that is approved or its notice has passed. If the group is not enabled, it restarts at once.",
      },
      {
        operation: "redeployMachine",
        label: "Redeploy",
        action: "redeploy",
        offered: (machine) => !machine.gone,
        effect: () => "It is announced to its group as a Redeploy, and moves to another host when that is approved or its notice has passed; what is on its local disks is lost. If the group is not enabled, it moves at once.",
      },
      {
        operation: "evictMachine",
        label: "Evict",
        action: "evict",
        offered: (machine) => !machine.gone && machine.spot,
        effect: () => "It is announced to its group as a Preempt, and then stopped. It can be restored afterwards.",
      },
      {
        operation: "recordMove",
        label: "Record a move",
        action: "moved",
        offered: (machine) => !machine.gone,
        confirm: "Record it",
        title: (machine) => `Record that ${machine.name} is on another host`,
        effect: (machine) => `Nothing is done to the machine. What is planned for ${machine.host || "its old host"} does not affect it any more.`,
        fields: (machine, { hosts }) => [{ name: "host", label: "Host that it is on now", required: true, choices: hosts }],
      },
      {
        operation: "deleteMachine",
        label: "Delete",
        action: "delete",
        offered: (machine) => !machine.gone,
        typed: true,
        effect: () => "The machine is deleted. It is announced as a Terminate first if the policy of its group requires that.",
      },
      {
        operation: "restoreMachine",
        label: "Restore",
        action: "restore",
        offered: (machine) => machine.gone,
        effect: () => "The machine is there again, as it was before it was evicted or deleted.",
      },
    ],
  },

  host: {
    path: (host) => address("v1", "hosts", host.name),
    page: (host) => address("hosts", host.name),
    name: (host) => host.name,
    state: (host) =>
      `It is ${host.health}${host.cordoned ? " and cordoned" : ""}${host.events.length ? `, with ${plural(host.events.length, "event")} planned or under way` : ""}.`,
    more: async (host) => {
      const { data } = await get(`/v1/machines?${new URLSearchParams({ host: host.name })}`);
      return { groups: unique(data.map((machine) => machine.group)) };
    },
    concerned: (host, { groups }) => ({ machines: host.machines, groups, hosts: [host.name] }),
    verbs: [
      {
        operation: "maintainHost",
        label: "Maintain",
        action: "maintain",
        offered: (host) => host.machines.length,
        confirm: "Announce the maintenance",
        effect: (host, { groups }) => `It is announced to ${plural(groups.length, "group")} with an event each. They start together when all are approved or their notice has passed.`,
        fields: () => [
          { name: "mode", label: "What the machines notice", type: "choice", choices: ["Freeze", "Reboot", "live-migration"] },
          { name: "evacuate", label: "Move the machines to other hosts one by one instead", type: "check" },
          NOTICE,
          DESCRIPTION,
          { ...TICKET, rare: true },
          { ...SHORT_NOTICE, rare: true },
          { ...IGNORE_WINDOWS, rare: true },
        ],
      },
      {
        operation: "cordonHost",
        label: "Cordon",
        action: "cordon",
        offered: (host) => !host.cordoned,
        effect: () => "No machine is moved to it any more. Those that are on it stay.",
        fields: () => [NOTE],
      },
      {
        operation: "uncordonHost",
        label: "Uncordon",
        action: "uncordon",
        offered: (host) => host.cordoned,
        effect: () => "Machines may be moved to it again.",
      },
      {
        operation: "drainHost",
        label: "Drain",
        action: "drain",
        offered: (host) => host.machines.length,
        effect: (host) => `It is cordoned, and ${plural(host.machines.length, "machine is", "machines are")} moved to other hosts by live migration, each announced as a Freeze of its own.`,
        fields: () => [{ ...NOTICE, help: "From the announcement to the start; by default, the minimum notice of a Freeze." }],
      },
      {
        operation: "returnHost",
        label: "Return",
        action: "return",
        offered: (host) => host.cordoned,
        title: (host) => `Put ${host.name} back into service`,
        effect: () => "What is still planned to move its machines away is withdrawn, and it is uncordoned. Machines that have left it stay where they are.",
      },
      {
        operation: "degradeHost",
        label: "Degrade",
        action: "degrade",
        offered: (host) => host.health === "healthy",
        title: (host) => `Report that ${host.name} is expected to fail`,
        effect: (host) => `${plural(host.machines.length, "machine is", "machines are")} redeployed to other hosts, after notice; what is on their local disks is lost.`,
        fields: () => [{ ...NOTICE, help: "Until its machines are redeployed." }, IGNORE_WINDOWS, NOTE],
      },
      {
        operation: "repairHost",
        label: "Repair",
        action: "repair",
        offered: (host) => host.health !== "healthy",
        title: (host) => `Report that ${host.name} is repaired`,
        effect: () => "It is healthy again, and what is still planned because it was degraded is withdrawn.",
      },
      {
        operation: "failHost",
        label: "Fail",
        action: "fail",
        offered: (host) => host.health !== "failed",
        title: (host) => `Report that ${host.name} has failed`,
        typed: true,
        effect: (host) => `${plural(host.machines.length, "machine is", "machines are")} redeployed without notice; what is on their local disks is lost.`,
        fields: () => [NOTE],
      },
    ],
  },

  rollout: {
    path: (rollout) => address("v1", "rollouts", rollout.id),
    page: (rollout) => address("rollouts", rollout.id),
    name: (rollout) => `rollout ${rollout.id.slice(0, 8)} (${rollout.type}, ${rollout.selection})`,
    state: (rollout) => `It is ${rollout.state}, with ${rollout.steps_done} of ${plural(rollout.steps_total, "step")} done.`,
    more: async (rollout) => {
      const { data } = await get(`/v1/events?${new URLSearchParams({ rollout: rollout.id, status: "Scheduled" })}`);
      return { announced: data.map(nameOf) };
    },
    concerned: (rollout, { announced }) => ({ events: announced, machines: rollout.machines, groups: rollout.groups, hosts: rollout.hosts }),
    verbs: [
      {
        operation: "pauseRollout",
        label: "Pause",
        action: "pause",
        offered: (rollout) => rollout.state === "running" || rollout.state === "blocked",
        effect: (rollout, { announced }) =>
          `No further step is announced until it is resumed.${
            announced.length ? ` ${plural(announced.length, "event that is announced already happens", "events that are announced already happen")} unless withdrawn.` : ""
          }`,
        fields: () => [{ name: "withdraw", label: "Withdraw events that have not started; they are announced again after the pause", type: "check" }, REASON],
      },
      {
        operation: "resumeRollout",
        label: "Resume",
        action: "resume",
        offered: (rollout) => rollout.state === "paused" || rollout.state === "blocked",
        effect: (rollout) => `It goes on with ${plural(rollout.steps_total - rollout.steps_done, "step")}.`,
      },
      {
        operation: "abortRollout",
        label: "Abort",
        action: "abort",
        offered: (rollout) => !rollout.ended_at && rollout.state !== "aborting",
        effect: (rollout, { announced }) =>
          `It cannot be resumed. ${plural(rollout.steps_total - rollout.steps_done, "step is", "steps are")} not done${
            announced.length ? `, and ${plural(announced.length, "event that has not started is", "events that have not started are")} cancelled` : ""
          }.`,
        sure: () => "End this rollout for good",
        fields: () => [REASON],
      },
    ],
  },

  rollouts: {
    path: () => "/v1/rollouts",
    resource: false,
    page: () => "/rollouts",
    more: async () => ({ groups: await names("/v1/groups"), hosts: await names("/v1/hosts") }),
    verbs: [
      {
        operation: "startRollout",
        label: "Start a rollout",
        title: () => "Start a rollout",
        confirm: "Start it",
        effect: () => "Its machines are affected one update domain after the other, each announced with an event. The plan comes first.",
        plan: { path: "/v1/rollouts/plan?steps=8", label: "Show the plan", view: (plan) => html`<${RolloutPlan} of=${plan} />` },
        fields: (none, { groups, hosts }) => [
          { name: "type", label: "Type", type: "choice", choices: ["Freeze", "Reboot", "Redeploy", "live-migration", "evacuate-work-return"] },
          { name: "groups", label: "Groups", type: "list", choices: groups, help: "Names, separated by commas." },
          { name: "hosts", label: "Hosts", type: "list", choices: hosts, help: "Names or patterns, separated by commas." },
          { name: "machines", label: "Machines", type: "list", help: "Names or patterns, separated by commas." },
          NOTICE,
          DESCRIPTION,
          { name: "at_once", label: "Groups or hosts at once", type: "number", value: 1, min: 1, rare: true },
          { name: "canary", label: "First", type: "list", help: "Hosts or groups that go first, or how many.", rare: true },
          { name: "pause_after", label: "Pause after", type: "choice", choices: ["nothing", "canary", "waves"], rare: true },
          { name: "bake", label: "Wait after each step", type: "duration", rare: true },
          { name: "windows", label: "Windows", type: "list", separator: ";", help: "When steps may start, such as sat,sun 22:00-04:00 Europe/Berlin; separated by semicolons.", rare: true },
          { name: "conflicts", label: "Hosts with machines of several update domains of a group", type: "choice", choices: ["refuse", "split", "skip", "evacuate"], rare: true },
          { ...TICKET, rare: true },
          { ...SHORT_NOTICE, rare: true },
          { ...IGNORE_WINDOWS, rare: true },
          { name: "allow_overlap", label: "Start it although another rollout is still to do the same", type: "check", rare: true },
        ],
      },
    ],
  },

  fleet: {
    path: () => "/v1/halts",
    resource: false,
    page: () => "/",
    more: async () => (await get("/v1/status")).data,
    concerned: (none, status) => ({ machines: status.machines, groups: status.groups }),
    verbs: [
      {
        operation: "placeHalt",
        label: "Stop all",
        keyed: false,
        title: () => "Stop all",
        effect: () => "No event starts in the whole fleet until the stop is released, no matter who has approved it. What has started goes on, and failures are still recorded.",
        sure: () => "Stop the whole fleet",
        fields: () => [{ ...NOTE, help: "It is shown wherever an event waits for this." }],
      },
    ],
  },

  halt: {
    path: (halt) => address("v1", "halts", halt.id),
    resource: false,
    page: () => "/",
    name: (halt) => `the stop of ${halt.scope}`,
    state: (halt) => `Stopped since ${at(halt.at)} by ${halt.by}${halt.note && `: ${halt.note}`}.`,
    concerned: (halt) => ({ machines: halt.machines, events: halt.events }),
    verbs: [
      {
        operation: "releaseHalt",
        label: "Release",
        action: "release",
        keyed: false,
        effect: (halt) =>
          `${halt.events ? plural(halt.events, "event that waits for it starts", "events that wait for it start") : "Events that are announced start again"} as soon as approval, notice and update domains allow.`,
        fields: () => [NOTE],
      },
    ],
  },
};

// Buttons for what the caller may do to a resource in its present state.
export function Verbs({ kind: name, of = {} }) {
  const { operations } = useSession();
  const kind = KINDS[name];
  const [asked, setAsked] = useState(null);
  const group = useRef(null);
  const button = useRef(null); // the one that was used last
  useEffect(() => {
    if (!button.current || button.current.isConnected) return;
    if (document.activeElement === document.body) group.current.focus({ preventScroll: true });
  });
  const offered = kind.verbs.filter((verb) => operations.includes(verb.operation) && (!verb.offered || verb.offered(of)));
  if (!offered.length && !button.current) return null;
  const ask = (verb) => (event) => {
    button.current = event.currentTarget;
    setAsked(verb);
  };
  return html`
    <div class="verbs" role="group" aria-label="Actions" tabindex="-1" ref=${group}>
      ${offered.map((verb) => html`<button key=${verb.operation} class=${verb.typed || verb.sure ? "danger" : ""} onClick=${ask(verb)}>${verb.label}…</button>`)}
    </div>
    ${asked && html`<${Dialog} kind=${kind} verb=${asked} of=${of} onClose=${() => setAsked(null)} />`}
  `;
}
