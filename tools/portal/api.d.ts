// The answers of the control API, from docs/reference/openapi.json: do not edit. Written by
// PYTHONPATH=tests python -m helpers.write_portal_types
declare namespace api {

  interface AcceptedClock {
    now: string;
    virtual: boolean;
    speed: number;
    running_speed: number;
    steady_since: string | null;
    next_due: string | null;
    untrusted: string | null;
    before: string;
    notes: Array<string>;
  }

  interface Advice {
    kind: "approve" | "retry" | "finish" | "accept-clock";
    event: string;
    moved: Array<string>;
  }

  interface Approval {
    by: string;
    at: string;
  }

  interface BlockingEvent {
    what: string;
    name: string;
    group: string;
    event: string;
    type: string;
    status: string;
  }

  interface CancelledEvents {
    events: Array<Event>;
    refused: Array<string>;
    notes: Array<string>;
  }

  interface Capacity {
    machines: number | null;
    memory: number | null;
    cpus: number | null;
  }

  interface ChangesPage {
    commits: Array<FeedCommit>;
    next: number;
  }

  interface Clock {
    now: string;
    virtual: boolean;
    speed: number;
    running_speed: number;
    steady_since: string | null;
    next_due: string | null;
    untrusted: string | null;
  }

  interface Complaint {
    rule: string;
    severity: string;
    machine: string;
    group: string;
    event: string;
    at: number;
    times: number;
    message: string;
  }

  interface Conduct {
    machine: string;
    group: string;
    polls: number;
    waits: number;
    approvals: number;
    every: number | null;
    longest: number | null;
    on_clock: number | null;
    first: number | null;
    last: number | null;
    versions: Record<string, number>;
    approval_versions: Record<string, number>;
    headers: Record<string, string>;
    statuses: Record<string, number>;
    faults: Record<string, number>;
  }

  interface Conflict {
    host: string;
    group: string;
    machines: Record<string, Array<string>>;
  }

  interface ControlNode {
    name: string;
    address: string;
    version: string;
    role: "away" | "follows" | "leads";
    lease: number;
    commit: number;
    lag: number;
    started: string;
    seen: string;
  }

  interface Course {
    machine: string;
    group: string;
    event: string;
    type: string;
    source: string;
    concerned: boolean;
    visible: number;
    not_before: number | null;
    notice: number | null;
    seen: number | null;
    seen_after: number | null;
    statuses: Array<string>;
    polls: number;
    prepared: number | null;
    approved: number | null;
    approved_by: string;
    margin: number | null;
    started: number | null;
    started_by: string;
    impact: number | null;
    over: number | null;
    ending: string;
    in_time: boolean | null;
    excuse: string;
  }

  interface Coverage {
    listening: number;
    silent: number;
    never_polled: number;
    never_approves: number;
  }

  interface Disturbance {
    type: string;
    status: string;
    begins: string;
    ends: string | null;
    rows: Array<string>;
    machines: number;
    names: Array<string>;
    groups: Array<string>;
    host: string;
    events: Array<string>;
    rollout: string;
    wave: number;
    steps: number;
    description: string;
    ticket: string;
    not_approved: Array<string>;
    approved: boolean;
    not_shown: number | null;
    not_shown_names: Array<string>;
  }

  interface DomainCounts {
    gone: number;
    held: number;
    started: number;
    scheduled: number;
    silent: number;
    quiet: number;
    update_domain: number;
  }

  interface Event {
    id: string;
    group: string;
    type: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate";
    status: "Scheduled" | "Started" | "Finished" | "Withdrawn";
    source: "Platform" | "User";
    machines: Array<string>;
    update_domain: number;
    not_before: string;
    description: string;
    duration: number;
    raised_at: string;
    raised_by: string;
    listed: boolean;
    unannounced: boolean;
    approved: Approval | null;
    started_at: string | null;
    expected_end: string | null;
    ended_at: string | null;
    ending: string;
    host: string;
    ticket: string;
    cause: string;
    joint: string;
    ready: Array<string>;
    ignore_windows: boolean;
    postponed: Array<Postponement>;
    held: string;
    targets: Record<string, string>;
    waits_for: Array<string>;
    not_back: Array<string>;
    away: Record<string, number>;
  }

  interface EventDetails {
    id: string;
    group: string;
    type: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate";
    status: "Scheduled" | "Started" | "Finished" | "Withdrawn";
    source: "Platform" | "User";
    machines: Array<string>;
    update_domain: number;
    not_before: string;
    description: string;
    duration: number;
    raised_at: string;
    raised_by: string;
    listed: boolean;
    unannounced: boolean;
    approved: Approval | null;
    started_at: string | null;
    expected_end: string | null;
    ended_at: string | null;
    ending: string;
    host: string;
    ticket: string;
    cause: string;
    joint: string;
    ready: Array<string>;
    ignore_windows: boolean;
    postponed: Array<Postponement>;
    held: string;
    targets: Record<string, string>;
    waits_for: Array<string>;
    not_back: Array<string>;
    away: Record<string, number>;
    seen_by: Record<string, string>;
    not_warned: Array<string> | null;
    back: Array<string>;
    progress: string;
  }

