import type { AgentExecution } from "@laufwerk/execution/local";
import { cacheDirectory, makeTarget } from "@laufwerk/internal/targets";

/** OpenShell's v1 networkPolicies, in the camelCase of its TypeScript SDK; plain strings, checked when constructed. */
export interface NetworkPolicies {
  readonly [name: string]: {
    readonly name?: string;
    readonly endpoints: readonly {
      readonly host?: string; readonly port?: number; readonly ports?: readonly number[]; readonly protocol?: string;
      readonly enforcement?: string; readonly access?: string; readonly tls?: string; readonly [field: string]: unknown;
    }[];
    readonly binaries: readonly { readonly path: string }[];
  };
}

/** Sessions run in sandboxes of an OpenShell gateway of this host, one each: with hard file rules, and a network policy. */
export function createOpenShellExecution(options: {
  id: string; gateway: string; credentials: { kind: "codex-subscription"; provider: string }; policy: NetworkPolicies;
  resources?: { cpus?: number; memoryBytes?: number }; image?: string; imageCacheDirectory?: string;
}): AgentExecution {
  return makeTarget("openshell", cacheDirectory(options));
}
