// Who uses this browser: name, role, and the operations of the API that they may use.
import { createContext } from "preact";
import { useContext } from "preact/hooks";

/** @type {import("preact").Context<api.Session>} */
export const SessionContext = createContext(/** @type {any} */ (null));

export const useSession = () => useContext(SessionContext);
