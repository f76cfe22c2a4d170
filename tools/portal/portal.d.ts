// What the portal's files share beside the answers of the control API. These types are for `make
// lint` alone: browsers get the JavaScript as it is.
declare namespace portal {
  type Answered<Method extends string, Asked extends string> = string extends Asked
    ? any // an address that is only known when it is asked
    : Asked extends `${infer Address}?${string}`
      ? api.Answer<`${Method} ${Address}`>
      : api.Answer<`${Method} ${Asked}`>;
  type Joined<Parts extends string[]> = Parts extends [infer First extends string, ...infer Rest extends string[]]
    ? `/${First}${Joined<Rest>}`
    : "";

  interface Options {
    body?: unknown;
    token?: string;
    etag?: string | null;
    key?: string;
    signal?: AbortSignal;
    patience?: number;
  }
  interface Answer<Data> {
    data: Data;
    commit: number;
    etag: string | null;
    next: string | null | undefined;
  }
  interface Failure extends Error {
    status?: number; // 0: the service could not be reached
    body?: any;
    leader?: string;
  }
  interface Read<Data> {
    path?: string;
    data?: Data;
    etag?: string | null;
    next?: string | null;
    error?: Failure;
  }
  interface Change {
    seq?: number;
    changes?: unknown[];
    progress?: { event: string };
  }

  type Children = any; // of a template, which makes elements of anything
  // What a function in a template gets, if it is not typed otherwise.
  type Input = UIEvent & { target: HTMLInputElement & HTMLDetailsElement; currentTarget: HTMLFormElement };
  type Value = string | number | boolean | null | undefined | object | ((event: Input) => unknown);
  type Query = { query: URLSearchParams };
  type Instant = string | null;
  type Fact = [name: string, value: Children];
  type Counts = Record<string, number>;
  // Of a page; with choices, "" is what is chosen at first.
  interface Filter {
    name: string;
    title: string;
    example?: string;
    choices?: Record<string, string>;
    day?: boolean;
    clears?: string; // another one, with which it cannot be combined
  }
  // Of a list; `order`: what the service calls the order that the column shows.
  interface Column {
    title: string;
    order?: string;
    number?: boolean;
  }
  type Link = (props: { name?: string; id?: string }) => Children;

  type Choices = string[];
  interface Field {
    name: api.Sent | `moved.${string}`;
    label: string;
    type?: "text" | "duration" | "instant" | "number" | "check" | "choice" | "list" | "numbers";
    help?: string;
    required?: boolean;
    choices?: Choices;
    value?: string | number | boolean;
    byDefault?: string;
    cleared?: unknown;
    means?: boolean;
    min?: number;
    separator?: string;
    query?: boolean;
    inPath?: boolean;
    section?: string;
    within?: string;
    key?: string;
  }
  type Concerned = { machines?: string[] | number; groups?: string[] | number; hosts?: string[] | number; events?: string[] | number };
  interface Verb<Of, More = any> {
    operation: api.Operation;
    label: string;
    action?: string;
    method?: "PUT" | "PATCH" | "DELETE";
    path?: (of: Of, named: Record<string, string>) => string;
    keyed?: boolean;
    typed?: boolean;
    confirm?: string;
    offered?: (of: Of, more: More, session: api.Session) => unknown;
    title?: (of: Of) => string;
    effect: (of: Of, more: More, session: api.Session) => string;
    sure?: (of: Of) => string;
    more?: (of: Of, chosen: { lane?: string }) => Promise<Partial<More>>;
    concerned?: (of: Of, more: More) => Concerned;
    body?: (of: Of, session: api.Session) => Record<string, unknown>;
    fields?: (of: Of, more: More, session: api.Session) => Field[];
    needs?: { oneOf: string[]; message: string };
    plan?: { path: string; label: string; body?: object; view: (plan: any) => Children };
  }
  interface Kind<Of, More = any> {
    path?: (of: Of) => string;
    resource?: false;
    page: (of: Of) => string;
    name?: (of: Of) => string;
    state?: (of: Of) => string;
    more?: (of: Of, chosen?: any) => Promise<More>;
    concerned?: (of: Of, more: More) => Concerned;
    verbs: Verb<Of, More>[];
  }
}
