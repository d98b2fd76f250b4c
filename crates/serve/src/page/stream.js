// Server-sent events over fetch: unlike EventSource it can send the token in a header, so the token is in no address and no log.
// A stream that ends, fails or sends nothing is opened again, from its last event.

const READ_TIMEOUT = 15000;
const RETRY_INTERVALS = [250, 500, 1000, 2000, 4000, 8000];

export function stream(path, token, handlers) {
  let stopped = false, place = null, failures = 0, abort = null, wake = null;

  async function once() {
    abort = new AbortController();
    let watchdog = setTimeout(() => abort.abort(), READ_TIMEOUT);
    const headers = { "X-Plimsoll-Token": token, Accept: "text/event-stream" };
    if (place) headers["Last-Event-ID"] = place;
    try {
      const response = await fetch(path, { headers, signal: abort.signal, cache: "no-store" });
      if (response.status === 401) { handlers.refused(); stopped = true; return; }
      if (!response.ok) throw new Error(`the server answers ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Error("the stream ended");
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), READ_TIMEOUT);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) take(part);
        failures = 0;
        handlers.state("live");
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  function take(text) {
    let name = "message", data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("id: ")) place = line.slice(4);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (name !== "beat") handlers.event(name, JSON.parse(data));
  }

  (async () => {
    while (!stopped) {
      try { await once(); } catch { /* retried below */ }
      if (stopped) return;
      const pause = RETRY_INTERVALS[Math.min(failures, RETRY_INTERVALS.length - 1)];
      failures += 1;
      handlers.state("lost", pause);
      await new Promise((done) => { wake = done; setTimeout(done, pause); });
    }
  })();

  return {
    stop() { stopped = true; if (abort) abort.abort(); },
    // The machine woke up or the network came back: do not wait for the pause to end.
    nudge() { if (wake) wake(); },
  };
}
