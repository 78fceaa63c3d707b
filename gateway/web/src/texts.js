// What scripts say, in the page's language: the server has put the texts into the page, from
// gateway/pages/languages. Whatever they are filled with stays as it is.

const texts = JSON.parse(document.body.dataset.texts ?? "{}");

/** The page's language as the browser has it, with its region: so times look as everywhere else. */
const { lang } = document.documentElement;
export const language = navigator.languages.find((one) => one.split("-")[0] === lang) ?? (lang || undefined);

/** Return the text of a name, such as "link.lost", with values in the places that it names. */
export function text(name, values = {}) {
  const found = Object.hasOwn(texts, name) ? texts[name] : name;
  return found.replace(/\{(\w+)\}/g, (place, key) => (Object.hasOwn(values, key) ? String(values[key]) : place));
}