  interface EventHolds {
    event: string;
    status: "Scheduled" | "Started" | "Finished" | "Withdrawn";
    message: string;
    holds: Array<Hold>;
  }

  interface EventTypeInfo {
    name: string;
    by_user: boolean;
    host_maintenance: boolean;
    relocates: boolean;
    deletes: boolean;
  }

  interface ExcessRemovals {
    count: number;
    allowed: number;
    given: number | null;
  }

  interface Explanation {
    event: Event;
    message: string;
    holds: Array<Hold>;
    seen_by: Record<string, string>;
    advice: Array<Advice>;
    not_listening: Record<string, string | null>;
    unheard: boolean;
    operations: Array<string>;
  }

  interface Fault {
    id: string;
    kind: "slow" | "throttled" | "gone" | "error" | "empty" | "no-events" | "plain" | "control-characters" | "truncated" | "stalled" | "reset" | "incarnation" | "sudden" | "vanish" | "short-notice";
    state: "waiting" | "active" | "used up" | "over";
    message: string;
    machines: Array<string>;
    groups: Array<string>;
    method: string;
    times: number | null;
    skip: number;
    starts_at: string;
    ends_at: string | null;
    probability: number;
    seed: number;
    seconds: number | null;
    status: number | null;
    body: string | null;
    takes_effect: boolean;
    added_at: string;
    added_by: string;
    matched: number;
    consumed: number;
    remaining: number | null;
    by_machine: Record<string, number>;
    last_at: string | null;
  }

  interface FeedChange {
    what: string;
    by: string;
    group: string;
    event: string;
    type: string;
    machines: Array<string>;
    host: string;
    cause: string;
    note: string;
  }

  interface FeedCommit {
    seq: number;
    at: string;
    changes: Array<FeedChange>;
    events: Array<Event>;
    machines: Array<FeedMachine>;
    machines_removed: Array<string>;
    groups: Array<FeedGroup>;
    hosts: Array<FeedHost>;
    hosts_removed: Array<string>;
    rollouts: Array<FeedRollout>;
    rollouts_removed: Array<string>;
  }

  interface FeedGroup {
    name: string;
    enabled: boolean | null;
    kind: string | null;
    labels: Record<string, string> | null;
  }

  interface FeedHost {
    name: string;
    health: string;
    labels: Record<string, string>;
    since: string | null;
    note: string;
  }

  interface FeedMachine {
    name: string;
    group: string;
    update_domain: number;
    fault_domain: number;
    addresses: Array<string>;
    host: string;
    spot: boolean;
    labels: Record<string, string>;
    gone: string;
  }

  interface FeedRollout {
    id: string;
    type: string;
    paused: boolean;
    aborted: boolean;
    ended_at: string | null;
  }

  interface FieldChange {
    field: string;
    before: unknown;
    after: unknown;
  }

  interface FleetCounts {
    added: number;
    changed: number;
    moved: number;
    removed: number;
  }

  interface FleetDifference {
    planned: boolean;
    hosts: FleetCounts;
    groups: FleetCounts;
    machines: FleetCounts;
    maintenance: FleetCounts;
    items: Array<FleetItem>;
    omitted: number;
    blocked_by: Array<BlockingEvent>;
    conflicts: Array<PlacementConflict>;
    omitted_conflicts: number;
    warnings: Array<string>;
    refused_for: ExcessRemovals | null;
    etag: string;
  }

  interface FleetItem {
    what: "host" | "group" | "machine" | "maintenance";
    action: "added" | "changed" | "moved" | "removed";
    name: string;
    group: string;
    previous_group: string;
    fields: Array<FieldChange>;
  }

  interface FleetProgress {
    stage: string;
    fraction: number;
  }

  interface Group {
    name: string;
    kind: "standalone" | "cloud-service" | "availability-set" | "availability-zone" | "scale-set";
    enabled: boolean;
    incarnation: number;
    machines: Array<string>;
    spot: number;
    labels: Record<string, string>;
    location: string;
    zone: string;
    resource_group: string;
    subscription: string;
    scale_set: string;
    flexible: boolean;
    events: Array<string>;
    user_event_limit: number | null;
    auto_approve: Array<"Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate">;
    all_instances_down: boolean;
    event_grid: boolean;
    terminate_notice: number | null;
    image_notice: number | null;
    coverage: Coverage;
    windows: Array<string>;
    blackouts: Array<string>;
    may_postpone: string | null;
    over_when: "carried-out" | "heard" | null;
    back_within: number | null;
  }

