// What a page shows is in its address, so that a link in a chat shows the same: #/locks?filter=stale&sort=-left.

/** The words of the path, still encoded, and the settings of the page. */
export function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/"), settings: new URLSearchParams(query ?? "") };
}

/** The search of a list: as the address says, else as it was left. */
export function readSearch(state, settings) {
  state.text = settings.get("q") ?? state.text;
}

/** An address with these settings; no value for the default. */
export function address(path, values) {
  const settings = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  return `${path}${settings.size > 0 ? `?${settings}` : ""}`;
}

/** The address of this server, as clients write it. */
export function serverUrl() {
  return location.origin + location.pathname.replace(/\/$/, "");
}

/** Write the settings of this page. No new entry in the browser's history. */
export function writeSettings(values) {
  const hash = address(location.hash.split("?")[0] || "#/locks", values);
  if (location.hash !== hash) {
    history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);
  }
}
