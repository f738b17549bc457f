// A policy in a file of its own: its fields are plain strings, so nothing needs `as const` or an annotation.
export const policy = {
  provider: {
    name: "provider",
    endpoints: [{ host: "api.example.com", port: 443, protocol: "rest", enforcement: "enforce", access: "full" }],
    binaries: [{ path: "/sandbox/bin/agent" }],
  },
};