  interface GroupOutcome {
    name: string;
    kind: "standalone" | "cloud-service" | "availability-set" | "availability-zone" | "scale-set";
    enabled: boolean;
    incarnation: number;
    machines: Array<string>;
    spot: number;
    labels: Record<string, string>;
    location: string;
    zone: string;
    resource_group: string;
    subscription: string;
    scale_set: string;
    flexible: boolean;
    events: Array<string>;
    user_event_limit: number | null;
    auto_approve: Array<"Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate">;
    all_instances_down: boolean;
    event_grid: boolean;
    terminate_notice: number | null;
    image_notice: number | null;
    coverage: Coverage;
    windows: Array<string>;
    blackouts: Array<string>;
    may_postpone: string | null;
    over_when: "carried-out" | "heard" | null;
    back_within: number | null;
    notes: Array<string>;
  }

  interface GroupWindows {
    group: string;
    open: boolean;
    configurations: Array<string>;
    times: Array<OpenTime>;
  }

  interface Halt {
    id: string;
    at: string;
    by: string;
    note: string;
    groups: Array<string>;
    label: string;
    host_label: string;
    scope: string;
    machines: number;
    events: number;
    notes: Array<string>;
  }

  interface HealthReport {
    status: string;
    parts: Record<string, string>;
    warnings: Record<string, string>;
  }

  interface HistoryPage {
    records: Array<HistoryRecord>;
    next: string;
  }

  interface HistoryRecord {
    seq: number;
    at: string;
    what: string;
    by: string;
    group: string;
    event: string;
    type: string;
    machines: Array<string>;
    host: string;
    cause: string;
    note: string;
    output: string;
    answer: Record<string, unknown>;
    shown: Record<string, string | null> | null;
  }

  interface Hit {
    kind: string;
    name: string;
    group: string;
    type: string;
    machines: Array<string>;
  }

  interface Hits {
    hits: Array<Hit>;
  }

  interface Hold {
    kind: "notice" | "grace" | "restored" | "machine" | "domain" | "coupling" | "window" | "blackout" | "joint" | "placement" | "halt" | "reach" | "clock" | "state" | "driver" | "back";
    message: string;
    since: string;
    until: string | null;
    waits_for: Array<string>;
    unblocked_by: string;
  }

  interface Host {
    name: string;
    health: "healthy" | "degraded" | "failed";
    labels: Record<string, string>;
    capacity: Capacity | null;
    since: string | null;
    note: string;
    cordoned: boolean;
    cordon_note: string;
    node: HostNode | null;
    driver: HostDriver | null;
    enrollment: string;
    machines: Array<string>;
    events: Array<string>;
  }

  interface HostDriver {
    state: "joined" | "disconnected" | "unknown";
    since: string;
    name: string | null;
    version: string | null;
  }

  interface HostExplanation {
    name: string;
    health: "healthy" | "degraded" | "failed";
    message: string;
    machines: Array<string>;
    plans: Array<HostPlan>;
    others: Array<Event>;
    if_drained: string;
  }

  interface HostNode {
    state: "joined" | "disconnected" | "unknown";
    since: string | null;
    version: string | null;
    lag: number | null;
    heard: string | null;
    ended: string | null;
  }

  interface HostPlan {
    events: Array<Event>;
    message: string;
    holds: Array<Hold>;
  }

  interface Leader {
    name: string;
    address: string;
  }

  interface Machine {
    name: string;
    group: string;
    kind: "standalone" | "cloud-service" | "availability-set" | "availability-zone" | "scale-set";
    update_domain: number;
    fault_domain: number;
    addresses: Array<string>;
    host: string;
    inventory_host: string;
    disputed: boolean;
    polls_on: string;
    drift: "elsewhere" | "unclear" | "missing" | "unknown" | "crashed" | "stopped" | null;
    seen_on: Array<string>;
    spot: boolean;
    computer_name: string;
    vm_id: string;
    tags: Record<string, string>;
    gone: string;
    labels: Record<string, string>;
    size: Size | null;
    metadata_url: string;
    polls: number;
    last_poll: string | null;
    api_version: string;
    coverage: "listening" | "silent" | "never-polled";
    not_back: NotBack | null;
    ignored_events: number;
    last_answer: string | null;
    events: Array<string>;
  }

  interface MachineCounts {
    gone: number;
    held: number;
    started: number;
    scheduled: number;
    silent: number;
    quiet: number;
  }

  interface MachineDrift {
    machine: string;
    drift: "elsewhere" | "unclear" | "missing" | "unknown" | "crashed" | "stopped";
    since: string;
    group: string;
    host: string;
    seen_on: Array<string>;
    state: string;
    reason: string;
    problem: string;
  }

