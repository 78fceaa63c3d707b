// The orchestrator's page: pick an app, watch its job, open and stop it.

const LOOK_AGAIN_MS = 1000;
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
      await call("/api/login", { user });
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

function makeRow(job) {
  const row = copy("#job-row");
  row.dataset.job = job.id;
  find("strong", row).textContent = job.title;
  find("code", row).textContent = job.id;
  find("form", row).action = `/api/jobs/${encodeURIComponent(job.id)}/open`;
  find(".open", row).setAttribute("aria-label", `Open ${job.title}`);
  const stop = find(".stop", row);
  stop.setAttribute("aria-label", `Stop ${job.title}`);
  stop.addEventListener("click", () => attempt(async () => {
    await call(`/api/jobs/${encodeURIComponent(job.id)}/stop`, {});
    await showJobs();
  }));
  return row;
}

function showRow(row, job) {
  row.dataset.state = job.state;
  const word = find(".word", row);
  if (word.textContent !== (WORDS[job.state] ?? job.state)) word.textContent = WORDS[job.state] ?? job.state;
  const why = find(".why", row);
  if (why.textContent !== (job.message ?? "")) why.textContent = job.message ?? "";
  // Opening a job that still waits is fine: the gateway shows its start and then enters.
  find(".open", row).disabled = OVER.has(job.state) || job.state === "CANCELING";
  find(".stop", row).disabled = OVER.has(job.state) || job.state === "CANCELING";
}

async function showJobs() {
  const { jobs } = await call("/api/jobs");
  const list = find("#jobs");
  const rows = new Map([...list.children].map((row) => [row.dataset.job, row]));
  for (const job of jobs) {
    let row = rows.get(job.id);
    if (!row) {
      row = makeRow(job);
      list.prepend(row);
    }
    showRow(row, job);
    rows.delete(job.id);
  }
  for (const gone of rows.values()) gone.remove();
  find("#none").hidden = jobs.length > 0;
}

async function watch() {
  for (;;) {
    if (!document.hidden) {
      try {
        await showJobs();
      } catch (error) {
        tell(error.message);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

const { apps, users, user } = await call("/api/apps");
const current = user ?? (await call("/api/login", { user: users[0] })).user;
showUsers(users, current);
showApps(apps);
watch();
