// Elements are made of text nodes only: nothing that a model wrote is ever read as markup.

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  put(node, children);
  return node;
}

function put(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

// Control characters, and those that turn the direction of what follows, are shown, not obeyed.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g;

function visible(text) {
  return text.replace(UNSEEN, (one) => {
    const code = one.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : "\ufffd";
  });
}

/** Make an HTML element: attributes, `onclick` and the like, then children. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** Make an SVG element. */
export const s = (tag, props, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

const MARKS = new Set(
  "p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td".split(" "),
);

/** Elements of a tree of rendered Markdown: these by name alone, everything else is text. */
export const grow = (tree) =>
  tree.map((one) => {
    if (typeof one === "string") return one;
    const [tag, children, start] = one;
    if (!MARKS.has(tag)) return null;
    return h(tag, tag === "ol" && Number.isInteger(start) ? { start } : null, grow(children));
  });

/** Put children in the place of what a node holds. */
export function set(node, ...children) {
  node.replaceChildren();
  put(node, children);
  return node;
}

/** Tell a screen reader. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** Return a value kept in this browser, and keep one. */
export function kept(name, fallback) {
  try {
    return localStorage.getItem("convbench." + name) ?? fallback;
  } catch {
    return fallback;
  }
}
export function keep(name, value) {
  try {
    localStorage.setItem("convbench." + name, value);
  } catch {
    /* storage is off */
  }
}
