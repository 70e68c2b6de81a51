// Creation of elements, and updates of the document that keep focus, scroll position and selection.
// Text becomes only text nodes and attribute values: markup is never parsed.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = Symbol("handlers");
const KEY = Symbol("key");
const VALUE = Symbol("value");
const KEPT = { DETAILS: ["open"], DIALOG: ["open"] }; // attributes that the user changes; updates keep them

/** Create an HTML element. Handlers such as `onclick` are functions. `key` identifies an element among its siblings.
 * `value` is updated with each rendering; `initial` sets only the first value. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Create an SVG element, see `h`. */
export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(node, props, children) {
  const handlers = {};
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") node[KEY] = String(value);
    else if (name === "value") node[VALUE] = String(value);
    else if (name === "initial") node.defaultValue = String(value);
    else if (typeof value === "function") handlers[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  if (node[VALUE] !== undefined && node.nodeName !== "PROGRESS") node.value = node[VALUE]; // a select needs its options first
  else if (node[VALUE] !== undefined) node.setAttribute("value", node[VALUE]);
  Object.assign(node, handlers);
  node[HANDLERS] = handlers;
  return node;
}

/** Update `old` to equal `fresh`, and keep the nodes that are alike. Returns the node that is in the document now. */
export function morph(old, fresh) {
  if (!alike(old, fresh)) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  morphAttributes(old, fresh);
  morphHandlers(old, fresh);
  morphChildren(old, [...fresh.childNodes]);
  if (fresh[VALUE] !== undefined && old.nodeName !== "PROGRESS" && old.value !== fresh[VALUE]) old.value = fresh[VALUE];
  return old;
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a[KEY] === b[KEY];
}

function morphAttributes(old, fresh) {
  const kept = KEPT[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!kept.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function morphHandlers(old, fresh) {
  for (const name of Object.keys(old[HANDLERS] ?? {})) if (!(name in fresh[HANDLERS])) old[name] = null;
  Object.assign(old, fresh[HANDLERS]);
  old[HANDLERS] = fresh[HANDLERS];
}

function morphChildren(parent, wanted) {
  const byKey = new Map();
  for (const child of parent.childNodes) if (child[KEY] !== undefined) byKey.set(child[KEY], child);
  let at = parent.firstChild;
  for (const fresh of wanted) {
    const known = fresh[KEY] === undefined ? at : byKey.get(fresh[KEY]);
    if (known && alike(known, fresh)) {
      if (known === at) at = at.nextSibling;
      else parent.insertBefore(known, at);
      morph(known, fresh);
    } else {
      parent.insertBefore(fresh, at);
      // A node without a key is replaced, not moved down, so that the following nodes stay aligned.
      if (at && at[KEY] === undefined && fresh[KEY] === undefined) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}
