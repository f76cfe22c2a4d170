// Maintenance configurations: when maintenance of machines with certain labels may start.
import { address } from "../router.js";
import { BLACKOUTS_HELP, WINDOWS_HELP } from "./common.js";

const APPLIES = "It applies at once, also to events that are announced already. A fleet file that is applied later and has maintenance configurations replaces all that are here.";

/** @type {(configuration: Partial<api.Maintenance>) => portal.Field[]} */
const fields = ({ select = "", windows = [], blackouts = [] }) => [
  { name: "select", label: "Machines with labels", value: select, help: "Such as tier=web,!canary. Empty for all machines." },
  { name: "windows", label: "Windows", type: "list", separator: ";", value: windows.join("; "), help: `When maintenance may start. ${WINDOWS_HELP}` },
  { name: "blackouts", label: "Blackouts", type: "list", separator: ";", value: blackouts.join("; "), help: BLACKOUTS_HELP },
];

/** @type {portal.Kind<undefined>} */
export const configurations = {
  resource: false,
  page: () => "/maintenance",
  verbs: [
    {
      operation: "setMaintenance",
      label: "Add a configuration",
      method: "PUT",
      path: (none, { name }) => address("v1", "maintenance", name),
      keyed: false,
      confirm: "Add it",
      title: () => "Add a maintenance configuration, or replace one",
      effect: () => APPLIES,
      fields: () => [{ name: "name", label: "Name", required: true, inPath: true }, ...fields({})],
    },
  ],
};

/** @type {portal.Kind<api.Maintenance>} */
export const configuration = {
  path: (configuration) => address("v1", "maintenance", configuration.name),
  resource: false,
  page: () => "/maintenance",
  name: (configuration) => configuration.name,
  verbs: [
    {
      operation: "setMaintenance",
      label: "Change",
      method: "PUT",
      keyed: false,
      effect: () => APPLIES,
      fields,
    },
    {
      operation: "removeMaintenance",
      label: "Remove",
      method: "DELETE",
      keyed: false,
      sure: (configuration) => `Remove ${configuration.name}`,
      effect: () => "Events that it holds start as soon as nothing else holds them.",
    },
  ],
};