  interface MachineOutcome {
    name: string;
    group: string;
    kind: "standalone" | "cloud-service" | "availability-set" | "availability-zone" | "scale-set";
    update_domain: number;
    fault_domain: number;
    addresses: Array<string>;
    host: string;
    inventory_host: string;
    disputed: boolean;
    polls_on: string;
    drift: "elsewhere" | "unclear" | "missing" | "unknown" | "crashed" | "stopped" | null;
    seen_on: Array<string>;
    spot: boolean;
    computer_name: string;
    vm_id: string;
    tags: Record<string, string>;
    gone: string;
    labels: Record<string, string>;
    size: Size | null;
    metadata_url: string;
    polls: number;
    last_poll: string | null;
    api_version: string;
    coverage: "listening" | "silent" | "never-polled";
    not_back: NotBack | null;
    ignored_events: number;
    last_answer: string | null;
    events: Array<string>;
    notes: Array<string>;
  }

  interface Maintenance {
    name: string;
    select: string;
    windows: Array<string>;
    blackouts: Array<string>;
  }

  interface MaintenanceOutcome {
    name: string;
    select: string;
    windows: Array<string>;
    blackouts: Array<string>;
    notes: Array<string>;
  }

  interface Mistake {
    pointer: string;
    detail: string;
    line: number | null;
  }

  interface NotBack {
    event: string;
    since: string;
  }

  interface NotifyState {
    name: string;
    target: string;
    where: string;
    state: string;
    position: number;
    behind: number;
    waiting_since: string | null;
    last_delivery: string | null;
    last_error: string;
    messages: number;
    failures: number;
    skipped: number;
  }

  interface NotifyTest {
    name: string;
    id: string;
    where: string;
    delivered: boolean;
    error: string;
  }

  interface OpenOrClosed {
    name: string;
    select: string;
    groups: Array<string>;
    more_groups: number;
    blackout: boolean;
    text: string;
    begins: string;
    ends: string;
  }

  interface OpenTime {
    opens: string | null;
    closes: string | null;
  }

  interface Outcome {
    id: string;
    group: string;
    type: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate";
    status: "Scheduled" | "Started" | "Finished" | "Withdrawn";
    source: "Platform" | "User";
    machines: Array<string>;
    update_domain: number;
    not_before: string;
    description: string;
    duration: number;
    raised_at: string;
    raised_by: string;
    listed: boolean;
    unannounced: boolean;
    approved: Approval | null;
    started_at: string | null;
    expected_end: string | null;
    ended_at: string | null;
    ending: string;
    host: string;
    ticket: string;
    cause: string;
    joint: string;
    ready: Array<string>;
    ignore_windows: boolean;
    postponed: Array<Postponement>;
    held: string;
    targets: Record<string, string>;
    waits_for: Array<string>;
    not_back: Array<string>;
    away: Record<string, number>;
    notes: Array<string>;
  }

  interface Outcomes {
    events: Array<Event>;
    notes: Array<string>;
  }

  interface Overview {
    at: string;
    counts: RowCounts;
    machines: MachineCounts;
    rows: Array<OverviewRow>;
    left_out: number;
    labels: Array<string>;
  }

  interface OverviewRow {
    name: string;
    state: "unhealthy" | "held" | "started" | "scheduled" | "cordoned" | "silent" | "quiet";
    counts: RowCounts | null;
    health: "healthy" | "degraded" | "failed" | null;
    cordoned: boolean;
    unreachable: boolean;
    machines: MachineCounts;
    domains: Array<DomainCounts>;
  }

  interface PlacementConflict {
    machine: string;
    group: string;
    file: string;
    known: string;
  }

  interface Planned {
    number: number;
    lane: string;
    wave: number;
    machines: Array<string>;
    announced_at: string;
    not_before: string;
    ends_at: string;
    update_domain: number | null;
    host: string;
    action: "maintenance" | "evacuation" | "work";
    targets: Record<string, string>;
  }

  interface Postponement {
    by: string;
    group: string;
    at: string;
    before: string;
    after: string;
  }

  interface Problem {
    title: string;
    status: number;
    detail: string;
    type: string;
    instance: string;
    did_you_mean: string;
    line: number | null;
    errors: Array<Mistake>;
    hint: ProblemHint | null;
  }

  interface ProblemHint {
    kind: string;
    about: string;
    detail: string;
  }

  interface Rollout {
    id: string;
    type: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate" | "live-migration" | "evacuate-work-return";
    state: "running" | "paused" | "blocked" | "aborting" | "aborted" | "expired" | "done";
    work_by: "operator" | "driver";
    selection: string;
    by: string;
    created_at: string;
    steps_done: number;
    steps_total: number;
    machines: number;
    groups: number;
    hosts: number;
    waves: number;
    at_once: number;
    notice: number;
    description: string;
    ticket: string;
    windows: Array<string>;
    gate: string;
    gate_timeout: number | null;
    bake: number;
    lasts: number | null;
    ignore_windows: boolean;
    must_end_in_window: boolean;
    deadline: string | null;
    max_failures: number | null;
    paused: Switch | null;
    resumed: Switch | null;
    aborted: Switch | null;
    ended_at: string | null;
  }

