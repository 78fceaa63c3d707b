// What the gateway says of this host's session right now.

/**
 * Resolves to {status, state, message, code}; status 0 when the gateway cannot be reached.
 */
export async function fetchState() {
  try {
    const answer = await fetch("/.fumarole/state", {
      cache: "no-store",
      credentials: "same-origin",
      headers: { Accept: "application/json" },
      signal: AbortSignal.timeout(10_000),
    });
    return { status: answer.status, ...(await answer.json()) };
  } catch {
    return { status: 0 };
  }
}

/**
 * Resolves to {status} of this very page; a redirect counts as 302.
 */
export async function fetchPage() {
  try {
    const answer = await fetch(location.href, {
      method: "HEAD",
      cache: "no-store",
      credentials: "same-origin",
      redirect: "manual",
      signal: AbortSignal.timeout(10_000),
    });
    return { status: answer.type === "opaqueredirect" ? 302 : answer.status };
  } catch {
    return { status: 0 };
  }
}

export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
