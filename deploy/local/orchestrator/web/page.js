// The orchestrator's page: pick an app, watch its job, open, extend, share and stop it, attach tools.

const LOOK_AGAIN_MS = 1000;
const DETAILS_EVERY = 3;
const OVER = new Set(["SUCCESS", "FAILURE", "EXPIRED"]);
const WORDS = {
  IN_QUEUE: "Waiting",
  RUNNING: "Running",
  SUSPENDED: "Suspended",
  CANCELING: "Stopping",
  SUCCESS: "Ended",
  FAILURE: "Failed",
  EXPIRED: "Time is up",
};

const TOOL_WORDS = { WAITING: "Waiting", RUNNING: "Running", ENDING: "Stopping", ENDED: "Ended" };

const bytes = (count) => {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, count)) / 10));
  return `${(count / 1024 ** power).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};
const METRICS = [
  ["cpu_cores", "Processors", (cores) => cores.toFixed(2)],
  ["memory_bytes", "Memory", bytes],
  ["network_receive_bytes_per_second", "Received", (rate) => `${bytes(rate)}/s`],
  ["network_transmit_bytes_per_second", "Sent", (rate) => `${bytes(rate)}/s`],
  ["gpu_utilization", "GPU", (share) => `${Math.round(100 * share)} %`],
  ["gpu_memory_bytes", "GPU memory", bytes],
];

const find = (selector, within = document) => within.querySelector(selector);
const copy = (id) => find(id).content.firstElementChild.cloneNode(true);

function tell(message) {
  find("#notice").textContent = message;
}

async function call(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.message ?? "It did not work.");
  return content;
}

async function attempt(work) {
  try {
    await work();
    tell("");
  } catch (error) {
    tell(error.message);
  }
}

function showUsers(users, current) {
  const fieldset = find("#who fieldset");
  for (const user of users) {
    const label = document.createElement("label");
    label.className = "who";
    const choice = Object.assign(document.createElement("input"), {
      type: "radio", name: "user", value: user, checked: user === current,
    });
    const name = document.createElement("span");
    name.textContent = user;
    label.append(choice, name);
    choice.addEventListener("change", () => attempt(async () => {
      await signIn(user);
      await showJobs();
    }));
    fieldset.append(label);
  }
}

function showApps(apps) {
  for (const app of apps) {
    const card = copy("#app-card");
    card.dataset.app = app.name;
    find("h3", card).textContent = app.title;
    find("p", card).textContent = app.about;
    const button = find("button", card);
    button.setAttribute("aria-label", `Start ${app.title}`);
    button.addEventListener("click", () => attempt(async () => {
      button.disabled = true;
      try {
        await call("/api/jobs", { app: app.name });
        await showJobs();
      } finally {
        button.disabled = false;
      }
    }));
    find("#apps").append(card);
  }
}

const path = (job, call) => `/api/jobs/${encodeURIComponent(job.id)}/${call}`;
const clock = (seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
const phrase = (text) => (text ?? "").replaceAll("_", " ");

/** Changes a text only if it differs, since screen readers read each change aloud. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

async function act(job, call_, body = {}) {
  await attempt(async () => {
    await call(path(job, call_), body);
    await showJobs();
  });
}

function makeRow(job) {
  const row = copy("#job-row");
  row.dataset.job = row.id = job.id;
  find("strong", row).textContent = job.title;
  find("code", row).textContent = job.id;
  find("form.app", row).action = path(job, "open");
  find("form.tool", row).action = path(job, "open?tool=shell");
  for (const [name, label] of [["open", "Open"], ["terminal", "Terminal in"], ["extend", "1 hour more for"], ["stop", "Stop"]]) {
    find(`.${name}`, row).setAttribute("aria-label", `${label} ${job.title}`);
  }
  find(".scroll", row).setAttribute("aria-label", `History of ${job.title}`);
  if (!job.mine) for (const own of row.querySelectorAll(".mine")) own.remove();
  else makeOwn(row, job);
  return row;
}

function makeOwn(row, job) {
  find(".stop", row).addEventListener("click", () => act(job, "stop"));
  find(".extend", row).addEventListener("click", () => act(job, "extend"));
  for (const tool of tools) find(".tools ul", row).append(makeTool(job, tool));
  if (!tools.length) find(".tools", row).remove();
  for (const name of ["log", "metrics", "history", "tools"]) {
    find(`.${name}`, row)?.addEventListener("toggle", () => attempt(() => showDetails(row, job.id)));
  }
  for (const user of others) {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox" });
    box.dataset.user = user;
    box.addEventListener("change", () => act(job, "share", { user, allowed: box.checked }));
    label.append(box, ` ${user} may open it`);
    find(".share fieldset", row).append(label);
  }
}

function makeTool(job, tool) {
  const item = copy("#tool-row");
  item.dataset.tool = tool.name;
  find("strong", item).textContent = tool.title;
  find("form", item).action = path(job, `tools/${tool.name}/open`);
  find(".open-tool", item).setAttribute("aria-label", `Open ${tool.title} in ${job.title}`);
  find(".change", item).addEventListener("click", () => attempt(async () => {
    const act = item.dataset.attached ? "remove" : "attach";
    await call(path(job, `tools/${tool.name}/${act}`), {});
    await showDetails(item.closest(".row"), job.id);
  }));
  showTool(item, undefined, job.title);
  return item;
}

/** Shows a tool. One button attaches and removes it, so that the button keeps the focus. */
function showTool(item, tool, job) {
  const attached = tool !== undefined && tool.state !== "ENDED";
  item.dataset.attached = attached ? "yes" : "";
  item.dataset.state = tool?.state ?? "";
  say(find(".word", item), tool ? TOOL_WORDS[tool.state] ?? tool.state : "");
  say(find(".why", item), tool?.message || phrase(tool?.reason));
  const over = item.closest(".row")?.dataset.over === "yes";
  const change = find(".change", item);
  say(change, attached ? "Remove" : "Attach");
  change.setAttribute("aria-label", `${change.textContent} ${find("strong", item).textContent} ${attached ? "from" : "to"} ${job}`);
  change.disabled = over;
  // A tool can be opened before it runs: the gateway shows its start and then opens it.
  find(".open-tool", item).disabled = over || !attached;
}

function showRow(row, job) {
  row.dataset.state = job.state;
  const over = OVER.has(job.state) || job.state === "CANCELING";
  row.dataset.over = over ? "yes" : "";
  say(find(".word", row), WORDS[job.state] ?? job.state);
  say(find(".why", row), job.message || phrase(job.reason));
  say(find(".owner", row), job.mine ? "" : `shared by ${job.owner}`);
  const until = job.expires_at && !over ? ` · until ${clock(job.expires_at)}` : "";
  say(find(".times", row), job.submitted_at ? `submitted ${clock(job.submitted_at)}${until}` : "");
  // A waiting job can be opened: the gateway shows its start and then opens it.
  for (const button of row.querySelectorAll(":scope > .acts button")) button.disabled = over;
  for (const box of row.querySelectorAll(".share input")) box.checked = job.shared_with.includes(box.dataset.user);
}

async function showDetails(row, id) {
  if (find(".log", row)?.open) {
    const log = find("pre", row);
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
    say(log, (await call(path({ id }, "log"))).text || "Nothing was written yet.");
    if (atEnd) log.scrollTop = log.scrollHeight;
  }
  if (find(".metrics", row)?.open) showMetrics(find(".metrics", row), await call(path({ id }, "metrics")));
  if (find(".tools", row)?.open) {
    const { tools: attached } = await call(path({ id }, "tools"));
    for (const item of find(".tools ul", row).children) {
      showTool(item, attached.find((one) => one.tool === item.dataset.tool), find("strong", row).textContent);
    }
  }
  if (find(".history", row)?.open) {
    const { updates } = await call(path({ id }, "history"));
    find("tbody", row).replaceChildren(...updates.map(makeUpdate));
  }
}

/** Shows each measured metric as a number and a small series, and names the others. */
function showMetrics(details, { values, missing, series }) {
  const shown = METRICS.filter(([metric]) => values[metric] !== null || series[metric].some((one) => one !== null));
  find("dl", details).replaceChildren(...shown.flatMap(([metric, title, format]) => {
    const [term, value] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = title;
    value.dataset.metric = metric;
    value.append(drawSeries(series[metric], title), values[metric] === null ? phrase(missing[metric]) : format(values[metric]));
    return [term, value];
  }));
  const lacking = METRICS.filter((one) => !shown.includes(one));
  say(find(".lacking", details), lacking.map(([metric, title]) => `${title}: ${phrase(missing[metric])}`).join(" · "));
}

/** Draws values on an axis from zero, the newest at the right. A gap means: not measured. */
function drawSeries(values, title) {
  const NS = "http://www.w3.org/2000/svg";
  const most = Math.max(...values.map((one) => one ?? 0)) || 1;
  const step = 100 / Math.max(1, values.length - 1);
  const drawing = document.createElementNS(NS, "svg");
  for (const [name, text] of Object.entries({ viewBox: "0 -1 100 22", role: "img", "aria-label": `${title}, the last samples` })) {
    drawing.setAttribute(name, text);
  }
  const line = document.createElementNS(NS, "path");
  line.setAttribute("d", values.map((one, index) => {
    if (one === null) return "";
    const begins = index === 0 || values[index - 1] === null;
    return `${begins ? "M" : "L"}${(index * step).toFixed(1)} ${(20 - 20 * one / most).toFixed(1)}${begins ? "h0.1" : ""}`;
  }).join(""));
  drawing.append(line);
  return drawing;
}

function makeUpdate(update) {
  const line = document.createElement("tr");
  const why = update.message || phrase(update.reason);
  for (const text of [clock(update.at), update.attempt, WORDS[update.state] ?? update.state, why]) {
    line.insertCell().textContent = text;
  }
  return line;
}

async function showJobs() {
  const { jobs } = await call("/api/jobs");
  const list = find("#jobs");
  const rows = new Map([...list.children].map((row) => [row.dataset.job, row]));
  let before = null;
  for (const job of jobs) {
    const row = rows.get(job.id) ?? makeRow(job);
    // Keep the order of the response. A row in its right place is not moved, and keeps the focus.
    const place = before ? before.nextElementSibling : list.firstElementChild;
    if (place !== row) list.insertBefore(row, place);
    showRow(row, job);
    rows.delete(job.id);
    before = row;
  }
  for (const gone of rows.values()) gone.remove();
  find("#none").hidden = jobs.length > 0;
}

async function showOpenDetails() {
  for (const row of find("#jobs").children) await showDetails(row, row.dataset.job);
}

async function watch() {
  let looks = 0;
  for (;;) {
    if (!document.hidden) {
      try {
        await showJobs();
        if (++looks % DETAILS_EVERY === 0) await showOpenDetails();
      } catch (error) {
        tell(error.message);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

let others = [];
const { apps, tools, users, user } = await call("/api/apps");

async function signIn(name) {
  await call("/api/login", { user: name });
  others = users.filter((one) => one !== name);
  // Rows are made for whoever looks at them.
  find("#jobs").replaceChildren();
}

const current = user ?? users[0];
await signIn(current);
showUsers(users, current);
showApps(apps);
await attempt(showJobs);
// The gateway's pages lead here with the job's name.
const sought = decodeURIComponent(location.hash.slice(1));
if (sought) document.getElementById(sought)?.scrollIntoView();
watch();