  interface RolloutExplanation {
    rollout: Rollout;
    message: string;
    waits: Array<WaitExplained>;
  }

  interface RolloutPlan {
    type: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate" | "live-migration" | "evacuate-work-return";
    selection: string;
    zone: string;
    machines: number;
    groups: number;
    hosts: number;
    waves: Array<number>;
    pauses: number;
    steps_total: number;
    steps_skipped: number;
    first: Planned | null;
    last: Planned | null;
    done_at: string | null;
    message: string;
    unreachable: Array<string>;
    conflicts: Array<Conflict>;
    nowhere: Array<string>;
    problem: string;
    steps: Array<Planned>;
  }

  interface RolloutReport {
    id: string;
    type: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate" | "live-migration" | "evacuate-work-return";
    state: "running" | "paused" | "blocked" | "aborting" | "aborted" | "expired" | "done";
    work_by: "operator" | "driver";
    selection: string;
    by: string;
    created_at: string;
    steps_done: number;
    steps_total: number;
    machines: number;
    groups: number;
    hosts: number;
    waves: number;
    at_once: number;
    notice: number;
    description: string;
    ticket: string;
    windows: Array<string>;
    gate: string;
    gate_timeout: number | null;
    bake: number;
    lasts: number | null;
    ignore_windows: boolean;
    must_end_in_window: boolean;
    deadline: string | null;
    max_failures: number | null;
    paused: Switch | null;
    resumed: Switch | null;
    aborted: Switch | null;
    ended_at: string | null;
    wave: number;
    steps_by_state: Record<string, number>;
    steps_failed: number;
    active: Array<string>;
    waits: Array<Wait>;
    expected_end: string | null;
  }

  interface RowCounts {
    unhealthy: number;
    held: number;
    started: number;
    scheduled: number;
    cordoned: number;
    silent: number;
    quiet: number;
  }

  interface Session {
    name: string;
    role: string;
    limited: boolean;
    needs_token: boolean;
    login: string;
    expires_at: string | null;
    operations: Array<string>;
    event_types: Array<EventTypeInfo>;
    decides: boolean;
    leader: Leader | null;
  }

  interface Size {
    memory: number;
    cpus: number;
  }

  interface Status {
    version: string;
    control_node: ThisNode | null;
    clock: Clock;
    metadata: string;
    metadata_urls: Array<string>;
    arm: string;
    nodes: number;
    groups: number;
    machines: number;
    hosts: number;
    events: number;
    started: number;
    coverage: Coverage;
    not_back: number;
    unknown_callers: number;
    certificate_expires: string | null;
    token_expires: string | null;
    problems: Array<StatusProblem>;
    problems_total: number;
  }

  interface StatusProblem {
    kind: "part" | "warning" | "held" | "overdue" | "rollout" | "not-back" | "halt" | "certificate" | "token" | "notification" | "host";
    subject: string;
    message: string;
    since: string | null;
    expires: string | null;
    advice: string;
  }

  interface Step {
    number: number;
    lane: string;
    wave: number;
    state: "waiting" | "announced" | "started" | "done" | "nothing to do" | "skipped" | "cancelled";
    machines: Array<string>;
    update_domain: number | null;
    host: string;
    action: "maintenance" | "evacuation" | "work";
    failed: boolean;
    events: Array<string>;
    not_before: string | null;
    started_at: string | null;
    ended_at: string | null;
  }

  interface Switch {
    by: string;
    at: string;
    reason: string;
  }

  interface ThisNode {
    name: string;
    role: "follows" | "leads";
    term: number;
    commit: number;
    leader: Leader | null;
  }

  interface Token {
    id: string;
    name: string;
    role: string;
    state: string;
    created_at: string;
    created_by: string;
    groups: Array<string>;
    label: string;
    expires_at: string | null;
    last_used: string | null;
    revoked_at: string | null;
    revoked_by: string;
  }

  interface Tonight {
    at: string;
    begins: string;
    ends: string;
    machines: number;
    hosts: number;
    announced: number;
    not_approved: number;
    not_shown: number | null;
    rows: Array<TonightRow>;
    disturbances: Array<Disturbance>;
    left_out: number;
    open_or_closed: Array<OpenOrClosed>;
    labels: Array<string>;
  }

  interface TonightRow {
    name: string;
    machines: number;
    not_shown: number;
    not_approved: Array<string>;
    more_not_approved: number;
    disturbances: Array<number>;
  }

  interface Unannounced {
    event: string;
    group: string;
    type: string;
    source: string;
    machines: Array<string>;
    at: number;
    impact: number | null;
    over: number | null;
  }

