// The page: shows what the server sends, and asks for nothing by itself. Texts are inserted as text, never as markup.
"use strict";

const at = (id) => document.getElementById(id);
const LOG_LINES = 5000;
const rows = new Map();
const ORDERS = {
  state: (one, other) => rank(one.phase) - rank(other.phase) || ORDERS.newest(one, other),
  newest: (one, other) => Date.parse(other.created) - Date.parse(one.created),
  name: () => 0,
  restarts: (one, other) => other.restarts - one.restarts,
  progress: (one, other) => (one.fraction ?? 2) - (other.fraction ?? 2),
};
// The server speaks every 15 s: after this silence, in ms, the connection is dead, as behind a tunnel that has dropped it.
let silence = 40000;
let stream = null, logStream = null, shown = "", listed = false, newest = null, heard = 0, resumesLog = false;

function element(name, text = "", style = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

function cell(label, content, style = "") {
  const made = content instanceof Node ? element("td") : element("td", content, style);
  if (content instanceof Node) made.append(content);
  made.dataset.label = label;
  return made;
}

// Only what has changed: a screen reader would read it again.
function tell(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

// A phase is a word of the operator; anything else gets no style of its own.
function phaseStyle(phase) {
  return /^[A-Za-z]+$/.test(phase) ? phase : "";
}

function since(time, end) {
  if (!time) return "";
  const seconds = Math.max(0, Math.floor(((end ? Date.parse(end) : Date.now()) - Date.parse(time)) / 1000));
  for (const [limit, size, unit] of [[120, 1, "s"], [7200, 60, "m"], [172800, 3600, "h"]]) {
    if (seconds < limit) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${Math.floor(seconds / 86400)}d`;
}

function ageCell(time, end = "") {
  const made = cell("Age", since(time, end));
  made.dataset.since = time;
  made.title = time;
  return made;
}

function progressCell(row) {
  const content = element("span");
  if (row.fraction !== null) {
    const bar = element("progress");
    bar.max = 1;
    bar.value = row.fraction;
    bar.setAttribute("aria-label", `Progress of ${row.name}`);
    content.append(bar, " ");
  }
  content.append(row.progress);
  return content.textContent || row.fraction !== null ? cell("Progress", content) : cell("Progress", "");
}

// The list.

function rowOf(row, everywhere) {
  const line = element("tr"), name = element("a", everywhere ? row.key : row.name);
  name.href = `#/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`;
  line.append(
    cell("Name", name), cell("Phase", row.deleting ? `${row.phase}, being deleted` : row.phase, phaseStyle(row.phase)),
    progressCell(row), cell("Ready", row.ready), cell("Restarts", row.restarts ? String(row.restarts) : ""),
    ageCell(row.created), cell("Message", row.reason && row.message ? `${row.reason}: ${row.message}` : row.message));
  return line;
}

function showList(state) {
  if (state.all) rows.clear();
  for (const key of state.gone) rows.delete(key);
  for (const row of state.jobs) rows.set(row.key, { row, line: rowOf(row, !state.namespace) });
  showScope(state);
  listed = state.listed;
  drawList();
}

// What needs somebody first: failures, then what is not yet, or no longer, as it should be.
function rank(phase) {
  const place = ["Failed", "Restarting", "Pending", "Starting", "Running", "Suspended", "Succeeded"].indexOf(phase);
  return place < 0 ? 2 : place;
}

function drawList() {
  drawPhases();
  const wanted = at("filter").value.toLowerCase(), phase = at("phase").value, order = ORDERS[at("order").value];
  const found = [...rows.values()].filter(({ row }) => (!phase || row.phase === phase) &&
    `${row.key} ${row.phase} ${row.reason}`.toLowerCase().includes(wanted));
  found.sort((one, other) => order(one.row, other.row) || (one.row.key < other.row.key ? -1 : 1));
  const body = at("jobs").tBodies[0], lines = found.map((each) => each.line), focused = document.activeElement.hash;
  if (lines.length !== body.rows.length || lines.some((line, place) => body.rows[place] !== line)) {
    const inside = body.contains(document.activeElement);
    body.replaceChildren(...lines);
    if (inside) [...body.querySelectorAll("a")].find((each) => each.hash === focused)?.focus();
  }
  at("jobs").hidden = !rows.size;
  tell("count", rows.size ? `${found.length === rows.size ? "" : `${found.length} of `}${rows.size} job${rows.size === 1 ? "" : "s"}` : "");
  at("empty").hidden = rows.size > 0;
  at("empty").textContent = listed ? "There are no jobs." : "Reading the jobs …";
}

// The phases that jobs have, each with their number; the chosen one stays.
function drawPhases() {
  const counts = new Map([["", rows.size]]), chosen = at("phase").value;
  for (const { row } of rows.values()) counts.set(row.phase, (counts.get(row.phase) || 0) + 1);
  if (!counts.has(chosen)) counts.set(chosen, 0);
  const names = [...counts.keys()].sort((one, other) => (one && other ? rank(one) - rank(other) : one.length - other.length));
  const texts = names.map((name) => `${name || "all"} (${counts.get(name)})`);
  if (texts.join() === [...at("phase").options].map((each) => each.text).join()) return;
  at("phase").replaceChildren(...names.map((name, place) => option(name, texts[place])));
  at("phase").value = chosen;
}

function option(value, text) {
  const made = element("option", text);
  made.value = value;
  return made;
}

function showScope(state) {
  at("scope").textContent = `${state.namespace ? `namespace ${state.namespace}` : "all namespaces"}, context ${state.context}`;
  showProblem(state);
}

function showProblem(state) {
  at("problem").hidden = !state.problem;
  tell("problem-text", state.problem + ((shown ? newest : rows.size) ? " (what is shown may be old)" : ""));
  at("retry").hidden = !state.broken;
}

// A job.

function showJob(state) {
  showScope(state);
  at("gone").hidden = !state.gone;
  tell("gone", state.gone + (state.gone && state.job ? " What follows is its last known state." : ""));
  at("details").hidden = !state.job;
  if (!state.job) return;
  const job = state.job;
  if (newest && newest.uid !== job.uid) resetLog();
  newest = job;
  document.title = `${job.name} ${state.gone ? "is gone" : job.phase}`;
  const count = job.restarts ? `, ${job.restarts} restart${job.restarts === 1 ? "" : "s"}` : "";
  at("job-phase").textContent = job.phase + (job.ready ? `, ${job.ready} ready` : "") + count + (job.deleting ? ", being deleted" : "");
  at("job-phase").className = phaseStyle(job.phase);
  at("job-message").textContent = [job.reason, job.message].filter(Boolean).join(": ");
  at("job-progress").hidden = job.fraction === null;
  if (job.fraction !== null) at("job-progress").value = job.fraction;
  at("job-progress-text").textContent = job.progressText;
  const notes = [...job.warnings, ...(job.phase === "Failed" && job.failure ? [job.failure] : []), ...(job.advice ? [`try: ${job.advice}`] : [])];
  at("job-notes").replaceChildren(...notes.map((note) => element("li", note)));
  at("job-tail").textContent = job.phase === "Failed" ? job.logTail : "";
  showCurves(job.curves);
  showRestarts(job);
  showPods(job);
  at("events-note").textContent = hiddenNote(job, "events") || (job.events.length ? "" : "There are no events.");
  at("events").hidden = !job.events.length;
  at("events").tBodies[0].replaceChildren(...job.events.map((event) => {
    const line = element("tr");
    line.append(ageCell(event.time), cell("Reason", event.reason, event.warning ? "warning" : ""),
      cell("Message", event.count > 1 ? `${event.message} (${event.count} times)` : event.message));
    return line;
  }));
}

function hiddenNote(job, kind) {
  return job.hidden.includes(kind) ? `You may not list ${kind}: the cluster role view contains the right.` : "";
}

function showCurves(curves) {
  at("curves-note").textContent = curves.length ? "" : "There is no history: the program has reported no metrics, or the operator is older.";
  at("curves").replaceChildren(...curves.map((metric) => drawCurve(metric.name, metric.points, metric.restarts, metric.unit)));
}

function showRestarts(job) {
  const end = job.ended ? Date.parse(job.ended) : Date.now();
  const marks = job.timeline.map((each) => ({ ...each, at: Date.parse(each.time) }));
  at("timeline").replaceChildren(...(marks.length ? [drawTimeline(Date.parse(job.begin), end, marks, at("timeline").clientWidth)] : []));
  const lines = [...job.timeline].reverse().map((each) => element("li", `${new Date(each.time).toLocaleString()}: ${each.text}`));
  at("restarts").replaceChildren(...(lines.length ? lines : [element("li", "none", "dim")]));
}

function showPods(job) {
  at("pods-note").textContent = hiddenNote(job, "pods") || job.roles.map((role) => `${role.role} ${role.ready}/${role.desired} ready`).join(", ") || "There are no pods.";
  const pods = job.roles.flatMap((role) => role.pods);
  at("pods").hidden = !pods.length;
  at("pods").tBodies[0].replaceChildren(...pods.map((pod) => {
    const line = element("tr"), name = cell("Replica", pod.replica);
    name.title = pod.name;
    line.append(name, cell("Phase", pod.reason ? `${pod.phase}, ${pod.reason}` : pod.phase, phaseStyle(pod.phase)),
      cell("Ready", pod.ready ? "yes" : "no", pod.ready ? "ready" : ""), cell("Attempt", String(pod.attempt)),
      cell("Node", pod.node), ageCell(pod.created));
    return line;
  }));
  const known = [...at("replica").options].map((each) => each.value);
  for (const pod of pods) {
    if (!known.includes(pod.replica)) at("replica").append(option(pod.replica, pod.replica));
  }
}

// Logs, which cost a connection for each pod: only when somebody asks.

function stopLog() {
  if (logStream) logStream.close();
  logStream = null;
  at("follow").setAttribute("aria-pressed", "false");
  at("follow").textContent = "Follow the log";
}

function resetLog() {
  stopLog();
  at("log").replaceChildren();
  at("log-state").textContent = "";
  at("replica").replaceChildren(at("replica").options[0]);
}

function followLog() {
  stopLog();
  at("log").replaceChildren();
  at("log-state").textContent = "reading …";
  at("follow").setAttribute("aria-pressed", "true");
  at("follow").textContent = "Stop";
  const [, role, index] = /^(.+)-(\d+)$/.exec(at("replica").value) || ["", "", ""];
  const source = new EventSource(`${jobPath(shown)}/logs?${new URLSearchParams(index ? { role, index } : {})}`);
  logStream = source;
  source.onmessage = (message) => addLog(JSON.parse(message.data));
  source.onerror = () => {
    // Not continued by the browser: the lines would come twice.
    at("log-state").textContent = "The connection to tftj is lost.";
    stopLog();
  };
}

function addLog(part) {
  const log = at("log"), follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  for (const [replica, text] of part.lines) {
    const line = element("div");
    if (replica) line.append(element("span", `${replica} | `, "replica"), text);
    else line.append(element("span", text, "note"));
    log.append(line);
  }
  while (log.childElementCount > LOG_LINES) log.firstElementChild.remove();
  if (follows) log.scrollTop = log.scrollHeight;
  at("log-state").textContent = part.end ? "The log has ended." : "following";
  if (part.end) stopLog();
}

// The address chooses between the list and a job; the stream of what nobody looks at is closed.

function jobPath(path) {
  return `api/jobs/${path}`;
}

// A browser allows six connections to one server: a hidden page keeps none.
function follow() {
  if (stream) stream.close();
  if (document.hidden) return;
  const path = shown ? jobPath(shown) : "api/jobs", source = new EventSource(path);
  stream = source;
  heard = Date.now();
  source.onmessage = (message) => {
    heard = Date.now();
    (shown ? showJob : showList)(JSON.parse(message.data));
    document.body.dataset.shown = shown || "list";
  };
  source.addEventListener("ping", () => { heard = Date.now(); });
  source.onerror = () => {
    heard = Date.now();
    lose("The connection to tftj is lost: is `tftj dashboard` still running?");
    if (source.readyState === EventSource.CLOSED) tellRefusal(path);
  };
}

function lose(problem) {
  showProblem({ problem, broken: false });
  if (logStream) at("log-state").textContent = "The connection to tftj is lost.";
  stopLog();
}

// The browser does not say why it has given a stream up.
async function tellRefusal(path) {
  const stop = new AbortController();
  const answer = await fetch(path, { signal: stop.signal }).catch(() => null);
  if (answer && !answer.ok) showProblem({ problem: (await answer.text()).trim(), broken: false });
  stop.abort();
}

function checkSilence() {
  if (document.hidden || !stream || Date.now() - heard < silence) return;
  if (stream.readyState !== EventSource.CLOSED) {
    lose("tftj does not answer: its tunnel or network is interrupted, or many windows of this browser show it.");
  }
  follow();
}

function route() {
  // What can be no name of Kubernetes leads to the list.
  const found = /^#\/([a-z0-9][a-z0-9-]*)\/([a-z0-9][a-z0-9.-]*)$/.exec(location.hash);
  const wanted = found ? `${found[1]}/${found[2]}` : "";
  if (stream && wanted === shown) return;
  shown = wanted;
  newest = null;
  resetLog();
  at("list").hidden = Boolean(found);
  at("job").hidden = !found;
  if (found) {
    at("job-name").textContent = found[2];
    at("details").hidden = at("gone").hidden = true;
    at("job-name").focus();
  } else {
    document.title = "TFTrainingJobs";
  }
  follow();
}

function refreshAges() {
  for (const each of document.querySelectorAll("td[data-since]")) each.textContent = since(each.dataset.since);
}

for (const id of ["filter", "phase", "order"]) at(id).addEventListener("input", drawList);
at("follow").addEventListener("click", () => (logStream ? stopLog() : followLog()));
at("replica").addEventListener("change", () => { if (logStream) followLog(); });
at("retry").addEventListener("click", () => fetch("api/retry", { method: "POST" }).catch(() => {}));
window.addEventListener("hashchange", route);
window.addEventListener("resize", () => { if (newest) showRestarts(newest); });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) resumesLog = Boolean(logStream);
  follow();
  if (document.hidden) stopLog();
  else if (resumesLog) followLog();
});
setInterval(() => { refreshAges(); checkSilence(); }, 5000);
route();
