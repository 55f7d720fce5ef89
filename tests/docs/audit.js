// What is wrong with the page that is shown, as a list of texts. The tests evaluate it in the browser.
(async () => {
  const LONGEST_LINE = 80; // characters of prose
  const found = [];
  await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));

  await Promise.all([...document.images].map((image) => {
    image.loading = "eager";
    return image.decode().catch(() => found.push(`does not load: ${image.src}`));
  }));

  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");

  // Only code and pictures of a terminal scroll in a box of their own. Nothing else is cut off, and no table needs to scroll.
  for (const element of document.querySelectorAll("article *")) {
    const box = element.getBoundingClientRect();
    if (box.width && box.right > innerWidth + 1 && !element.closest("pre, thead, .terminal")) found.push(`cut off: ${element.tagName} ${element.textContent.trim().slice(0, 40)}`);
  }
  // The button to copy a block lies on none of its text.
  for (const button of document.querySelectorAll("article .md-code__nav")) {
    const on = button.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(button.closest("pre").querySelector("code"));
    const end = button.closest("pre").getBoundingClientRect().right; // what is beyond is scrolled to
    const covers = [...range.getClientRects()].some((box) => Math.min(box.right, end) > on.left + 1 && box.left < on.right - 1 && box.bottom > on.top + 1 && box.top < on.bottom - 1);
    if (on.width && covers) found.push(`a button lies on code: ${range.toString().slice(0, 40)}`);
  }
  // On a phone the rows of a wide table are blocks, whose cells say which column they are of.
  for (const cell of document.querySelectorAll("article tr > td:first-child:nth-last-child(n + 3)")) {
    const labelled = [...cell.parentElement.cells].every((each) => each.hasAttribute("data-label") && each.role === "cell");
    if (!labelled) found.push(`no labels: ${cell.textContent.slice(0, 40)}`);
    if (innerWidth < 720 && getComputedStyle(cell).display === "table-cell") found.push(`not stacked: ${cell.textContent.slice(0, 40)}`);
  }

  // A prose line ends where the next word is further down.
  for (const block of document.querySelectorAll("article :is(p, li, dd)")) {
    if (block.closest("td, pre, svg") || block.querySelector("p, li, pre, table")) continue;
    const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    let line = "", bottom = null;
    while (walker.nextNode()) {
      for (const word of walker.currentNode.data.matchAll(/\S+\s*/g)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, word.index);
        range.setEnd(walker.currentNode, word.index + word[0].trimEnd().length);
        const [box, rest] = range.getClientRects();
        if (!box) continue;
        if (rest && rest.top >= box.bottom) { line = ""; bottom = null; continue; } // broken in the word
        if (bottom !== null && box.top >= bottom) line = "";
        bottom = Math.max(line ? bottom : 0, box.bottom);
        line += word[0].replace(/\s+/g, " ");
        if (line.trimEnd().length > LONGEST_LINE) { found.push(`too wide: ${line}`); line = ""; bottom = null; }
      }
    }
  }

  // Contrast, by the formulas of WCAG 2: 4.5 to 1, or 3 to 1 for large text.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  canvas.canvas.width = canvas.canvas.height = 1;
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, at) => value * a + below[at] * (1 - a));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => value / 255).map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = new Map();
  for (const element of document.querySelectorAll("article *, .md-nav *, .md-tabs *, .md-header *, .md-footer *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const style = getComputedStyle(element);
    if (!own || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.matches(".headerlink, .md-clipboard") || element.closest("svg")) continue;
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const back = behind(element);
    const [light, dark] = [luminance(over(rgba(style.color), back)), luminance(back)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < (large ? 3 : 4.5)) {
      poor.set(`${element.tagName}.${element.className} ${ratio.toFixed(2)} to 1`, element.textContent.trim().slice(0, 40));
    }
  }
  for (const [what, text] of poor) found.push(`contrast of ${what}: ${text}`);
  return found;
})()
