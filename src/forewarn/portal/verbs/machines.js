// What can be done to a machine.
import { address } from "../router.js";
import { plural } from "../parts/text.js";
import { announce, failureType, names } from "./common.js";

/** @type {portal.Kind<api.Machine, { machines?: string[], hosts?: string[] }>} */
export const machine = {
  path: (machine) => address("v1", "machines", machine.name),
  page: (machine) => address("machines", machine.name),
  name: (machine) => machine.name,
  state: (machine) =>
    machine.gone ? `It no longer exists: ${machine.gone}` : machine.events.length ? `It has ${plural(machine.events.length, "active event")}.` : "It has no active event.",
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
      operation: "scheduleEvent",
      label: "Announce an event",
      path: () => "/v1/events",
      offered: (machine) => !machine.gone,
      confirm: "Announce it",
      title: (machine) => `Announce an event to ${machine.name}`,
      effect: () => "It is announced to the group, and starts when it is approved or its notice has passed.",
      more: async (machine) => ({ machines: await names("/v1/machines", { group: machine.group }) }),
      fields: (machine, { machines }, session) => announce([machine.name], machines ?? [], session),
    },
    {
      operation: "recordMove",
      label: "Record a move",
      action: "moved",
      offered: (machine) => !machine.gone,
      confirm: "Record it",
      title: (machine) => `Record that ${machine.name} is on another host`,
      effect: (machine) => `Nothing is done to the machine. What is planned for ${machine.host || "its old host"} does not affect it any more.`,
      more: async () => ({ hosts: await names("/v1/hosts") }),
      fields: (machine, { hosts }) => [{ name: "host", label: "Host that it is on now", required: true, choices: hosts }],
    },
    {
      operation: "failMachine",
      label: "Fail",
      action: "fail",
      offered: (machine) => !machine.gone,
      typed: true,
      title: (machine) => `Report that ${machine.name} has failed`,
      effect: () => "The event that is announced has already started, without notice. A Redeploy moves the machine to another host; what is on its local disks is lost.",
      fields: (machine, more, session) => [failureType(session)],
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
      offered: (machine) => machine.gone || machine.not_back,
      effect: (machine) => machine.gone ? "The machine exists again, as it was before it was evicted or deleted." : "The machine counts as back, although it has not polled.",
    },
  ],
};
