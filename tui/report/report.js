"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

// --- quantities, as profiler/units writes them

function digits(value) {
  const size = Math.abs(value);
  if (size < 5e-7) return "0";
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  const places = Math.max(0, 2 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(places, 6));
}

function time(ns) {
  for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(ns) >= 0.9995 * scale) return `${digits(ns / scale)} ${unit}`;
  }
  return `${digits(ns)} ns`;
}

function ratio(x) {
  return x < 10 ? `${x.toFixed(2)}x` : x < 100 ? `${x.toFixed(1)}x` : ">100x";
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// --- light and dark

function themes() {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const show = () => {
    button.textContent = dark() ? "light" : "dark";
    button.setAttribute("aria-label", `show this page ${button.textContent}`);
    document.dispatchEvent(new Event("theme"));
  };
  button.hidden = false;
  button.onclick = () => { root.dataset.theme = dark() ? "light" : "dark"; show(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

// --- what if

// Where `value` lies in `levels`, which fall: the level before it, and how far from there to the next.
function place(levels, value) {
  let at = 0;
  while (at < levels.length - 2 && value <= levels[at + 1]) at++;
  return [at, (levels[at] - value) / (levels[at] - levels[at + 1])];
}

function between(low, high, part) {
  return low + (high - low) * part;
}

// The step, ms, with `values[i]` of row i's time left.
function stepWith(grid, values) {
  const at = values.map(value => place(grid.levels, value));
  const alone = i => between(grid.alone[i][at[i][0]], grid.alone[i][at[i][0] + 1], at[i][1]);
  const pair = (i, j) => {
    const table = grid.pairs[`${i},${j}`], [row, down] = at[i], [column, right] = at[j];
    const line = one => between(table[one][column], table[one][column + 1], right);
    return between(line(row), line(row + 1), down);
  };
  const moved = values.flatMap((value, i) => value < 1 ? [i] : []);
  let step = grid.base;
  for (const i of moved) step += alone(i) - grid.base;
  for (const i of moved) for (const j of moved) {
    if (i < j) step += pair(i, j) - alone(i) - alone(j) + grid.base;
  }
  return Math.max(step, 0);
}

function basis(grid, values) {
  const moved = values.filter(value => value < 1);
  if (moved.length > 2) return "added up from replays of each two rows";
  return moved.every(value => grid.levels.includes(value)) ? "by replay" : "interpolated between replays";
}

function whatif(grid) {
  const slot = document.getElementById("sliders");
  if (!slot || grid.withheld) return;
  const sliders = grid.rows.map((row, i) => {
    const input = element("input", {type: "range", min: 0, max: 100, step: 5, value: 0, id: `row${i}`});
    return {input, told: element("output", {htmlFor: `row${i}`})};
  });
  const answer = element("div", {className: "answer"});
  answer.setAttribute("aria-live", "polite");
  const reset = element("button", {type: "button", textContent: "reset"});
  const show = () => {
    const values = sliders.map(one => (100 - one.input.value) / 100);
    sliders.forEach((one, i) => { one.told.value = faster(values[i]); });
    const step = stepWith(grid, values), off = grid.off, moved = values.some(value => value < 1);
    answer.replaceChildren(
      element("b", {textContent: `${time(grid.base * 1e6)} → ${time(step * 1e6)}`, id: "step"}),
      moved ? `  ${step > 0 ? ratio(grid.base / step) : "gone"}, ${time((grid.base - step) * 1e6)} a step gained, ${basis(grid, values)}` : "  nothing is changed",
      bars(grid.base, step),
      element("p", {textContent: moved ? `between ${time(step * 1e6 * Math.max(1 - off, 0))} and ${time(step * 1e6 * (1 + off))}, by the replay's own errors${grid.noise_known ? " and the noise" : "; the noise was not measured"}` : ""}),
      moved ? element("p", {}, element("code", {textContent: command(grid, values)})) : "",
    );
    answer.dataset.ms = step;
  };
  sliders.forEach(one => { one.input.oninput = show; });
  reset.onclick = () => { sliders.forEach(one => { one.input.value = 0; }); show(); };
  const rows = grid.rows.map((row, i) => element("div", {className: "slider"},
    element("label", {htmlFor: `row${i}`}, swatch(row.hue), row.label), sliders[i].input, sliders[i].told));
  slot.replaceChildren(...rows, reset, answer);
  show();
}

function faster(left) {
  if (left === 1) return "as it is";
  return left === 0 ? "gone" : `${ratio(1 / left)} as fast, ${Math.round(100 * left)} % left`;
}

function command(grid, values) {
  const settings = grid.rows.flatMap((row, i) => {
    if (values[i] === 1) return [];
    const setting = `${row.key}=${values[i] === 0 ? 0 : `${+(1 / values[i]).toFixed(3)}x`}`;
    return [`--set ${/^[\w:.=-]+$/.test(setting) ? setting : `'${setting.replaceAll("'", "'\\''")}'`}`];
  });
  return `${grid.command} ${settings.join(" ")}`;
}

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function swatch(hue) {
  return svg("svg", {class: "swatch", viewBox: "0 0 8 8"}, svg("rect", {width: 8, height: 8, class: `hue${hue}`}));
}

function bars(base, step) {
  const most = Math.max(base, step);
  return svg("svg", {class: "stack", viewBox: "0 0 1000 10", preserveAspectRatio: "none"},
    svg("rect", {width: 1000 * base / most, height: 10, class: "hue0", opacity: 0.45}),
    svg("rect", {width: 1000 * step / most, height: 10, class: "hue1"}));
}

// --- the timeline

const SPAN = 16, RULER = 20, CAPTIONS = 90, NARROW = 560, STEPS = 8;
const LETTER = 6.1, FEWEST = 8;  // width of a letter, and how many of a name say something

// Marks of a lane with their times, and what is known of those that are several spans.
function unpacked(lane) {
  const start = new Float64Array(lane.ns.length), end = new Float64Array(lane.ns.length);
  let at = 0;
  lane.ns.forEach((ns, i) => { start[i] = at + lane.gap[i]; at = end[i] = start[i] + ns; });
  return {...lane, start, end, several: new Map(lane.several.map(([i, count, busy]) => [i, {count, busy}]))};
}

// The first mark that ends after `at`.
function firstAfter(lane, at) {
  let low = 0, high = lane.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.end[middle] > at) high = middle; else low = middle + 1;
  }
  return low;
}

function timeline(trace) {
  const slot = document.getElementById("lanes");
  if (!slot) return;
  const lanes = trace.lanes.map(unpacked), whole = {start: 0, end: trace.ns};
  const canvas = element("canvas", {tabIndex: 0}), readout = element("div", {className: "readout"}), shown = element("span");
  const shades = element("div", {hidden: true}), pen = canvas.getContext("2d");
  let view = {...whole}, picked = {lane: 0, mark: -1}, colours = {}, margin = CAPTIONS, pitch = 22;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "timeline: plus and minus zoom, arrows move, brackets go from span to span");
  readout.setAttribute("aria-live", "polite");

  const width = () => canvas.clientWidth - margin;
  const x = at => margin + (at - view.start) / (view.end - view.start) * width();
  const at = x => view.start + (x - margin) / width() * (view.end - view.start);

  function show(start, end) {
    const ns = Math.min(Math.max(end - start, 200), whole.end), first = Math.min(Math.max(start, 0), whole.end - ns);
    view = {start: first, end: first + ns};
    draw();
  }
  function zoom(by, centre = (view.start + view.end) / 2) {
    show(centre - (centre - view.start) * by, centre + (view.end - centre) * by);
  }
  function move(by) {
    const ns = (view.end - view.start) * by;
    show(view.start + ns, view.end + ns);
  }

  function readColours() {
    const probe = name => { shades.className = name; return getComputedStyle(shades).color; };
    const style = getComputedStyle(document.body);
    colours = {hues: [0, 1, 2, 3, 4, 5, 6].map(hue => probe(`hue${hue}`)), ink: style.color, paper: style.backgroundColor, soft: getComputedStyle(shown).color};
  }

  function draw() {
    const scale = devicePixelRatio || 1, wide = canvas.clientWidth;
    [margin, pitch] = wide < NARROW ? [0, 34] : [CAPTIONS, 22];  // a caption beside its lane, or above it
    const high = RULER + pitch * lanes.length;
    canvas.width = wide * scale;
    canvas.height = high * scale;
    canvas.style.height = `${high}px`;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    ruler(high);
    lanes.forEach(drawLane);
    shown.textContent = `${time(view.end - view.start)} of ${time(trace.ns)}`;
    canvas.dataset.start = view.start;
    canvas.dataset.end = view.end;
  }

  function ruler(high) {
    const ns = view.end - view.start, rough = ns / Math.max(width() / 110, 1), power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map(step => step * power).find(step => step >= rough);
    pen.fillStyle = colours.soft;
    for (let stamp = Math.ceil(view.start / tick) * tick; stamp < view.end; stamp += tick) {
      pen.globalAlpha = 0.25;
      pen.fillRect(Math.round(x(stamp)), 12, 1, high);
      pen.globalAlpha = 1;
      if (x(stamp) + 50 < canvas.clientWidth) pen.fillText(stamp === 0 ? "0" : time(stamp), x(stamp) + 3, 7);
    }
    for (const step of trace.steps) {
      if (step.at < view.start || step.at > view.end) continue;
      pen.fillStyle = colours.ink;
      pen.globalAlpha = 0.6;
      pen.fillRect(Math.round(x(step.at)), 0, 1, high);
      pen.globalAlpha = 1;
    }
  }

  function drawLane(lane, row) {
    const top = RULER + (row + 1) * pitch - SPAN - 3;
    let reached = -1;
    for (let i = firstAfter(lane, view.start); i < lane.start.length && lane.start[i] < view.end; i++) {
      const left = Math.max(x(lane.start[i]), margin), right = Math.min(x(lane.end[i]), canvas.clientWidth);
      const drawn = Math.max(right - left, 0.6);
      if (left + drawn - reached < 0.3) continue;
      const many = lane.several.get(i);
      pen.globalAlpha = many ? 0.35 + 0.65 * Math.min(many.busy / (lane.end[i] - lane.start[i]), 1) : 1;
      pen.fillStyle = colours.hues[lane.hue[i]];
      pen.fillRect(left, top, drawn > 3 ? drawn - 0.5 : drawn, SPAN);
      reached = left + drawn;
      label(lane, i, left, drawn, top);
    }
    pen.globalAlpha = 1;
    if (picked.lane === row && picked.mark >= 0) {
      const left = x(lane.start[picked.mark]), right = x(lane.end[picked.mark]);
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 1.5;
      pen.strokeRect(left - 1, top - 1, Math.max(right - left, 1) + 2, SPAN + 2);
    }
    caption(lane, row, top);
  }

  function label(lane, i, left, wide, top) {
    const letters = Math.floor((wide - 8) / LETTER), name = trace.names[lane.name[i]];
    if (letters < Math.min(name.length, FEWEST)) return;
    pen.fillStyle = lane.hue[i] ? colours.paper : colours.ink;
    pen.globalAlpha = 1;
    pen.fillText(name.length > letters ? `${name.slice(0, Math.max(letters - 1, 0))}…` : name, left + 4, top + SPAN / 2 + 0.5);
  }

  function caption(lane, row, top) {
    pen.fillStyle = colours.paper;
    if (margin) pen.fillRect(0, top - 3, margin - 2, pitch);
    pen.fillStyle = picked.lane === row ? colours.ink : colours.soft;
    pen.fillText(lane.label, 0, margin ? top + SPAN / 2 : top - 7);
  }

  // --- what is picked

  function pick(row, mark, follow) {
    const lane = lanes[row];
    picked = {lane: row, mark};
    if (mark >= 0) {
      const many = lane.several.get(mark), ns = lane.end[mark] - lane.start[mark], name = trace.names[lane.name[mark]];
      const told = many ? `${many.count} spans, ${time(many.busy)} in ${time(ns)}, the longest: ${name}` : `${name}, ${time(ns)}`;
      readout.textContent = `${lane.label}, at ${time(lane.start[mark])}: ${told}`;
      const middle = (lane.start[mark] + lane.end[mark]) / 2, half = (view.end - view.start) / 2;
      if (follow && (middle < view.start || middle > view.end)) return show(middle - half, middle + half);
    } else readout.textContent = lane.label;
    draw();
  }

  function pickAt(event) {
    const row = Math.floor((event.offsetY - RULER) / pitch), lane = lanes[row], reach = 2 * (view.end - view.start) / width();
    if (!lane || event.offsetX < margin) return;
    const stamp = at(event.offsetX), mark = firstAfter(lane, stamp - reach);
    if (mark < lane.start.length && lane.start[mark] <= stamp + reach) pick(row, mark, false);
  }

  function next(by) {
    const lane = lanes[picked.lane];
    const from = picked.mark >= 0 ? picked.mark + by : firstAfter(lane, view.start);
    pick(picked.lane, Math.min(Math.max(from, 0), lane.start.length - 1), true);
  }

  function changeLane(by) {
    const row = Math.min(Math.max(picked.lane + by, 0), lanes.length - 1), lane = lanes[row];
    const stamp = picked.mark >= 0 ? lanes[picked.lane].start[picked.mark] : view.start;
    pick(row, Math.min(firstAfter(lane, stamp), lane.start.length - 1), true);
  }

  // --- keys, wheel, pointer, buttons

  const keys = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, whole.end),
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "[": () => next(-1), "]": () => next(1),
    ArrowUp: () => changeLane(-1), ArrowDown: () => changeLane(1),
  };
  canvas.addEventListener("keydown", event => {
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  // Without the focus a wheel scrolls the page, as anywhere on it.
  canvas.addEventListener("wheel", event => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / width());
    else zoom(1.0015 ** event.deltaY, at(event.offsetX));
  }, {passive: false});

  let held = null;
  canvas.addEventListener("pointerdown", event => { held = {x: event.clientX, view}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (!held) return event.pointerType === "mouse" && pickAt(event);
    const ns = (held.x - event.clientX) / width() * (held.view.end - held.view.start);
    if (Math.abs(held.x - event.clientX) > 3) show(held.view.start + ns, held.view.end + ns);
  });
  canvas.addEventListener("pointerup", event => { held = null; pickAt(event); });
  canvas.addEventListener("pointercancel", () => { held = null; });

  const button = (text, label, action) => {
    const made = element("button", {type: "button", textContent: text, onclick: action});
    made.setAttribute("aria-label", label);
    return made;
  };
  slot.replaceChildren(
    element("div", {className: "controls"}, button("+", "zoom in", () => zoom(0.5)), button("−", "zoom out", () => zoom(2)),
      button("←", "earlier", () => move(-0.5)), button("→", "later", () => move(0.5)), button("all", "show all", () => show(0, whole.end)),
      ...(trace.steps.length > 1 ? trace.steps.slice(0, STEPS) : []).map((step, i) => button(`step ${step.number}`, `show step ${step.number}`, () => show(step.at, (trace.steps[i + 1] || {at: whole.end}).at))), shown),
    canvas, readout, shades);
  const redraw = () => { readColours(); draw(); };
  document.addEventListener("theme", redraw);
  new ResizeObserver(draw).observe(canvas.parentElement);
  addEventListener("beforeprint", redraw);
  addEventListener("afterprint", redraw);
  readColours();
  show(0, whole.end);
}

whatif(data.whatif);
timeline(data.timeline);
themes();
