// What can be done to a host and the machines on it.
import { get, withQuery } from "../api.js";
import { address } from "../router.js";
import { plural } from "../parts/text.js";
import { DESCRIPTION, DURATION, failureType, IGNORE_WINDOWS, NOT_BEFORE, NOTE, NOTICE, rare, SHORT_NOTICE, TICKET, typesThat, unique } from "./common.js";

/** @type {portal.Kind<api.Host, { groups: string[] }>} */
export const host = {
  path: (host) => address("v1", "hosts", host.name),
  page: (host) => address("hosts", host.name),
  name: (host) => host.name,
  state: (host) =>
    `It is ${host.health}${host.cordoned ? " and cordoned" : ""}${host.events.length ? `, with ${plural(host.events.length, "event")} planned or under way` : ""}.`,
  more: async (host) => {
    const { data } = await get(withQuery("/v1/machines", { host: host.name }));
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
      fields: (host, more, session) => [
        { name: "mode", label: "What the machines notice", type: "choice", choices: [...typesThat(session, "host_maintenance"), "live-migration"] },
        { name: "evacuate", label: "Move the machines to other hosts one by one instead", type: "check" },
        NOTICE,
        DESCRIPTION,
        ...rare(NOT_BEFORE, DURATION, TICKET, SHORT_NOTICE, IGNORE_WINDOWS),
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
      operation: "withoutNode",
      label: "Without a node",
      action: "without-node",
      offered: (host) => host.node?.state === "disconnected",
      typed: true,
      title: (host) => `Declare that no node serves ${host.name} any longer`,
      effect: () => "What has waited for its node starts as the rules allow. Make sure that the node is stopped: if only its connection is lost, its machines are disturbed without having been informed.",
    },
    {
      operation: "revokeHost",
      label: "Revoke",
      action: "revoke",
      offered: (host) => host.enrollment !== "revoked" && (host.enrollment || host.node),
      typed: true,
      title: (host) => `Revoke the certificates of ${host.name}`,
      effect: () => "Its node is disconnected at once, and refused until the host is enrolled again. Until then, nothing starts for its machines.",
    },
    {
      operation: "failHost",
      label: "Fail",
      action: "fail",
      offered: (host) => host.health !== "failed",
      title: (host) => `Report that ${host.name} has failed`,
      typed: true,
      effect: (host) => `${plural(host.machines.length, "machine is", "machines are")} moved to other hosts without notice; what is on their local disks is lost.`,
      fields: (host, more, session) => [failureType(session), NOTE],
    },
  ],
};
