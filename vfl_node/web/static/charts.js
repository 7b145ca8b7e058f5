// Curves as SVG. report/curves.py writes the same markup into reports: tests/test_curves.py compares them.
"use strict";
const Charts = (() => {
  const MOST_DOTS = 20, LETTERS = 13, SIZES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const place = value => +value.toFixed(1), count = number => number.toLocaleString("en");
  const scale = (low, high, start, end) => value => start + (value - low) / (high - low) * (end - start);

  // A value in so many digits: 0.123, 12.3k, 1.23e-7.
  function write(value, digits = 3) {
    const largest = Math.abs(value), [size, sign] = SIZES.find(([size]) => largest >= 10 * size && largest < 1e13) ?? [1, ""];
    const short = +(value / size).toPrecision(digits), far = short && (Math.abs(short) < 1e-4 || Math.abs(short) >= 1e13);
    return (far ? short.toExponential() : short) + sign;
  }

  // An element of SVG, or of HTML where the name has no namespace of its own; children are elements or text.
  const svg = (name, ...parts) => fill(document.createElementNS("http://www.w3.org/2000/svg", name), ...parts);
  const html = (name, ...parts) => fill(document.createElement(name), ...parts);
  function fill(element, attributes = {}, ...children) {
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // Round values, about as many as wanted, that enclose low and high.
  function ticks(low, high, about = 5) {
    const largest = Math.max(Math.abs(low), Math.abs(high));
    let span = high - low;
    if (span <= 1e-9 * Math.max(largest, 1e-9)) span = largest > 1e-9 ? largest : 1;
    const raw = span / about, exponent = +raw.toExponential().split("e")[1], power = +`1e${exponent}`;
    const step = [1, 2, 5, 10].map(factor => factor * power).find(step => step >= raw * (1 - 1e-9));
    const first = Math.floor(low / step + 1e-9), last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
    return Array.from({length: last - first + 1}, (_, index) => +((first + index) * step).toFixed(Math.max(0, -exponent)));
  }

  const text = (words, style, x, y, more) => svg("text", {class: style, x, y: place(y), ...more}, words);
  const path = (style, d) => svg("path", {class: style, d});
  const dash = style => svg("line", {class: `curve ${style}`, x1: 0, x2: 18, y1: 5, y2: 5});
  const key = ({name, style}) => html("span", {}, svg("svg", {"aria-hidden": "true"}, dash(style)), name);
  const at = ([number, value]) => `${write(value)} at ${count(number)}`;
  const told = ({name, points}) => `${name} ${points.length > 1 ? `from ${at(points[0])} to ` : ""}${at(points.at(-1))}`;

  // lines: [{name, style, points: [[number, value]]}], numbers from 1 to last, at least one point in each.
  function lineChart(box, {name, title, lines, unit, last, reach = [], chance = null, limit = null, height = 140}) {
    const values = [...reach, ...lines.flatMap(line => line.points.map(point => point[1]))];
    values.push(...[chance, limit].filter(value => value !== null));
    const levels = ticks(Math.min(...values), Math.max(...values)), across = number => `${place(x(number))}%`;
    const x = scale(1, Math.max(last, 2), 0, 100), y = scale(levels[0], levels.at(-1), height, 0);
    const label = `${title} by ${unit}: ${lines.map(told).join("; ")}.`;
    const size = {viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", width: "100%", height, overflow: "visible"};
    const plane = svg("svg", size), chart = svg("svg", {height: height + 24}, plane);

    plane.append(path("grid", levels.map(level => `M0 ${place(y(level))}H100`).join("")));
    chart.append(...levels.map(level => text(write(level, 6), "tick end", -7, y(level) + 4)));
    chart.append(text(`${unit} 1`, "tick", 0, height + 18));
    for (const tick of ticks(1, last, 4))
      if (tick % 1 === 0 && tick <= last && 4 * (tick - 1) >= last - 1 && last > 1)  // clear of the first
        chart.append(text(count(tick), "tick middle", across(tick), height + 18));
    const marks = lines.map(({points, style}) => [...points.at(-1), write(points.at(-1)[1]), `value ${style}`]);
    if (chance !== null) {
      plane.append(path("guide", `M0 ${place(y(chance))}H100`));
      marks.push([Math.max(last, 2), chance, "chance", "tick"]);
    }
    if (limit !== null) {
      const side = y(limit) < LETTERS ? LETTERS : -5;  // below the line where it is the top one
      plane.append(path("guide bound", `M0 ${place(y(limit))}H100`));
      chart.append(text(`limit ${write(limit)}`, "tick limit", 4, y(limit) + side));
    }

    for (const {name, style, points} of lines) {
      const track = points.map(([number, value]) => `${place(x(number))} ${place(y(value))}`).join("L");
      if (points.length > 1) plane.append(path(`curve ${style}`, `M${track}`));
      for (const [number, value] of points.length > MOST_DOTS ? points.slice(-1) : points) {
        const words = svg("title", {}, `${name}, ${unit} ${count(number)}: ${write(value)}`);
        chart.append(svg("circle", {class: `dot ${style}`, cx: across(number), cy: place(y(value)), r: 3.5}, words));
      }
    }
    let above = -Infinity;
    marks.sort((one, other) => other[1] - one[1]).forEach(([number, value, words, style], rank) => {
      const lowest = height + 4 - (marks.length - 1 - rank) * LETTERS;
      above = Math.min(Math.max(y(value) + 4, above + LETTERS), lowest);  // none upon another, none below the axis
      chart.append(text(words, style, across(number), above, {dx: 8}));
    });

    const figure = html("figure", {class: "chart", id: `${name}-curve`, role: "img", "aria-label": label}, chart);
    const legend = html("div", {class: "legend"}, ...lines.map(key));
    box.replaceChildren(...(lines.length > 1 ? [legend] : []), figure);
    box.read = {lines, unit, last, plane};
  }

  // The figures under the pointer; arrow keys read them one epoch after the other.
  function readable(box) {
    const show = number => {
      if (!box.read) return;
      const {lines, unit, last, plane} = box.read, inner = plane.getBoundingClientRect(), outer = box.getBoundingClientRect();
      box.at = number = Math.max(1, Math.min(last, number));
      const read = ({points}) => points.findLast(point => point[0] <= number)?.[1];
      const seen = lines.map(read).map(value => value === undefined ? "–" : write(value)).join(" · ");
      const tip = html("div", {class: "tip", role: "status"}, `${unit} ${count(number)}: ${seen}`);
      tip.style.left = `${inner.left - outer.left + (number - 1) / Math.max(1, last - 1) * inner.width}px`;
      hide();
      box.append(tip);
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
  return {html, svg, lineChart, readable};
})();
