// xterm.js creates style elements, which the Content-Security-Policy forbids. Constructed style
// sheets are allowed, since they cannot be injected as markup, so the styles go into one. Import
// this before xterm.js creates anything.

const create = document.createElement.bind(document);

document.createElement = (name, options) =>
  String(name).toLowerCase() === "style" ? adoptedStyle() : create(name, options);

function adoptedStyle() {
  const sheet = new CSSStyleSheet();
  const element = create("span", undefined);
  element.hidden = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperties(element, {
    textContent: { get: () => "", set: (text) => sheet.replaceSync(text) },
    innerText: { get: () => "", set: (text) => sheet.replaceSync(text) },
    sheet: { get: () => sheet },
    remove: {
      value() {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
        Element.prototype.remove.call(element);
      },
    },
  });
  return element;
}

// xterm.js also sets style attributes (24-bit colours, the selection), which the policy forbids.
// Setting the same style through the object model is allowed.
const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  if (String(name).toLowerCase() === "style") this.style.cssText = value;
  else setAttribute.call(this, name, value);
};
