// Addresses: #/overview, #/list?filters, #/c/ID?filters, #/compare/ID. All of them can be kept.

export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, id] = path.split("/");
  return {
    page: page || "overview",
    id: id ? decoded(id) : null,
    params: new URLSearchParams(query ?? ""),
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // cut off in the middle of a character: no conversation has such an id
  }
}

export function link(page, id, params) {
  const query = params?.toString();
  return `#/${page}${id ? "/" + encodeURIComponent(id) : ""}${query ? "?" + query : ""}`;
}

export const go = (page, id, params) => {
  location.hash = link(page, id, params);
};

/** Change the address without a new entry in the history, and show it. */
export function replace(page, id, params) {
  history.replaceState(null, "", link(page, id, params));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** A copy of parameters with some set; an empty value takes one away. */
export function changed(params, values) {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    for (const one of [value].flat()) if (one !== "" && one !== null) next.append(name, one);
  }
  return next;
}
