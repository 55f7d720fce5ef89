// Run in the page by test_page.py: what can have the focus, where it is, and how well text can be read.

const seen = (node) => node.checkVisibility({ visibilityProperty: true });

function focusable() {
  const found = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")];
  return found.filter((each) => seen(each) && !each.disabled && each.tabIndex >= 0 && !each.closest("[inert]"));
}

const reached = new Set();
const unseen = [];
const named = (node) => node.outerHTML.slice(0, 80);

// Note what has the focus, and whether the user can see that it has.
function noteFocus() {
  const each = document.activeElement;
  if (each === document.body) return;
  reached.add(each);
  const hasRing = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  if (!hasRing(getComputedStyle(each)) && !hasRing(getComputedStyle(each, "::after"))) unseen.push(`no ring: ${named(each)}`);
  const header = document.querySelector("body > header");
  if (header.contains(each) || each.matches(".skip")) return;
  if (each.getBoundingClientRect().bottom < header.getBoundingClientRect().bottom) unseen.push(`behind the header: ${named(each)}`);
}

const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });

function rgba(colour) {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}

const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];

function behind(node) {
  const layers = [];
  for (let each = node; each; each = each.parentElement) {
    layers.push(rgba(getComputedStyle(each).backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
}

// The ratio of WCAG 2.
function ratio(one, other) {
  const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

// Each piece of text that can be seen: how many there are, and those below 4.5.
function faintText() {
  const faint = [];
  const check = (node, colour, text) => {
    const below = behind(node);
    const [r, g, b, own] = rgba(colour);
    let a = own;
    for (let each = node; each; each = each.parentElement) a *= Number(getComputedStyle(each).opacity);
    const found = ratio(over([r, g, b, a], below), below);
    if (found < 4.5) faint.push(`${text.trim().slice(0, 40)}: ${found.toFixed(2)}`);
  };
  const isRead = (node) => seen(node) && !node.closest("[inert], .visually-hidden, option, :disabled, script");
  let number = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data, node = walker.currentNode.parentElement;
    if (!text.trim() || !isRead(node)) continue;
    number += 1;
    check(node, getComputedStyle(node).color, text);
  }
  for (const node of [...document.querySelectorAll("input, select")].filter(isRead)) {
    check(node, getComputedStyle(node).color, node.value || node.name);
    check(node, getComputedStyle(node, "::placeholder").color, node.placeholder || node.name);
  }
  return [number, faint];
}

Object.assign(window, { focusable, noteFocus, faintText, reached, unseen, named });
