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

export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
