// Draws the curves of the metrics and the time line of the restarts as SVG. Texts are inserted as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 320, HIGH = 150, BOTTOM = 18, TOP = 8, RIGHT = 8;
const LETTER = 7;  // as wide as no digit of the labels

function svg(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text) made.textContent = text;
  return made;
}

function short(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  return size >= 1e5 || size < 1e-3 ? number.toExponential(1) : String(Number(number.toPrecision(4)));
}

function scale(values, from, to) {
  const low = Math.min(...values), high = Math.max(...values);
  const span = high - low || 1;
  const place = (value) => from + (high === low ? 0.5 : (value - low) / span) * (to - from);
  return { low, high, place };
}

// One metric: `points` is [[x, value], …] in the order of time, `restarts` are values of x.
function drawCurve(name, points, restarts, unit) {
  const y = scale(points.map((each) => each[1]), HIGH - BOTTOM, TOP);
  const left = 8 + LETTER * Math.max(short(y.low).length, short(y.high).length);
  const x = scale(points.map((each) => each[0]), left, WIDE - RIGHT);
  const last = points[points.length - 1][1];
  const text = `${name}: last ${short(last)}, least ${short(y.low)}, most ${short(y.high)}, ` +
    `${unit} ${short(x.low)} to ${short(x.high)}, ${restarts.length} restart${restarts.length === 1 ? "" : "s"}`;
  const drawing = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": text });
  drawing.append(svg("path", { class: "axis", d: `M${left} ${TOP}V${HIGH - BOTTOM}H${WIDE - RIGHT}` }));
  for (const [value, anchor] of [[y.high, TOP + 8], [y.low, HIGH - BOTTOM]]) {
    drawing.append(svg("text", { x: left - 4, y: anchor, "text-anchor": "end" }, short(value)));
    if (y.high === y.low) break;
  }
  drawing.append(svg("text", { x: left, y: HIGH - 5 }, `${unit} ${short(x.low)}`));
  if (x.high !== x.low) drawing.append(svg("text", { x: WIDE - RIGHT, y: HIGH - 5, "text-anchor": "end" }, short(x.high)));
  for (const restart of restarts) {
    if (restart < x.low || restart > x.high) continue;
    const mark = svg("path", { class: "restart", d: `M${x.place(restart).toFixed(1)} ${TOP}V${HIGH - BOTTOM}` });
    mark.append(svg("title", {}, `restart at ${unit} ${short(restart)}`));
    drawing.append(mark);
  }
  const line = points.map((each, at) => `${at ? "L" : "M"}${x.place(each[0]).toFixed(1)} ${y.place(each[1]).toFixed(1)}`);
  drawing.append(svg("path", { class: "curve", d: line.join("") }));
  const [endX, endY] = points[points.length - 1];
  drawing.append(svg("circle", { class: "point", cx: x.place(endX), cy: y.place(endY), r: 2.5 }));
  const figure = document.createElement("figure"), caption = document.createElement("figcaption");
  caption.textContent = `${name} ${short(last)}`;
  figure.append(caption, drawing);
  return figure;
}

// The restarts, and other marks, between the begin of the job and its end, or now, in a drawing so wide.
function drawTimeline(begin, end, marks, wide) {
  const width = Math.max(200, wide), middle = 16;
  const place = (time) => 8 + Math.min(1, Math.max(0, (time - begin) / (end - begin || 1))) * (width - 16);
  const restarts = marks.filter((each) => each.restart).length;
  const [from, to] = [begin, end].map((time) => new Date(time).toLocaleString([], { dateStyle: "short", timeStyle: "short" }));
  const text = `${restarts} restart${restarts === 1 ? "" : "s"} between ${from} and ${to}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} 40`, role: "img", "aria-label": text });
  drawing.append(svg("path", { class: "axis", d: `M8 ${middle}H${width - 8}` }));
  for (const mark of marks) {
    const dot = svg("circle", { class: mark.restart ? "dot" : "dot other", cx: place(mark.at).toFixed(1), cy: middle, r: 5 });
    dot.append(svg("title", {}, mark.text));
    drawing.append(dot);
  }
  drawing.append(svg("text", { x: 8, y: 36 }, from));
  drawing.append(svg("text", { x: width - 8, y: 36, "text-anchor": "end" }, to));
  return drawing;
}
