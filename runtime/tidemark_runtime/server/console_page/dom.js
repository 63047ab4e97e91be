// Makes elements. Whatever comes from the server becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
  return made(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}) {
  return made(document.createElementNS(SVG, name), attributes, []);
}

// Replaces all children.
export function fill(parent, ...children) {
  parent.replaceChildren(...children);
}

// Whether text within it is selected: made anew, it could not be copied. A selection of the whole page does not count.
export function isSelected(element) {
  const { isCollapsed, anchorNode, focusNode } = getSelection();
  return !isCollapsed && element.contains(anchorNode) && element.contains(focusNode);
}

// Text, with what stands in `backquotes` as code.
export function rich(text) {
  return text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : document.createTextNode(part)));
}

// Only when it differs, so that a selection of the text stays.
export function put(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

// Reads `text` aloud where a screen reader runs, when `key` is another than before: not at every new number.
export function announce(key, text) {
  const region = byId("announce");
  if (region.dataset.key !== key) {
    region.dataset.key = key;
    region.textContent = text;
  }
}

export function byId(id) {
  return document.getElementById(id);
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
