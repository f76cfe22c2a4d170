// Logging in with a token, which the page does not keep.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { get, request, withQuery } from "../api.js";
import { Elsewhere } from "../parts/elsewhere.js";

/** @param {{ why: string, onDone: (session: api.Session & { commit: number }) => void }} props */
export function Login({ why, onDone }) {
  const [problem, setProblem] = useState(/** @type {portal.Failure | null} */ (null));
  const [elsewhere, setElsewhere] = useState("");
  useEffect(() => {
    get("/v1/session").then(({ data }) => setElsewhere(data.login), () => setElsewhere(""));
  }, []);
  /** @param {portal.Input} event */
  const submit = async (event) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget).get("token")).trim();
    try {
      const { data, commit } = await request("POST", "/v1/session", { token });
      onDone({ ...data, commit });
    } catch (error) {
      setProblem(error);
    }
  };
  return html`
    <main class="login">
      <h1>forewarn</h1>
      ${elsewhere && html`<p><a class="elsewhere" href=${withQuery(elsewhere, { to: location.pathname + location.search })}>Log in with OpenID Connect</a></p>`}
      <form onSubmit=${submit}>
        <label>Token <input name="token" type="password" autocomplete="off" required autofocus placeholder="fw_…" /></label>
        <button>Log in</button>
      </form>
      <p class=${problem ? "problem" : "quiet"} role=${problem ? "alert" : undefined}>${problem?.message ?? why}</p>
      <${Elsewhere} leader=${problem?.leader} />
      ${location.protocol === "http:" && html`<p class="quiet">This connection is not encrypted. Enter a token only at an address of this computer, such as 127.0.0.1.</p>`}
    </main>
  `;
}
