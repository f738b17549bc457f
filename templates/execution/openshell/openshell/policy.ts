// OpenShell's v1 networkPolicies: where the programs of a sandbox may connect to. Nothing else is permitted. This lets the prepared
// Codex reach its provider; add build or download endpoints only when a workflow needs them. A policy holds for the programs that
// it names and for every program that they start: what the agent runs may talk where the agent may.
export const policy = {
  codex: {
    endpoints: [
      { host: "api.openai.com", port: 443, protocol: "rest", access: "read-write", enforcement: "enforce" },
      { host: "auth.openai.com", port: 443, protocol: "rest", access: "read-write", enforcement: "enforce" },
      { host: "chatgpt.com", port: 443, protocol: "rest", access: "read-write", enforcement: "enforce" },
      { host: "ab.chatgpt.com", port: 443, protocol: "rest", access: "read-write", enforcement: "enforce" },
    ],
    binaries: [{ path: "/sandbox/.harness-bootstrap/codex/node_modules/**" }],
  },
};