  interface UnknownCaller {
    address: string;
    first: string;
    last: string;
    requests: number;
    machine: string;
    host: string;
    known_host: string;
  }

  interface Verdict {
    at: number | null;
    courses: Array<Course>;
    conducts: Array<Conduct>;
    unannounced: Array<Unannounced>;
    complaints: Array<Complaint>;
    remarks: Array<string>;
  }

  interface Wait {
    kind: "paused" | "event" | "work" | "bake" | "gate" | "window" | "halt" | "reach" | "cancelled" | "turn" | "wave" | "deadline" | "clock";
    reason: string;
    count: number;
    lanes: Array<string>;
    message: string;
    since: string;
    until: string | null;
    unblocked_by: string;
    events: Array<string>;
  }

  interface WaitExplained {
    kind: "paused" | "event" | "work" | "bake" | "gate" | "window" | "halt" | "reach" | "cancelled" | "turn" | "wave" | "deadline" | "clock";
    reason: string;
    count: number;
    lanes: Array<string>;
    message: string;
    since: string;
    until: string | null;
    unblocked_by: string;
    events: Array<string>;
    details: Array<EventHolds>;
  }

  // By method and path; the longest first, since a name matches whatever follows.
  type Answer<Asked extends string> =
    Asked extends `POST /v1/events/${string}/abandon` ? Outcome :
    Asked extends `POST /v1/events/${string}/approve` ? Outcome :
    Asked extends `POST /v1/events/${string}/cancel` ? Outcome :
    Asked extends `GET /v1/events/${string}/explain` ? Explanation :
    Asked extends `POST /v1/events/${string}/finish` ? Outcome :
    Asked extends `POST /v1/events/${string}/postpone` ? Outcome :
    Asked extends `POST /v1/events/${string}/ready` ? Outcome :
    Asked extends `POST /v1/events/${string}/retry` ? Outcome :
    Asked extends `POST /v1/groups/${string}/disable` ? Group :
    Asked extends `POST /v1/groups/${string}/evict` ? Outcomes :
    Asked extends `PATCH /v1/groups/${string}/policy` ? GroupOutcome :
    Asked extends `POST /v1/groups/${string}/scale-in` ? Outcomes :
    Asked extends `GET /v1/groups/${string}/windows` ? GroupWindows :
    Asked extends `POST /v1/halts/${string}/release` ? Halt :
    Asked extends `POST /v1/hosts/${string}/cordon` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/degrade` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/drain` ? Outcomes :
    Asked extends `GET /v1/hosts/${string}/explain` ? HostExplanation :
    Asked extends `POST /v1/hosts/${string}/fail` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/maintain` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/repair` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/return` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/revoke` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/uncordon` ? Outcomes :
    Asked extends `POST /v1/hosts/${string}/without-node` ? Outcomes :
    Asked extends `POST /v1/machines/${string}/delete` ? Outcome :
    Asked extends `POST /v1/machines/${string}/evict` ? Outcome :
    Asked extends `POST /v1/machines/${string}/fail` ? Outcome :
    Asked extends `POST /v1/machines/${string}/moved` ? MachineOutcome :
    Asked extends `POST /v1/machines/${string}/redeploy` ? Outcome :
    Asked extends `POST /v1/machines/${string}/restart` ? Outcome :
    Asked extends `POST /v1/machines/${string}/restore` ? MachineOutcome :
    Asked extends `POST /v1/notify/${string}/test` ? NotifyTest :
    Asked extends `POST /v1/rollouts/${string}/abort` ? RolloutReport :
    Asked extends `GET /v1/rollouts/${string}/explain` ? RolloutExplanation :
    Asked extends `POST /v1/rollouts/${string}/pause` ? RolloutReport :
    Asked extends `POST /v1/rollouts/${string}/resume` ? RolloutReport :
    Asked extends `POST /v1/rollouts/${string}/skip` ? RolloutReport :
    Asked extends `GET /v1/rollouts/${string}/steps` ? Array<Step> :
    Asked extends `POST /v1/tokens/${string}/revoke` ? Token :
    Asked extends `POST /v1/batch/delete` ? Outcomes :
    Asked extends `POST /v1/batch/evict` ? Outcomes :
    Asked extends `POST /v1/batch/redeploy` ? Outcomes :
    Asked extends `POST /v1/batch/restart` ? Outcomes :
    Asked extends `POST /v1/clock/accept` ? AcceptedClock :
    Asked extends `POST /v1/clock/advance` ? Clock :
    Asked extends `POST /v1/clock/pause` ? Clock :
    Asked extends `POST /v1/clock/play` ? Clock :
    Asked extends `POST /v1/clock/resume` ? Clock :
    Asked extends `DELETE /v1/control-nodes/${string}` ? ControlNode :
    Asked extends `POST /v1/events/cancel` ? CancelledEvents :
    Asked extends `GET /v1/events/${string}` ? EventDetails :
    Asked extends `GET /v1/faults/${string}` ? Fault :
    Asked extends `DELETE /v1/faults/${string}` ? Fault :
    Asked extends `GET /v1/fleet/progress` ? FleetProgress :
    Asked extends `GET /v1/groups/${string}` ? Group :
    Asked extends `PUT /v1/groups/${string}` ? FleetDifference :
    Asked extends `DELETE /v1/groups/${string}` ? FleetDifference :
    Asked extends `GET /v1/halts/${string}` ? Halt :
    Asked extends `GET /v1/hosts/${string}` ? Host :
    Asked extends `PUT /v1/hosts/${string}` ? FleetDifference :
    Asked extends `DELETE /v1/hosts/${string}` ? FleetDifference :
    Asked extends `GET /v1/machines/${string}` ? Machine :
    Asked extends `PUT /v1/machines/${string}` ? FleetDifference :
    Asked extends `PATCH /v1/machines/${string}` ? FleetDifference :
    Asked extends `DELETE /v1/machines/${string}` ? FleetDifference :
    Asked extends `PUT /v1/maintenance/${string}` ? MaintenanceOutcome :
    Asked extends `DELETE /v1/maintenance/${string}` ? Maintenance :
    Asked extends `POST /v1/rollouts/plan` ? RolloutPlan :
    Asked extends `GET /v1/rollouts/${string}` ? RolloutReport :
    Asked extends `GET /v1/tokens/${string}` ? Token :
    Asked extends `POST /v1/verdict/forget` ? Verdict :
    Asked extends `GET /v1/callers` ? Array<UnknownCaller> :
    Asked extends `GET /v1/changes` ? ChangesPage :
    Asked extends `GET /v1/clock` ? Clock :
    Asked extends `GET /v1/control-nodes` ? Array<ControlNode> :
    Asked extends `GET /v1/drift` ? Array<MachineDrift> :
    Asked extends `GET /v1/events` ? Array<Event> :
    Asked extends `GET /v1/faults` ? Array<Fault> :
    Asked extends `DELETE /v1/faults` ? Array<Fault> :
    Asked extends `GET /v1/fleet` ? Record<string, unknown> :
    Asked extends `PUT /v1/fleet` ? FleetDifference :
    Asked extends `GET /v1/groups` ? Array<Group> :
    Asked extends `GET /v1/halts` ? Array<Halt> :
    Asked extends `POST /v1/halts` ? Halt :
    Asked extends `GET /v1/history` ? HistoryPage :
    Asked extends `GET /v1/hosts` ? Array<Host> :
    Asked extends `GET /v1/machines` ? Array<Machine> :
    Asked extends `GET /v1/maintenance` ? Array<Maintenance> :
    Asked extends `GET /v1/notify` ? Array<NotifyState> :
    Asked extends `GET /v1/overview` ? Overview :
    Asked extends `GET /v1/rollouts` ? Array<Rollout> :
    Asked extends `GET /v1/search` ? Hits :
    Asked extends `GET /v1/session` ? Session :
    Asked extends `POST /v1/session` ? Session :
    Asked extends `DELETE /v1/session` ? Session :
    Asked extends `GET /v1/status` ? Status :
    Asked extends `GET /v1/tokens` ? Array<Token> :
    Asked extends `GET /v1/tonight` ? Tonight :
    Asked extends `GET /v1/verdict` ? Verdict :
    Asked extends `GET /healthz` ? HealthReport :
    Asked extends `GET /leaderz` ? HealthReport :
    Asked extends `GET /readyz` ? HealthReport :
    never;

  type Operation =
    | "abandonEvent"
    | "abortRollout"
    | "acceptClock"
    | "addFault"
    | "advanceClock"
    | "approveEvent"
    | "beginSession"
    | "cancelEvent"
    | "cancelEvents"
    | "clearFault"
    | "clearFaults"
    | "cordonHost"
    | "createToken"
    | "degradeHost"
    | "deleteMachine"
    | "deleteMachines"
    | "disableGroup"
    | "drainHost"
    | "endSession"
    | "enrollHosts"
    | "evictGroup"
    | "evictMachine"
    | "evictMachines"
    | "explainEvent"
    | "explainHost"
    | "explainRollout"
    | "exportHistory"
    | "failHost"
    | "failMachine"
    | "finishEvent"
    | "followFeed"
    | "forgetControlNode"
    | "forgetVerdict"
    | "getBackup"
    | "getCalendar"
    | "getChanges"
    | "getClock"
    | "getControlNodes"
    | "getEvent"
    | "getFault"
    | "getFleet"
    | "getFleetProgress"
    | "getGroup"
    | "getGroupWindows"
    | "getHalt"
    | "getHealth"
    | "getHistory"
    | "getHost"
    | "getLeadership"
    | "getMachine"
    | "getMetrics"
    | "getNotifications"
    | "getOverview"
    | "getReadiness"
    | "getRollout"
    | "getSession"
    | "getStatus"
    | "getToken"
    | "getTonight"
    | "getVerdict"
    | "listDrift"
    | "listEvents"
    | "listFaults"
    | "listGroups"
    | "listHalts"
    | "listHosts"
    | "listMachines"
    | "listMaintenance"
    | "listRolloutSteps"
    | "listRollouts"
    | "listTokens"
    | "listUnknownCallers"
    | "maintainHost"
    | "patchMachine"
    | "pauseClock"
    | "pauseRollout"
    | "placeHalt"
    | "planRollout"
    | "playClock"
    | "postponeEvent"
    | "putFleet"
    | "putGroup"
    | "putHost"
    | "putMachine"
    | "recordMove"
    | "redeployMachine"
    | "redeployMachines"
    | "releaseHalt"
    | "removeGroup"
    | "removeHost"
    | "removeMachine"
    | "removeMaintenance"
    | "repairHost"
    | "reportReady"
    | "restartMachine"
    | "restartMachines"
    | "restoreMachine"
    | "resumeClock"
    | "resumeRollout"
    | "retryEvent"
    | "returnHost"
    | "revokeHost"
    | "revokeToken"
    | "scaleIn"
    | "scheduleEvent"
    | "search"
    | "setMaintenance"
    | "setPolicy"
    | "skipRolloutSteps"
    | "startRollout"
    | "testNotification"
    | "uncordonHost"
    | "withoutNode";

  // The names of what is sent, by any operation.
  type Sent =
    | "Idempotency-Key"
    | "If-Match"
    | "If-None-Match"
    | "address"
    | "addresses"
    | "after"
    | "after_seq"
    | "again"
    | "all_instances_down"
    | "allow_overlap"
    | "api_version"
    | "at_once"
    | "auto_approve"
    | "back_within"
    | "bake"
    | "before"
    | "blackouts"
    | "body"
    | "by"
    | "canary"
    | "capacity"
    | "cause"
    | "computer_name"
    | "conflicts"
    | "cordon_note"
    | "cordoned"
    | "count"
    | "coverage"
    | "deadline"
    | "description"
    | "disputed"
    | "drift"
    | "driver"
    | "duration"
    | "enabled"
    | "enrollment"
    | "evacuate"
    | "event"
    | "event_grid"
    | "events"
    | "exclude_groups"
    | "exclude_host_labels"
    | "exclude_hosts"
    | "exclude_labels"
    | "exclude_machines"
    | "expected_end"
    | "expires_at"
    | "expires_in"
    | "fault_domain"
    | "flexible"
    | "force"
    | "from"
    | "gate_command"
    | "gate_http"
    | "gate_timeout"
    | "gone"
    | "group"
    | "groups"
    | "health"
    | "host"
    | "host_label"
    | "host_labels"
    | "hosts"
    | "hours"
    | "id"
    | "ids"
    | "ignore_windows"
    | "ignored_events"
    | "image_notice"
    | "incarnation"
    | "inventory_host"
    | "kind"
    | "label"
    | "labels"
    | "lane"
    | "lanes"
    | "last_answer"
    | "last_poll"
    | "lasts"
    | "limit"
    | "location"
    | "machine"
    | "machines"
    | "maintenance"
    | "max_failures"
    | "may_postpone"
    | "metadata_url"
    | "method"
    | "mode"
    | "moved"
    | "must_end_in_window"
    | "name"
    | "node"
    | "not_back"
    | "not_before"
    | "note"
    | "notice"
    | "oldest_first"
    | "order"
    | "order_by"
    | "over_when"
    | "past"
    | "pause_after"
    | "placement"
    | "plan"
    | "policy"
    | "polls"
    | "polls_on"
    | "probability"
    | "raised_since"
    | "reaction_time"
    | "ready"
    | "reason"
    | "remove"
    | "resource_group"
    | "role"
    | "rollout"
    | "scale_set"
    | "seconds"
    | "seed"
    | "seen_on"
    | "select"
    | "short_notice"
    | "since"
    | "size"
    | "skip"
    | "source"
    | "speed"
    | "spot"
    | "starts_in"
    | "state"
    | "status"
    | "steps"
    | "stop_before"
    | "subscription"
    | "sums"
    | "tags"
    | "takes_effect"
    | "terminate_notice"
    | "text"
    | "ticket"
    | "timeout"
    | "times"
    | "to"
    | "type"
    | "until"
    | "update_domain"
    | "user_event_limit"
    | "vm_id"
    | "wait"
    | "waves"
    | "what"
    | "windows"
    | "withdraw"
    | "work_by"
    | "zone";
}
