// What of the page in view is hard to read, or has no name, or is wider than the window.
() => {
  const rgb = (text) => text.match(/[\d.]+/g).map(Number);
  const linear = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour[3] !== 0) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim();
    const node = walk.currentNode.parentElement;
    const seen = node.checkVisibility() && node.getBoundingClientRect().width > 2;
    if (!text || !seen || node.closest(":disabled")) continue;
    const both = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const [a, b] = both.sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) pale.push(text.slice(0, 30));
  }
  const controls = [...document.querySelectorAll("input, select, textarea, button, a[href]")];
  const nameless = controls.filter((node) => node.checkVisibility()
    && !node.getAttribute("aria-label") && !node.labels?.length && !node.textContent.trim());
  const page = document.documentElement;
  return {
    pale, nameless: nameless.map((node) => node.outerHTML),
    wider: Math.max(0, page.scrollWidth - page.clientWidth),
  };
}
