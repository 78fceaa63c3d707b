// Follows a link that is pasted into the address bar of a page that refused another one: only the
// fragment differs, so that the browser itself would load nothing.
addEventListener("hashchange", () => {
  if (new URLSearchParams(location.hash.slice(1)).has("token")) {
    location.replace(`${location.pathname}?again${location.hash}`);
  }
});
