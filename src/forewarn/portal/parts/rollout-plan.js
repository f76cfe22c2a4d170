// What a rollout would do, before it is started.
import { html } from "../html.js";
import { Facts } from "./basics.js";
import { at, listed, plural } from "./text.js";

/** @param {{ of: api.RolloutPlan }} props */
export const RolloutPlan = ({ of }) => html`
  <section class="preview" aria-live="polite">
    <p><strong>${of.type}</strong> of ${of.selection}</p>
    ${of.problem && html`<p class="problem" role="alert">${of.problem}</p>`}
    ${of.message && html`<p>${of.message}</p>`}
    <${Facts} of=${[
      ["Machines", String(of.machines)],
      ["Groups", String(of.groups)],
      ["Hosts", String(of.hosts)],
      ["Steps", of.steps_skipped ? `${of.steps_total}, ${of.steps_skipped} of them skipped` : String(of.steps_total)],
      ["Waves", of.waves.length > 1 && of.waves.join(" + ")],
      ["Pauses", of.pauses > 0 && String(of.pauses)],
      ["First announced", of.first && at(of.first.announced_at)],
      ["Over", of.done_at ? at(of.done_at) : "not known"],
      ["Cannot be reached now", of.unreachable.join(", ")],
    ]} />
    ${of.conflicts.length > 0 &&
    html`<p>${plural(of.conflicts.length, "host has", "hosts have")} machines of several update domains of one group: ${listed([...new Set(of.conflicts.map((conflict) => conflict.host))], 10)}.</p>`}
    ${of.steps.length > 0 &&
    html`
      <table class="rows stacked">
        <caption>${of.steps.length < of.steps_total ? `The first ${of.steps.length} of ${of.steps_total} steps` : "Steps"}</caption>
        <thead><tr><th>Of</th><th>Machines</th><th>Announced</th><th>NotBefore</th></tr></thead>
        <tbody>
          ${of.steps.map(
            (step) => html`
              <tr key=${step.number}>
                <td>${step.lane}</td>
                <td title=${step.machines.join(", ")}>${listed(step.machines)}</td>
                <td data-label="announced"><time>${at(step.announced_at)}</time></td>
                <td data-label="NotBefore"><time>${at(step.not_before)}</time></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    `}
  </section>
`;
