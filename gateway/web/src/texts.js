// The texts of the scripts, in the page's language. The server puts them into the page, from
// gateway/pages/languages. Values are inserted unchanged.

const texts = JSON.parse(document.body.dataset.texts ?? "{}");

/** The page's language with the browser's region, which decides how times are written. */
const { lang } = document.documentElement;
export const language = navigator.languages.find((one) => one.split("-")[0] === lang) ?? (lang || undefined);

/** Returns the text of a name, such as "link.lost", with values filled in. */
export function text(name, values = {}) {
  const found = Object.hasOwn(texts, name) ? texts[name] : name;
  return found.replace(/\{(\w+)\}/g, (place, key) => (Object.hasOwn(values, key) ? String(values[key]) : place));
}
