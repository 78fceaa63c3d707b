// xterm.js writes style elements, which our Content-Security-Policy forbids. Style sheets that a
// script constructs are allowed (they are no markup that could be injected), so what it writes is
// put into one. Import this before xterm.js makes anything.

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

// It also writes style attributes (24-bit colours, what is selected), which the policy forbids as
// well. Through the object model the same is allowed.
const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  if (String(name).toLowerCase() === "style") this.style.cssText = value;
  else setAttribute.call(this, name, value);
};
