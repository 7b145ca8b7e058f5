// The page of a job without a report: what server-sent events do to it. Where there are none, it asks again and again.
"use strict";
const {html, svg, lineChart, readable} = Charts;
const page = document.getElementById("job"), address = `/api/jobs/${page.dataset.job}`, own = page.dataset.own, silent = document.querySelector(".silent");
const OPEN = ["waiting", "running", "paused"], MOST_POINTS = 1000, MOST_LINES = 200;
const find = id => document.getElementById(id), count = number => Math.round(number).toLocaleString("en");
const say = (id, text) => { const place = find(id); if (place.textContent !== text) place.textContent = text; };
const show = (id, shown) => { find(id).hidden = !shown; };
let job = null, drawn = "", due = false, source = null, asking = false;

const bytes = number => { let unit = 0; while (number >= 1000 && unit < 4) { number /= 1000; unit++; } return `${unit ? number.toPrecision(3) : number} ${["B", "kB", "MB", "GB", "TB"][unit]}`; };
const duration = seconds => seconds < 90 ? `${seconds < 10 ? +seconds.toFixed(1) : Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
const ago = moment => (Date.now() - Date.parse(moment)) / 1000;

function progress() {
  const live = job.live, open = OPEN.includes(job.state), train = job.spec?.json?.train, epochs = train?.epochs ?? train?.iterations;
  const at = open ? job : {...job, ...live?.reached};
  const parts = [], alone = job.alone?.epoch ? `${count(job.alone.epoch)} of ${count(job.alone.epochs)}` : "";
  const epoch = live?.epoch && epochs && at.phase === "train" ? `: ${page.dataset.unit} ${count(live.epoch)} of ${count(epochs)}` : "";
  if (at.total) parts.push(`${count(Math.min(at.done, at.total))} of ${count(at.total)} ${at.unit}`);
  else if (at.done) parts.push(`${count(at.done)} ${at.unit}`);
  if (live?.rate && open) parts.push(`${+live.rate.toPrecision(2)} a second`);
  if (live?.left_s && open) parts.push(`at most ${duration(live.left_s)} left`);
  if (live?.repeat > 1) parts.push(`repeat ${live.repeat} of ${job.spec?.json?.evaluate.repeats}`);
  const place = alone ? `own model alone: epoch ${alone}` : at.phase + (live?.repeat > 1 ? "" : epoch);
  say("phase", open ? place : ["", "waiting"].includes(at.phase) ? "It did not begin" : `It came to: ${place}`);
  say("pace", parts.join(" · "));
  say("note", open && !alone ? job.note ?? "" : "");
  const left = job.time_left_s ? `${job.time_left_s.map(duration).join(" to ")} left of the whole job` : "";
  say("wait", open ? job.queue?.reason ?? left : "");
  say("remark", job.remark ?? "");
  const bar = find("progress");
  bar.hidden = !at.total;
  bar.max = at.total || 1;
  bar.value = Math.min(at.done, bar.max);
  const best = (live?.curves.points.validation_loss ?? []).reduce((best, point) => !best || point[1] < best[1] ? point : best, null);
  say("best", best ? `best on validation rows: epoch ${best[0]}` : "");
  const state = find("state").firstElementChild;
  if (open && !state.classList.contains(job.state)) {
    state.className = `state ${job.state}`;
    state.lastChild.textContent = job.state;
    state.querySelector("use").setAttribute("href", job.state === "running" ? "#run" : "#wait");
  }
  show("progressing", open || Boolean(job.live));
}

// One lane for each party; every span is wide enough to read, and the longer the wider.
function lanes() {
  const box = find("lanes"), spans = job.live?.spans ?? [], open = OPEN.includes(job.state);
  show("time", spans.length > 0);
  if (!spans.length) return;
  const long = spans.map(span => Math.max(0, (span.ended ? Date.parse(span.ended) : Date.now()) - Date.parse(span.began))), whole = Math.max(1, long.reduce((sum, one) => sum + one, 0));
  const parts = long.map(one => 60 / spans.length + 40 * one / whole), sum = parts.reduce((total, part) => total + part, 0), begin = Date.parse(spans[0].began);
  const lane = (name, draw) => {
    const drawing = svg("svg", {role: "img", "aria-label": name});
    let at = 0;
    spans.forEach((span, index) => {
      const width = parts[index] / sum * 100, [cls, text] = draw(span, index === spans.length - 1), inside = svg("svg", {class: "in", x: `${at}%`, width: `${Math.max(0, width - .2)}%`, height: 30});
      inside.append(svg("rect", {class: cls, width: "100%", height: 30}));
      if (width > 8) inside.append(svg("text", {class: cls === "w" || cls === "n" ? "wt" : "", x: 8, y: 19}, text));
      drawing.append(inside);
      at += width;
    });
    return [html("b", {}, name), drawing];
  };
  const done = (span, newest) => newest && !open ? ["stopped", `${span.name}: ended here`] : [span.ended ? "dn" : "r", span.name];
  const rows = lane(own, (span, newest) => span.kind === "wait" ? ["w", `waits for ${span.name}`] : done(span, newest));
  for (const party of job.parties.filter(name => name !== own))
    rows.push(...lane(party, (span, newest) => span.kind === "work" ? done(span, newest) : span.kind === "alone" ? ["w", `waits for ${own}`] : ["n", ""]));
  const axis = svg("svg", {class: "ax", "aria-hidden": "true"});
  let at = 0;
  spans.forEach((span, index) => {
    if (parts[index] / sum > .06) axis.append(svg("text", {x: `${at}%`, y: 12}, duration((Date.parse(span.began) - begin) / 1000)));
    at += parts[index] / sum * 100;
  });
  box.replaceChildren(...rows, html("span"), axis);
}

function curves() {
  const live = job.live, points = live?.curves.points ?? {}, train = job.spec?.json?.train, unit = page.dataset.unit;
  const stamp = JSON.stringify([live?.epoch, live?.limits, Object.values(points).map(all => [all.length, all.at(-1)])]);
  if (stamp === drawn) return;
  drawn = stamp;
  const last = Math.max(train?.epochs ?? train?.iterations ?? 1, live?.epoch ?? 1);
  const draw = (name, curves, more) => {
    const lines = curves.filter(one => points[one.curve]?.length).map(one => ({...one, points: points[one.curve]}));
    show(name, lines.length > 0);
    if (lines.length) lineChart(find(name).querySelector(".x"), {name, lines, unit, last, ...more});
  };
  for (const [name, title, reach] of [["loss", "Loss", []], ["auc", "AUC", [.9, 1]]])
    draw(name, [{curve: name, name: "training rows", style: "joint"}, {curve: `validation_${name}`, name: "validation rows", style: "alone"}], {title, reach});
  for (const [name, chance] of [["labels", .5], ["membership", .5], ["columns", 0]]) {
    const meter = live?.meters?.[name], limit = live?.limits?.[name];
    draw(name, [{curve: name, name: "strongest attack", style: {low: "good", some: "warn"}[meter?.level] ?? "bad"}], {title: `Attacks on ${name}`, reach: [1], chance, limit, height: 110});
    if (!meter) continue;
    const level = find(name).querySelector(".level");
    level.className = `level ${meter.level}`;
    level.lastChild.textContent = meter.level.replace("_", " ");
    find(name).querySelector(".told").textContent = `Strongest attack: ${meter.attack.replaceAll("_", " ")}, ${meter.value.toFixed(2)}. ` +
      (limit == null ? "This node's settings have no limit." : `Your limit is ${limit}.`);
  }
}

function step() {
  const parts = Object.entries({work: "own work", waiting: "waiting for others", sending: "sending"}), known = OPEN.includes(job.state) && job.live?.step;
  show("step", Boolean(known));
  if (!known) return;
  const whole = parts.reduce((sum, [part]) => sum + known[part], 0), text = seconds => seconds < 1 ? `${+(1000 * seconds).toPrecision(2)} ms` : duration(seconds);
  say("pace-of-step", `lately, ${text(whole)} a step of this phase`);
  find("parts").replaceChildren(...parts.map(([part, name]) => html("tr", {}, html("th", {scope: "row"}, name), html("td", {class: "num"}, text(known[part])),
    html("td", {class: "num"}, `${Math.round(100 * known[part] / (whole || 1))} %`), html("td", {class: "share"}, html("progress", {max: whole || 1, value: known[part], "aria-label": name})))));
}

function traffic() {
  const phases = Object.entries(job.live?.bytes ?? {}), most = Math.max(1, ...phases.map(([, one]) => one.sent + one.received));
  show("traffic", phases.length > 0);
  find("phases").replaceChildren(...phases.map(([phase, one]) => html("tr", {}, html("th", {scope: "row"}, phase), html("td", {class: "num"}, bytes(one.sent)), html("td", {class: "num"}, bytes(one.received)),
    html("td", {class: "share"}, html("progress", {max: most, value: one.sent + one.received, "aria-label": phase})))));
}

function events() {
  const log = job.live?.log ?? [];
  show("events", log.length > 0);
  const list = find("log");
  if (list.dataset.newest === String(log.at(-1)?.number)) return;
  list.dataset.newest = log.at(-1)?.number;
  list.replaceChildren(...log.toReversed().map(line => html("li", {}, html("time", {datetime: line.at}, line.at.slice(11, 19)), html("span", {}, line.text))));
}

function draw() {
  due = false;
  for (const part of [progress, lanes, curves, step, traffic, events]) part();
}

// Events come up to four times a second; the page is drawn when the browser is about to show it.
function changed() {
  silent.hidden = true;
  if (!due) { due = true; requestAnimationFrame(draw); }
}

function end(state, report) {
  if (report) location.replace(`/jobs/${page.dataset.job}/report.html`);
  else if (OPEN.includes(page.dataset.state)) location.reload();
}

function keep(points, more) {
  points.push(...more);
  return points.length > MOST_POINTS ? points.filter((_, index) => index % 2 === 0 || index === points.length - 1) : points;
}

const take = {
  whole: data => { job = data; },
  job: ({live, ...data}) => { Object.assign(job, data); if (live) job.live = Object.assign(job.live ?? {curves: {points: {}}, log: []}, live); },
  epochs: ({anew, points}) => {
    const all = job.live.curves.points;
    for (const [name, more] of Object.entries(points)) all[name] = keep(anew ? [] : all[name] ?? [], more);
  },
  log: data => { job.live.log = [...job.live.log, ...data.lines].slice(-MOST_LINES); },
};

function watch() {
  source = new EventSource(`${address}/events`);
  for (const [name, change] of Object.entries(take)) source.addEventListener(name, event => { change(JSON.parse(event.data)); changed(); });
  source.addEventListener("end", event => { source.close(); const {state, report} = JSON.parse(event.data); end(state, report); });
  source.addEventListener("error", () => {
    silent.hidden = false;
    if (source.readyState === EventSource.CLOSED) { asking = true; ask(); }  // refused: too many watch, or the link is too old
  });
}

async function ask() {
  try {
    const answer = await fetch(address);
    if (answer.status === 401) return location.reload();
    silent.hidden = answer.ok;
    if (answer.ok) { job = await answer.json(); changed(); if (!OPEN.includes(job.state)) return end(job.state, job.report); }
  } catch { silent.hidden = false; }
  setTimeout(ask, 2000);
}

async function cancel() {
  let said = "The node does not answer. The job goes on.";
  try {
    const answer = await fetch(`${address}/cancel`, {method: "POST", headers: {"X-Vfl-Board": "cancel"}});
    said = answer.ok ? "The job is being cancelled." : (await answer.json()).message;
  } catch { /* said so */ }
  say("note", said);
}

document.querySelectorAll(".x").forEach(readable);
document.querySelectorAll("[data-open]").forEach(button => { button.hidden = false; });
find("cancel")?.addEventListener("close", ({target}) => {
  if (target.returnValue === "yes") cancel();
  target.returnValue = "";  // Esc leaves it as it is
});
watch();
document.addEventListener("visibilitychange", () => {  // a browser has few connections to a node: a page that nobody sees needs none
  if (document.hidden) source.close();
  else if (!asking && source.readyState === EventSource.CLOSED && (!job || OPEN.includes(job.state))) watch();
});
setInterval(() => { if (job && OPEN.includes(job.state)) lanes(); }, 1000);
