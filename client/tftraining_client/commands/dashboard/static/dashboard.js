// The page: shows what the server sends, and asks for nothing by itself. Texts are inserted as text, never as markup.
"use strict";

const at = (id) => document.getElementById(id);
const LOG_LINES = 5000;
const rows = new Map();
let stream = null, logStream = null, shown = "", filter = "";

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
  for (const key of state.gone) rows.delete(key);
  for (const row of state.jobs) rows.set(row.key, { row, line: rowOf(row, !state.namespace) });
  showScope(state);
  drawList(state.listed);
}

function drawList(listed) {
  const wanted = filter.toLowerCase();
  const found = [...rows.values()].filter(({ row }) => `${row.key} ${row.phase} ${row.reason}`.toLowerCase().includes(wanted));
  found.sort((one, other) => (one.row.key < other.row.key ? -1 : 1));
  const body = at("jobs").tBodies[0], lines = found.map((each) => each.line);
  if (lines.length !== body.rows.length || lines.some((line, place) => body.rows[place] !== line)) body.replaceChildren(...lines);
  at("jobs").hidden = !rows.size;
  at("count").textContent = rows.size ? `${found.length === rows.size ? "" : `${found.length} of `}${rows.size} job${rows.size === 1 ? "" : "s"}` : "";
  at("empty").hidden = rows.size > 0;
  at("empty").textContent = listed ? "There are no jobs." : "Reading the jobs …";
}

function showScope(state) {
  at("scope").textContent = `${state.namespace ? `namespace ${state.namespace}` : "all namespaces"}, context ${state.context}`;
  showProblem(state);
}

function showProblem(state) {
  at("problem").hidden = !state.problem;
  at("problem-text").textContent = state.broken ? `${state.problem} (what is shown may be old)` : state.problem;
  at("retry").hidden = !state.broken;
}

// A job.

function showJob(state) {
  showScope(state);
  at("gone").hidden = !state.gone;
  at("gone").textContent = state.gone + (state.gone && state.job ? " What follows is its last known state." : "");
  at("details").hidden = !state.job;
  if (!state.job) return;
  const job = state.job;
  document.title = `${job.name} ${job.phase}`;
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
  const restarts = job.timeline, begin = Date.parse(job.started || job.created), end = job.ended ? Date.parse(job.ended) : Date.now();
  const marks = restarts.map((each) => ({ at: Date.parse(each.time), text: each.text }));
  at("timeline").replaceChildren(...(marks.length ? [drawTimeline(begin, end, marks, at("timeline").clientWidth)] : []));
  const lines = [...restarts].reverse().map((each) => element("li", `${new Date(each.time).toLocaleString()}: ${each.text}`));
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
    if (known.includes(pod.replica)) continue;
    const option = element("option", pod.replica);
    option.value = pod.replica;
    at("replica").append(option);
  }
}

// Logs, which cost a connection for each pod: only when somebody asks.

function stopLog() {
  if (logStream) logStream.close();
  logStream = null;
  at("follow").setAttribute("aria-pressed", "false");
  at("follow").textContent = "Follow the log";
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

function jobPath(hash) {
  return `api/jobs/${hash}`;
}

function follow(path, show) {
  if (stream) stream.close();
  stream = new EventSource(path);
  stream.onmessage = (message) => {
    show(JSON.parse(message.data));
    document.body.dataset.shown = shown || "list";
  };
  stream.onerror = () => showProblem({ problem: "The connection to tftj is lost: is `tftj dashboard` still running?", broken: false });
}

function route() {
  const found = /^#\/([^/]+)\/([^/]+)$/.exec(location.hash);
  const wanted = found ? `${found[1]}/${found[2]}` : "";
  if (stream && wanted === shown && stream.readyState !== EventSource.CLOSED) return;
  shown = wanted;
  stopLog();
  at("list").hidden = Boolean(found);
  at("job").hidden = !found;
  if (!found) {
    document.title = "TFTrainingJobs";
    rows.clear();
    follow("api/jobs", showList);
    return;
  }
  at("job-name").textContent = decodeURIComponent(found[2]);
  at("details").hidden = true;
  at("log").replaceChildren();
  at("log-state").textContent = "";
  at("replica").replaceChildren(at("replica").options[0]);
  at("job-name").focus();
  follow(jobPath(shown), showJob);
}

function refreshAges() {
  for (const each of document.querySelectorAll("td[data-since]")) each.textContent = since(each.dataset.since);
}

at("filter").addEventListener("input", () => { filter = at("filter").value; drawList(true); });
at("follow").addEventListener("click", () => (logStream ? stopLog() : followLog()));
at("replica").addEventListener("change", () => { if (logStream) followLog(); });
at("retry").addEventListener("click", () => fetch("api/retry", { method: "POST" }));
window.addEventListener("hashchange", route);
// A browser allows six connections to one server: a hidden page keeps none.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && stream) {
    stream.close();
  } else if (!document.hidden) {
    route();
  }
});
setInterval(refreshAges, 5000);
route();
