// Small charts as SVG. Points are numbers, oldest first.
const NS = "http://www.w3.org/2000/svg";

function shape(name, attributes) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function canvas(words) {
  return shape("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": words });
}

// A line from 0 to the greatest value, at least `least`, the newest at the right.
export function spark(holder, values, least, words) {
  const svg = canvas(words);
  const most = Math.max(least, ...values);
  const x = (i) => (values.length > 1 ? (i * 100) / (values.length - 1) : 100);
  const y = (value) => 96 - (value / most) * 90;
  const line = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(2)} ${y(value).toFixed(2)}`).join("");
  if (values.length > 1) {
    svg.append(shape("path", { class: "area", d: `${line}L100 100L${x(0).toFixed(2)} 100Z` }), shape("path", { d: line }));
  }
  holder.replaceChildren(svg);
}

// Ranks over time as steps; rank 1 at the top.
export function ranks(holder, points, words) {
  if (points.length < 2) {
    holder.replaceChildren();
    return;
  }
  const svg = canvas(words);
  const times = points.map((point) => point.at);
  const [begin, end] = [times[0], times[times.length - 1]];
  const logs = points.map((point) => Math.log(point.rank));
  const [best, worst] = [Math.min(...logs), Math.max(...logs)];
  const x = (at) => 2 + (end > begin ? ((at - begin) / (end - begin)) * 96 : 0);
  const y = (value) => (worst > best ? 8 + ((value - best) / (worst - best)) * 80 : 48);
  let line = "";
  points.forEach((point, i) => {
    const [px, py] = [x(point.at).toFixed(2), y(logs[i]).toFixed(2)];
    line += i ? `H${px}V${py}` : `M${px} ${py}`;
  });
  svg.append(shape("path", { class: "area", d: `${line}V100H2Z` }), shape("path", { d: line }));
  holder.replaceChildren(svg);
}
