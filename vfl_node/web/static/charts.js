// Charts as SVG, made by calls of the DOM. Across, coordinates are per cent: a chart fits any width, its letters keep their size.
"use strict";
const Charts = (() => {
  const round = value => +value.toFixed(1);
  const digits = value => Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toFixed(3));

  // An element of SVG, or of HTML where the name has no namespace of its own; children are elements or text.
  function svg(name, attributes = {}, ...children) { return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children); }
  function html(name, attributes = {}, ...children) { return fill(document.createElement(name), attributes, children); }
  function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) if (value != null) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // Round values from low to high, about as many as wanted.
  function ticks(low, high, wanted = 4) {
    const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].find(factor => factor * power >= raw * .999) * power, found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) found.push(+value.toFixed(10));
    return found;
  }

  const path = (d, colour, cls = "") => svg("path", {class: cls, stroke: `var(--${colour})`, d});
  const label = (text, cls, x, y) => svg("text", {class: cls, x, y}, text);
  const key = ({name, colour, dash}) => html("span", {},
    svg("svg", {"aria-hidden": "true"}, svg("line", {x1: 0, x2: 18, y1: 5, y2: 5, class: dash, stroke: `var(--${colour})`})), name);

  // series: [{name, colour, dash, points: [[number, value]]}], numbers from 1 to last
  function lines(box, {series, unit, last, high, low, chance, limit, says, h = 140, places = 3}) {
    const shown = series.filter(one => one.points.length), values = shown.flatMap(one => one.points.map(point => point[1]));
    if (limit != null) values.push(limit);
    low = Math.min(low ?? Infinity, ...values); high = Math.max(high ?? -Infinity, ...values);
    if (low === high) high = low + (Math.abs(low) || 1) * .1;
    const across = ticks(low, high);
    low = Math.min(low, across[0]); high = Math.max(high, across.at(-1));
    const X = number => last < 2 ? 50 : round((number - 1) / (last - 1) * 100), Y = value => round((1 - (value - low) / (high - low)) * h);
    const plane = svg("svg", {viewBox: `0 0 100 ${h}`, preserveAspectRatio: "none", width: "100%", height: h}), chart = svg("svg", {height: h + 24}, plane);
    plane.append(path(across.map(value => `M0 ${Y(value)}H100`).join(""), "line", "thin"));
    chart.append(...across.map(value => label(digits(value), "e", -7, Y(value) + 4)));
    for (const number of [1, ...ticks(1, last, 3).filter(tick => tick > last / 12 && tick % 1 === 0)])
      chart.append(label(number > 1 ? digits(number) : `${unit} 1`, number > 1 ? "" : "s", `${X(number)}%`, h + 18));
    if (chance != null) { plane.append(path(`M0 ${Y(chance)}H100`, "edge", "thin d")); chart.append(label("chance", "e", "100%", Y(chance) - 5)); }
    if (limit != null) { plane.append(path(`M0 ${Y(limit)}H100`, "bad", "d")); chart.append(label(`your limit ${limit}`, "s bad", 4, Y(limit) - 5)); }
    const used = [];
    for (const {points, colour, dash} of [...shown].sort((one, other) => other.points.at(-1)[1] - one.points.at(-1)[1])) {
      const [number, value] = points.at(-1), end = `M${X(number)} ${Y(value)}h0`;
      plane.append(path("M" + points.map(point => `${X(point[0])} ${Y(point[1])}`).join("L"), colour, dash), path(end, "card", "ring"), path(end, colour, "spot"));
      let y = Y(value) + 4;
      while (used.some(other => Math.abs(other - y) < 13)) y += 13;
      used.push(y);
      const text = label(value.toFixed(places), "s k", `${X(number)}%`, round(y));
      text.setAttribute("dx", 8);
      chart.append(text);
    }
    const told = shown.map(one => `${one.name} ${one.points.at(-1)[1].toFixed(places)}`).join(", ");
    const figure = html("figure", {class: "c", role: "img", "aria-label": `${says}, now ${told}`}, chart);
    box.replaceChildren(...(shown.length > 1 ? [html("div", {class: "legend"}, ...shown.map(key)), figure] : [figure]));
    box.read = {shown, unit, last, places, plane, figure};
  }

  // The figures under the pointer; arrow keys read them one epoch after the other.
  function readable(box) {
    const show = number => {
      if (!box.read) return;
      const {shown, unit, last, places, plane, figure} = box.read, inner = plane.getBoundingClientRect(), outer = figure.getBoundingClientRect();
      box.at = number = Math.max(1, Math.min(last, number));
      const told = shown.map(({points}) => points.findLast(point => point[0] <= number)?.[1].toFixed(places) ?? "–").join(" · ");
      const tip = html("div", {class: "tip", role: "status"}, `${unit} ${number}: ${told}`);
      tip.style.left = `${inner.left - outer.left + (number - 1) / Math.max(1, last - 1) * inner.width}px`;
      figure.querySelector(".tip")?.remove();
      figure.append(tip);
    };
    const hide = () => box.querySelector(".tip")?.remove();
    box.addEventListener("pointermove", event => {
      if (!box.read) return;
      const inner = box.read.plane.getBoundingClientRect();
      show(1 + Math.round((event.clientX - inner.left) / inner.width * (box.read.last - 1)));
    });
    box.addEventListener("pointerleave", hide);
    box.addEventListener("blur", hide);
    box.addEventListener("keydown", event => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (step) { event.preventDefault(); show((box.at ?? box.read?.last ?? 1) + step); }
    });
  }
  return {html, svg, lines, readable};
})();
