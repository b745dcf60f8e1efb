// Finds all that a reader could not read or reach in a page: each finding is a line of text.
(() => {
  const findings = [];
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const name = (element) => `${element.tagName.toLowerCase()}.${element.getAttribute("class") || ""} "${element.textContent.trim().slice(0, 40)}"`;
  const visible = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getBoundingClientRect().width > 0;

  // Contrast after WCAG 2.1: 4.5 for text, 3 for large text and for what is drawn.
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  const opaque = (color) => color.startsWith("rgb") && !(channels(color).length === 4 && channels(color)[3] < 1);
  const background = (element) => {
    const box = element.closest(".group, .pill, .op");
    if (box) {
      const fill = getComputedStyle(box.querySelector("rect")).fill;
      if (opaque(fill)) return channels(fill);
      return background(box.parentNode.closest(".group"));
    }
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (opaque(color)) return channels(color);
    }
    return [255, 255, 255];
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  for (const element of all("body *").filter(hasText).filter(visible)) {
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const color = element instanceof SVGElement ? style.fill : style.color;
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const found = contrast(channels(color), background(element));
    if (found < least) findings.push(`contrast ${found.toFixed(2)} of ${name(element)}`);
    if (!(element instanceof SVGElement) && size < 11) findings.push(`letters of ${size} px in ${name(element)}`);
  }
  const drawn = [[".fill, .swatch:not(.stage), .meter span", "backgroundColor"], [".curve, .frame-box, .life", "stroke"], [".mark path, .sign-key path, .side", "fill"]];
  for (const [selector, property] of drawn) {
    for (const element of all(selector).filter(visible)) {
      const outside = background(element.closest("svg, li, td, div").parentElement);
      const found = contrast(channels(getComputedStyle(element)[property]), outside);
      if (found < 3) findings.push(`contrast ${found.toFixed(2)} of ${name(element)}`);
    }
  }

  // Nothing is cut off, except in boxes that scroll and say so.
  for (const element of all("body *").filter((element) => element instanceof HTMLElement && visible(element))) {
    const hides = getComputedStyle(element).overflowX !== "visible";
    const isScroll = element.matches(".scroll, .frame, .stages, .meter");
    if (hides && !isScroll && element.scrollWidth > element.clientWidth + 1) findings.push(`cut off: ${name(element)}`);
  }
  for (const box of all(".scroll").filter(visible)) {
    const frame = box.parentNode.classList;
    const more = { right: box.scrollWidth - box.clientWidth - box.scrollLeft > 1, bottom: box.scrollHeight - box.clientHeight - box.scrollTop > 1 };
    for (const side of ["right", "bottom"]) {
      if (frame.contains(`more-${side}`) !== more[side]) findings.push(`wrong shade ${side} of ${box.getAttribute("aria-label")}`);
    }
    const isReached = box.scrollWidth <= box.clientWidth + 1 && box.scrollHeight <= box.clientHeight + 1 || box.tabIndex === 0;
    if (!isReached) findings.push(`no key scrolls ${box.getAttribute("aria-label")}`);
    if (box.querySelector(":scope > table") && more.bottom) findings.push(`half rows in ${box.getAttribute("aria-label")}`);
  }
  for (const text of all("svg.plot text").filter(visible)) {
    const [own, svg] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    if (own.left < svg.left - 1 || own.right > svg.right + 1 || own.bottom > svg.bottom + 1) findings.push(`outside of its chart: ${name(text)}`);
  }
  for (const text of all(".group > text").filter(visible)) {
    const [own, box] = [text.getBoundingClientRect(), text.parentNode.querySelector(".frame-box").getBoundingClientRect()];
    if (own.left < box.left - 1 || own.right > box.right + 1) findings.push(`outside of its group: ${name(text)}`);
  }
  for (const life of all("[data-arena]")) {
    const box = life.getBoundingClientRect();
    if (box.width < 6 || box.height < 5) findings.push(`a sliver of ${box.width} by ${box.height} pixels: ${life.getAttribute("aria-label").slice(0, 40)}`);
  }

  // The graph is whole when the page opens.
  for (const canvas of all(".canvas")) {
    if (canvas.scrollWidth > canvas.clientWidth + 1 || canvas.scrollHeight > canvas.clientHeight + 1) findings.push("the graph does not fit its box");
  }

  // Numbers stand on the right.
  for (const cell of all("td.number").filter(visible)) {
    if (getComputedStyle(cell.firstChild).textAlign !== "right") findings.push(`a number on the left: ${name(cell)}`);
  }
  const focusable = all("button, summary, a, input, [tabindex='0']").filter(visible);
  for (const element of focusable) {
    const isNamed = element.textContent.trim() || element.getAttribute("aria-label") || element.closest("label");
    if (!isNamed) findings.push(`no name: ${element.outerHTML.slice(0, 80)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) findings.push(`the page is ${document.documentElement.scrollWidth} pixels wide in ${innerWidth}`);
  return [...new Set(findings)];
})();
